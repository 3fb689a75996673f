package upstream

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/upstream/zmtp/zmtptest"
)

// cached is a server that publishes the events of its cache.
type cached struct {
	*peer
	*zmtptest.Publisher
}

// withEvents are n servers of a dialect that publish, in front of which e is. Their
// answer to /tokenize is counted.
func withEvents(t *testing.T, n int, owner, counted string, cfg Config) (e *Engine, servers []cached) {
	for range n {
		p, err := zmtptest.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		at := newPeer(t, events(textChunk(0, "Hi", "stop"), "[DONE]"))
		at.models = listOf(owner)
		at.pages["/health"], at.pages["/tokenize"] = "{}", counted
		servers = append(servers, cached{at, p})
		cfg.Servers = append(cfg.Servers, Server{URL: at.Server.URL, Weight: 1, KVEvents: p.Events(), KVReplay: p.Replay()})
	}
	e = open(t, cfg)
	eventually(t, "all caches are known", func() bool {
		for _, s := range servers {
			if s.Publisher.Hearers() != 1 { // a publisher drops what nobody hears yet
				return false
			}
		}
		for _, u := range e.State().Upstreams {
			if u.State != "up" || cacheOf(e, u.Name).State != "known" {
				return false
			}
		}
		return true
	})
	return e, servers
}

// cacheOf is what is known of a server's cache by now.
func cacheOf(e *Engine, name string) wire.UpstreamCache {
	e.tick()
	for _, u := range e.State().Upstreams {
		if u.Name == name {
			return *u.Cache
		}
	}
	return wire.UpstreamCache{}
}

// stores publishes that the server holds the tokens, in blocks of four whose hashes begin
// at first; the salt of "" is none.
func (c cached) stores(first int, tokens []int32, salt string) {
	var hashes, extras zmtptest.List
	for i := range len(tokens) / 4 {
		hashes, extras = append(hashes, first+i), append(extras, nil)
	}
	if salt != "" {
		extras[0] = zmtptest.List{saltSent(salt)}
	}
	c.Publish(zmtptest.Pack(nil, zmtptest.List{1.5, zmtptest.List{zmtptest.Pairs{"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", nil, "token_ids", tokens, "block_size", 4, "extra_keys", extras}}}))
}

func (c cached) removes(hash int) {
	c.Publish(zmtptest.Pack(nil, zmtptest.List{1.5, zmtptest.List{zmtptest.Pairs{"type", "BlockRemoved", "block_hashes", zmtptest.List{hash}, "medium", "GPU"}}}))
}

// askTokens sends a prompt of tokens, and returns which of the servers got it.
func askTokens(t *testing.T, e *Engine, servers []cached, salt string, tokens []int32) int {
	t.Helper()
	e.mu.Lock()
	for _, r := range e.replicas { // what answers at once teaches nothing
		r.ledger.window.Forget(r.limits(r.model))
	}
	e.mu.Unlock()
	before := make([]int, len(servers))
	for i, s := range servers {
		before[i] = s.count()
	}
	p, err := e.Prepare(context.Background(), &wire.Request{Tokens: tokens, Salt: salt})
	if err != nil {
		t.Fatal(err)
	}
	if got := generate(t, e, p, wire.Options{}); got.end.Err != nil {
		t.Fatal(got.end.Err)
	}
	for i, s := range servers {
		if s.count() > before[i] {
			return i
		}
	}
	t.Fatal("no server got it")
	return -1
}

// numbered are n tokens from first on.
func numbered(first, n int) (tokens []int32) {
	for i := range n {
		tokens = append(tokens, int32(first+i))
	}
	return tokens
}

// TestPlacedByEvents: a prompt goes to the server that holds its beginning, whoever sent it
// there, and not to one that has evicted what it was sent.
func TestPlacedByEvents(t *testing.T) {
	e, servers := withEvents(t, 3, "vllm", "", Config{})
	known := func(i, blocks int) {
		t.Helper()
		eventually(t, "the events came", func() bool { return cacheOf(e, servers[i].URL).Blocks == blocks })
	}
	prompt := numbered(100, 602)
	for _, at := range []int{2, 0, 1} {
		servers[at].stores(1000, prompt[:600], "tenant")
		known(at, 150)
		for range 3 {
			if got := askTokens(t, e, servers, "tenant", prompt); got != at {
				t.Fatalf("server %d got the prompt, and %d holds it", got, at)
			}
		}
		servers[at].removes(1000) // its first block: the rest is of no use
		known(at, 149)
	}
	// Of two that hold a part, the one with more.
	servers[1].stores(5000, numbered(9000, 400), "tenant")
	servers[2].stores(5000, numbered(9000, 300), "tenant")
	known(1, 249)
	known(2, 224)
	if got := askTokens(t, e, servers, "tenant", numbered(9000, 500)); got != 1 {
		t.Errorf("server %d got it", got)
	}
}

// TestTenantsCachesAreApart: what a server holds of one tenant counts for no other, since
// each has a salt.
func TestTenantsCachesAreApart(t *testing.T) {
	e, servers := withEvents(t, 2, "vllm", "", Config{})
	prompt := numbered(0, 400)
	servers[1].stores(1, prompt, "one")
	eventually(t, "the events came", func() bool { return cacheOf(e, servers[1].URL).Blocks == 100 })
	v := func(salt string) float64 {
		p, err := e.Prepare(context.Background(), &wire.Request{Tokens: prompt, Salt: salt})
		if err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.replicas[1].uncached(p.Relayed.(*relayed), len(prompt))
	}
	if own, other := v("one"), v("two"); own != 1 || other != 400 {
		t.Errorf("%v and %v tokens are to be computed", own, other)
	}
}

// TestTokensOfTheServer: the tokens of a text are those that the server's counter says, and
// its answer may be as long as the prompt makes it.
func TestTokensOfTheServer(t *testing.T) {
	text := strings.Repeat("word ", 1000)
	tokens := numbered(100000, 1000)
	counted := strings.ReplaceAll(fmt.Sprintf(`{"count":1000,"max_model_len":10000,"tokens":%v}`, tokens), " ", ",")
	e, servers := withEvents(t, 2, "vllm", counted, Config{MessageBytesMax: 1024, ContextTokens: 10000})
	servers[1].stores(1, tokens, "")
	servers[1].stores(2000, tokens, "t")
	eventually(t, "the events came", func() bool { return cacheOf(e, servers[1].URL).Blocks == 500 })
	p, err := e.Prepare(context.Background(), &wire.Request{Text: &text, Salt: "t"})
	if err != nil || p.Count != 1000 {
		t.Fatalf("%d tokens, %v", p.Count, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.replicas[1].uncached(p.Relayed.(*relayed), p.Count); n != 1 {
		t.Errorf("%v tokens are to be computed", n)
	}
}

// TestEventsLost: without events a server is judged by what it was sent, as others are.
func TestEventsLost(t *testing.T) {
	e, servers := withEvents(t, 2, "someone", "", Config{})
	prompt := numbered(7, 900)
	first := askTokens(t, e, servers, "", prompt)
	servers[first].Publisher.Close()
	eventually(t, "the events are missed", func() bool { return cacheOf(e, servers[first].URL).State == "unheard" })
	for range 3 {
		if got := askTokens(t, e, servers, "", prompt); got != first {
			t.Fatalf("server %d got it, and %d before", got, first)
		}
	}
}

// TestEventAddresses: * is the server's own host.
func TestEventAddresses(t *testing.T) {
	for _, c := range []struct{ url, address, events, want string }{
		{"http://gpu1:8000", "", "tcp://*:5557", "tcp://gpu1:5557"},
		{"http://gpus:8000", "10.0.0.7:8000", "tcp://*:5557", "tcp://10.0.0.7:5557"},
		{"http://[::1]:8000/v1", "", "tcp://*:5557", "tcp://[::1]:5557"},
		{"unix:/run/vllm.sock", "", "tcp://*:5557", "tcp://localhost:5557"},
		{"http://gpu1:8000", "", "tcp://other:5557", "tcp://other:5557"},
		{"http://gpu1:8000", "", "ipc:///run/events", "ipc:///run/events"},
		{"http://gpu1:8000", "", "", ""},
	} {
		cfg := Config{KVEvents: c.events, KVReplay: c.events}
		if events, replay := cfg.eventsOf(&Server{URL: c.url}, c.address); events != c.want || replay != c.want {
			t.Errorf("%+v gives %s and %s", c, events, replay)
		}
	}
	if events, replay := (&Config{KVEvents: "tcp://*:1", KVReplay: "tcp://*:2"}).eventsOf(&Server{URL: "http://a:1", KVEvents: eventsOff}, ""); events+replay != "" {
		t.Errorf("off gives %s and %s", events, replay)
	}
	well := Config{KVEvents: "tcp://*:5557", Servers: []Server{{URL: "http://a:1"}, {URL: "http://a:2", KVEvents: eventsOff}, {URL: "http://b:1"}}}
	if err := well.Mistakes(); err != nil {
		t.Error(err)
	}
	for _, c := range []Config{
		{URL: "http://a:1", KVEvents: "http://a:5557"},
		{URL: "http://a:1", KVReplay: "tcp://a:5558"},
		{Servers: []Server{{URL: "http://a:1", KVEvents: "a:5557"}}},
		{URL: "http://a:1,http://a:2", KVEvents: "tcp://*:5557"},
		{URL: "http://a:1,http://b:2", KVEvents: "tcp://a:5557"},
	} {
		if c.Mistakes() == nil {
			t.Errorf("%+v has no mistake", c)
		}
	}
}
