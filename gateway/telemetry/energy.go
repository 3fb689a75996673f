package telemetry

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// rapl reads the energy that the machine's processors and memory used, as Linux shows
// it under /sys/class/powercap (Documentation/power/powercap). It counts all processes
// of the machine. It has no zones if the files cannot be read; since Linux 5.10 only
// root can.
type rapl struct {
	mu    sync.Mutex
	zones []*zone
}

// zone is one counter. It runs from 0 to span microjoules and begins again after
// minutes to hours, so it must be read more often.
type zone struct {
	name  string // package-0, dram, and so on
	file  string
	span  uint64
	whole bool // no part of another zone
	last  uint64
	taken uint64 // since openRAPL, in microjoules
}

// zonesMax bounds the zones that are read.
const zonesMax = 32

// zoneName matches a zone or a zone within one. intel-rapl-mmio may show the same
// packages again, and psys is the whole machine: they would be counted twice.
var zoneName = regexp.MustCompile(`^intel-rapl:\d+(:\d+)?$`)

func openRAPL(root string) *rapl {
	r := &rapl{}
	entries, err := os.ReadDir(root)
	if err != nil {
		return r
	}
	for _, e := range entries {
		if !zoneName.MatchString(e.Name()) || len(r.zones) == zonesMax {
			continue
		}
		dir := filepath.Join(root, e.Name())
		name, err := os.ReadFile(filepath.Join(dir, "name"))
		z := &zone{name: strings.TrimSpace(string(name)), file: filepath.Join(dir, "energy_uj")}
		var errSpan, errLast error
		z.span, errSpan = readNumber(filepath.Join(dir, "max_energy_range_uj"))
		z.last, errLast = readNumber(z.file)
		if errors.Join(err, errSpan, errLast) != nil || z.name == "psys" {
			continue
		}
		if parent, _, inner := cutLast(e.Name(), ":"); inner && parent != "intel-rapl" {
			z.name = nameOf(r.zones, filepath.Join(root, parent)) + z.name
		}
		z.whole = strings.HasPrefix(z.name, "package-") && !strings.Contains(z.name, "/") || strings.HasSuffix(z.name, "dram")
		r.zones = append(r.zones, z)
	}
	return r
}

// nameOf is the name of the zone in dir, as a prefix for the zones within it.
func nameOf(zones []*zone, dir string) string {
	for _, z := range zones {
		if filepath.Dir(z.file) == dir {
			return z.name + "/"
		}
	}
	return ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func readNumber(file string) (uint64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// joules returns the energy since openRAPL of packages and memory together, which are
// the zones outside all others, and calls each with every zone. A zone that cannot be
// read any more keeps its value.
func (r *rapl) joules(each func(zone string, joules float64)) (total float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, z := range r.zones {
		if now, err := readNumber(z.file); err == nil {
			if now < z.last {
				z.taken += z.span
			}
			z.taken += now - z.last // wraps as the counter does
			z.last = now
		}
		j := float64(z.taken) / 1e6
		if each != nil {
			each(z.name, j)
		}
		if z.whole {
			total += j
		}
	}
	return total
}

func (r *rapl) readable() bool { return len(r.zones) > 0 }
