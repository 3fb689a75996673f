package picker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
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
	server := grpc.NewServer(grpc.MaxRecvMsgSize(cfg.BodyMax+64<<10), grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(16<<20))
	extprocv3.RegisterExternalProcessorServer(server, w.Service)
	healthv1.RegisterHealthServer(server, w.Health())
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
	text := promptOf(body)
	p := &wire.Prompt{Tokens: make([]int32, len(text)/4)}
	for i := range len(p.Tokens) / pageTokens {
		p.BlockHashes = append(p.BlockHashes, hashes(tenant, append(text[:(i+1)*4*pageTokens:(i+1)*4*pageTokens], make([]byte, chunkBytes)...))[0]+uint64(i))
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
	if p.body == "" || p.mode == modev3.ProcessingMode_NONE && !p.unsaid || got.status != 0 {
		return got
	}
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

// TestNextTurnIsKnown: what was read once is known for all that begins alike, of the
// same tenant, and no other beginning is taken for it.
func TestNextTurnIsKnown(t *testing.T) {
	w := newWorld(t, Config{ReadLimit: 10 * time.Second})
	ask := func(body string, headers map[string]string) (blocks []uint64, result int) {
		before := w.Counts()
		w.ask(t, proxy{mode: modev3.ProcessingMode_BUFFERED, body: body, headers: headers})
		for i, n := range w.Counts() {
			if n != before[i] {
				result = i
			}
		}
		return w.last().Blocks, result
	}
	first := chat(1, 40000)
	blocks, result := ask(first, nil)
	if result != resultRead || len(blocks) < 600 {
		t.Fatalf("%s, %d blocks", ResultNames[result], len(blocks))
	}
	next := strings.TrimSuffix(chat(1, 40000), "]}") + `,{"role":"user","content":"and then?"}],"stream":true}`
	again, result := ask(next, nil)
	if result != resultKnown || len(again) < len(blocks)-32 || !slices.Equal(again, blocks[:len(again)]) {
		t.Errorf("the next turn: %s, %d blocks of %d", ResultNames[result], len(again), len(blocks))
	}
	if q := w.last(); q.PromptTokens < 9000 || q.PromptTokens > 12000 || q.Uncached != q.PromptTokens || q.PageTokens != pageTokens || q.Class != "interactive" {
		t.Errorf("the query is %+v", q)
	}
	if _, result := ask(chat(2, 40000), nil); result != resultRead {
		t.Errorf("another prompt: %s", ResultNames[result])
	}
	if _, result := ask(next, map[string]string{"authorization": "Bearer unknown"}); result != resultLoad {
		t.Errorf("an unknown key: %s", ResultNames[result])
	}
	if _, result := ask(chat(3, 300), nil); result != resultLoad {
		t.Errorf("a short prompt: %s", ResultNames[result])
	}
	if _, result := ask(`{"messages": nonsense`, nil); result != resultLoad {
		t.Errorf("no JSON: %s", ResultNames[result])
	}
}

// TestSlowReading: a prompt that takes long to read is picked by load, and known later;
// while all readers are busy, others do not wait.
func TestSlowReading(t *testing.T) {
	w := newWorld(t, Config{ReadLimit: 10 * time.Millisecond, ReadsMax: 1})
	w.reading = make(chan struct{})
	body := chat(1, 20000)
	p := proxy{mode: modev3.ProcessingMode_BUFFERED, body: body}
	w.ask(t, p)
	w.ask(t, proxy{mode: modev3.ProcessingMode_BUFFERED, body: chat(2, 20000)})
	if got := w.Counts(); got[resultLoad] != 2 {
		t.Errorf("picked %v", got)
	}
	close(w.reading)
	w.Service.reading.Wait()
	w.ask(t, p)
	if got := w.Counts(); got[resultKnown] != 1 {
		t.Errorf("then %v", got)
	}
}

const poolText = `# a pool
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: p}
spec:
  selector:
    matchLabels: {app: forebay}
  targetPorts: [{number: 8080}]
---
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceObjective
metadata: {name: late, annotations: {forebay.io/class: batch}}
spec: {priority: -1, poolRef: {name: p}}
---
apiVersion: v1
kind: Service
metadata: {name: late}
`

// TestPoolAndObjectives: the pool, the proxy's subset and the objective say who may be
// picked, in which class, and when nobody.
func TestPoolAndObjectives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pool.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(poolText)
	w := newWorld(t, Config{Pool: file, ShedWait: time.Second})
	late := map[string]string{objectiveHeader: "late"}
	for name, c := range map[string]struct {
		proxy
		wait   time.Duration
		nobody bool
		want   proxied
	}{
		"members":                  {want: proxied{to: "10.0.0.1:8080,10.0.0.2:8080"}},
		"a subset":                 {proxy: proxy{subset: []any{"10.0.0.2:8080", "10.0.0.3:8080"}}, want: proxied{to: "10.0.0.2:8080"}},
		"a subset of strangers":    {proxy: proxy{subset: []any{"10.9.9.9:1"}}, want: proxied{status: 503}},
		"an empty subset":          {proxy: proxy{subset: []any{}}, want: proxied{status: 503}},
		"nobody is there":          {nobody: true, want: proxied{status: 503}},
		"an objective":             {proxy: proxy{headers: late}, want: proxied{to: "10.0.0.1:8080,10.0.0.2:8080", class: "batch"}},
		"the client's class":       {proxy: proxy{headers: map[string]string{objectiveHeader: "late", classHeader: "interactive"}}, want: proxied{to: "10.0.0.1:8080,10.0.0.2:8080"}},
		"busy, and it may be shed": {proxy: proxy{headers: late}, wait: 2 * time.Second, want: proxied{status: 429}},
		"busy, and it may not":     {wait: 2 * time.Second, want: proxied{to: "10.0.0.1:8080,10.0.0.2:8080"}},
	} {
		w.wait, w.nobody = c.wait, c.nobody
		c.mode = modev3.ProcessingMode_BUFFERED
		got := w.ask(t, c.proxy)
		if got.to != c.want.to || got.class != c.want.class || got.status != c.want.status || got.status != 0 && !strings.Contains(got.why, `{"error":{"code":null,"message":"`) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	w.nobody = false
	health := func(service string) string {
		r, err := w.health.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			return err.Error()
		}
		return r.GetStatus().String()
	}
	if got := health("readiness"); got != "SERVING" {
		t.Error(got)
	}
	w.nobody = true
	if got := health("envoy.service.ext_proc.v3.ExternalProcessor") + health("liveness"); got != "NOT_SERVINGSERVING" {
		t.Error(got)
	}
	// A changed file is read again; a wrong one changes nothing.
	w.nobody = false
	now := time.Now()
	for _, step := range []struct{ text, to string }{
		{strings.Replace(poolText, "8080", "9999", 1), "10.0.0.4:9999"}, {"kind: [", "10.0.0.4:9999"}, {strings.Replace(poolText, "app: forebay", "app: other", 1), "10.0.0.3:8080"},
	} {
		write(step.text)
		now = now.Add(time.Minute)
		pool := w.pool.now(now)
		if got := w.members(pool.has); len(got) != 1 || got[0] != step.to {
			t.Errorf("%q: %v", step.text, got)
		}
	}
}

func TestPoolMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":         "it has 0 InferencePools",
		"kind: [":  "not valid YAML",
		"- a\n- b": "it has 0 InferencePools",
		poolText + "---\nkind: InferencePool\nspec: {selector: {a: b}, targetPortNumber: 1}\n":       "it has 2 InferencePools",
		"kind: InferencePool\nmetadata: {name: p}\nspec: {selector: {a: b}}":                         "InferencePool p: spec.targetPorts: is missing",
		"kind: InferencePool\nspec: {targetPorts: [{number: 70000}]}":                                `"70000" is no port`,
		"kind: InferencePool\nspec: {selector: {matchLabels: {a: [b]}}, targetPorts: [{number: 1}]}": "a must be a text",
		strings.Replace(poolText, "poolRef: {name: p}", "poolRef: {name: q}", 1):                     `spec.poolRef.name is "q", and the pool is "p"`,
		strings.Replace(poolText, "priority: -1", "priority: high", 1):                               `"high" is no whole number`,
		strings.Replace(poolText, "name: late, ", "", 1):                                             "its metadata.name is missing",
	} {
		if _, err := parsePool([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	old, err := parsePool([]byte("kind: InferencePool\nmetadata: {name: p}\nspec: {selector: {a: b}, targetPortNumber: 8000}"))
	if err != nil || !old.has("[::1]:8000", map[string]string{"a": "b", "c": "d"}) || old.has("[::1]:8001", map[string]string{"a": "b"}) || old.has("x", nil) {
		t.Errorf("v1alpha2: %+v, %v", old, err)
	}
}

// TestTrailIsBounded: whatever comes, no more chunks are kept than the limit, and the
// newest are.
func TestTrailIsBounded(t *testing.T) {
	trail := newTrail(100)
	blocks := make([]uint64, 1000)
	for i := range 50 {
		text := []byte(strings.Repeat(fmt.Sprint(i), 30*chunkBytes))[:30*chunkBytes]
		chain := hashes("t", text)
		trail.learn(chain, len(text), 8000, blocks)
		if got, known := trail.find(chain); known != 30 || len(got) != 1000 {
			t.Fatalf("%d chunks known, %d blocks", known, len(got))
		}
		if len(trail.chunks) > 100 || len(trail.oldest) > 100 {
			t.Fatalf("%d chunks are kept", len(trail.chunks))
		}
	}
	if rate := trail.tokens(chunkBytes * 30); rate < 7000 || rate > 9000 {
		t.Errorf("30 KiB are %d tokens", rate)
	}
}
