package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// folderOf is a folder as bench/overload --record writes it, its runs simulated on e.
func folderOf(t *testing.T, e *Engine) fstest.MapFS {
	folder := fstest.MapFS{}
	add := func(name, text string) { folder[name] = &fstest.MapFile{Data: []byte(text)} }
	for run := 1; run <= 2; run++ {
		before := atLoad(t, e, generate(t, "uniform", 200), 0.9)
		for _, factor := range []float64{10, 2} {
			trace := atLoad(t, e, generate(t, "uniform", 1500), factor).after(before)
			r, err := play(e, trace, "forebay", testGoals(t), uint64(10*run)+uint64(factor))
			if err != nil {
				t.Fatal(err)
			}
			for name, jobs := range map[string][]*job{"0": r.jobs[:200], fmt.Sprint(factor): r.jobs[200:]} {
				add(fmt.Sprintf("forebay-uniform-%sx-run%d.jsonl", name, run), recordingText(t, jobs))
				add(fmt.Sprintf("forebay-uniform-%sx-run%d.meta.json", name, run), fmt.Sprintf(`{"server":"forebay","scenario":"uniform","factor":%s,"run":%d}`, name, run))
			}
		}
	}
	add("forebay-busy-2x-run1.meta.json", `{"server":"forebay","scenario":"busy","factor":2,"run":1,"busy_loops":2}`)
	add("peer-uniform-2x-run1.meta.json", `{"server":"peer","scenario":"uniform","factor":2,"run":1}`)
	return folder
}

// TestRecordingsOfAFolder: the runs of each load are near to their simulation, which
// begins with the run before them, and far from that of an engine half as fast.
func TestRecordingsOfAFolder(t *testing.T) {
	e := cpuEngine()
	all, others, err := ReadRecordings(folderOf(t, e))
	if err != nil || others != 2 || len(all) != 2 || all[0].Title != "uniform 2×" || all[1].Title != "uniform 10×" || len(all[0].Traces) != 2 {
		t.Fatalf("%v, %d others, %+v", err, others, all)
	}
	if first := all[0].Traces[0]; first.From < 4*time.Second || len(first.Requests) != 1700 {
		t.Errorf("of %d requests those from %v on count", len(first.Requests), first.From)
	}
	check := func(e *Engine) (*Check, string) {
		c, err := CheckRecordings(all, Options{Engine: e, Seeds: 3, Goal: 2 * time.Second, Slack: 2})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		c.WriteTable(&b)
		return c, b.String()
	}
	c, table := check(e)
	if c.Far() || !strings.Contains(table, "of 10 figures are near") || !strings.Contains(table, "4 runs, as recorded") {
		t.Errorf("%s", table)
	}
	slow := *e
	slow.DecodeRowMS, slow.PrefillTokenMS = 2*e.DecodeRowMS, 2*e.PrefillTokenMS
	if c, table := check(&slow); !c.Far() || !strings.Contains(table, "are far") {
		t.Errorf("half as fast, the control: %s", table)
	}
}

func TestRecordingsThatAreNone(t *testing.T) {
	for want, folder := range map[string]fstest.MapFS{
		"no run that can be simulated": {},
		"a.meta.json":                  {"a.meta.json": {Data: []byte("x")}},
		"a.jsonl":                      {"a.meta.json": {Data: []byte(`{"server":"forebay","factor":2}`)}},
	} {
		if _, _, err := ReadRecordings(folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
