package control

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forebay-io/forebay/xds"
	"github.com/forebay-io/forebay/xds/controlpb"
)

// This file gives policy files a time to live, and confirms those that a client has for as
// long as its stream lasts. go-control-plane does so in one of the protocols alone.

// leases are the files with a time to live that a client has.
type leases struct {
	confirmed time.Time
	ttls      map[string]time.Duration // by file
	version   string                   // of all that the client has
}

// due is when they are to be confirmed next, zero for never: two may be lost on the way.
func (l *leases) due() time.Time {
	if len(l.ttls) == 0 {
		return time.Time{}
	}
	return l.confirmed.Add(slices.Min(slices.Collect(maps.Values(l.ttls))) / 3)
}

// confirmations confirm all of them.
func (l *leases) confirmations() (list []*discoveryv3.Resource) {
	for _, name := range slices.Sorted(maps.Keys(l.ttls)) {
		list = append(list, &discoveryv3.Resource{Name: name, Ttl: durationpb.New(l.ttls[name])})
	}
	return list
}

// lessor is a stream whose leases are confirmed.
type lessor struct {
	sending sync.Mutex // held while anything is sent
	leases  leases
	changed chan struct{} // has a token when something is due sooner
}

func newLessor() lessor {
	return lessor{leases: leases{ttls: map[string]time.Duration{}}, changed: make(chan struct{}, 1)}
}

// leaseNonce names confirmations. Answers to them concern no version.
const leaseNonce = "lease"

// confirm sends what is due until ctx ends, or the stream does.
func (l *lessor) confirm(ctx context.Context, send func() error) {
	for {
		wait := time.Hour
		l.sending.Lock()
		if due := l.leases.due(); !due.IsZero() {
			if wait = time.Until(due); wait <= 0 {
				if send() != nil {
					l.sending.Unlock()
					return // the stream has ended, which who receives from it finds out
				}
				l.leases.confirmed = time.Now()
				wait = time.Until(l.leases.due())
			}
		}
		l.sending.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		case <-time.After(wait):
		}
	}
}

// note remembers what is about to be sent. The caller holds sending.
func (l *lessor) note(version string) {
	l.leases.confirmed, l.leases.version = time.Now(), version
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// ttlOf is the time to live of a policy file, as it is sent.
func ttlOf(typeURL string, content []byte) time.Duration {
	var f controlpb.PolicyFile
	if typeURL != xds.PolicyType || proto.Unmarshal(content, &f) != nil {
		return 0
	}
	return time.Duration(f.GetTtlMs()) * time.Millisecond
}

// deltaStream is a stream of changes.
type deltaStream struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	lessor
}

// Send implements stream.DeltaStream.
func (s *deltaStream) Send(r *discoveryv3.DeltaDiscoveryResponse) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	if r.GetTypeUrl() == xds.PolicyType {
		for _, name := range r.GetRemovedResources() {
			delete(s.leases.ttls, name)
		}
		for _, one := range r.GetResources() {
			delete(s.leases.ttls, one.GetName())
			if ttl := ttlOf(r.GetTypeUrl(), one.GetResource().GetValue()); ttl > 0 {
				one.Ttl = durationpb.New(ttl)
				s.leases.ttls[one.GetName()] = ttl
			}
		}
		s.note(r.GetSystemVersionInfo())
	}
	return s.AggregatedDiscoveryService_DeltaAggregatedResourcesServer.Send(r)
}

func (s *deltaStream) sendConfirmations() error {
	return s.AggregatedDiscoveryService_DeltaAggregatedResourcesServer.Send(&discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: xds.PolicyType, SystemVersionInfo: s.leases.version, Nonce: leaseNonce, Resources: s.leases.confirmations(),
	})
}

// wholeStream is a stream of the state of the world.
type wholeStream struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	lessor
}

// Send implements stream.Stream.
func (s *wholeStream) Send(r *discoveryv3.DiscoveryResponse) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	if r.GetTypeUrl() == xds.PolicyType {
		clear(s.leases.ttls)
		for i, one := range r.GetResources() {
			var f controlpb.PolicyFile
			if ttl := ttlOf(r.GetTypeUrl(), one.GetValue()); ttl > 0 && one.UnmarshalTo(&f) == nil {
				wrapped, err := anypb.New(&discoveryv3.Resource{Name: f.GetName(), Ttl: durationpb.New(ttl), Resource: one})
				if err != nil {
					return err
				}
				r.Resources[i] = wrapped
				s.leases.ttls[f.GetName()] = ttl
			}
		}
		s.note(r.GetVersionInfo())
	}
	return s.AggregatedDiscoveryService_StreamAggregatedResourcesServer.Send(r)
}

func (s *wholeStream) sendConfirmations() error {
	r := &discoveryv3.DiscoveryResponse{TypeUrl: xds.PolicyType, VersionInfo: s.leases.version, Nonce: leaseNonce}
	for _, one := range s.leases.confirmations() {
		wrapped, err := anypb.New(one)
		if err != nil {
			return err
		}
		r.Resources = append(r.Resources, wrapped)
	}
	return s.AggregatedDiscoveryService_StreamAggregatedResourcesServer.Send(r)
}

// StreamAggregatedResources implements the protocol in which each response holds the
// state of the world.
func (s *Server) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	leased := &wholeStream{stream, newLessor()}
	return during(stream.Context(), &leased.lessor, leased.sendConfirmations, func() error { return s.sotw.StreamHandler(leased, "") })
}

// DeltaAggregatedResources implements the protocol in which each response holds what
// has changed.
func (s *Server) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	leased := &deltaStream{stream, newLessor()}
	return during(stream.Context(), &leased.lessor, leased.sendConfirmations, func() error { return s.delta.DeltaStreamHandler(leased, "") })
}

// during confirms leases while a stream is handled.
func during(ctx context.Context, l *lessor, send, handle func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var confirming sync.WaitGroup
	confirming.Go(func() { l.confirm(ctx, send) })
	defer confirming.Wait()
	defer cancel()
	return handle()
}
