package gateway

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/debug"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

func TestQueueIsExplained(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(wiretest.Script{Pieces: []string{"a", "b"}, FirstDelay: 50 * time.Millisecond}), admission: admission.Config{RunningSequencesMax: 1}, gateway: Config{Timeouts: TimeoutConfig{CommitLimit: time.Hour}}})
	var wg sync.WaitGroup
	waited := make(chan response, 3)
	for range 3 {
		wg.Go(func() {
			resp, _ := r.try("POST", "/v1/chat/completions", chatBody(`"stream":true`))
			waited <- resp
		})
	}
	wg.Wait()
	reasons := map[string]int{}
	for range 3 {
		resp := <-waited
		reasons[resp.header.Get(waitReasonHeader)]++
		ms, err := strconv.Atoi(resp.header.Get(waitHeader))
		if err != nil || (resp.header.Get(waitReasonHeader) == "none") != (ms < 20) {
			t.Errorf("waited %q ms for %q", resp.header.Get(waitHeader), resp.header.Get(waitReasonHeader))
		}
	}
	if reasons["none"] != 1 || reasons["sequences"]+reasons["order"] != 2 {
		t.Errorf("reasons %v", reasons)
	}
}

func (r *rig) adminDo(method, path string, headers ...string) response {
	r.t.Helper()
	addr := r.addr
	r.addr = r.admin
	defer func() { r.addr = addr }()
	return r.do(method, path, "", headers...)
}

func TestQueuePage(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(wiretest.Script{Hang: true}), admission: admission.Config{RunningSequencesMax: 1}})
	for i := range 2 {
		c := r.dial()
		defer c.Close()
		io.WriteString(c, rawPost("/v1/chat/completions", chatBody("")))
		eventually(3*time.Second, func() bool { return r.fifo.Load().Running+r.fifo.Load().Waiting == i+1 })
	}
	var page debug.QueuePage
	if err := json.Unmarshal([]byte(r.adminDo("GET", "/debug/queue?format=json").body), &page); err != nil {
		t.Fatal(err)
	}
	if len(page.Classes) != 3 || page.Classes[0].Mode != "open" || len(page.Waiting) != 1 || len(page.Running) != 1 || page.Waiting[0].Why != "sequences" || len(page.Waiting[0].ID) != 32 || page.Running[0].Tenant != "default" {
		t.Errorf("%+v", page)
	}
	if resp := r.adminDo("GET", "/debug/queue?format=xml"); resp.status != 400 {
		t.Errorf("another format: %d", resp.status)
	}
}

func TestQueueModesAreTheOperatorsAlone(t *testing.T) {
	r := simpleRig(t, hello)
	for name, headers := range map[string][]string{
		"another site":   {"Origin", "https://evil.example"},
		"site, no cors":  {"Sec-Fetch-Site", "cross-site"},
		"sibling":        {"Sec-Fetch-Site", "same-site"},
		"sandboxed page": {"Origin", "null"},
		"rebound name":   {"Origin", "http://rebound.example", "Host", "rebound.example"},
	} {
		if resp := r.adminDo("POST", "/debug/queue/offline?mode=drained", headers...); resp.status != 403 {
			t.Errorf("%s: %d", name, resp.status)
		}
	}
	for path, status := range map[string]int{"/debug/queue/gold?mode=paused": 404, "/debug/queue/offline?mode=off": 400, "/debug/queue/offline": 400, "/debug/queue/?mode=open": 404} {
		if resp := r.adminDo("POST", path); resp.status != status {
			t.Errorf("%s: %d %s", path, resp.status, resp.body)
		}
	}
	if resp := r.adminDo("GET", "/debug/queue/offline?mode=drained"); resp.status != 405 {
		t.Errorf("GET changes modes: %d", resp.status)
	}
	if resp := r.do("POST", "/debug/queue/offline?mode=drained", ""); resp.status != 404 {
		t.Errorf("clients change modes: %d", resp.status)
	}
	if resp := r.do("POST", "/v1/chat/completions", chatBody(""), classHeader, "offline"); resp.status != 200 {
		t.Errorf("nothing may have changed yet: %d", resp.status)
	}
	if resp := r.adminDo("POST", "/debug/queue/offline?mode=drained", "Origin", "http://"+r.admin, "Sec-Fetch-Site", "same-origin"); resp.status != 200 {
		t.Errorf("from its own page: %d %s", resp.status, resp.body)
	}
	resp := r.do("POST", "/v1/chat/completions", chatBody(""), classHeader, "offline")
	if code, _ := errorOf(t, resp.body); resp.status != 503 || code != "class_closed" || !wholeSeconds.MatchString(resp.header.Get("Retry-After")) {
		t.Errorf("a drained class: %d %v %s", resp.status, resp.header, resp.body)
	}
	r.adminDo("POST", "/debug/queue/offline?mode=open")
	if resp := r.do("POST", "/v1/chat/completions", chatBody(""), classHeader, "offline"); resp.status != 200 {
		t.Errorf("opened again: %d", resp.status)
	}
}

// TestRequestsThatWereNotKept: where no requests are kept, the page says why, and what to do.
func TestRequestsThatWereNotKept(t *testing.T) {
	r := simpleRig(t, hello)
	id := r.do("POST", "/v1/chat/completions", chatBody(""), "X-Request-Id", "mine-1").header.Get("X-Request-Id")
	r.settled()
	for target, want := range map[string]string{id: "was not kept", "mine-": "At least", "nobody-1": "No request is named"} {
		resp := r.adminDo("GET", debug.RequestsPath+"/"+target+"?format=json")
		if resp.status != 404 || !strings.Contains(resp.body, want) {
			t.Errorf("%s: %d %s", target, resp.status, resp.body)
		}
		if want != "At least" && !strings.Contains(resp.body, "x-forebay-capture: 1") {
			t.Errorf("%s: does not say how to keep the next", target)
		}
	}
}

func TestRunningRequestIsShown(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Hang: true})
	c := r.dial()
	defer c.Close()
	if _, err := c.Write([]byte(rawPost("/v1/chat/completions", chatBody(`"stream":true`), "X-Request-Id: still-there"))); err != nil {
		t.Fatal(err)
	}
	eventually(3*time.Second, func() bool { return r.fifo.Load().Running == 1 })
	resp := r.adminDo("GET", debug.RequestsPath+"/still-?format=json")
	var v capture.View
	if err := json.Unmarshal([]byte(resp.body), &v); err != nil || resp.status != 200 {
		t.Fatalf("%d %v", resp.status, err)
	}
	sum := 0.0
	for _, p := range v.Parts {
		sum += p.MS
	}
	if !v.Running || len(v.ID) != 32 || v.Class != "interactive" || sum < v.WallMS-1e-6 || sum > v.WallMS+1e-6 || !strings.Contains(v.Sentence, "still runs") {
		t.Errorf("%+v", v)
	}
}

func TestStepsAreTheOperatorsAlone(t *testing.T) {
	r := simpleRig(t, hello)
	r.chat("")
	if resp := r.adminDo("GET", debug.StepsPath+"?format=json"); resp.status != 200 || !strings.Contains(resp.body, "decode") {
		t.Errorf("%d %s", resp.status, resp.body)
	}
	if resp := r.do("GET", debug.StepsPath, ""); resp.status != 404 {
		t.Errorf("clients see steps: %d", resp.status)
	}
}

// TestDebugPagesAreStatic: any page is the same file, under the status and the
// policy of package debug; a query is passed on whole.
func TestDebugPagesAreStatic(t *testing.T) {
	r := simpleRig(t, hello)
	for target, status := range map[string]int{debug.RequestsPath: 200, debug.StepsPath: 200, debug.QueuePath: 200, debug.BudgetsPath: 200, debug.RequestsPath + "/%3Cscript%3E": 404, debug.RequestsPath + "?class=%3Cscript%3E&min_ms=x": 400} {
		resp := r.adminDo("GET", target)
		if resp.status != status || resp.header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(resp.header.Get("Content-Security-Policy"), "default-src 'none'; ") || strings.Contains(resp.body, "script>\"") {
			t.Errorf("%s: %d %v", target, resp.status, resp.header)
		}
	}
	for target, want := range map[string]string{
		"/debug/assets/main.js": "text/javascript; charset=utf-8", "/debug/assets/none.js": "application/json", "/debug/nothing": "application/json", "/debug/queue?format=xml": "application/json",
	} {
		if resp := r.adminDo("GET", target); resp.header.Get("Content-Type") != want || (resp.status == 200) != (want[0] == 't') {
			t.Errorf("%s: %d %v", target, resp.status, resp.header)
		}
	}
	if resp := r.adminDo("POST", debug.RequestsPath); resp.status != 405 || resp.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", resp.status, resp.header)
	}
}

// TestNoTextOnPages: no word of a prompt or an answer is on any page.
func TestNoTextOnPages(t *testing.T) {
	const canary = "canary7531"
	r := simpleRig(t, wiretest.Script{Pieces: []string{canary, " said"}})
	body := strings.Replace(chatBody(""), `"hi"`, `"`+canary+`"`, 1)
	if resp := r.do("POST", "/v1/chat/completions", body); !strings.Contains(resp.body, canary) {
		t.Fatalf("control: the answer has no canary: %s", resp.body)
	}
	r.do("POST", "/v1/chat/completions", strings.Replace(body, `"fake"`, `"`+canary+`"`, 1))
	r.do("POST", "/v1/chat/completions", strings.Replace(body, "{", `{"`+canary+`":1,"n":0,`, 1))
	r.settled()
	for _, target := range []string{debug.RequestsPath, debug.StepsPath, debug.QueuePath, debug.BudgetsPath} {
		for _, format := range []string{"", "?format=json"} {
			if resp := r.adminDo("GET", target+format); resp.status != 200 || strings.Contains(resp.body, canary) {
				t.Errorf("%s%s: %d, canary %v", target, format, resp.status, strings.Contains(resp.body, canary))
			}
		}
	}
}

// TestLaunchesAreAFileForPerfetto takes the scripted engine's launches, and asks
// for what cannot be.
func TestLaunchesAreAFileForPerfetto(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(endless)})
	c := r.dial()
	defer c.Close()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true`)))
	taken := r.adminDo("GET", "/debug/launches?steps=2")
	status, body := taken.status, taken.body
	var file struct {
		Events []struct {
			Name  string  `json:"name"`
			Phase string  `json:"ph"`
			At    float64 `json:"ts"`
			Args  struct {
				Step  uint64
				Layer *int
			}
		} `json:"traceEvents"`
		Steps int `json:"steps"`
	}
	if err := json.Unmarshal([]byte(body), &file); status != 200 || err != nil {
		t.Fatalf("status %d, %v: %s", status, err, body)
	}
	launches, steps := 0, 0
	for _, e := range file.Events {
		switch {
		case e.Phase != "X":
		case e.Name == "step":
			steps++
		case e.Args.Step == 0 || e.Args.Layer == nil || e.At < 0:
			t.Errorf("a launch is %+v", e)
		default:
			launches++
		}
	}
	if launches == 0 || steps == 0 || file.Steps == 0 {
		t.Errorf("%d launches in %d steps of %d", launches, steps, file.Steps)
	}
	for _, bad := range []string{"0", "x", "5000"} {
		if a := r.adminDo("GET", "/debug/launches?steps="+bad); a.status != 400 || !strings.Contains(a.body, "4096") {
			t.Errorf("steps=%s: status %d: %s", bad, a.status, a.body)
		}
	}
}
