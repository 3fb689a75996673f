package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// link is one stream to a control plane, in one of the protocols.
type link interface {
	// receive waits for a response, whose name is its nonce; err ends the link.
	receive() (nonce string, r response, err error)
	// whole reports whether each response holds everything. If not, and one could not
	// be noted, the link is of no use any more: the next response would hold the
	// changes since that one.
	whole() bool
	// answer says that the response was taken, or why not.
	answer(nonce, version string, wrong error) error
	// report tells how requests go, after the first answer.
	report(h Health) error
}

// response notes in a book what the control plane says, as of a time. confirms tells that
// it only confirms what is held; wrong says why the response changes nothing.
type response func(b *book, now time.Time) (confirms bool, wrong error)

// dial opens links to a server; a test has its own.
// have are the versions of files that need not be sent again, accepted is that of the
// whole that was taken last.
type dial func(ctx context.Context, server *BootstrapServer, protocol string, have map[string]string, accepted string) (l link, close func(), err error)

// The protocols.
const (
	deltaProtocol = "delta"
	sotwProtocol  = "sotw"
)

// node is what the client says about itself.
func (b *Bootstrap) node(version string) (*corev3.Node, error) {
	n := &corev3.Node{
		Id: b.Node.ID, Cluster: b.Node.Cluster, UserAgentName: "forebay",
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: version},
	}
	var err error
	if len(b.Node.Metadata) > 0 {
		if n.Metadata, err = structpb.NewStruct(b.Node.Metadata); err != nil {
			err = fmt.Errorf("node.metadata: %w", err)
		}
	}
	return n, err
}

// overhead is what a response may hold besides the text of files.
const overhead = 1 << 20

// dialer opens links over gRPC.
func dialer(node *corev3.Node, bytesMax int) dial {
	return func(ctx context.Context, server *BootstrapServer, protocol string, have map[string]string, accepted string) (link, func(), error) {
		conn, err := server.Dial(
			// A control plane that is gone without a word is noticed.
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: grpcbackoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(bytesMax+overhead)),
		)
		if err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		end := func() { cancel(); conn.Close() }
		l, err := openLink(ctx, discoveryv3.NewAggregatedDiscoveryServiceClient(conn), node, protocol, have, accepted)
		if err != nil {
			end()
			return nil, nil, err
		}
		return l, end, nil
	}
}

func openLink(ctx context.Context, client discoveryv3.AggregatedDiscoveryServiceClient, node *corev3.Node, protocol string, have map[string]string, accepted string) (link, error) {
	if protocol == sotwProtocol {
		s, err := client.StreamAggregatedResources(ctx)
		if err != nil {
			return nil, err
		}
		return &sotwLink{stream: s, node: node, accepted: accepted}, ignoreEOF(s.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: PolicyType, VersionInfo: accepted}))
	}
	s, err := client.DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	return &deltaLink{stream: s, node: node}, ignoreEOF(s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: PolicyType, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: have}))
}

// ignoreEOF drops the error by which Send says that the stream has ended: Recv says
// why.
func ignoreEOF(err error) error {
	if err != nil && status.Code(err) == codes.Unknown {
		return nil
	}
	return err
}

// unknownProtocol reports whether a server does not know the protocol of changes.
func unknownProtocol(err error) bool { return status.Code(err) == codes.Unimplemented }

type deltaLink struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node   *corev3.Node

	// The last answer, which a report repeats.
	nonce string
	wrong error
}

func (l *deltaLink) receive() (string, response, error) {
	r, err := l.stream.Recv()
	return r.GetNonce(), func(b *book, now time.Time) (bool, error) { return b.changed(r, now) }, err
}

func (l *deltaLink) whole() bool { return false }

func (l *deltaLink) answer(nonce, _ string, wrong error) error {
	l.nonce, l.wrong = nonce, wrong
	return ignoreEOF(l.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: PolicyType, ResponseNonce: nonce, ErrorDetail: detail(wrong)}))
}

// HealthKey is the member of a node's metadata that says how its requests go: an object
// with the numbers requests and failed, since the node's start.
const HealthKey = "forebay.health"

// healthy is a node with how its requests go.
func healthy(node *corev3.Node, h Health) *corev3.Node {
	node = proto.Clone(node).(*corev3.Node)
	if node.Metadata == nil {
		node.Metadata = &structpb.Struct{}
	}
	if node.Metadata.Fields == nil {
		node.Metadata.Fields = map[string]*structpb.Value{}
	}
	node.Metadata.Fields[HealthKey] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"requests": structpb.NewNumberValue(float64(h.Requests)), "failed": structpb.NewNumberValue(float64(h.Failed)),
	}})
	return node
}

// report repeats the last answer, with the node's present metadata. A request without
// the name of a response would be taken for the first one of a stream, and be answered.
func (l *deltaLink) report(h Health) error {
	return l.stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: healthy(l.node, h), TypeUrl: PolicyType, ResponseNonce: l.nonce, ErrorDetail: detail(l.wrong)})
}

type sotwLink struct {
	stream   discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node     *corev3.Node
	accepted string // the version that was taken last

	// The last answer, which a report repeats.
	nonce string
	wrong error
}

// report repeats the last answer, as in the other protocol.
func (l *sotwLink) report(h Health) error {
	return l.stream.Send(&discoveryv3.DiscoveryRequest{Node: healthy(l.node, h), TypeUrl: PolicyType, ResponseNonce: l.nonce, VersionInfo: l.accepted, ErrorDetail: detail(l.wrong)})
}

func (l *sotwLink) receive() (string, response, error) {
	r, err := l.stream.Recv()
	return r.GetNonce(), func(b *book, now time.Time) (bool, error) { return b.replaced(r, now) }, err
}

func (l *sotwLink) whole() bool { return true }

func (l *sotwLink) answer(nonce, version string, wrong error) error {
	if wrong == nil {
		l.accepted = version
	}
	l.nonce, l.wrong = nonce, wrong
	return ignoreEOF(l.stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: PolicyType, ResponseNonce: nonce, VersionInfo: l.accepted, ErrorDetail: detail(wrong)}))
}

// detail is a refusal, nil for none.
func detail(wrong error) *rpcstatus.Status {
	if wrong == nil {
		return nil
	}
	const most = 4000
	text := wrong.Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: text}
}

// reason is what an error of gRPC says, in few words.
func reason(err error) string {
	if errors.Is(err, io.EOF) {
		return "it ended the stream"
	}
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

var errNothingLeft = errors.New("the policy holds no file any more, which is taken for a mistake: the last one goes on holding; to give up policies, restart the gateway without xds")
