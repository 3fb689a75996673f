package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/xds/controlpb"
)

// plane is a scripted control plane. The test owns it, and changes it between waits of
// its bubble.
type plane struct {
	mu     sync.Mutex // guards all below
	gone   bool       // nobody answers
	err    error      // of each link that is opened
	dials  int
	asked  []map[string]string
	last   *script
	first  *discoveryv3.DeltaDiscoveryResponse // sent on each new link
	answer []string                            // "ok", or the reason
}

// set says what becomes of the links that follow.
func (p *plane) set(gone bool, first *discoveryv3.DeltaDiscoveryResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone, p.first = gone, first
}

func (p *plane) link() *script {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *plane) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

func (p *plane) answers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.answer)
}

// lastAsked is what the last link said that it has.
func (p *plane) lastAsked() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[len(p.asked)-1]
}

type script struct {
	p    *plane
	send chan *discoveryv3.DeltaDiscoveryResponse
	ctx  context.Context
}

func (p *plane) dial(ctx context.Context, _ *BootstrapServer, _ string, b *book, _ string) (link, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dials++
	p.asked = append(p.asked, b.versions())
	if p.gone {
		return nil, nil, errors.New("connection refused")
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &script{p, make(chan *discoveryv3.DeltaDiscoveryResponse, 10000), ctx}
	if p.last = s; p.first != nil {
		s.send <- p.first
	}
	return s, cancel, p.err
}

func (s *script) report(Health) error { return nil }

func (s *script) receive(b *book) (string, error, error) {
	select {
	case <-s.ctx.Done():
		return "", nil, s.ctx.Err()
	case r, ok := <-s.send:
		if !ok {
			return "", nil, io.EOF
		}
		return r.GetNonce(), b.changed(r), nil
	}
}

func (s *script) whole() bool { return false }

func (s *script) answer(_, _ string, wrong error) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if wrong == nil {
		s.p.answer = append(s.p.answer, "ok")
	} else {
		s.p.answer = append(s.p.answer, wrong.Error())
	}
	return nil
}

// response holds files as NAME=TEXT; NAME alone removes one.
func response(version string, files ...string) *discoveryv3.DeltaDiscoveryResponse {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: PolicyType, SystemVersionInfo: version}
	for _, f := range files {
		name, text, ok := strings.Cut(f, "=")
		if !ok {
			r.RemovedResources = append(r.RemovedResources, name)
			continue
		}
		packed, _ := anypb.New(&controlpb.PolicyFile{Name: name, Text: text})
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: "v" + version, Resource: packed})
	}
	return r
}

// gateway is what takes policies: it refuses those with the text "bad".
type gateway struct {
	holds   string
	takes   int
	refuses atomic.Value // a text, "" for none
}

func (g *gateway) take(files []conf.File) error {
	text := ""
	for _, f := range files {
		if no, _ := g.refuses.Load().(string); strings.Contains(string(f.Text), "bad") || no != "" && strings.Contains(string(f.Text), no) {
			return fmt.Errorf("%s:1: is bad", f.Name)
		}
		text += f.Name + "=" + string(f.Text) + " "
	}
	g.holds = text
	g.takes++
	return nil
}

func start(t *testing.T, p *plane, cfg Config) (*Client, *gateway) {
	t.Helper()
	g := &gateway{}
	c, err := New(cfg, &Bootstrap{Servers: []BootstrapServer{{URI: "one"}}, Node: BootstrapNode{ID: "n"}}, "1", g.take, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c.dial = p.dial
	if err := c.Warm(); err != nil {
		t.Fatal(err)
	}
	return c, g
}

// run runs c in the bubble until the test ends.
func run(t *testing.T, c *Client) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	return func() { cancel(); <-done }
}

// pause lets the bubble run for d, and then waits until it rests.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestAnHourWithoutControlPlane: what holds goes on holding, a gateway that starts
// meanwhile begins with what was kept, both say how old it is, and when the control
// plane is back nothing is sent a second time.
func TestAnHourWithoutControlPlane(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: response("1", "a=x", "b=y")}
		c, g := start(t, p, Config{StateDir: dir})
		stop := run(t, c)
		pause(time.Minute)
		if s := c.State(time.Now()); s.Source != FromServer || s.Stale != 0 || s.Server != "one" || g.holds != "a=x b=y " {
			t.Fatalf("state %+v, holds %s", s, g.holds)
		}
		p.set(true, nil)
		close(p.link().send)
		pause(time.Hour)
		if s := c.State(time.Now()); s.Source != FromServer || s.Stale != time.Hour || s.Server != "" || !strings.Contains(s.Problem, "connection refused") || g.holds == "" {
			t.Errorf("after an hour: %+v", s)
		}
		if p.dials < 60 || p.dials > 180 {
			t.Errorf("%d dials in an hour", p.dials)
		}
		stop()

		// One that starts meanwhile. Its file is an hour old by the virtual clock.
		c, g = start(t, p, Config{StateDir: dir})
		if s := c.State(time.Now()); s.Source != FromDisk || s.Stale < time.Hour-time.Second || s.Stale > time.Hour+2*time.Minute || g.holds != "a=x b=y " {
			t.Errorf("warm: %+v, holds %s", s, g.holds)
		}
		stop = run(t, c)
		pause(time.Minute)
		p.set(false, response("1"))
		pause(time.Minute)
		if s := c.State(time.Now()); s.Source != FromServer || s.Stale != 0 || g.takes != 1 {
			t.Errorf("back: %+v, %d takes", s, g.takes)
		}
		if have := p.lastAsked(); have["a"] != "v1" || have["b"] != "v1" {
			t.Errorf("it asked with %v", have)
		}
		stop()
	})
}

// TestRefusedPolicyKeepsTheLast: the reason goes back, the last policy holds, and the
// next version is the refused one and its changes.
func TestRefusedPolicyKeepsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: response("1", "a=x")}
		c, g := start(t, p, Config{})
		defer run(t, c)()
		pause(time.Second)
		p.link().send <- response("2", "a=z", "b=bad")
		pause(time.Second)
		if s := c.State(time.Now()); g.holds != "a=x " || !s.Refusing || s.Version != "1" || s.Problem != "b:1: is bad" {
			t.Errorf("state %+v, holds %s", s, g.holds)
		}
		p.link().send <- response("3", "b=y")
		pause(time.Second)
		if s := c.State(time.Now()); g.holds != "a=z b=y " || s.Refusing || s.Problem != "" || s.Taken != 2 || s.Refused != 1 {
			t.Errorf("state %+v, holds %s", s, g.holds)
		}
		p.link().send <- response("4", "a", "b")
		pause(time.Second)
		if g.holds != "a=z b=y " || p.answers()[3] != errNothingLeft.Error() {
			t.Errorf("a policy without files: holds %s, answer %s", g.holds, p.answers()[3])
		}
		if len(p.answers()) != 4 || p.dials != 1 {
			t.Errorf("%d answers to 4 responses on %d links", len(p.answers()), p.dials)
		}
	})
}

// TestHostileControlPlanes: each is refused with a reason, changes nothing, and costs
// little, however long it goes on.
func TestHostileControlPlanes(t *testing.T) {
	odd, _ := anypb.New(&controlpb.Node{Id: "x"})
	huge := response("2")
	for i := range 11 {
		huge.Resources = append(huge.Resources, response("2", fmt.Sprintf("f%d=x", i)).Resources...)
	}
	wrongName := response("2", "b=y")
	wrongName.Resources[0].Name = "c"
	otherType := response("2", "b=y")
	otherType.TypeUrl = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	for want, r := range map[string]*discoveryv3.DeltaDiscoveryResponse{
		"b: comes twice in one response":                   {TypeUrl: PolicyType, Resources: append(response("2", "b=y").Resources, response("2", "b=z").Resources...)},
		"the response is of the type":                      otherType,
		`b: is of the type "type.googleapis.com/forebay.`:  {TypeUrl: PolicyType, Resources: []*discoveryv3.Resource{{Name: "b", Resource: odd}}},
		"b: is not a PolicyFile: its bytes cannot be read": {TypeUrl: PolicyType, Resources: []*discoveryv3.Resource{{Name: "b", Resource: &anypb.Any{TypeUrl: PolicyType, Value: []byte{0xff}}}}},
		"b: names no file":                                 {TypeUrl: PolicyType, Resources: []*discoveryv3.Resource{{Name: "b", Resource: &anypb.Any{TypeUrl: PolicyType}}}},
		"c: holds the file b":                              wrongName,
		"has 12 files, and xds.files_max allows 10":        huge,
		"bytes, and xds.total_bytes_max allows 1024":       response("2", "b="+strings.Repeat("x", 2000)),
		"b: is of the type \"\"":                           {TypeUrl: PolicyType, Resources: []*discoveryv3.Resource{{Name: "b"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &plane{first: response("1", "a=x")}
			c, g := start(t, p, Config{FilesMax: 10, BytesMax: 1024})
			defer run(t, c)()
			pause(time.Second)
			p.set(false, r)
			p.link().send <- r
			pause(time.Hour)
			if s := c.State(time.Now()); !strings.Contains(s.Problem, want) || g.holds != "a=x " || g.takes != 1 {
				t.Errorf("%s: state %+v, holds %s", want, s, g.holds)
			}
			if len(p.answers()) > 200 {
				t.Errorf("%s: %d answers in an hour", want, len(p.answers()))
			}
			p.set(false, response("3", "b=y"))
			close(p.link().send)
			pause(time.Minute)
			if s := c.State(time.Now()); g.holds != "a=x b=y " || s.Refusing {
				t.Errorf("%s: afterwards %+v, holds %s", want, s, g.holds)
			}
		})
	}
}

// TestFlappingVersions: a control plane that changes its mind without end is followed
// at a bounded rate.
func TestFlappingVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: response("1", "a=x")}
		c, g := start(t, p, Config{})
		defer run(t, c)()
		pause(time.Second)
		for i := range 10000 {
			p.link().send <- response("same", fmt.Sprintf("a=%d", i%2)) // its version never changes, and it lies
		}
		pause(10 * time.Second)
		if g.takes < 100 || g.takes > 2+10*int(time.Second/settleTime) {
			t.Errorf("%d takes in 10 s", g.takes)
		}
	})
}

// TestRefusedPolicyIsLookedAtAgain: when what a policy did not fit with has changed, it
// holds without being sent a second time.
func TestRefusedPolicyIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: response("1", "a=x")}
		c, g := start(t, p, Config{})
		defer run(t, c)()
		pause(time.Second)
		c.Again() // nothing is refused: nothing happens
		g.refuses.Store("y")
		p.link().send <- response("2", "a=y")
		pause(time.Second)
		if s := c.State(time.Now()); !s.Refusing || s.Connected != 1 {
			t.Fatalf("state %+v", s)
		}
		g.refuses.Store("")
		p.set(false, response("2"))
		c.Again()
		pause(2 * time.Second)
		if s := c.State(time.Now()); s.Refusing || g.holds != "a=y " || s.Connected != 2 {
			t.Errorf("state %+v, holds %s", s, g.holds)
		}
	})
}

// TestSilentControlPlane: a server that takes the stream and never answers is left for
// the next one, and asked again with pauses.
func TestSilentControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, good := &plane{}, &plane{first: response("1", "a=x")}
		c, g := start(t, good, Config{})
		c.boot.Servers = []BootstrapServer{{URI: "silent"}, {URI: "good"}}
		c.dial = func(ctx context.Context, s *BootstrapServer, protocol string, b *book, accepted string) (link, func(), error) {
			if s.URI == "silent" {
				return silent.dial(ctx, s, protocol, b, accepted)
			}
			return good.dial(ctx, s, protocol, b, accepted)
		}
		defer run(t, c)()
		pause(answerLimit + time.Second)
		if s := c.State(time.Now()); s.Server != "good" || g.holds != "a=x " {
			t.Errorf("state %+v, holds %s", s, g.holds)
		}
		good.set(true, nil)
		close(good.link().send)
		pause(time.Minute)
		if s := c.State(time.Now()); !strings.Contains(s.Problem, "refused") && !strings.Contains(s.Problem, "did not answer within 15s") {
			t.Errorf("state %+v", s)
		}
		pause(time.Hour)
		if silent.count() > 200 {
			t.Errorf("%d dials in an hour", silent.count())
		}
	})
}

func TestFallsBackToTheOtherProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: response("1", "a=x")}
		c, g := start(t, p, Config{})
		var protocols []string
		c.dial = func(ctx context.Context, s *BootstrapServer, protocol string, b *book, accepted string) (link, func(), error) {
			protocols = append(protocols, protocol)
			if protocol == deltaProtocol {
				return broken{status.Error(codes.Unimplemented, "unknown method")}, func() {}, nil
			}
			return p.dial(ctx, s, protocol, b, accepted)
		}
		defer run(t, c)()
		pause(time.Second)
		close(p.link().send)
		pause(time.Minute)
		if got := strings.Join(protocols, " "); got != "delta sotw sotw" || g.holds != "a=x " {
			t.Errorf("%s, holds %s", got, g.holds)
		}
	})
}

// broken is a link that ends at once.
type broken struct{ err error }

func (b broken) receive(*book) (string, error, error) { return "", nil, b.err }
func (broken) whole() bool                            { return true }
func (broken) answer(string, string, error) error     { return nil }

// TestKeptPolicy: what is damaged, another node's, or refused is not begun with, and
// says so.
func TestKeptPolicy(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, keptName)
	b := book{filesMax: 10, bytesMax: 1000}
	if err := b.changed(response("7", "a=x")); err != nil {
		t.Fatal(err)
	}
	if err := save(dir, "n", &b); err != nil {
		t.Fatal(err)
	}
	good, _ := os.ReadFile(file)
	warm := func(node string, take Take) error {
		c, err := New(Config{StateDir: dir, BytesMax: 1024}, &Bootstrap{Node: BootstrapNode{ID: node}}, "1", take, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		err = c.Warm()
		if err != nil && (c.State(time.Now()).Source != FromNowhere || len(c.book.versions()) != 0) {
			t.Error("it holds something, or would not be sent it again")
		}
		return err
	}
	g := &gateway{}
	if err := warm("n", g.take); err != nil || g.holds != "a=x " {
		t.Errorf("%v, holds %s", err, g.holds)
	}
	refuse := func([]conf.File) error { return errors.New("a:1: is refused") }
	for want, err := range map[string]error{"belongs to the node": warm("other", g.take), "a:1: is refused": warm("n", refuse)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for want, text := range map[string]string{
		"checksum": strings.Replace(string(good), `"text":"x"`, `"text":"y"`, 1), "unexpected end": string(good[:len(good)/2]), "which no policy has": strings.Repeat("x", 7<<20),
	} {
		os.WriteFile(file, []byte(text), 0o600)
		if err := warm("n", g.take); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
		t.Errorf("the folder holds %v", files)
	}
}

func (broken) report(Health) error { return nil }

func TestPausesGrow(t *testing.T) {
	for n, want := range map[int]struct{ least, most time.Duration }{
		0: {0, time.Second}, 1: {1280 * time.Millisecond, 1920 * time.Millisecond}, 3: {3276 * time.Millisecond, 4916 * time.Millisecond},
		50: {24 * time.Second, 36 * time.Second}, 1 << 20: {24 * time.Second, 36 * time.Second},
	} {
		if least, most := backoff(n, 0, 30*time.Second), backoff(n, 1, 30*time.Second); least < want.least-time.Millisecond || most > want.most || least > most {
			t.Errorf("pause %d lies in %v..%v, want %v..%v", n, least, most, want.least, want.most)
		}
	}
}

func TestBootstrapMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":   "is not a bootstrap of xDS",
		"{}": "xds_servers: names no server",
		`{"xds_servers": [{"channel_creds": [{"type": "insecure"}]}]}`:                                                                     "xds_servers[0].server_uri: is missing",
		`{"xds_servers": [{"server_uri": "a:1"}]}`:                                                                                         "channel_creds: is missing",
		`{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "google_default"}]}]}`:                                          `has the types "google_default", and insecure and tls are known`,
		`{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}]}`:                                                "node.id: is missing",
		`{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "odd"}, {"type": "insecure"}]}], "node": {"id": "n"}, "x": {}}`: "",
	} {
		_, err := ParseBootstrap([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
