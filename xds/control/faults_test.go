package control

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forebay-io/forebay/xds"
	"github.com/forebay-io/forebay/xds/controlpb"
)

// This file is what gateways do when the control plane, or the way to it, is not as it
// should be, by real gRPC.

// way is a TCP proxy to a control plane, which the test can cut, slow down and lead
// elsewhere.
type way struct {
	ln net.Listener
	to atomic.Value // an address

	mu    sync.Mutex
	open  *sync.Cond
	cut   bool          // bytes wait
	pause time.Duration // after each KiB
	left  int           // bytes until it is cut, -1 for never
	conns []net.Conn
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{ln: ln, left: -1}
	w.open = sync.NewCond(&w.mu)
	w.to.Store(to)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", w.to.Load().(string))
			if err != nil {
				in.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, in, out)
			w.mu.Unlock()
			running.Go(func() { w.carry(in, out) })
			running.Go(func() { w.carry(out, in) })
		}
	})
	t.Cleanup(func() { ln.Close(); w.set(false, 0); w.end(); running.Wait() })
	return w
}

func (w *way) carry(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 1024)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		if w.left >= 0 {
			w.left = max(0, w.left-n)
			w.cut = w.left == 0
		}
		for w.cut {
			w.open.Wait()
		}
		pause := w.pause
		w.mu.Unlock()
		time.Sleep(pause)
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (w *way) set(cut bool, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.pause, w.left = cut, pause, -1
	w.open.Broadcast()
}

// end breaks all connections.
func (w *way) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

func addressOf(p *plane) string { return strings.TrimPrefix(p.conn.Target(), "passthrough:///") }

// gateway follows a control plane at an address.
func gateway(t *testing.T, cfg xds.Config, address string) (*xds.Client, *follower) {
	t.Helper()
	return followWith(t, cfg, &xds.Bootstrap{Node: xds.BootstrapNode{ID: "n"}, Servers: []xds.BootstrapServer{{URI: address, Creds: []xds.BootstrapCreds{{Type: "insecure"}}}}})
}

func (f *follower) taken() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takes
}

// TestKilledControlPlane: what holds goes on; the next instance has the same version and
// sends only what changed meanwhile.
func TestKilledControlPlane(t *testing.T) {
	files := map[string]string{"a.yaml": oneTenant, "b.yaml": twoTenant}
	one := startPlane(t, Config{}, files)
	w := newWay(t, addressOf(one))
	c, f := gateway(t, xds.Config{}, w.ln.Addr().String())
	wait(t, c, "it has the policy", has(f, "beta"))
	one.Stop()
	w.end()
	wait(t, c, "the loss is noticed", func(s xds.State) bool { return s.Server == "" && s.Problem != "" })
	if s := c.State(time.Now()); s.Source != xds.FromServer || s.Files != 2 {
		t.Errorf("%+v", s)
	}
	two := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant, "b.yaml": strings.Replace(twoTenant, "beta", "gamma", 1)})
	w.to.Store(addressOf(two))
	wait(t, c, "it has what changed", has(f, "gamma"))
	if page, _ := two.GetStatus(context.Background(), nil); f.taken() != 2 || page.Nodes[0].Types[0].Responses != 1 {
		t.Errorf("%d policies, %v", f.taken(), page.Nodes)
	}
}

// TestPartition: bytes that do not come change nothing, and what was changed meanwhile
// holds when they do.
func TestPartition(t *testing.T) {
	p := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant})
	w := newWay(t, addressOf(p))
	c, f := gateway(t, xds.Config{}, w.ln.Addr().String())
	wait(t, c, "it has the policy", has(f, "acme"))
	w.set(true, 0)
	for i := range 5 {
		p.write("a.yaml", strings.Replace(oneTenant, "acme", fmt.Sprint("changed-", i), 1))
		p.look()
	}
	time.Sleep(100 * time.Millisecond)
	if s := c.State(time.Now()); f.taken() != 1 || s.Server == "" {
		t.Errorf("behind the partition: %d policies, %+v", f.taken(), s)
	}
	w.set(false, 0)
	wait(t, c, "it has the last change", has(f, "changed-4"))
}

// TestSlowControlPlane: a policy that comes in drops holds when it is whole, and not
// before.
func TestSlowControlPlane(t *testing.T) {
	p := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant, "b.yaml": "# " + strings.Repeat("x", 100<<10) + "\n" + twoTenant})
	w := newWay(t, addressOf(p))
	w.left = 50 << 10
	c, f := gateway(t, xds.Config{}, w.ln.Addr().String())
	wait(t, c, "half of it has come", func(xds.State) bool { w.mu.Lock(); defer w.mu.Unlock(); return w.cut })
	time.Sleep(50 * time.Millisecond)
	if s := c.State(time.Now()); s.Source != xds.FromNowhere || f.taken() != 0 {
		t.Errorf("a part of it holds: %+v", s)
	}
	w.set(false, time.Millisecond)
	wait(t, c, "it has the policy", has(f, "beta"))
	if f.taken() != 1 || c.State(time.Now()).Files != 2 {
		t.Errorf("%d policies, %+v", f.taken(), c.State(time.Now()))
	}
}

// liar is a control plane that sends one answer to whatever is asked, then nothing.
type liar struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	delta   *discoveryv3.DeltaDiscoveryResponse
	whole   *discoveryv3.DiscoveryResponse
	refusal atomic.Value // a text
}

func (l *liar) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if l.delta == nil {
		return l.UnimplementedAggregatedDiscoveryServiceServer.DeltaAggregatedResources(s)
	}
	for first := true; ; first = false {
		r, err := s.Recv()
		if err != nil {
			return nil
		}
		if r.GetErrorDetail() != nil {
			l.refusal.Store(r.GetErrorDetail().GetMessage())
		}
		if first {
			if err := s.Send(l.delta); err != nil {
				return err
			}
		}
	}
}

func (l *liar) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for first := true; ; first = false {
		r, err := s.Recv()
		if err != nil {
			return nil
		}
		if r.GetErrorDetail() != nil {
			l.refusal.Store(r.GetErrorDetail().GetMessage())
		}
		if first {
			if err := s.Send(l.whole); err != nil {
				return err
			}
		}
	}
}

// TestLyingControlPlanes: a gateway that has a policy is led to control planes that send the
// wrong type, a file twice, too much, or rubbish. It says why it takes none of it, to the
// control plane too, and takes the next good policy.
func TestLyingControlPlanes(t *testing.T) {
	file := func(name, text string) *anypb.Any {
		packed, err := anypb.New(&controlpb.PolicyFile{Name: name, Text: text})
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	b := file("b", twoTenant)
	twice := []*discoveryv3.Resource{{Name: "b", Resource: b}, {Name: "b", Resource: b}}
	huge := file("b", strings.Repeat("#", 4<<20))
	for want, l := range map[string]*liar{
		"the response is of the type": {delta: &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType, Nonce: "1"}},
		"b: comes twice in":           {delta: &discoveryv3.DeltaDiscoveryResponse{TypeUrl: xds.PolicyType, Nonce: "1", Resources: twice}},
		"is not a PolicyFile":         {whole: &discoveryv3.DiscoveryResponse{TypeUrl: xds.PolicyType, Nonce: "1", Resources: []*anypb.Any{{TypeUrl: xds.PolicyType, Value: []byte{0xff}}}}},
		"holds no file any more":      {whole: &discoveryv3.DiscoveryResponse{TypeUrl: xds.PolicyType, Nonce: "1", VersionInfo: "0"}},
		"total_bytes_max allows":      {delta: &discoveryv3.DeltaDiscoveryResponse{TypeUrl: xds.PolicyType, Nonce: "1", Resources: []*discoveryv3.Resource{{Name: "b", Resource: file("b", strings.Repeat("#", 70<<10))}}}},
		"larger than max":             {delta: &discoveryv3.DeltaDiscoveryResponse{TypeUrl: xds.PolicyType, Nonce: "1", Resources: []*discoveryv3.Resource{{Name: "b", Resource: huge}}}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			good := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant})
			w := newWay(t, addressOf(good))
			c, f := gateway(t, xds.Config{BytesMax: 64 << 10}, w.ln.Addr().String())
			wait(t, c, "it has the policy", has(f, "acme"))
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, l)
			go server.Serve(ln)
			defer server.Stop()
			w.to.Store(ln.Addr().String())
			w.end()
			wait(t, c, "it says why it takes nothing", func(s xds.State) bool { return strings.Contains(s.Problem, want) })
			if f.taken() != 1 || !has(f, "acme")(xds.State{}) {
				t.Errorf("%d policies were taken", f.taken())
			}
			if want != "larger than max" { // gRPC ends such a stream by itself
				wait(t, c, "the control plane is told", func(xds.State) bool { text, _ := l.refusal.Load().(string); return strings.Contains(text, want) })
			}
			good.write("a.yaml", strings.Replace(oneTenant, "acme", "other", 1))
			good.look()
			w.to.Store(addressOf(good))
			w.end()
			wait(t, c, "it takes the next good policy", func(s xds.State) bool { return has(f, "other")(s) && !s.Refusing && s.Server != "" })
		})
	}
}
