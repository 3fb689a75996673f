package control

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forebay-io/forebay/xds"
	"github.com/forebay-io/forebay/xds/controlpb"
)

// deltaSink and wholeSink note what a client would be sent.
type deltaSink struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	mu  sync.Mutex
	got []*discoveryv3.DeltaDiscoveryResponse
}

func (s *deltaSink) Send(r *discoveryv3.DeltaDiscoveryResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, r)
	return nil
}

func (s *deltaSink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

func (s *deltaSink) last() *discoveryv3.DeltaDiscoveryResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[len(s.got)-1]
}

type wholeSink struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	got []*discoveryv3.DiscoveryResponse
}

func (s *wholeSink) Send(r *discoveryv3.DiscoveryResponse) error {
	s.got = append(s.got, r)
	return nil
}

func packed(t *testing.T, name string, ttl time.Duration) *anypb.Any {
	t.Helper()
	p, err := anypb.New(&controlpb.PolicyFile{Name: name, TtlMs: ttl.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLeasesAreConfirmed: what has a time to live is confirmed thrice in that time, without
// its content, for as long as the client has it; other files cost nothing.
func TestLeasesAreConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &deltaSink{}
		s := &deltaStream{sink, newLessor()}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			during(ctx, &s.lessor, s.sendConfirmations, func() error { <-ctx.Done(); return nil })
		})
		send := func(r *discoveryv3.DeltaDiscoveryResponse) {
			r.TypeUrl = xds.PolicyType
			if err := s.Send(r); err != nil {
				t.Fatal(err)
			}
		}
		send(&discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: "1", Resources: []*discoveryv3.Resource{{Name: "for ever", Resource: packed(t, "for ever", 0)}}})
		time.Sleep(24 * time.Hour)
		if sink.count() != 1 {
			t.Errorf("%d responses for a file without time to live", sink.count())
		}
		send(&discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: "2", Resources: []*discoveryv3.Resource{{Name: "b", Resource: packed(t, "b", time.Minute)}}})
		if got := sink.last().Resources[0].GetTtl().AsDuration(); got != time.Minute {
			t.Errorf("the time to live is %v", got)
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if got := sink.count() - 2; got != 30 {
			t.Errorf("%d confirmations in ten times its life", got)
		}
		last := sink.last()
		if one := last.Resources[0]; len(last.Resources) != 1 || one.Name != "b" || one.Resource != nil || one.Ttl.AsDuration() != time.Minute || last.SystemVersionInfo != "2" || last.Nonce == "" {
			t.Errorf("a confirmation is %v", last)
		}
		send(&discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: "3", RemovedResources: []string{"b"}})
		before := sink.count()
		time.Sleep(time.Hour)
		if sink.count() != before {
			t.Error("a file that is gone is confirmed")
		}
		cancel()
		running.Wait()
	})
}

// TestLeasesInTheStateOfTheWorld: there resources with a time to live are wrapped.
func TestLeasesInTheStateOfTheWorld(t *testing.T) {
	sink := &wholeSink{}
	s := &wholeStream{sink, newLessor()}
	r := &discoveryv3.DiscoveryResponse{TypeUrl: xds.PolicyType, VersionInfo: "1", Resources: []*anypb.Any{packed(t, "a", 0), packed(t, "b", time.Minute)}}
	if err := s.Send(r); err != nil {
		t.Fatal(err)
	}
	if err := s.sendConfirmations(); err != nil {
		t.Fatal(err)
	}
	var given, confirmed discoveryv3.Resource
	if first, err := sink.got[0].Resources[0], sink.got[0].Resources[1].UnmarshalTo(&given); first.GetTypeUrl() != xds.PolicyType || err != nil || given.Name != "b" || given.Ttl.AsDuration() != time.Minute || given.Resource == nil {
		t.Errorf("sent %v, %v", sink.got[0], err)
	}
	if err := sink.got[1].Resources[0].UnmarshalTo(&confirmed); err != nil || len(sink.got[1].Resources) != 1 || confirmed.Name != "b" || confirmed.Resource != nil || sink.got[1].VersionInfo != "1" {
		t.Errorf("confirmed by %v, %v", sink.got[1], err)
	}
}

// TestFileWithTimeToLive: in both protocols a gateway lets a file go that the policy gives
// a time to live, when the control plane is gone; and takes it again when that is back.
func TestFileWithTimeToLive(t *testing.T) {
	for _, protocol := range []string{"delta", "sotw"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{
				"a.yaml": oneTenant, "boost.yaml": "admission: {classes: [{name: chat, first_token_goal: 3s}]}\nfiles: [{name: boost.yaml, ttl: 1s}]\n",
			}
			p := startPlane(t, Config{}, files)
			boot := &xds.Bootstrap{Node: xds.BootstrapNode{ID: "n"}, Servers: []xds.BootstrapServer{{URI: strings.TrimPrefix(p.conn.Target(), "passthrough:///"), Creds: []xds.BootstrapCreds{{Type: "insecure"}}}}}
			c, f := followWith(t, xds.Config{Protocol: protocol}, boot)
			wait(t, c, "it has both files", has(f, "chat"))
			p.Stop()
			wait(t, c, "the file has expired, and the other holds", func(s xds.State) bool { return s.Files == 1 && !has(f, "chat")(s) && has(f, "acme")(s) })
			if s := c.State(time.Now()); s.Refusing || s.Source != xds.FromServer {
				t.Errorf("%+v", s)
			}
		})
	}
	p := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant})
	p.write("b.yaml", "files: [{name: c.yaml, ttl: 1s}]")
	p.look()
	if page, _ := p.GetStatus(context.Background(), nil); !strings.HasPrefix(page.Error, `b.yaml:1: files[0].name: "c.yaml" is no file of this policy`) {
		t.Errorf("the error is %q", page.Error)
	}
}
