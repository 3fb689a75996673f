package shared

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// clocked opens a replica at a fake Redis, that makes no round trips by itself.
func clocked(t *testing.T, r *fakeRedis, name string) *Fleet {
	t.Helper()
	f, err := assemble(Options{
		Client: r.client(), Prefix: "p", Name: name, Secret: []byte("a secret of all"), Interval: 100 * time.Millisecond, Limit: time.Second, Lease: 3 * time.Second,
		BlocksMax: 1 << 16, ChangesMax: 1 << 12, LogMax: 8192, LoadsMax: 32,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.clock = r.clock
	f.Join("model", 1)
	f.Report(string(make([]byte, 700)))
	return f
}

// The law of growth: each replica makes one round trip an interval, of at most eight
// commands; what is written grows with the replicas, and what is read of blocks with
// their square. FOREBAY_FLEET=1 measures 256 too.
func TestLawOfGrowth(t *testing.T) {
	sizes := []int{3, 16}
	if os.Getenv("FOREBAY_FLEET") != "" {
		sizes = append(sizes, 256)
	}
	const rounds, changes = 50, 8 // 5 s; 80 blocks a second added and evicted: 5,000 tokens at a grain of 128
	for _, n := range sizes {
		r := newFakeRedis()
		commands := 0
		r.ran = func([]any) { commands++ }
		var all []*Fleet
		for i := range n {
			all = append(all, clocked(t, r, fmt.Sprint(i)))
		}
		run := func(rounds int) {
			for range rounds {
				r.now += 100
				for _, f := range all {
					f.Follow(added(rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()))
					f.Follow(evicted(oldest(f, changes/2)...))
					f.round()
				}
			}
		}
		run(20 + n) // all know all
		commands = 0
		var before, after Counts
		sum := func(into *Counts) {
			for _, f := range all {
				c, _ := f.Counts()
				into.Trips, into.Sent, into.Received = into.Trips+c.Trips, into.Sent+c.Sent, into.Received+c.Received
				into.BytesIn, into.BytesOut = into.BytesIn+c.BytesIn, into.BytesOut+c.BytesOut
				into.Resyncs, into.Failed, into.Dropped = into.Resyncs+c.Resyncs, into.Failed+c.Failed, into.Dropped+c.Dropped
			}
		}
		sum(&before)
		run(rounds)
		sum(&after)
		seconds := float64(rounds) / 10
		rate := func(a, b uint64) float64 { return float64(a-b) / seconds }
		t.Logf("%3d replicas: a second %.0f round trips, %.0f commands, %.0f bytes written, %.0f read, of these %.0f of blocks", n, rate(after.Trips, before.Trips),
			float64(commands)/seconds, rate(after.BytesOut, before.BytesOut), rate(after.BytesIn, before.BytesIn), blockBytes*rate(after.Received, before.Received))
		if trips := after.Trips - before.Trips; trips != uint64(n*rounds) || commands > 8*n*rounds {
			t.Errorf("%d replicas: %d round trips and %d commands in %d intervals", n, trips, commands, rounds)
		}
		sent, received := after.Sent-before.Sent, after.Received-before.Received
		if sent < uint64(n*rounds*changes)*9/10 || sent > uint64(n*rounds*changes) {
			t.Errorf("%d replicas sent %d changes", n, sent)
		}
		if others := uint64(n - 1); received > sent*others*101/100 || received < sent*others*95/100 {
			t.Errorf("%d replicas sent %d changes and received %d", n, sent, received)
		}
		if after.Resyncs != before.Resyncs || after.Failed > 0 || after.Dropped > 0 {
			t.Errorf("%d replicas: %+v, before %+v", n, after, before)
		}
	}
}

// oldest is some of the blocks that f holds, if it holds many.
func oldest(f *Fleet, n int) (hashes []uint64) {
	for h := range f.own {
		if len(f.own) > 40 && len(hashes) < n {
			hashes = append(hashes, h)
		}
	}
	return hashes
}

// A storm evicts most of what a replica holds, and adds as much, also faster than can be
// told. One round trip of each later, at most one in a thousand claims is false.
func TestFalseClaimsAfterAStorm(t *testing.T) {
	for name, each := range map[string]int{"told": 1000, "more than may wait": 20000} {
		r := newFakeRedis()
		a, b := clocked(t, r, "a"), clocked(t, r, "b")
		trip := func(times int) {
			for range times {
				r.now += 100
				a.round()
				b.round()
			}
		}
		rnd := rand.New(rand.NewPCG(5, 5))
		held := map[uint64]bool{}
		storm := func(n int) {
			var news hitmap.News
			for h := range held {
				if len(news.Changes) < n/2 {
					news.Changes = append(news.Changes, hitmap.Change{Hash: h, Evicted: true})
					delete(held, h)
				}
			}
			for range n / 2 {
				h := rnd.Uint64()
				held[h] = true
				news.Changes = append(news.Changes, hitmap.Change{Hash: h})
			}
			a.Follow(news)
		}
		claims := func() (all, wrong int) {
			var buf [16]byte
			truth := map[uint64]bool{}
			for h := range held {
				truth[a.seal.hash(h, &buf)] = true
			}
			slot, ok := b.blocks.Slot("a")
			if !ok {
				return 0, 0
			}
			all = b.blocks.Claims(slot)
			for h := range truth {
				if len(b.blocks.Match([]uint64{h}, nil)) == 1 {
					wrong--
				}
			}
			return all, wrong + all
		}
		storm(8000)
		trip(30)
		storm(each)
		all, wrong := claims()
		if t.Logf("%s: in the storm %d of %d claims are false", name, wrong, all); wrong == 0 {
			t.Error("no claim is false before it is told: the test proves nothing")
		}
		for range 9 {
			trip(1)
			storm(each)
		}
		trip(1)
		all, wrong = claims()
		if t.Logf("%s: a round trip later %d of %d", name, wrong, all); wrong*1000 > all {
			t.Errorf("%s: %d of %d claims are false", name, wrong, all)
		}
		trip(20)
		if all, wrong = claims(); wrong > 0 || all != len(held) {
			t.Errorf("%s: of %d blocks %d are known, and %d claims are false", name, len(held), all, wrong)
		}
	}
}

// An engine that dies at any moment is believed to hold nothing at most 200 ms later, with
// round trips of both replicas each 100 ms at any distance from each other.
func TestClaimsOfADeadEngineEnd(t *testing.T) {
	for phase := int64(0); phase < 100; phase += 10 {
		for dies := int64(0); dies < 100; dies += 10 {
			r := newFakeRedis()
			a, b := clocked(t, r, "a"), clocked(t, r, "b")
			pass := func(ms int64) {
				for range ms / 10 {
					if r.now += 10; r.now%100 == 0 {
						a.round()
					}
					if r.now%100 == phase {
						b.round()
					}
				}
			}
			pass(1000 - r.now%100)
			a.Follow(added(1, 2, 3))
			pass(1000)
			if !holds(b, "[{a 3}]", 1, 2, 3) {
				t.Fatalf("phase %d: b does not know what a holds: %v", phase, b.Match([]uint64{1, 2, 3}, nil))
			}
			pass(dies)
			a.Follow(hitmap.News{Missed: true})
			late := int64(0)
			for ; !holds(b, "[]", 1, 2, 3) && late < 1000; late += 10 {
				pass(10)
			}
			if late > 200 {
				t.Errorf("phase %d, dead at %d: believed for %d ms more", phase, dies, late)
			}
		}
	}
}
