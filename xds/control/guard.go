package control

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"
)

// guard keeps a version that a client has refused from being sent to it again and
// again: go-control-plane compares the version that a request names, which is that
// of the last accepted response, with the present one, and so answers each refusal
// at once with what was refused.
type guard struct {
	cache.Cache
	server *Server
}

// CreateWatch implements cache.ConfigWatcher.
func (g guard) CreateWatch(request *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	if request.GetErrorDetail() != nil {
		request = proto.Clone(request).(*cache.Request)
		request.VersionInfo = g.server.sentTo(request.GetNode(), request.GetTypeUrl())
	}
	return g.Cache.CreateWatch(request, sub, out)
}

// nodeKey gives each node a snapshot of its own, which nodes of a kind share by
// pointer. It implements cache.NodeHash.
type nodeKey struct{}

// ID is what a node is called in the cache.
func (nodeKey) ID(n *corev3.Node) string { return string(kindOf(n)) + "/" + n.GetId() }

// kindOf is what a client says that it is. Whoever is neither a gRPC client nor a
// gateway is given what Envoy is given.
func kindOf(n *corev3.Node) Kind {
	agent := strings.ToLower(n.GetUserAgentName())
	switch {
	case strings.HasPrefix(agent, "grpc"):
		return GRPC
	case agent == string(Forebay):
		return Forebay
	}
	return Envoy
}
