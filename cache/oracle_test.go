package cache

import (
	"bufio"
	"compress/gzip"
	"container/list"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// conversation is the blocks of each prompt of the trace, in the order of arrival.
func conversation(t *testing.T) (prompts [][]uint64) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "shared", "traces", "mooncake-conversation.jsonl.gz"))
	if err != nil {
		t.Skipf("SKIPPED: the trace is not there: %v", err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(unpacked)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l struct {
			Input  int      `json:"input_length"`
			Blocks []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		prompts = append(prompts, l.Blocks[:l.Input/512])
	}
	return prompts
}

// oracle is a cache of max blocks that forgets the one unused for longest, and of one
// prompt the last.
type oracle struct {
	max    int
	order  *list.List // the newest first
	blocks map[uint64]*list.Element
}

func (o *oracle) ask(blocks []uint64) (hits int) {
	for hits < len(blocks) && o.blocks[blocks[hits]] != nil {
		hits++
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		if e := o.blocks[blocks[i]]; e != nil {
			o.order.MoveToFront(e)
		} else {
			o.blocks[blocks[i]] = o.order.PushFront(blocks[i])
		}
	}
	for len(o.blocks) > o.max {
		last := o.order.Back()
		delete(o.blocks, o.order.Remove(last).(uint64))
	}
	return hits
}

// Over a day of conversations the pool finds what an exact cache of the same size finds,
// to within 2 of 100 blocks. A block of 512 tokens of the trace is a page of 4 here.
func TestHitsOfConversations(t *testing.T) {
	prompts := conversation(t)
	for _, pages := range []int{1000, 5000, 20000} {
		p := newPool(t, Config{Pages: pages, PageTokens: 4, Space: "trace"})
		o := &oracle{max: pages, order: list.New(), blocks: map[uint64]*list.Element{}}
		var all, ours, theirs int
		for _, blocks := range prompts {
			all, ours, theirs = all+len(blocks), ours+conversed(t, p, blocks), theirs+o.ask(blocks)
		}
		rate, exact := float64(ours)/float64(all), float64(theirs)/float64(all)
		t.Logf("%5d pages: %.2f %% of the blocks are found, an exact cache finds %.2f %%", pages, 100*rate, 100*exact)
		if math.Abs(rate-exact) > 0.02 || rate < 0.01 {
			t.Errorf("%d pages: %.4f, exact %.4f", pages, rate, exact)
		}
	}
}

// conversed computes a prompt of so many blocks and a rest, and returns how many blocks were found.
func conversed(t *testing.T, p *Pool, blocks []uint64) (found int) {
	t.Helper()
	tokens := make([]int32, 0, 4*len(blocks)+1)
	for _, b := range blocks {
		tokens = append(tokens, int32(b), int32(b), 1, 2)
	}
	tokens = append(tokens, 3) // the rest of the prompt, which is always computed
	s := p.Open("", tokens)
	found = s.Len() / 4
	if _, ok := p.Reserve(s, len(tokens)-s.Len(), nil); !ok {
		t.Fatalf("no room for %d pages in %+v", len(blocks), p.Counts())
	}
	p.Commit(s, tokens[s.Len():])
	p.Close(s)
	return found
}
