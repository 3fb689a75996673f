package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
	"github.com/forebay-io/forebay/internal/wire"
)

// stateOf is the reported state of the server of p.
func stateOf(e *Engine, name string) string {
	for _, u := range e.State().Upstreams {
		if u.Name == name {
			return u.State
		}
	}
	return ""
}

// TestDrainOne: a drained server gets no new request, and its running answers end; the
// last one may be drained too, and requests are refused then.
func TestDrainOne(t *testing.T) {
	e, peers := several(t, 2, Config{CheckInterval: 4 * time.Second})
	first, second := peers[0], peers[1]
	release := make(chan struct{})
	for _, p := range peers {
		calm := p.answer
		p.answer = func(w http.ResponseWriter, r *http.Request, body map[string]any) {
			if strings.Contains(fmt.Sprint(body["messages"]), "long") {
				stream(w)
				send(w, deltaChunk(`{"content":"Hi"}`, ""))
				<-release
			}
			calm(w, r, body)
		}
	}
	ended := make(chan outcome, 1)
	go func() { ended <- say(t, e, "long") }()
	eventually(t, "it runs", func() bool { return first.count()+second.count() == 1 })
	if second.count() == 1 {
		first, second = second, first
	}
	if err := e.DrainUpstream(first.URL, true); err != nil {
		t.Fatal(err)
	}
	if s := stateOf(e, first.URL); s != "draining" {
		t.Errorf("with a running answer it is %s", s)
	}
	for range 5 {
		if got := say(t, e, "x"); got.end.Err != nil {
			t.Fatal(got.end.Err)
		}
	}
	if first.count() != 1 || second.count() != 5 {
		t.Errorf("the drained server got %d requests, the other %d", first.count(), second.count())
	}
	close(release)
	if got := <-ended; got.end.Err != nil || got.texts[0] != "HiHi" {
		t.Errorf("the running answer: %q, %v", got.texts, got.end.Err)
	}
	eventually(t, "it is empty", func() bool { return stateOf(e, first.URL) == "drained" })
	if err := e.DrainUpstream(second.URL, true); err != nil {
		t.Fatal(err)
	}
	if err := e.State().Err; err == nil || err.Kind != wire.Unavailable || !strings.Contains(err.Message, "drained") {
		t.Errorf("with all of them drained: %v", err)
	}
	if err := e.DrainUpstream(first.URL, false); err != nil {
		t.Fatal(err)
	}
	if got := say(t, e, "x"); got.end.Err != nil || first.count() != 2 {
		t.Errorf("after it was opened again: %v, %d requests", got.end.Err, first.count())
	}
	if err := e.DrainUpstream("http://nowhere", true); err == nil || err.Kind != wire.Invalid {
		t.Errorf("an unknown one: %v", err)
	}
}

// TestFallback: a fallback gets requests only where no other server can be used, and
// is not counted among the places before.
func TestFallback(t *testing.T) {
	main := newPeer(t, events(deltaChunk(`{"content":"main"}`, "stop"), "[DONE]"))
	spare := newPeer(t, events(deltaChunk(`{"content":"spare"}`, "stop"), "[DONE]"))
	e := open(t, Config{Servers: []Server{{URL: main.URL, Weight: 1}, {URL: spare.URL, Weight: 1, Use: useFallback}}, CheckInterval: 20 * time.Millisecond})
	eventually(t, "both are found", func() bool {
		return stateOf(e, main.URL) == "up" && stateOf(e, spare.URL) == "standby" && e.State().Places == sequencesUnknown
	})
	for range 6 {
		if got := say(t, e, "x"); got.end.Err != nil || got.texts[0] != "main" {
			t.Fatalf("%q, %v", got.texts, got.end.Err)
		}
	}
	main.CloseClientConnections()
	main.Close()
	for range 6 {
		if got := say(t, e, "x"); got.end.Err != nil || got.texts[0] != "spare" {
			t.Fatalf("%q, %v", got.texts, got.end.Err)
		}
	}
	eventually(t, "the fallback is told", func() bool { return stateOf(e, spare.URL) == "up" })
}

// TestOverflow: a server for overflow gets what the others have no place for.
func TestOverflow(t *testing.T) {
	main, more := newPeer(t, nil), newPeer(t, nil)
	e := open(t, Config{Servers: []Server{{URL: more.URL, Weight: 100, Use: useOverflow}, {URL: main.URL, Weight: 1}}, CheckInterval: 4 * time.Second})
	eventually(t, "both are found", func() bool { return e.State().Places == 2*sequencesUnknown })
	p, err := e.Prepare(context.Background(), &wire.Request{Messages: []byte(`[{"role":"user","content":"x"}]`)})
	if err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range 2 * sequencesUnknown {
		w := &generation{engine: e, asked: &wire.Generation{Prompt: p}, prompt: 3, n: 1}
		at := e.choose(p.Relayed.(*relayed), 1, 3, nil)
		if want := map[bool]string{true: main.URL, false: more.URL}[i < sequencesUnknown]; at.name != want {
			t.Errorf("request %d goes to %s, want %s", i, at.name, want)
		}
		w.enter(at)
	}
}

// names is a resolver whose answers a test sets.
type names struct {
	mu  sync.Mutex
	ips []netip.Addr
	err error
}

func (n *names) set(err error, ips ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ips, n.err = nil, err
	for _, ip := range ips {
		n.ips = append(n.ips, netip.MustParseAddr(ip))
	}
}

func (n *names) lookup(context.Context, string, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ips, n.err
}

// TestNameOfMany: each address of a name is a server of its own, new ones are found, and
// one that has gone is removed when its work has ended; a name that cannot be looked up
// changes nothing.
func TestNameOfMany(t *testing.T) {
	var dns names
	before := lookup
	lookup = dns.lookup
	t.Cleanup(func() { lookup = before })

	handler := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"))
	free, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	port := free[0]
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		ln, err := net.Listen("tcp", net.JoinHostPort(ip, port))
		if err != nil {
			t.Skip("SKIPPED: there are no addresses 127.0.0.2 and 127.0.0.3 with a free port: ", err)
		}
		s := &http.Server{Handler: handler}
		go s.Serve(ln)
		t.Cleanup(func() { s.Close() })
	}
	at := func(ip string) string { return "http://" + net.JoinHostPort(ip, port) }
	dns.set(nil, "127.0.0.2", "127.0.0.1", "::1", "127.0.0.1")
	e := open(t, Config{URL: "http://localhost:" + port, ResolveInterval: 10 * time.Millisecond})
	both := func(a, b string) func() bool {
		return func() bool {
			return len(e.State().Upstreams) == 2 && stateOf(e, at(a)) == "up" && stateOf(e, at(b)) == "up"
		}
	}
	eventually(t, "both addresses are servers, and the name is none any more", both("127.0.0.1", "127.0.0.2"))
	if n := e.State().Places; n != 2*sequencesUnknown {
		t.Errorf("%d places", n)
	}
	dns.set(errors.New("no DNS"))
	time.Sleep(30 * time.Millisecond)
	if !both("127.0.0.1", "127.0.0.2")() {
		t.Errorf("after a failed lookup: %+v", e.State().Upstreams)
	}
	dns.set(nil, "127.0.0.3", "127.0.0.2")
	eventually(t, "an address was replaced", both("127.0.0.2", "127.0.0.3"))
	if got := say(t, e, "x"); got.end.Err != nil {
		t.Error(got.end.Err)
	}
	dns.set(nil, "127.0.0.9") // where nobody listens: one address is the name again, which leads to 127.0.0.1
	eventually(t, "one address is the name", func() bool {
		return len(e.State().Upstreams) == 1 && stateOf(e, "http://localhost:"+port) == "up"
	})
	if got := say(t, e, "x"); got.end.Err != nil {
		t.Error(got.end.Err)
	}
}

// TestWhatIsNoName: sockets and addresses are not looked up.
func TestWhatIsNoName(t *testing.T) {
	for url, want := range map[string]string{"unix:/run/x.sock": "", "http://10.0.0.1:8000": "", "http://[::1]:8000": "", "https://gpu.svc/v1": "gpu.svc"} {
		if got := (&Server{URL: url}).named(); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}
