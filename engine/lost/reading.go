package lost

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

// Reading is what the kernel has counted up to the instant At, in nanoseconds of
// CLOCK_MONOTONIC. What cannot be read is 0.
type Reading struct {
	At int64
	// CPU is the processor time of this process, and Faults its waits for pages
	// that were not in memory.
	CPU    time.Duration
	Faults int64
	// Waited is how long threads of this process were ready to run and had no
	// processor, summed over them; Delayed is false where the kernel does not say.
	Waited  time.Duration
	Delayed bool
	// Pressure is the time in which some task waited for a processor, and Paging
	// for memory or a disk: in our control group, or else on the whole machine.
	Pressure, Paging time.Duration
	// Throttled is the time for which a CPU limit stopped our control group, or one
	// above it, summed over processors.
	Throttled time.Duration
	// Busy and Steal are the times of all processors of the machine in which they
	// ran something, and in which the hypervisor did not let them run.
	Busy, Steal time.Duration
	Processors  int
}

// tick is the unit of /proc/stat on every Linux.
const tick = 10 * time.Millisecond

// groupsMax bounds the control groups on the way to the root that are read, and
// threadsMax the threads.
const (
	groupsMax  = 16
	threadsMax = 1024
)

// Read reads the files of the kernel below root. The caller knows the rest.
func Read(root fs.FS, at int64, cpu time.Duration, faults int64) Reading {
	r := Reading{At: at, CPU: cpu, Faults: faults}
	r.Busy, r.Steal, r.Processors = parseStat(text(root, "proc/stat"))
	r.Waited, r.Delayed = waited(root)
	var pressed bool
	for i, dir := range groups(text(root, "proc/self/cgroup")) {
		if i == groupsMax {
			break
		}
		r.Throttled += parseThrottled(text(root, path.Join(dir, "cpu.stat")))
		if some, ok := parsePressure(text(root, path.Join(dir, "cpu.pressure"))); ok && !pressed {
			pressed, r.Pressure = true, some
			memory, _ := parsePressure(text(root, path.Join(dir, "memory.pressure")))
			disk, _ := parsePressure(text(root, path.Join(dir, "io.pressure")))
			r.Paging = memory + disk
		}
	}
	if !pressed {
		r.Pressure, _ = parsePressure(text(root, "proc/pressure/cpu"))
		memory, _ := parsePressure(text(root, "proc/pressure/memory"))
		disk, _ := parsePressure(text(root, "proc/pressure/io"))
		r.Paging = memory + disk
	}
	return r
}

func text(root fs.FS, name string) []byte {
	b, _ := fs.ReadFile(root, name)
	return b
}

// waited sums up over the threads of this process.
func waited(root fs.FS) (sum time.Duration, known bool) {
	threads, _ := fs.ReadDir(root, "proc/self/task")
	for _, t := range threads[:min(len(threads), threadsMax)] {
		if d, ok := parseDelay(text(root, path.Join("proc/self/task", t.Name(), "schedstat"))); ok {
			sum, known = sum+d, true
		}
	}
	return sum, known
}

// parseDelay reads a schedstat: time on a processor, time of waiting for one, and
// number of times on one, of which kernels that do not count the second give 0.
func parseDelay(b []byte) (time.Duration, bool) {
	fields := strings.Fields(string(b))
	if len(fields) != 3 {
		return 0, false
	}
	ns, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || ns < 0 {
		return 0, false
	}
	return time.Duration(ns), true
}

// parsePressure reads the total of the line "some avg10=… total=microseconds".
func parsePressure(b []byte) (time.Duration, bool) {
	for line := range lines(b) {
		if rest, ok := strings.CutPrefix(line, "some "); ok {
			_, total, _ := strings.Cut(rest, "total=")
			return count(total, time.Microsecond)
		}
	}
	return 0, false
}

// parseThrottled reads throttled_usec of control groups of version 2, or
// throttled_time, in nanoseconds, of version 1.
func parseThrottled(b []byte) time.Duration {
	for line := range lines(b) {
		name, number, _ := strings.Cut(line, " ")
		switch name {
		case "throttled_usec":
			d, _ := count(number, time.Microsecond)
			return d
		case "throttled_time":
			d, _ := count(number, 1)
			return d
		}
	}
	return 0
}

// Fields of the line "cpu" of /proc/stat.
const (
	statIdle   = 3
	statWaitIO = 4
	statSteal  = 7
	statFields = 8 // those after it are part of others
)

// parseStat reads /proc/stat.
func parseStat(b []byte) (busy, steal time.Duration, processors int) {
	for line := range lines(b) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || !strings.HasPrefix(fields[0], "cpu"):
			return busy, steal, processors // the processors' lines come first
		case fields[0] != "cpu":
			processors++
			continue
		}
		for i, field := range fields[1:min(len(fields), 1+statFields)] {
			d, _ := count(field, tick)
			switch i {
			case statIdle, statWaitIO:
			case statSteal:
				steal = d
			default:
				busy = sum(busy, d)
			}
		}
	}
	return busy, steal, processors
}

// groups returns the folders of the control groups that may limit or count this
// process's CPU, each with all above it, by the text of /proc/self/cgroup.
func groups(b []byte) (dirs []string) {
	for line := range lines(b) {
		// hierarchy:controllers:path, of which version 2 has no controllers
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		at := "sys/fs/cgroup"
		if parts[1] != "" {
			if !hasController(parts[1], "cpu") {
				continue
			}
			at = "sys/fs/cgroup/cpu" // a link to it where it is mounted with others
		}
		for group := path.Clean("/" + parts[2]); len(dirs) < 2*groupsMax; group = path.Dir(group) {
			dirs = append(dirs, path.Join(at, group))
			if group == "/" {
				break
			}
		}
	}
	return dirs
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// countMax bounds what is counted, so that sums do not overflow: three years.
const countMax = 1000 * 24 * time.Hour

// count reads a number of units.
func count(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	if n > int64(countMax/unit) {
		return countMax, true
	}
	return time.Duration(n) * unit, true
}

func sum(a, b time.Duration) time.Duration { return min(a+b, 8*countMax) }

func lines(b []byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		for in := bufio.NewScanner(bytes.NewReader(b)); in.Scan(); {
			if !yield(in.Text()) {
				return
			}
		}
	}
}
