package picker

import (
	"bytes"
	"context"
	"strconv"
	"testing"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// TestEveryMode: in each way in which a proxy shows a body the endpoint is the same in
// the header and in the metadata, and the body goes on as it came.
func TestEveryMode(t *testing.T) {
	const all = "10.0.0.1:8080,10.0.0.2:8080,10.0.0.3:8080,10.0.0.4:9999"
	body := chat(1, 20000)
	for name, p := range map[string]proxy{
		"no body":                {mode: modev3.ProcessingMode_BUFFERED},
		"headers alone":          {mode: modev3.ProcessingMode_NONE, body: body},
		"buffered":               {mode: modev3.ProcessingMode_BUFFERED, body: body},
		"streamed":               {mode: modev3.ProcessingMode_FULL_DUPLEX_STREAMED, body: body, parts: 7},
		"streamed with trailers": {mode: modev3.ProcessingMode_FULL_DUPLEX_STREAMED, body: body, parts: 3, trailed: true},
		"the mode is not said":   {unsaid: true, body: body, parts: 2},
		"longer than the limit":  {mode: modev3.ProcessingMode_FULL_DUPLEX_STREAMED, body: chat(1, 60000), parts: 9},
		"one that is too long":   {mode: modev3.ProcessingMode_BUFFERED, body: chat(1, 60000)},
	} {
		w := newWorld(t, Config{BodyMax: 50000, ReadLimit: 10 * time.Second})
		got := w.ask(t, p)
		if got.to != all || got.meta != all || got.status != 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if echoed := p.body != "" && (p.unsaid || p.mode == modev3.ProcessingMode_FULL_DUPLEX_STREAMED); echoed && !bytes.Equal(got.body, []byte(p.body)) {
			t.Errorf("%s: %d bytes went on of %d", name, len(got.body), len(p.body))
		}
		read := w.Counts()[resultRead] == 1
		if seen := p.body == body && (p.unsaid || p.mode != modev3.ProcessingMode_NONE); seen != read || seen != (len(w.last().Blocks) > 300) {
			t.Errorf("%s: the prompt was read %v, %d blocks are known", name, read, len(w.last().Blocks))
		}
	}
}

// TestRoomForBodies: bodies that do not fit in what is left of bodies_bytes_max go by load
// at once and are not asked for; what was held is given back, however a request ends.
func TestRoomForBodies(t *testing.T) {
	w := newWorld(t, Config{BodyMax: 40000, BodiesMax: 50000, ReadLimit: 10 * time.Second})
	body := chat(1, 30000)
	said := map[string]string{"content-length": strconv.Itoa(len(body))}
	for _, c := range []struct {
		what   string
		held   int
		p      proxy
		result int
		asked  bool // for its body
	}{
		{"there is room", 0, proxy{mode: modev3.ProcessingMode_BUFFERED, body: body, headers: said}, resultRead, true},
		{"the length is not said", 0, proxy{mode: modev3.ProcessingMode_BUFFERED, body: body}, resultKnown, true},
		{"there is no room", 30000, proxy{mode: modev3.ProcessingMode_BUFFERED, body: body, headers: said}, resultFull, false},
		{"the length is not said, and may be too much", 15000, proxy{mode: modev3.ProcessingMode_BUFFERED, body: body}, resultFull, false},
		{"it says that it is too long", 0, proxy{mode: modev3.ProcessingMode_BUFFERED, body: body, headers: map[string]string{"content-length": "40001"}}, resultLoad, false},
		{"streams fit", 0, proxy{mode: modev3.ProcessingMode_FULL_DUPLEX_STREAMED, body: body, parts: 9}, resultKnown, true},
		{"streams do not", 30000, proxy{mode: modev3.ProcessingMode_FULL_DUPLEX_STREAMED, body: body, parts: 9}, resultFull, true},
	} {
		before := w.Counts()
		if c.held > 0 && !w.hold(c.held) {
			t.Fatalf("%s: %d bytes are held already", c.what, w.bodies.Load())
		}
		got := w.ask(t, c.p)
		if w.Counts()[c.result] != before[c.result]+1 || got.to == "" || got.asked != c.asked {
			t.Errorf("%s: %v after %v, want one more of %s; asked for the body %v", c.what, w.Counts(), before, ResultNames[c.result], got.asked)
		}
		if c.p.mode == modev3.ProcessingMode_FULL_DUPLEX_STREAMED && string(got.body) != body {
			t.Errorf("%s: %d bytes went on of %d", c.what, len(got.body), len(body))
		}
		w.bodies.Add(int64(-c.held))
		w.rests(t, c.what)
	}
	// A proxy that goes in the middle.
	ctx, cancel := context.WithCancel(t.Context())
	s, err := w.client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}}})
	s.Send(bodyMessage(true, []byte(body), false))
	for w.bodies.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	w.rests(t, "the proxy is gone")
}

// rests waits until nothing is held of any body.
func (w *world) rests(t *testing.T, what string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); w.bodies.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: %d bytes stay held", what, w.bodies.Load())
		}
	}
}
