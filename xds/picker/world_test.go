package picker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
)

// world is a picker over replicas whose answers the test gives.
type world struct {
	*Service
	client extprocv3.ExternalProcessorClient
	health healthv1.HealthClient

	mu      sync.Mutex
	query   siblings.Query // the last one
	wait    time.Duration  // that the first replica predicts
	nobody  bool
	reading chan struct{} // blocks reads until it is closed, nil for none
}

const pageTokens = 16

var replicasOf = map[string]map[string]string{"10.0.0.1:8080": {"app": "forebay"}, "10.0.0.2:8080": {"app": "forebay"}, "10.0.0.3:8080": {"app": "other"}, "10.0.0.4:9999": {"app": "forebay"}}

func newWorld(t testing.TB, cfg Config) *world {
	t.Helper()
	cfg.On = true
	if err := conf.Complete("picker", &cfg); err != nil {
		t.Fatal(err)
	}
	policy, err := admission.NewPolicy(admission.Config{Tenants: []admission.Tenant{{Name: "acme", Keys: []string{"k"}}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{}
	w.Service, err = New(cfg, Parts{
		Directory: identity.NewDirectory(identity.Of(policy)), Pick: w.choose,
		Able:       func(member func(string, map[string]string) bool) bool { return len(w.members(member)) > 0 },
		Read:       w.read,
		PageTokens: func() int { return pageTokens }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(cfg.BodyMax+64<<10), Codec(), grpc.InitialWindowSize(64<<10), grpc.InitialConnWindowSize(16<<20))
	w.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() { server.Stop(); <-served })
	conn, err := grpc.NewClient("unix:"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w.client, w.health = extprocv3.NewExternalProcessorClient(conn), healthv1.NewHealthClient(conn)
	return w
}

func (w *world) members(member func(string, map[string]string) bool) (all []string) {
	for address, labels := range replicasOf {
		if member(address, labels) && !w.nobody {
			all = append(all, address)
		}
	}
	slices.Sort(all)
	return all
}

func (w *world) choose(q *siblings.Query, member func(string, map[string]string) bool) (all []siblings.Endpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.query = *q
	for _, address := range w.members(member) {
		all = append(all, siblings.Endpoint{Candidate: siblings.Candidate{FirstToken: w.wait}, Address: address})
	}
	return all
}

// read makes a token of four bytes, and of each page a block with the hash of all before.
func (w *world) read(ctx context.Context, _ string, body []byte, tenant string) (*wire.Prompt, error) {
	if w.reading != nil {
		select {
		case <-w.reading:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	text := bytes.Join(promptOf([][]byte{body}), nil)
	p := &wire.Prompt{Tokens: make([]int32, len(text)/4)}
	for i := range len(p.Tokens) / pageTokens {
		begin := append(text[:(i+1)*4*pageTokens:(i+1)*4*pageTokens], make([]byte, chunkBytes)...)
		p.BlockHashes = append(p.BlockHashes, hashes(tenant, [][]byte{begin})[0]+uint64(i))
	}
	return p, nil
}

func (w *world) last() siblings.Query {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.query
}

// proxied is what a proxy was told of a request.
type proxied struct {
	to, meta, class string
	status          int
	why             string
	body            []byte // that went on, where the proxy asks for it
	ended           bool
	asked           bool // for the body
}

// proxy is a request, as a proxy asks about it.
type proxy struct {
	mode    modev3.ProcessingMode_BodySendMode
	unsaid  bool // it does not say its mode
	headers map[string]string
	subset  []any // nil for none
	body    string
	parts   int // in which the body is sent
	trailed bool
}

func (w *world) ask(t testing.TB, p proxy) (got proxied) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := w.client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	head := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":path", RawValue: []byte("/v1/chat/completions?x=1")}, {Key: "authorization", RawValue: []byte("Bearer k")}}}
	for key, value := range p.headers {
		head.Headers = append(head.Headers, &corev3.HeaderValue{Key: key, RawValue: []byte(value)})
	}
	first := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: head, EndOfStream: p.body == ""}}}
	if !p.unsaid {
		first.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: p.mode}
	}
	if p.subset != nil {
		list, _ := structpb.NewStruct(map[string]any{subsetKey: p.subset})
		first.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{subsetSpace: list}}
	}
	send := func(m *extprocv3.ProcessingRequest) {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() *extprocv3.ProcessingResponse {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got.note(m)
		return m
	}
	send(first)
	whole := p.mode == modev3.ProcessingMode_BUFFERED && !p.unsaid
	if p.body == "" || whole || p.mode == modev3.ProcessingMode_NONE && !p.unsaid {
		hear()
	}
	if p.body == "" || p.mode == modev3.ProcessingMode_NONE && !p.unsaid || got.status != 0 || whole && got.to != "" {
		return got
	}
	got.asked = true
	parts := slices.Collect(slices.Chunk([]byte(p.body), max(1, len(p.body)/max(1, p.parts)+1)))
	for i, part := range parts {
		send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: part, EndOfStream: i == len(parts)-1 && !p.trailed}}})
	}
	if p.trailed {
		send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}})
	}
	if whole {
		hear()
		return got
	}
	for got.status == 0 && !got.ended {
		got.ended = hear().GetRequestTrailers() != nil || got.ended
	}
	return got
}

func (got *proxied) note(m *extprocv3.ProcessingResponse) {
	if v, ok := m.GetDynamicMetadata().GetFields()[endpointSpace]; ok {
		got.meta = v.GetStructValue().GetFields()[endpointKey].GetStringValue()
	}
	if i := m.GetImmediateResponse(); i != nil {
		got.status, got.why = int(i.GetStatus().GetCode()), string(i.GetBody())
	}
	for _, c := range []*extprocv3.CommonResponse{m.GetRequestHeaders().GetResponse(), m.GetRequestBody().GetResponse()} {
		for _, h := range c.GetHeaderMutation().GetSetHeaders() {
			switch h.GetHeader().GetKey() {
			case endpointKey:
				got.to = string(h.GetHeader().GetRawValue())
			case classHeader:
				got.class = string(h.GetHeader().GetRawValue())
			}
		}
		if b := c.GetBodyMutation().GetStreamedResponse(); b != nil {
			got.body, got.ended = append(got.body, b.GetBody()...), b.GetEndOfStream()
		}
	}
}

// chat is a body whose prompt has so many bytes and differs by its seed from the first.
func chat(seed, promptBytes int) string {
	return fmt.Sprintf(`{"model":"m","seed":%d,"messages":[{"role":"user","content":"%d %s"}]}`, time.Now().UnixNano(), seed, strings.Repeat("the quick brown fox ", promptBytes/20))
}
