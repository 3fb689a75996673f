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
	var page QueuePage
	if err := json.Unmarshal([]byte(r.adminDo("GET", "/debug/queue?format=json").body), &page); err != nil {
		t.Fatal(err)
	}
	if len(page.Classes) != 3 || page.Classes[0].Mode != "open" || len(page.Waiting) != 1 || len(page.Running) != 1 || page.Waiting[0].Why != "sequences" || len(page.Waiting[0].ID) != 32 || page.Running[0].Tenant != "default" {
		t.Errorf("%+v", page)
	}
	html := r.adminDo("GET", "/debug/queue")
	if html.status != 200 || !strings.HasPrefix(html.header.Get("Content-Type"), "text/html") || !strings.Contains(html.body, page.Waiting[0].ID) || !strings.Contains(html.body, "<td>sequences") {
		t.Errorf("%d %s", html.status, html.body)
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
