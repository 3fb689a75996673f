package kvevents

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/upstream/zmtp/zmtptest"
)

type (
	list  = zmtptest.List
	pairs = zmtptest.Pairs
)

func pack(v any) []byte { return zmtptest.Pack(nil, v) }

// batch is a payload as vLLM and SGLang write it.
func batch(events ...any) []byte { return pack(list{1.5, list(events), 0}) }

// vllm is an event of a chain of blocks of two tokens.
func vllm(parent any, tokens []int32, hashes []any, more ...any) pairs {
	return append(pairs{"type", "BlockStored", "block_hashes", list(hashes), "parent_block_hash", parent, "token_ids", tokens, "block_size", 2, "lora_id", nil, "medium", "GPU", "lora_name", nil}, more...)
}

func gone(medium any, hashes ...any) pairs {
	return pairs{"type", "BlockRemoved", "block_hashes", list(hashes), "medium", medium}
}

func (f *Follower) apply(t testing.TB, payload []byte) {
	t.Helper()
	f.take(f.next, payload)
	f.live = true
}

// prompt is the prompt that the tests ask for: its blocks are 1 2, 3 4 and 5 6.
var prompt = []int32{1, 2, 3, 4, 5, 6, 7}

// chain is a prompt in blocks of two tokens.
func chain(tokens []int32, salt string) []Chain {
	return []Chain{NewChain(tokens, Shape{2, salt != ""}, salt)}
}

// TestView: what is held after these events.
func TestView(t *testing.T) {
	abc := []any{[]byte("a"), []byte("b"), []byte("c")}
	salted := vllm(nil, prompt[:6], abc, "extra_keys", list{list{"pepper"}, nil, nil})
	for name, c := range map[string]struct {
		events []any
		salt   string
		held   int
		whole  bool
	}{
		"nothing":                        {nil, "", 0, true},
		"a chain":                        {[]any{vllm(nil, prompt[:6], abc)}, "", 6, true},
		"a chain in two events":          {[]any{vllm(nil, prompt[:2], abc[:1]), vllm([]byte("a"), prompt[2:6], abc[1:])}, "", 6, true},
		"of another salt":                {[]any{salted}, "salt", 0, true},
		"of our salt":                    {[]any{salted}, "pepper", 6, true},
		"salts that are not told":        {[]any{vllm(nil, prompt[:6], abc)}, "salt", 0, false},
		"with a salt as a member":        {[]any{vllm(nil, prompt[:6], abc, "cache_salt", "pepper")}, "pepper", 6, true},
		"with an image":                  {[]any{vllm(nil, prompt[:6], abc, "extra_keys", list{nil, list{"image", 3}, nil})}, "", 2, true},
		"with an adapter":                {[]any{vllm(nil, prompt[:6], abc, "extra_keys", list{list{"adapter", "pepper"}, nil, nil})}, "pepper", 0, false},
		"the middle removed":             {[]any{vllm(nil, prompt[:6], abc), gone("GPU", []byte("b"))}, "", 2, true},
		"and stored again":               {[]any{vllm(nil, prompt[:6], abc), gone("GPU", []byte("b")), vllm([]byte("a"), prompt[2:4], abc[1:2])}, "", 6, true},
		"stored twice, removed once":     {[]any{vllm(nil, prompt[:6], abc), vllm(nil, prompt[:6], abc), gone("GPU", abc...)}, "", 0, true},
		"removed elsewhere":              {[]any{vllm(nil, prompt[:6], abc), gone("CPU", abc...)}, "", 6, true},
		"moved to the host":              {[]any{vllm(nil, prompt[:6], abc), pairs{"type", "BlockStored", "block_hashes", list(abc), "parent_block_hash", nil, "token_ids", prompt[:6], "block_size", 2, "medium", "CPU_PINNED"}, gone("GPU", abc...)}, "", 6, true},
		"on a disk alone":                {[]any{pairs{"type", "BlockStored", "block_hashes", list(abc), "parent_block_hash", nil, "token_ids", prompt[:6], "block_size", 2, "medium", "DISK"}}, "", 0, true},
		"cleared":                        {[]any{vllm(nil, prompt[:6], abc), pairs{"type", "AllBlocksCleared"}}, "", 0, true},
		"of an unknown parent":           {[]any{vllm([]byte("x"), prompt[2:6], abc[1:])}, "", 0, false},
		"a hash for several blocks":      {[]any{vllm(nil, prompt[:6], abc[:1])}, "", 0, false},
		"of sliding layers":              {[]any{vllm(nil, prompt[:6], abc, "group_idx", 1, "kv_cache_spec_kind", "sliding_window")}, "", 0, true},
		"of layers that look at all":     {[]any{vllm(nil, prompt[:6], abc, "group_idx", 1, "kv_cache_spec_kind", "full_attention")}, "", 6, true},
		"removed from other layers":      {[]any{vllm(nil, prompt[:6], abc, "group_idx", 1), append(gone("GPU", abc...), "group_idx", 0)}, "", 6, true},
		"as lists, hashes as numbers":    {[]any{list{"BlockStored", list{-7, 300, 9}, nil, prompt[:6], 2, nil}, list{"BlockRemoved", list{9}}}, "", 4, true},
		"as lists of all that is known":  {[]any{list{"BlockStored", list{7, 8, 9}, nil, prompt[:6], 2, nil, "GPU", nil, list{list{"pepper"}, nil, nil}, 0, "mla_attention", nil}}, "pepper", 6, true},
		"a kind of events not known yet": {[]any{vllm(nil, prompt[:6], abc), pairs{"type", "BlockAdmired", "by", list{}}}, "", 6, true},
		"a replaced hash":                {[]any{vllm(nil, prompt[:2], abc[:1]), vllm(nil, prompt[2:4], abc[:1])}, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := New(Config{BlocksMax: 100})
			f.apply(t, batch(c.events...))
			if held, whole := f.Match(chain(prompt, c.salt), c.salt != ""); held != c.held || whole != c.whole {
				t.Errorf("%d held, whole %v; want %d, %v", held, whole, c.held, c.whole)
			}
		})
	}
}

// TestBatchAsMap: newer servers of vLLM write a batch as a map.
func TestBatchAsMap(t *testing.T) {
	f := New(Config{BlocksMax: 100})
	f.apply(t, pack(pairs{"ts", 1.5, "events", list{vllm(nil, prompt[:6], []any{1, 2, 3})}, "data_parallel_rank", 0}))
	if held, whole := f.Match(chain(prompt, ""), false); held != 6 || !whole {
		t.Errorf("%d held, whole %v", held, whole)
	}
}

// TestBatchesThatCannotBeRead: all is forgotten, since it is not known what changed.
func TestBatchesThatCannotBeRead(t *testing.T) {
	good := batch(vllm(nil, prompt[:6], []any{1, 2, 3}))
	for name, bad := range map[string][]byte{
		"no MessagePack":          {0xc1},
		"nothing":                 {},
		"cut":                     good[:len(good)-9],
		"no list of events":       pack(list{1.5, "events"}),
		"too deep":                append(append([]byte{0x92, 0xc0}, bytes.Repeat([]byte{0x91}, 20)...), 0xc0),
		"an event without a name": batch(pairs{"block_hashes", list{}}),
		"a list of 4 billion":     {0x92, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"words as tokens":         batch(pairs{"type", "BlockStored", "block_hashes", list{1}, "parent_block_hash", nil, "token_ids", list{"a", "b"}, "block_size", 2}),
		"blocks of no tokens":     batch(pairs{"type", "BlockStored", "block_hashes", list{}, "parent_block_hash", nil, "token_ids", list{}, "block_size", 0}),
		"hashes that are lists":   batch(gone("GPU", list{})),
	} {
		t.Run(name, func(t *testing.T) {
			f := New(Config{BlocksMax: 100, Log: quiet})
			f.apply(t, good)
			if held, _ := f.Match(chain(prompt, ""), false); held != 6 {
				t.Fatalf("%d held before", held)
			}
			f.apply(t, bad)
			if held, whole := f.Match(chain(prompt, ""), false); held != 0 || whole {
				t.Errorf("%d held, whole %v", held, whole)
			}
			f.apply(t, good)
			if held, _ := f.Match(chain(prompt, ""), false); held != 6 {
				t.Errorf("%d held of what came after", held)
			}
		})
	}
}

// TestViewIsBounded: what there is no room for is left out, said, and only makes claims
// shorter.
func TestViewIsBounded(t *testing.T) {
	f := New(Config{BlocksMax: 2})
	f.apply(t, batch(vllm(nil, prompt[:6], []any{1, 2, 3})))
	held, whole := f.Match(chain(prompt, ""), false)
	if r := f.Report(); held != 4 || whole || r.Blocks != 2 || r.Left != 1 {
		t.Errorf("%d held, whole %v, %+v", held, whole, r)
	}
}

// TestViewFollowsAnEngine: a server that stores and removes chains at random is never
// said to hold more than it does, and with all events is known exactly.
func TestViewFollowsAnEngine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	f := New(Config{BlocksMax: 1 << 16})
	type held struct{ hash int }
	engine := map[string]held{} // by the tokens up to the block's end
	next := 1000
	for range 3000 {
		tokens := make([]int32, 2*(1+r.IntN(6)))
		for i := range tokens {
			tokens[i] = int32(r.IntN(2))
		}
		if r.IntN(3) == 0 { // one block goes
			for text, b := range engine {
				delete(engine, text)
				f.apply(t, batch(gone("GPU", b.hash)))
				break
			}
		} else { // what is missing of the chain is stored
			parent := any(nil)
			for i := 2; i <= len(tokens); i += 2 {
				text := fmt.Sprint(tokens[:i])
				b, ok := engine[text]
				if !ok {
					next++
					b = held{next}
					engine[text] = b
					f.apply(t, batch(vllm(parent, tokens[i-2:i], []any{b.hash})))
				}
				parent = b.hash
			}
		}
		want := 0
		for i := 2; i <= len(tokens); i += 2 {
			if _, ok := engine[fmt.Sprint(tokens[:i])]; !ok {
				break
			}
			want = i
		}
		if got, whole := f.Match(chain(tokens, ""), false); got != want || !whole {
			t.Fatalf("%v: %d held, whole %v; want %d", tokens, got, whole, want)
		}
	}
	if n := f.Report().Blocks; n != len(engine) {
		t.Errorf("%d blocks are known of %d", n, len(engine))
	}
}

// TestMatchAllocatesNothing: a prompt of 32k tokens is looked up in every choice of a
// server.
func TestMatchAllocatesNothing(t *testing.T) {
	f := New(Config{BlocksMax: 100})
	f.apply(t, batch(vllm(nil, prompt[:6], []any{1, 2, 3})))
	chains := chain(prompt, "")
	if n := testing.AllocsPerRun(100, func() { f.Match(chains, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzBatch: whatever a publisher sends, the view stays within its bounds and two ways
// of counting it agree.
func FuzzBatch(f *testing.F) {
	f.Add(batch(vllm(nil, prompt[:6], []any{1, 2, 3}), gone("GPU", 2)))
	f.Add(batch(list{"BlockStored", list{7}, nil, prompt[:2], 2, nil, "CPU"}, pairs{"type", "AllBlocksCleared"}))
	f.Add(pack(pairs{"ts", 1.5, "events", list{vllm([]byte("x"), prompt[:2], []any{[]byte("y")})}}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		follower := New(Config{BlocksMax: 4, Log: quiet})
		follower.take(0, batch(vllm(nil, prompt[:4], []any{1, 2})))
		follower.take(1, payload)
		v, sum := &follower.view, 0
		for _, n := range v.ours {
			sum += int(n)
		}
		if len(v.theirs) > 4 || sum != len(v.theirs) {
			t.Fatalf("%d blocks, %d keys", len(v.theirs), sum)
		}
	})
}
