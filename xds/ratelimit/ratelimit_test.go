package ratelimit

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/internal/conf"
)

// bench is a service over the budgets of a few tenants, at a time that the test sets.
type bench struct {
	*Service
	t     *testing.T
	now   time.Time
	store *budget.Local
}

func newBench(t *testing.T, shadow bool) *bench {
	t.Helper()
	cfg := admission.Config{
		Tenants: []admission.Tenant{
			{Name: "acme", Keys: []string{"k"}, Limits: budget.Limits{RequestsPerMinute: 60, OutputTokensPerMinute: 6000, Concurrency: 1, TokensPerDay: 10000}},
			{Name: "users", UserLimits: budget.Limits{RequestsPerMinute: 6}},
			{Name: "free", Keys: []string{"f"}},
		},
		PartLimits: []admission.PartLimits{{Name: "batch", Tenant: "free", Class: "batch", Limits: budget.Limits{RequestsPerMinute: 6}}},
	}
	if err := conf.Complete("admission", &cfg); err != nil {
		t.Fatal(err)
	}
	policy, err := admission.NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, now: time.Unix(1_000_000, 0)}
	limits := budget.Config{}
	conf.Fill(&limits)
	b.store = budget.NewLocal(limits, func() time.Time { return b.now })
	b.Service = New(Config{Directory: identity.NewDirectory(identity.Of(policy)), Store: b.store, Model: func() string { return "m" }, Shadow: shadow})
	return b
}

// descriptor reads "tenant=acme unit=requests hits=2 back".
func descriptor(text string) *limitv3.RateLimitDescriptor {
	d := &limitv3.RateLimitDescriptor{}
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "hits":
			var n uint64
			fmt.Sscan(value, &n)
			d.HitsAddend = wrapperspb.UInt64(n)
		case "back":
			d.IsNegativeHits = true
		default:
			d.Entries = append(d.Entries, &limitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
	}
	return d
}

func (b *bench) ask(descriptors ...string) *rlsv3.RateLimitResponse {
	b.t.Helper()
	r := &rlsv3.RateLimitRequest{Domain: "d"}
	for _, text := range descriptors {
		r.Descriptors = append(r.Descriptors, descriptor(text))
	}
	answer, err := b.ShouldRateLimit(context.Background(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

// want asks, and holds the answer to "ok" or "over", and to what is left of the first
// descriptor.
func (b *bench) want(code string, left int, descriptors ...string) *rlsv3.RateLimitResponse {
	b.t.Helper()
	r := b.ask(descriptors...)
	got := map[rlsv3.RateLimitResponse_Code]string{rlsv3.RateLimitResponse_OK: "ok", rlsv3.RateLimitResponse_OVER_LIMIT: "over"}[r.GetOverallCode()]
	if got != code || int(r.GetStatuses()[0].GetLimitRemaining()) != left {
		b.t.Errorf("%v: %s with %d left, want %s with %d: %v", descriptors, got, r.GetStatuses()[0].GetLimitRemaining(), code, left, r)
	}
	return r
}

func TestRequests(t *testing.T) {
	b := newBench(t, false)
	for i := range 10 { // what refills in the burst of 10 s
		b.want("ok", 9-i, "tenant=acme")
	}
	r := b.want("over", 0, "tenant=acme")
	if s := r.GetStatuses()[0]; s.GetCurrentLimit().GetName() != "requests_per_minute" || s.GetCurrentLimit().GetRequestsPerUnit() != 60 || s.GetCurrentLimit().GetUnit() != rlsv3.RateLimitResponse_RateLimit_MINUTE {
		t.Errorf("the limit is %v", s)
	}
	if h := r.GetResponseHeadersToAdd(); len(h) != 1 || h[0].GetKey() != "retry-after" || h[0].GetValue() != "1" {
		t.Errorf("headers %v", h)
	}
	b.now = b.now.Add(2 * time.Second)
	b.want("ok", 0, "authorization=Bearer-k tenant=acme hits=2")
	b.now = b.now.Add(time.Second)
	b.want("over", 1, "tenant=acme hits=2")
	b.want("ok", 0, "tenant=acme")
	b.want("over", 0, "tenant=acme hits=0")
	b.want("ok", 3, "tenant=acme hits=3 back")
	b.want("ok", 3, "tenant=acme hits=0")
	if counts := b.Counts(); counts[resultOver] != 3 || counts[resultOK] != 14 {
		t.Errorf("counts %v", counts)
	}
}

// TestTokens: tokens are taken if they fit; used ones are charged in any case, and
// leave a debt that later questions see.
func TestTokens(t *testing.T) {
	b := newBench(t, false)
	b.want("ok", 600, "tenant=acme unit=output_tokens hits=400")
	b.want("over", 600, "tenant=acme unit=output_tokens hits=700")
	b.want("ok", 0, "tenant=acme unit=used_output_tokens hits=1600")
	b.want("over", 0, "tenant=acme unit=output_tokens hits=0")
	b.want("ok", 8000, "tenant=acme unit=input_tokens hits=0")
	b.want("over", 8000, "tenant=acme unit=input_tokens hits=9000")
	b.want("ok", 100, "tenant=acme unit=output_tokens hits=1100 back")
	b.now = b.now.Add(11 * time.Second)
	b.want("ok", 999, "tenant=acme unit=output_tokens")
	b.want("ok", 9, "tenant=acme hits=1") // no request was counted before
}

// TestAllOrNone: of several descriptors nothing is taken if one is over its limit,
// and what was used is charged nevertheless.
func TestAllOrNone(t *testing.T) {
	b := newBench(t, false)
	b.want("ok", 0, "tenant=users user=u")
	b.want("over", 10, "tenant=acme", "tenant=users user=u", "tenant=acme unit=used_output_tokens hits=100")
	b.want("ok", 9, "tenant=acme")
	b.want("ok", 0, "tenant=users user=v")
	b.want("ok", 900, "tenant=acme unit=output_tokens hits=0")
}

// TestSameBudgets: what the gateway has reserved is gone here too, and the other way
// round; the end of a request here frees none of the gateway's places.
func TestSameBudgets(t *testing.T) {
	b := newBench(t, false)
	ask := budget.Ask{Tenant: "acme", Model: "m", Scopes: budget.OfTenant(budget.Limits{RequestsPerMinute: 60, OutputTokensPerMinute: 6000, Concurrency: 1, TokensPerDay: 10000}), Output: 500}
	r, err := b.store.Reserve(context.Background(), ask)
	if err != nil {
		t.Fatal(err)
	}
	b.want("ok", 8, "tenant=acme") // though the one place is taken
	if _, err := b.store.Reserve(context.Background(), ask); err == nil {
		t.Error("the place was given away")
	}
	b.want("ok", 500, "tenant=acme unit=output_tokens hits=0")
	r.Settle(0, 100)
	b.want("ok", 900, "tenant=acme unit=output_tokens hits=0")
	b.want("ok", 9, "tenant=acme model=other")
	if a := b.store.Audit(); a.Reserved != a.Settled+a.Refunded {
		t.Errorf("something stays open: %+v", a)
	}
}

func TestShadow(t *testing.T) {
	b := newBench(t, true)
	for range 20 {
		if r := b.ask("tenant=acme"); r.GetOverallCode() != rlsv3.RateLimitResponse_OK || r.GetStatuses()[0].GetCode() != rlsv3.RateLimitResponse_OK {
			t.Fatalf("it refused: %v", r)
		}
	}
	if counts := b.Counts(); counts[resultShadow] != 10 || counts[resultOK] != 10 {
		t.Errorf("counts %v", counts)
	}
}

func TestWhoAndWhat(t *testing.T) {
	b := newBench(t, false)
	b.want("ok", 0, "tenant=nobody")
	b.want("ok", 0, "generic_key=x")
	b.want("ok", 0, "authorization=wrong")
	b.want("ok", 0, "tenant=free")
	b.want("ok", 0, "authorization=f class=batch")
	b.want("over", 0, "authorization=f class=batch")
	if counts := b.Counts(); counts[resultUnknown] != 4 {
		t.Errorf("counts %v", counts)
	}
	for want, r := range map[string]*rlsv3.RateLimitRequest{
		"0 descriptors":                     {},
		"65 descriptors":                    {Descriptors: make([]*limitv3.RateLimitDescriptor, 65)},
		"descriptor 0: the unit is none of": {Descriptors: []*limitv3.RateLimitDescriptor{descriptor("tenant=acme unit=apples")}},
	} {
		if _, err := b.ShouldRateLimit(context.Background(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if got := string(bearer("Bearer abc")); got != "abc" {
		t.Error(got)
	}
}

func BenchmarkShouldRateLimit(b *testing.B) {
	s := newBench(&testing.T{}, true)
	r := &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*limitv3.RateLimitDescriptor{descriptor("tenant=acme")}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.ShouldRateLimit(context.Background(), r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOverGRPC is the whole way, as Envoy goes it: over a Unix socket, with many
// questions at once.
func BenchmarkOverGRPC(b *testing.B) {
	s := newBench(&testing.T{}, true)
	ln, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(server, s)
	go server.Serve(ln)
	defer server.Stop()
	conn, err := grpc.NewClient("unix:"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	client := rlsv3.NewRateLimitServiceClient(conn)
	r := &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*limitv3.RateLimitDescriptor{descriptor("tenant=acme")}}
	b.SetParallelism(64)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := client.ShouldRateLimit(context.Background(), r); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
