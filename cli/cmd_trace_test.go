package cli

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/gateway/capture"
)

const listed = `{"in_flight":[{"id":"aaaa","client_id":"mine","tenant":"acme","class":"interactive","stage":"generating","stage_ms":1200,"age_ms":1500.5,"tokens":31}],
	"slow":[{"id":"bbbb","tenant":"acme","class":"interactive","outcome":"ok","ago_ms":61000,"total_ms":900,"first_token_ms":80,"prompt_tokens":40,"completion_tokens":22,"kept":true,"reasons":["slow_token"],"broken":["token"],"sentence":"690 ms went to others."}],
	"failed":[],
	"finished":[{"id":"cccc","tenant":"acme","class":"batch","outcome":"invalid","error":"invalid_value","ago_ms":10,"total_ms":1},
		{"id":"bbbb","tenant":"acme","class":"interactive","outcome":"ok","ago_ms":61000,"total_ms":900,"first_token_ms":80,"prompt_tokens":40,"completion_tokens":22,"kept":true,"reasons":["slow_token"],"broken":["token"],"sentence":"690 ms went to others."}],
	"recent":{"over_ms":60000,"finished":2,"failed":1,"first_token_p50_ms":80,"first_token_p99_ms":80}}`

// admin answers as the admin address does, with one request under two ids.
func admin(t *testing.T) http.HandlerFunc {
	t.Helper()
	view, err := os.ReadFile("gateway/debug/testdata/view.json")
	if err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer("3f9d2a64", "11111111", "\"ms\": 32\n", "\"ms\": 320\n", `"others_prefill"`, `"pages"`).Replace(string(view))
	return func(w http.ResponseWriter, r *http.Request) {
		switch url := r.URL.String(); {
		case strings.HasSuffix(url, "?format=perfetto"):
			w.Write([]byte(`{"traceEvents":[]}`))
		case strings.HasPrefix(url, "/debug/requests/3f9d2a"):
			w.Write(view)
		case strings.HasPrefix(url, "/debug/requests/1111"):
			w.Write([]byte(other))
		case strings.HasPrefix(url, "/debug/requests?"):
			w.Write([]byte(listed))
		case url == "/debug/steps?format=json":
			w.Write([]byte(`{"steps":[{"step":9,"ago_ms":500}],"over_ms":1500,"busy":0.75,"decode_tokens":200,"prefill_tokens":1000,"pages":{"total":100,"used":31,"cached":20,"free":49},"sequences":3}`))
		case url == "/debug/queue?format=json":
			w.Write([]byte(`{"classes":[{"name":"interactive","mode":"open","waiting":2,"running":1,"share":1}]}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte(`{"error":{"message":"No request is named so. To keep the next one, send it with the header x-forebay-capture: 1."}}`))
		}
	}
}

// TestTraceCommands has what each command prints in testdata/trace.
func TestTraceCommands(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(*console, []string) error
		args []string
	}{
		"ls":        {runTraceList, nil},
		"ls-slow":   {runTraceList, []string{"--slow"}},
		"ls-failed": {runTraceList, []string{"--failed", "--class", "batch"}},
		"show":      {runTraceShow, []string{"3f9d2a"}},
		"diff":      {runTraceDiff, []string{"3f9d2a", "1111"}},
		"neighbors": {runTraceNeighbors, []string{"3f9d2a"}},
		"export":    {runTraceExport, []string{"3f9d2a"}},
		"top":       {runTop, []string{"--once"}},
	} {
		got, err := asked(t, admin(t), c.run, c.args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		file := filepath.Join("cli/testdata", "trace", name+".txt")
		if flag.Lookup("rewrite").Value.String() == "true" { // datadriven defines it
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs; -rewrite writes it anew:\n%s", file, diff)
		}
	}
}

// TestTracePromises: the lines about the first token fit what is known of it.
func TestTracePromises(t *testing.T) {
	for want, v := range map[string]capture.View{
		"revoked, status 503, after 1.4s; no first token\npromised   a first token within 2s: revoked\npredicted  a first token after 1.2s\n": {
			Outcome: "revoked", Status: 503, WallMS: 1400, PredictedMS: 1200, FirstTokenGoalMS: 2000, Promise: "revoked"},
		"late, status 503, after 3ms; no first token\ngoal       a first token within 2s, not promised\npredicted  a first token after 9s\n": {
			Outcome: "late", Status: 503, WallMS: 3, PredictedMS: 9000, FirstTokenGoalMS: 2000},
		"ok, status 200, after 9s; first token after 3s\npromised   a first token within 2s: broken\npredicted  a first token after 1.5s; it took 2.00 times that\n": {
			Outcome: "ok", Status: 200, WallMS: 9000, FirstTokenMS: 3000, PredictedMS: 1500, PredictionRatio: 2, FirstTokenGoalMS: 2000, Promise: "broken"},
		"ok, status 200, after 9s; first token after 3s\nof": {Outcome: "ok", Status: 200, WallMS: 9000, FirstTokenMS: 3000}, // no goal, no prediction
	} {
		var b strings.Builder
		if err := printTrace(&b, &v); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v: it lacks\n%s\n%s", err, want, b.String())
		}
	}
}

func TestTraceMistakes(t *testing.T) {
	for _, c := range []struct {
		run  func(*console, []string) error
		args []string
		want string
	}{
		{runTraceShow, nil, "trace show needs an id"},
		{runTraceDiff, []string{"3f9d2a"}, "trace diff needs 2 ids"},
		{runTraceDiff, []string{"a", "b", "c"}, `"c" is not expected`},
		{runTraceShow, []string{"nobody"}, "x-forebay-capture: 1"},
		{runTraceExport, []string{"3f9d2a", "--format", "png"}, "not one of perfetto, otlp, json"},
		{runTraceExport, []string{"3f9d2a", "-o", "/nowhere/x"}, "/nowhere/x"},
		{runTraceWatch, []string{"--interval", "1ms"}, "10ms is the least"},
		{runTraceList, []string{"--slo"}, "did you mean --slow?"},
	} {
		if _, err := asked(t, admin(t), c.run, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
	broken := func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("<html>")) }
	for _, run := range []func(*console, []string) error{runTraceList, runTop} {
		if _, err := asked(t, broken, run); err == nil || !strings.Contains(err.Error(), "does not answer as a Forebay") {
			t.Errorf("what is no JSON: %v", err)
		}
	}
}

func TestTraceExportWritesJSON(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.json")
	if _, err := asked(t, admin(t), runTraceExport, "3f9d2a", "--format", "json", "-o", name); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(text), `"sentence"`) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestTraceWatch: what was there at first is not told, the rest once.
func TestTraceWatch(t *testing.T) {
	pages := []string{`{"finished":[{"id":"one"}]}`, `{"finished":[{"id":"three","class":"batch","tenant":"acme","outcome":"ok","total_ms":5,"kept":true,"reasons":["forced"]},{"id":"two","outcome":"ok","sentence":"It was slow."},{"id":"one"}]}`}
	pages = append(pages, pages[1])
	look := 0
	serve := func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(pages[look])) }
	got, err := asked(t, serve, func(c *console, args []string) error {
		set := newFlagSet("")
		w := traceWatch{filter: addTraceFilter(set), out: c.out, seen: map[string]bool{}}
		base, _, err := c.adminURL(set, args, 0)
		for ; look < len(pages) && err == nil; look++ {
			err = w.look(base)
		}
		return err
	})
	want := "two      ok  0s  It was slow.\nthree  batch  acme  ok  5.00ms  forced\n"
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

func TestBarsFit(t *testing.T) {
	for _, c := range []struct {
		begin, ms, wall float64
		want            string
	}{
		{0, 100, 100, strings.Repeat("█", traceWidth)}, {0, 0, 100, "█"}, {100, 0, 100, strings.Repeat(" ", traceWidth-1) + "█"},
		{-5, 1e9, 100, strings.Repeat("█", traceWidth)}, {1, 1, 0, ""}, {50, 50, 100, strings.Repeat(" ", traceWidth/2) + strings.Repeat("█", traceWidth/2)},
	} {
		if got := bars(c.begin, c.ms, c.wall); got != c.want {
			t.Errorf("%v: %q", c, got)
		}
	}
	v := &capture.View{WallMS: 10, Steps: []capture.StepView{{BeginMS: -1, MS: 1e9, Member: true}, {BeginMS: 1e9, MS: 1}}}
	if line := stepLine(v); line != strings.Repeat("d", traceWidth) {
		t.Errorf("%q", line)
	}
	if line := stepLine(new(capture.View)); len(line) != traceWidth {
		t.Errorf("%q", line)
	}
	if cutLine("äöü", 2) != "äö" || cutLine("a", 2) != "a" || cutLine("a", -1) != "" {
		t.Error("lines are not cut at characters")
	}
}
