package shared

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/storetest"
)

var eventually = storetest.Eventually

// options are those of a fast Fleet, behind address.
func options(address, name string) Options {
	return Options{
		Client: redis.NewClient(&redis.Options{Addr: address, Protocol: 2, MaxRetries: -1, ContextTimeoutEnabled: true}), Prefix: "test", Name: name,
		Interval: 10 * time.Millisecond, Limit: time.Second, Lease: time.Second,
		BlocksMax: 1 << 16, ChangesMax: 1 << 12, LogMax: 1000, LoadsMax: 32,
	}
}

func open(t *testing.T, o Options) *Fleet {
	t.Helper()
	f, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.Join("model", 1)
	f.Report("load of " + o.Name)
	return f
}

func added(hashes ...uint64) (n hitmap.News) {
	for _, h := range hashes {
		n.Changes = append(n.Changes, hitmap.Change{Hash: h})
	}
	return n
}

func evicted(hashes ...uint64) (n hitmap.News) {
	for _, h := range hashes {
		n.Changes = append(n.Changes, hitmap.Change{Hash: h, Evicted: true})
	}
	return n
}

func holds(f *Fleet, want string, blocks ...uint64) bool {
	return fmt.Sprint(f.Match(blocks, nil)) == want
}

func TestReplicasKnowWhatOthersHold(t *testing.T) {
	server := storetest.Start(t, os.Getenv("FOREBAY_TEST_REQUIRE"))
	o := options(server.Address, "a")
	a, b := open(t, o), open(t, options(server.Address, "b"))
	eventually(t, "they know each other", func() bool { return len(a.Siblings(nil)) == 1 && len(b.Siblings(nil)) == 1 })
	if s := b.Siblings(nil)[0]; s.Name != "a" || s.Report != "load of a" {
		t.Errorf("b sees %+v", s)
	}
	a.Follow(added(1, 2, 3))
	eventually(t, "b knows what a holds", func() bool { return holds(b, "[{a 3}]", 1, 2, 3, 4) })
	b.Follow(added(1))
	eventually(t, "a knows what b holds", func() bool { return holds(a, "[{b 1}]", 1, 2) })
	if n, one, none := a.Held([]uint64{1, 2, 3, 4}), b.Held([]uint64{1, 2}), b.Held([]uint64{2}); n != 3 || one != 1 || none != 0 {
		t.Errorf("a says that it holds %d of its blocks itself, b %d and %d", n, one, none)
	}
	a.Follow(evicted(3, 2))
	eventually(t, "b knows what a evicted", func() bool { return holds(b, "[{a 1}]", 1, 2, 3) })

	// One that comes later asks for everything.
	c := open(t, options(server.Address, "c"))
	eventually(t, "c knows what both hold", func() bool { return len(c.Match([]uint64{1}, nil)) == 2 })
	c.Use([]uint64{1})

	// An engine that starts again holds nothing, at once for the others.
	began := time.Now()
	a.Follow(hitmap.News{Missed: true})
	eventually(t, "b knows that a's engine is gone", func() bool { return holds(b, "[]", 1) })
	if took := time.Since(began); took > o.Lease/2 { // some milliseconds, where the machine has them
		t.Errorf("claims of a lost engine lasted %v", took)
	}
	a.Follow(added(1, 2))
	eventually(t, "b knows what the new engine holds", func() bool { return holds(b, "[{a 2}]", 1, 2) })

	// Another model is another space.
	a.Join("other", 1)
	eventually(t, "a has left the space", func() bool { return len(b.Siblings(nil)) == 1 && holds(b, "[]", 2) })
	a.Join("model", 1)
	eventually(t, "a is back, with an empty engine", func() bool { return len(b.Siblings(nil)) == 2 && holds(b, "[]", 2) })

	c.Close()
	eventually(t, "c has left", func() bool { return len(b.Siblings(nil)) == 1 })
	counts, up := b.Counts()
	late, _ := c.Counts()
	if !up || counts.Failed > 0 || counts.Received == 0 || late.Resyncs == 0 {
		t.Errorf("up %v, b %+v, c %+v", up, counts, late)
	}
}

// Whatever the changes, what b believes of a is in the end what a holds: also where
// the log forgets entries before b reads them, and where a must drop changes.
func TestWhatIsMissedIsRepaired(t *testing.T) {
	server := storetest.Start(t, os.Getenv("FOREBAY_TEST_REQUIRE"))
	o := options(server.Address, "a")
	o.ChangesMax, o.LogMax = 8, 1
	a := open(t, o)
	b := open(t, options(server.Address, "b"))
	eventually(t, "they know each other", func() bool { return len(a.Siblings(nil)) == 1 && len(b.Siblings(nil)) == 1 })
	r := rand.New(rand.NewPCG(1, 1))
	held := map[uint64]bool{}
	for range 300 {
		var news hitmap.News
		for range r.IntN(12) {
			h := uint64(1 + r.IntN(50))
			news.Changes = append(news.Changes, hitmap.Change{Hash: h, Evicted: held[h]})
			held[h] = !held[h]
		}
		a.Follow(news)
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
	}
	if counts, _ := a.Counts(); counts.Dropped == 0 {
		t.Error("nothing was dropped: the test proves nothing")
	}
	eventually(t, "b knows exactly what a holds", func() bool {
		for h := range uint64(51) {
			if want := held[h]; (len(b.Match([]uint64{h}, nil)) == 1) != want {
				return false
			}
		}
		return true
	})
	if counts, _ := a.Counts(); counts.Written == 0 {
		t.Errorf("nobody asked for all blocks: %+v", counts)
	}
}

// Redis is slow, silent, cut, killed, flushed and full: nobody waits, claims of a
// replica that is not heard end, and all is known again afterwards.
func TestRedisFails(t *testing.T) {
	server := storetest.Start(t, os.Getenv("FOREBAY_TEST_REQUIRE"))
	proxy := storetest.NewProxy(t, server.Address)
	o := options(proxy.Address, "b")
	o.Limit, o.Lease = 100*time.Millisecond, 500*time.Millisecond
	a, b := open(t, options(server.Address, "a")), open(t, o)
	a.Follow(added(1, 2))
	knows := func() bool { return holds(b, "[{a 2}]", 1, 2) && len(b.Siblings(nil)) == 1 }
	eventually(t, "b knows a", knows)
	ctx := context.Background()
	for _, c := range []struct {
		what      string
		fail, end func()
	}{
		{"silent", func() { proxy.Silent.Store(true) }, func() { proxy.Silent.Store(false); proxy.Cut() }},
		{"slow", func() { proxy.Delay.Store(int64(400 * time.Millisecond)) }, func() { proxy.Delay.Store(0); proxy.Cut() }},
		{"killed", server.Kill, server.Run},
	} {
		c.fail()
		proxy.Cut()
		eventually(t, c.what+": b knows nothing any more", func() bool {
			began := time.Now()
			known := len(b.Match([]uint64{1, 2}, nil)) + len(b.Siblings(nil))
			b.Follow(added(7))
			b.Report("x")
			if took := time.Since(began); took > 50*time.Millisecond {
				t.Errorf("%s: calls took %v", c.what, took)
			}
			_, up := b.Counts()
			return known == 0 && !up || c.what == "killed" && len(b.Siblings(nil)) == 0
		})
		c.end()
		eventually(t, c.what+": b knows a again", knows)
	}
	secret := string(a.Secret())
	if err := server.Client().FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	a.Follow(added(3))
	eventually(t, "flushed: b knows a still", func() bool { return holds(b, "[{a 3}]", 1, 2, 3) })
	if string(b.Secret()) != secret {
		t.Error("the secret has changed")
	}
	if err := server.Client().ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	a.Follow(added(4))
	eventually(t, "full: a has noticed", func() bool { _, up := a.Counts(); return !up })
	server.Client().ConfigSet(ctx, "maxmemory", "0")
	eventually(t, "full no more: b knows what a added meanwhile", func() bool { return holds(b, "[{a 4}]", 1, 2, 3, 4) })
	// A key of another type is logged and does no harm.
	server.Client().Del(ctx, "test:siblings:{model}:log")
	server.Client().Set(ctx, "test:siblings:{model}:log", "x", 0)
	a.Follow(added(5))
	eventually(t, "spoiled: a has noticed", func() bool { _, up := a.Counts(); return !up })
	server.Client().Del(ctx, "test:siblings:{model}:log")
	eventually(t, "mended: b knows what a added meanwhile", func() bool { return holds(b, "[{a 5}]", 1, 2, 3, 4, 5) })
}

func TestTwoOfOneName(t *testing.T) {
	server := storetest.Start(t, os.Getenv("FOREBAY_TEST_REQUIRE"))
	var log bytes.Buffer
	o := options(server.Address, "a")
	open(t, o)
	o = options(server.Address, "a")
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	b := open(t, o)
	time.Sleep(300 * time.Millisecond)
	b.Close()
	if !bytes.Contains(log.Bytes(), []byte("the same name")) {
		t.Errorf("the log says nothing: %s", log.Bytes())
	}
}

// Sending one of sixteen blocks tells how much is held to within the gap between two
// that are sent, and never too much; and costs Redis what is said.
func TestGrainAndBytes(t *testing.T) {
	server := storetest.Start(t, os.Getenv("FOREBAY_TEST_REQUIRE"))
	oa, ob := options(server.Address, "a"), options(server.Address, "b")
	oa.ChangesMax = 1 << 20
	a, b := open(t, oa), open(t, ob)
	a.Join("sixteenth", 16)
	b.Join("sixteenth", 16)
	eventually(t, "b knows a", func() bool { s := b.Siblings(nil); return len(s) == 1 && s[0].Synced })
	r := rand.New(rand.NewPCG(2, 2))
	blocks := make([]uint64, 32768)
	for i := range blocks {
		blocks[i] = r.Uint64()
	}
	a.Follow(added(blocks...))
	eventually(t, "b has heard", func() bool { c, _ := b.Counts(); return c.Received > 1900 })
	for range 200 {
		held := r.IntN(2048)
		prompt := slices.Clone(blocks[:2048])
		for i := held; i < len(prompt); i++ {
			prompt[i] = r.Uint64()
		}
		known := 0
		if h := b.Match(prompt, nil); len(h) == 1 {
			known = h[0].Blocks
		}
		if known > held || held-known > 16*14 { // the chance of a longer gap is one in a million
			t.Errorf("%d blocks are held, %d known", held, known)
		}
	}
	ca, _ := a.Counts()
	used, err := server.Client().MemoryUsage(context.Background(), "test:siblings:{sixteenth}:log", 0).Result()
	if err != nil {
		t.Fatal(err)
	}
	if each := float64(used) / float64(ca.Sent); each > 8 {
		t.Errorf("a block takes %.1f bytes of Redis, and %d bytes in all for %d blocks", each, used, ca.Sent)
	}
}

func TestBatches(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		b := batch{epoch: r.Uint64(), number: r.Uint64()}
		for range r.IntN(40) {
			b.changes = append(b.changes, hitmap.Change{Hash: r.Uint64() >> 16, Evicted: r.IntN(3) == 0})
		}
		text := b.append(nil)
		got, err := readBatch(string(text))
		if err != nil || got.epoch != b.epoch || got.number != b.number || !slices.Equal(got.changes, b.changes) {
			t.Fatalf("%+v became %+v, %v", b, got, err)
		}
		cut := text[:r.IntN(len(text))]
		if got, err := readBatch(string(cut)); err == nil && len(got.changes) >= len(b.changes) && len(b.changes) > 0 {
			t.Fatalf("%d of %d bytes gave %d changes", len(cut), len(text), len(got.changes))
		}
	}
	for _, text := range []string{"", "short", string(make([]byte, 16)) + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", string(make([]byte, 16)) + "\x80"} {
		if _, err := readBatch(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// Whatever stands in Redis, reading it makes no more changes than it has bytes, and
// what was read is written alike.
func FuzzReadBatch(f *testing.F) {
	f.Add(string((&batch{epoch: 1, number: 2, changes: []hitmap.Change{{Hash: 3}, {Hash: 4, Evicted: true}}}).append(nil)))
	f.Fuzz(func(t *testing.T, text string) {
		b, err := readBatch(text)
		if err != nil {
			return
		}
		if len(b.changes)*blockBytes > len(text) {
			t.Fatalf("%d changes of %d bytes", len(b.changes), len(text))
		}
		again, err := readBatch(string(b.append(nil)))
		if err != nil || again.epoch != b.epoch || again.number != b.number || !slices.Equal(again.changes, b.changes) {
			t.Fatalf("%+v became %+v, %v", b, again, err)
		}
	})
}

func TestMatchAllocatesNothing(t *testing.T) {
	server := storetest.Start(t, os.Getenv("FOREBAY_TEST_REQUIRE"))
	o := options(server.Address, "a")
	o.Interval = time.Hour
	f := open(t, o)
	f.mu.Lock()
	f.agree("secret")
	slot, _ := f.blocks.Begin("b")
	blocks := make([]uint64, 512)
	var s scratch
	for i := range blocks {
		blocks[i] = rand.Uint64()
	}
	f.sealAll(blocks, &s)
	for _, h := range s.sealed {
		f.blocks.Apply(slot, hitmap.Change{Hash: h})
	}
	f.mu.Unlock()
	into := f.Match(blocks, nil)
	if n := testing.AllocsPerRun(100, func() { into = f.match(blocks, &s, into[:0]) }); n > 0 || len(into) != 1 || into[0].Blocks != 512 {
		t.Errorf("%v allocations; %v", n, into)
	}
}

// BenchmarkMatch looks up a prompt of 32,768 tokens in pages of 16, of which one block in eight
// is told (128 tokens), in a map of a million blocks.
func BenchmarkMatch(b *testing.B) {
	f, err := assemble(Options{
		Client: newFakeRedis().client(), Prefix: "p", Name: "a", Secret: []byte("a secret of all"), Interval: time.Hour, Limit: time.Second, Lease: time.Hour,
		BlocksMax: 1 << 20, ChangesMax: 1 << 12, LogMax: 8192, LoadsMax: 32,
	})
	if err != nil {
		b.Fatal(err)
	}
	f.Join("model", 8)
	f.mu.Lock()
	f.agree("secret")
	slot, _ := f.blocks.Begin("b")
	prompts, s := make([][]uint64, 0, 1<<12), scratch{}
	for f.blocks.Len() < 1<<20 {
		prompt := make([]uint64, 2048)
		for i := range prompt {
			prompt[i] = rand.Uint64()
		}
		f.sealAll(prompt, &s)
		for _, h := range s.sealed {
			f.blocks.Apply(slot, hitmap.Change{Hash: h})
		}
		prompts = append(prompts, prompt)
	}
	f.mu.Unlock()
	into, n := make([]Holder, 0, 8), 0
	for b.Loop() {
		n += 101
		if into = f.Match(prompts[n%len(prompts)], into[:0]); len(into) != 1 || into[0].Blocks < 1800 {
			b.Fatal(into)
		}
	}
}
