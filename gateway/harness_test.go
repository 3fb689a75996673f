package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// rig is a gateway on real TCP before a fake engine.
type rig struct {
	t        testing.TB
	gw       *Gateway
	fake     *wiretest.Fake
	fifo     *admission.Queue
	budgets  *budget.Local
	recorder *telemetry.Recorder
	kept     *capture.Store // nil unless asked for
	addr     string
	admin    string
	client   *http.Client
	logs     *bytes.Buffer
	served   chan error
	stopped  bool
}

type rigConfig struct {
	gateway   Config
	admission admission.Config
	budget    budget.Config
	fake      wiretest.FakeConfig
	records   int
	capture   *capture.Config // nil keeps nothing
	exporter  *spans.Exporter
	logged    bool
	identity  *identity.Directory // nil is that of admission
}

func newRig(t testing.TB, c rigConfig) *rig {
	t.Helper()
	r := &rig{t: t, fake: wiretest.NewFakeWith(c.fake), logs: &bytes.Buffer{}, served: make(chan error, 2)}
	var err error
	if r.fifo, err = admission.NewQueue(c.admission, Clock); err != nil {
		t.Fatal(err)
	}
	if err := conf.Complete("admission", &c.admission); err != nil {
		t.Fatal(err)
	}
	if c.identity == nil {
		policy, err := admission.NewPolicy(c.admission)
		if err != nil {
			t.Fatal(err)
		}
		c.identity = identity.NewDirectory(identity.Of(policy))
	}
	if err := conf.Complete("budget", &c.budget); err != nil {
		t.Fatal(err)
	}
	r.budgets = budget.NewLocal(c.budget, nil)
	records := max(c.records, 16)
	if r.recorder, err = telemetry.New(telemetry.Config{AccessLogOff: !c.logged, RecordsMax: records}, r.logs, Levels(r.fifo, r.fake, r.budgets)); err != nil {
		t.Fatal(err)
	}
	if c.capture != nil {
		r.capture(*c.capture, c.exporter)
	}
	if r.gw, err = New(c.gateway, Parts{Engine: r.fake, Admission: r.fifo, Identity: c.identity, Budget: r.budgets, Recorder: r.recorder, Capture: r.kept, Version: "test"}); err != nil {
		t.Fatal(err)
	}
	listen := func(serve func(net.Listener) error) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { r.served <- serve(ln) }()
		return ln.Addr().String()
	}
	r.addr = listen(r.gw.Serve)
	r.admin = listen(r.gw.ServeAdmin)
	r.client = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 512}}
	t.Cleanup(r.stop)
	return r
}

// capture keeps requests, and hears the steps of the fake.
func (r *rig) capture(cfg capture.Config, exporter *spans.Exporter) {
	r.t.Helper()
	var err error
	if r.kept, err = capture.New(cfg, exporter, nil); err != nil {
		r.t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			r.kept.Heard(r.fake.State())
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	r.t.Cleanup(func() {
		r.stop()
		close(stop)
		<-done
		r.kept.Close()
	})
}

func simpleRig(t *testing.T, s wiretest.Script) *rig {
	t.Helper()
	return newRig(t, rigConfig{fake: scripted(s)})
}

func scripted(s wiretest.Script) wiretest.FakeConfig {
	return wiretest.FakeConfig{Script: func(*wireGeneration) wiretest.Script { return s }}
}

func (r *rig) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	r.client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.gw.Shutdown(ctx); err != nil {
		r.t.Errorf("shutdown: %v", err)
	}
	for range 2 {
		if err := <-r.served; err != nil {
			r.t.Errorf("serve: %v", err)
		}
	}
	if err := r.gw.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
	r.fifo.Close()
	r.fake.Close()
}

// response is an HTTP answer read whole.
type response struct {
	status int
	header http.Header
	body   string
}

func (r *rig) do(method, path, body string, headers ...string) response {
	r.t.Helper()
	resp, err := r.try(method, path, body, headers...)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

func (r *rig) try(method, path, body string, headers ...string) (response, error) {
	req, err := http.NewRequest(method, "http://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, string(b)}, err
}

func (r *rig) chat(extra string) response {
	return r.do("POST", "/v1/chat/completions", chatBody(extra))
}

func chatBody(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"fake","messages":[{"role":"user","content":"hi"}]` + extra + `}`
}

func textBody(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"fake","prompt":"hi"` + extra + `}`
}

// events are the data of a stream, without the comments.
func events(body string) []string {
	var all []string
	for _, line := range strings.Split(body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			all = append(all, data)
		}
	}
	return all
}

// object decodes JSON that must be an object.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("not a JSON object: %v\n%s", err, text)
	}
	return m
}

// errorOf checks the error object's shape and returns code and param.
func errorOf(t *testing.T, text string) (code, param string) {
	t.Helper()
	e, ok := object(t, text)["error"].(map[string]any)
	if !ok {
		t.Fatalf("no error object in %s", text)
	}
	for _, key := range []string{"message", "type", "code"} {
		if s, ok := e[key].(string); !ok || s == "" {
			t.Errorf("error.%s is %v in %s", key, e[key], text)
		}
	}
	if _, ok := e["param"]; !ok {
		t.Errorf("error.param is absent in %s", text)
	}
	param, _ = e["param"].(string)
	return e["code"].(string), param
}

// dial opens a raw connection.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func rawPost(path, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), strings.Join(append(headers, ""), "\r\n"), body)
}

// raw sends bytes and reads until the server closes or the limit passes.
func (r *rig) raw(request string) string {
	c := r.dial()
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		r.t.Logf("write: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
	b, err := io.ReadAll(c)
	if err != nil {
		return string(b) + "<" + err.Error() + ">"
	}
	return string(b)
}

// settled waits until nothing is in flight anywhere.
func (r *rig) settled() {
	r.t.Helper()
	ok := eventually(10*time.Second, func() bool {
		return r.gw.InFlight() == 0 && r.fake.Live() == 0 && r.fifo.Load() == admission.Load{}
	})
	if !ok {
		r.t.Fatalf("not settled: %d in flight, %d in the engine, %+v admitted", r.gw.InFlight(), r.fake.Live(), r.fifo.Load())
	}
}

func eventually(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func fdCount(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc/self/fd to count descriptors: %v", err)
	}
	return len(entries)
}

// readLine reads up to the first line that has the prefix.
func readLine(c *bufio.Reader, prefix string) (string, error) {
	for {
		line, err := c.ReadString('\n')
		if err != nil || strings.HasPrefix(line, prefix) {
			return line, err
		}
	}
}

func goroutines() int { return runtime.NumGoroutine() }
