package sim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Recording are the runs of one load, as bench/overload --record writes them.
type Recording struct {
	Title  string // scenario and load
	Traces []*Trace
}

// runFile is what the file beside a recorded run says of it.
type runFile struct {
	Server    string  `json:"server"`
	Scenario  string  `json:"scenario"`
	Factor    float64 `json:"factor"` // 0 is the run that measured the capacity
	Run       int     `json:"run"`
	BusyLoops int     `json:"busy_loops"`
	Batch     int     `json:"batch_clients"`
	Offline   int     `json:"offline_clients"`

	name string // of both files, without their ends
}

const runFileEnd = ".meta.json"

// simulated tells whether the simulator can play the run: our own server under a
// load that does not depend on its answers, on a machine that does nothing else.
func (r *runFile) simulated() bool {
	return (r.Server == "forebay" || r.Server == "server") && r.BusyLoops == 0 && r.Batch == 0 && r.Offline == 0
}

// ReadRecordings reads the runs in a folder, the smallest load first, and counts those
// that cannot be simulated. The run that measured the capacity comes before each of the
// same turn: by it the server has learned what it knew.
func ReadRecordings(folder fs.FS) (all []Recording, others int, err error) {
	names, err := fs.Glob(folder, "*"+runFileEnd)
	if err != nil {
		return nil, 0, err
	}
	var runs []runFile
	before := map[string]*Trace{}
	for _, name := range names {
		r, err := readRunFile(folder, name)
		switch {
		case err != nil:
			return nil, 0, err
		case !r.simulated():
			others++
		case r.Factor > 0:
			runs = append(runs, *r)
		default:
			if before[r.turn()], err = readRun(folder, r.name); err != nil {
				return nil, 0, err
			}
		}
	}
	if len(runs) == 0 {
		return nil, 0, errors.New("the folder has no run that can be simulated; bench/overload --record writes them")
	}
	slices.SortFunc(runs, func(a, b runFile) int {
		return cmp.Or(cmp.Compare(a.Scenario, b.Scenario), cmp.Compare(a.Factor, b.Factor), cmp.Compare(a.name, b.name))
	})
	for _, r := range runs {
		t, err := readRun(folder, r.name)
		if err != nil {
			return nil, 0, err
		}
		title := fmt.Sprintf("%s %g×", r.Scenario, r.Factor)
		if len(all) == 0 || all[len(all)-1].Title != title {
			all = append(all, Recording{Title: title})
		}
		last := &all[len(all)-1]
		last.Traces = append(last.Traces, t.after(before[r.turn()]))
	}
	return all, others, nil
}

// turn names the runs that one server did one after the other.
func (r *runFile) turn() string { return fmt.Sprint(r.Server, " ", r.Scenario, " ", r.Run) }

func readRunFile(folder fs.FS, name string) (*runFile, error) {
	text, err := fs.ReadFile(folder, name)
	if err != nil {
		return nil, err
	}
	r := &runFile{name: strings.TrimSuffix(name, runFileEnd)}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

func readRun(folder fs.FS, name string) (*Trace, error) {
	f, err := folder.Open(name + ".jsonl")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path.Base(name))
}

// calm is the time between two recorded runs, in which all of the first end.
const calm = 3 * time.Second

// after is t with the requests of another trace before it, which count for nothing;
// nil is none.
func (t *Trace) after(before *Trace) *Trace {
	if before == nil {
		return t
	}
	both := &Trace{Name: t.Name, From: before.span() + calm, Requests: slices.Clone(before.Requests)}
	for _, r := range t.Requests {
		r.At += both.From
		both.Requests = append(both.Requests, r)
	}
	return both
}

// CheckRecordings compares the runs of each load with their simulation.
func CheckRecordings(all []Recording, o Options) (*Check, error) {
	c := &Check{}
	for _, r := range all {
		one, err := CheckRecorded(r.Traces, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Title, err)
		}
		for _, row := range one.Rows {
			row.Load = r.Title
			c.Rows = append(c.Rows, row)
		}
		c.Traces = append(c.Traces, one.Traces...)
	}
	return c, nil
}

// summary counts the verdicts.
func (c *Check) summary() string {
	counts := map[Verdict]int{}
	for _, r := range c.Rows {
		counts[r.Verdict]++
	}
	parts := []string{fmt.Sprintf("%d of %d figures are near", counts[Near], len(c.Rows))}
	delete(counts, Near)
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[v], map[Verdict]string{Chance: "differ by chance", Far: "are far"}[v]))
	}
	return strings.Join(parts, ", ")
}
