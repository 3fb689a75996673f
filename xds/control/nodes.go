package control

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/forebay-io/forebay/xds/controlpb"
)

// nodes are the connected clients.
type nodes struct {
	byKey   map[string]*node
	streams map[stream]string // the key of the node
	totals  Totals
}

// Totals are counts since the start, of all nodes.
type Totals struct{ Responses, Refusals uint64 }

// Totals are the counts so far.
func (s *Server) Totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes.totals
}

// stream is a stream; both protocols count their own.
type stream struct {
	delta bool
	id    int64
}

type node struct {
	id, cluster string
	kind        Kind
	canary      bool
	since       time.Time
	streams     int
	types       map[string]*progress

	told           bool // it has said how its requests go
	health, before tally
}

// progress is how far a node is with a type of resources.
type progress struct {
	sent, nonce, acked string
	refused            string // the nonce of the last response that was refused
	whole              bool   // the client asked for all resources of the type
	problem            string
	nacks, responses   int64
}

func newNodes() nodes { return nodes{byKey: map[string]*node{}, streams: map[stream]string{}} }

// all lists the nodes.
func (ns *nodes) all() []*node { return slices.Collect(maps.Values(ns.byKey)) }

// asked notes a request: who asks, and what became of the last response.
func (s *Server) asked(id stream, who *corev3.Node, typeURL, nonce, acked string, refused *status.Status, whole bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, known := s.nodes.streams[id]
	if !known {
		if who.GetId() == "" {
			return grpcstatus.Error(codes.InvalidArgument, "the first request of a stream must name its node by an id")
		}
		key = nodeKey{}.ID(who)
		n := s.nodes.byKey[key]
		if n == nil {
			if len(s.nodes.byKey) >= s.cfg.NodesMax {
				return grpcstatus.Errorf(codes.ResourceExhausted, "there are nodes_max, %d, nodes already", s.cfg.NodesMax)
			}
			n = &node{id: who.GetId(), cluster: who.GetCluster(), kind: kindOf(who), canary: s.trial.rule.includes(who), since: time.Now(), types: map[string]*progress{}}
			if err := s.admit(key, n); err != nil {
				return err
			}
			s.nodes.byKey[key] = n
		}
		n.streams++
		s.nodes.streams[id] = key
	}
	n := s.nodes.byKey[key]
	if h, ok := readHealth(who); ok {
		n.heard(h)
	}
	p := n.types[typeURL]
	if p == nil {
		if len(n.types) >= typesMax {
			return grpcstatus.Errorf(codes.ResourceExhausted, "a node may ask for %d types at most", typesMax)
		}
		p = &progress{whole: whole}
		n.types[typeURL] = p
	}
	switch {
	case nonce == "" || nonce != p.nonce:
	case refused != nil && p.refused == nonce: // it says so again
	case refused != nil:
		p.refused = nonce
		p.nacks++
		s.nodes.totals.Refusals++
		p.problem = clip(refused.GetMessage())
		s.log.Warn("control: a node refuses a version", "node", n.id, "kind", n.kind, "type", typeURL, "version", p.sent, "error", p.problem)
	default:
		p.acked, p.problem = cmp.Or(acked, p.sent), ""
	}
	return nil
}

// typesMax bounds what a client can make the server remember.
const typesMax = 32

// clip shortens what a client says.
func clip(text string) string {
	const most = 2000
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

// answered notes a response that is about to be sent.
func (s *Server) answered(id stream, typeURL, version, nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes.byKey[s.nodes.streams[id]]; n != nil && n.types[typeURL] != nil {
		p := n.types[typeURL]
		p.sent, p.nonce, p.problem, p.refused = version, nonce, "", ""
		p.responses++
		s.nodes.totals.Responses++
	}
}

// closed forgets a stream, and with its last stream the node.
func (s *Server) closed(id stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, known := s.nodes.streams[id]
	if !known {
		return
	}
	delete(s.nodes.streams, id)
	if n := s.nodes.byKey[key]; n.streams > 1 {
		n.streams--
		return
	}
	delete(s.nodes.byKey, key)
	s.cache.ClearSnapshot(key)
}

// sentTo is the version of a type that a node was sent last.
func (s *Server) sentTo(who *corev3.Node, typeURL string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes.byKey[nodeKey{}.ID(who)]; n != nil && n.types[typeURL] != nil {
		return n.types[typeURL].sent
	}
	return ""
}

// callbacks tells the server what happens on streams.
type callbacks struct{ s *Server }

func (c callbacks) OnStreamOpen(context.Context, int64, string) error { return nil }
func (c callbacks) OnStreamClosed(id int64, _ *corev3.Node)           { c.s.closed(stream{false, id}) }

func (c callbacks) OnStreamRequest(id int64, r *discoveryv3.DiscoveryRequest) error {
	return c.s.asked(stream{false, id}, r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetVersionInfo(), r.GetErrorDetail(), isWhole(r.GetResourceNames()))
}

func (c callbacks) OnStreamResponse(_ context.Context, id int64, _ *discoveryv3.DiscoveryRequest, r *discoveryv3.DiscoveryResponse) {
	c.s.answered(stream{false, id}, r.GetTypeUrl(), r.GetVersionInfo(), r.GetNonce())
}

func (c callbacks) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }
func (c callbacks) OnDeltaStreamClosed(id int64, _ *corev3.Node)           { c.s.closed(stream{true, id}) }

func (c callbacks) OnStreamDeltaRequest(id int64, r *discoveryv3.DeltaDiscoveryRequest) error {
	return c.s.asked(stream{true, id}, r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), "", r.GetErrorDetail(), isWhole(r.GetResourceNamesSubscribe()))
}

func (c callbacks) OnStreamDeltaResponse(id int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse) {
	c.s.answered(stream{true, id}, r.GetTypeUrl(), r.GetSystemVersionInfo(), r.GetNonce())
}

// isWhole reports whether names ask for all resources of a type.
func isWhole(names []string) bool { return len(names) == 0 || slices.Contains(names, "*") }

// GetStatus implements controlpb.ControlServiceServer.
func (s *Server) GetStatus(context.Context, *controlpb.GetStatusRequest) (*controlpb.GetStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &controlpb.GetStatusResponse{Version: s.trial.stable.Version, TakenUnix: s.taken.Unix(), Error: s.wrong, Rollout: s.trial.words()}
	for _, n := range s.nodes.byKey {
		m := &controlpb.Node{Id: n.id, Cluster: n.cluster, Kind: string(n.kind), Canary: n.canary, SinceUnix: n.since.Unix()}
		for typeURL, p := range n.types {
			t := &controlpb.TypeState{TypeUrl: typeURL, SentVersion: p.sent, AckedVersion: p.acked, CurrentVersion: p.sent, Error: p.problem, Nacks: p.nacks, Responses: p.responses}
			if p.whole {
				t.CurrentVersion = s.trial.of(n.canary).of(n.kind).GetVersion(typeURL)
			}
			m.Types = append(m.Types, t)
		}
		slices.SortFunc(m.Types, func(a, b *controlpb.TypeState) int { return cmp.Compare(a.TypeUrl, b.TypeUrl) })
		r.Nodes = append(r.Nodes, m)
	}
	slices.SortFunc(r.Nodes, func(a, b *controlpb.Node) int { return cmp.Or(cmp.Compare(a.Id, b.Id), cmp.Compare(a.Kind, b.Kind)) })
	return r, nil
}

// ListResources implements controlpb.ControlServiceServer.
func (s *Server) ListResources(context.Context, *controlpb.ListResourcesRequest) (*controlpb.ListResourcesResponse, error) {
	s.mu.Lock()
	sets := s.trial.stable
	s.mu.Unlock()
	return &controlpb.ListResourcesResponse{Version: sets.Version, Resources: sets.List()}, nil
}

// List is every resource of gateways and Envoy proxies, by type and name. Of
// certificates it tells the version alone.
func (s *Sets) List() (list []*controlpb.Resource) {
	for _, kind := range []Kind{Forebay, Envoy} {
		for typeURL, r := range s.of(kind).byType {
			for name, item := range r.items {
				m := &controlpb.Resource{TypeUrl: typeURL, Name: name, Version: r.versions[name]}
				if file, ok := item.(*controlpb.PolicyFile); ok {
					m.Text = file.Text
				}
				list = append(list, m)
			}
		}
	}
	slices.SortFunc(list, func(a, b *controlpb.Resource) int {
		return cmp.Or(cmp.Compare(a.TypeUrl, b.TypeUrl), cmp.Compare(a.Name, b.Name))
	})
	return list
}
