package lost

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// hunt looks for the programs that take the processors, while they do.
type hunt struct {
	at     int64
	before map[int]process
}

// process is a program and the processor time that it has had.
type process struct {
	name string
	used time.Duration
}

const (
	huntLeast    = int64(300 * time.Millisecond) // between two looks at all processes
	huntEvery    = int64(2 * time.Second)
	huntFor      = int64(5 * time.Second) // after the processors were last found to be taken
	processesMax = 4096
	namesShown   = 2
	nameMax      = 32
)

// hunt looks again if it is time to. Two looks are needed for an answer.
func (w *Watcher) hunt(h *hunt, now int64) {
	taken := w.taken.Load()
	switch {
	case taken == 0:
		return
	case now-taken > huntFor:
		w.busiest.Store(nil)
		w.taken.Store(0)
		*h = hunt{}
		return
	case h.before != nil && now-h.at < huntLeast, w.busiest.Load() != nil && now-h.at < huntEvery:
		return
	}
	all := processes(w.root, os.Getpid())
	if h.before != nil {
		if text := busiest(h.before, all, time.Duration(now-h.at)); text != "" {
			w.busiest.Store(&text)
		}
	}
	h.at, h.before = now, all
}

// processes are those that can be seen, but for self.
func processes(root fs.FS, self int) map[int]process {
	all := map[int]process{}
	folders, _ := fs.ReadDir(root, "proc")
	for _, f := range folders {
		id, err := strconv.Atoi(f.Name())
		if err != nil || id == self {
			continue
		}
		if p, ok := parseProcess(text(root, path.Join("proc", f.Name(), "stat"))); ok {
			if all[id] = p; len(all) == processesMax {
				break
			}
		}
	}
	return all
}

// parseProcess reads /proc/PID/stat: "pid (name) state …", where the name may have
// any character in it. User and system time are the fields 14 and 15.
func parseProcess(b []byte) (process, bool) {
	line := string(b)
	open, shut := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || shut < open {
		return process{}, false
	}
	fields := strings.Fields(line[shut+1:]) // from field 3 on
	if len(fields) < 13 {
		return process{}, false
	}
	user, ok := count(fields[11], tick)
	system, ok2 := count(fields[12], tick)
	return process{plain(line[open+1 : shut]), sum(user, system)}, ok && ok2
}

// plain is a name in which anything unusual is a question mark.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	if runes := []rune(name); len(runes) > nameMax {
		return string(runes[:nameMax])
	}
	return name
}

// busiest names the programs that had the most processor time between two looks,
// processes of the same name together.
func busiest(before, now map[int]process, over time.Duration) string {
	type program struct {
		name string
		used time.Duration
		ids  []int
	}
	byName := map[string]*program{}
	for id, p := range now {
		old, was := before[id]
		if used := p.used - old.used; was && old.name == p.name && used > 0 {
			g := byName[p.name]
			if g == nil {
				g = &program{name: p.name}
				byName[p.name] = g
			}
			g.used += used
			g.ids = append(g.ids, id)
		}
	}
	var all []*program
	for _, g := range byName {
		if g.used >= over/othersShare {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *program) int { return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.name, b.name)) })
	var shown []string
	for _, g := range all[:min(len(all), namesShown)] {
		which := fmt.Sprintf("process %d", g.ids[0])
		if len(g.ids) > 1 {
			which = fmt.Sprintf("%d processes", len(g.ids))
		}
		shown = append(shown, fmt.Sprintf("%s (%s, %.1f processors)", g.name, which, float64(g.used)/float64(over)))
	}
	return strings.Join(shown, " and ")
}
