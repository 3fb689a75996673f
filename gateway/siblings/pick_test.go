package siblings

import (
	"net"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/cache/shared"
	"github.com/forebay-io/forebay/internal/cost"
)

// replicaOf is a peer that needs a wait before it begins, and so much for a token; a
// price of 0 is one that nobody knows.
func replicaOf(name string, wait time.Duration, price float64) *peer {
	return &peer{name: name, report: &Report{API: name, Proven: true, Outlook: admission.Outlook{
		Cost: cost.Cost{PrefillToken: price}, Chunk: 512, LongPrefill: time.Hour,
		Classes: []admission.ClassOutlook{{Name: "interactive", Short: wait, ShortRate: 1, LongRate: 1, Open: true}},
	}}}
}

// TestPicks: a holder is sooner than one that is idle, and not sooner than one that is
// idle for much longer; a replica that has computed nothing gets work, but not all.
func TestPicks(t *testing.T) {
	now := time.Unix(1000, 0)
	cfg := &Config{HopCost: ms, FreshLimit: time.Second, Interval: 100 * ms}
	q := &Query{Class: "strange", PageTokens: 16, PromptTokens: 1000, Uncached: 1000}
	holder := []shared.Holder{{Name: "holds", Blocks: 60}}
	first := func(peers ...*peer) string {
		best := Candidate{FirstToken: time.Hour}
		for _, c := range picks(q, peers, holder, now, cfg) {
			if c.FirstToken < best.FirstToken {
				best = c
			}
		}
		return best.Name
	}
	const price = 1e6 // nanoseconds
	if got := first(replicaOf("idle", 0, price), replicaOf("holds", 500*ms, price)); got != "holds" {
		t.Errorf("%s is picked", got)
	}
	if got := first(replicaOf("idle", 0, price), replicaOf("holds", 2*time.Second, price)); got != "idle" {
		t.Errorf("%s is picked", got)
	}
	new := replicaOf("new", 0, 0)
	if got := first(replicaOf("busy", 2*time.Second, price), new); got != "new" {
		t.Errorf("%s is picked", got)
	}
	for range 3 {
		new.sent = append(new.sent, sent{now, time.Second})
	}
	if got := first(replicaOf("busy", 2*time.Second, price), new); got != "busy" {
		t.Errorf("%s is picked, which was sent three seconds of work", got)
	}
	if got := first(replicaOf("new", 0, 0)); got != "new" {
		t.Errorf("%q is picked of a fleet that knows no price", got)
	}
}

func TestAddressForProxies(t *testing.T) {
	tcp := func(text string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, c := range []struct {
		cfg        Config
		hops, want string
	}{
		{Config{API: tcp(":8080")}, "10.0.0.7:4242", "10.0.0.7:8080"},
		{Config{API: tcp("10.0.0.8:8080")}, "10.0.0.7:4242", "10.0.0.8:8080"},
		{Config{API: tcp("127.0.0.1:8080")}, "127.0.0.1:4242", "127.0.0.1:8080"},
		{Config{API: tcp("127.0.0.1:8080")}, "10.0.0.7:4242", ""},
		{Config{API: tcp("127.0.0.1:8080"), AdvertiseAPI: "192.0.2.1:80"}, "10.0.0.7:4242", "192.0.2.1:80"},
		{Config{API: tcp(":8080")}, "[::]:4242", ""}, // with peers, and a listen without a host
		{Config{}, "10.0.0.7:4242", ""},
	} {
		if got := apiOf(&c.cfg, c.hops); got != c.want {
			t.Errorf("%+v: %q, want %q", c.cfg, got, c.want)
		}
	}
}
