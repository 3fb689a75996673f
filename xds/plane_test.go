package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
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

func (p *plane) dial(ctx context.Context, _ *BootstrapServer, _ string, have map[string]string, _ string) (link, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dials++
	p.asked = append(p.asked, have)
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

func (s *script) receive() (string, response, error) {
	select {
	case <-s.ctx.Done():
		return "", nil, s.ctx.Err()
	case r, ok := <-s.send:
		if !ok {
			return "", nil, io.EOF
		}
		return r.GetNonce(), func(b *book, now time.Time) (bool, error) { return b.changed(r, now) }, nil
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

// policyOf is a response that holds files as NAME=TEXT; NAME alone removes one.
func policyOf(version string, files ...string) *discoveryv3.DeltaDiscoveryResponse {
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
	refuses atomic.Value // a text, "" for none

	mu    sync.Mutex // guards all below
	text  string
	taken int
}

func (g *gateway) take(files []conf.File) error {
	text := ""
	for _, f := range files {
		if no, _ := g.refuses.Load().(string); strings.Contains(string(f.Text), "bad") || no != "" && strings.Contains(string(f.Text), no) {
			return fmt.Errorf("%s:1: is bad", f.Name)
		}
		text += f.Name + "=" + string(f.Text) + " "
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text = text
	g.taken++
	return nil
}

// holds is what it took last.
func (g *gateway) holds() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text
}

func (g *gateway) takes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.taken
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
