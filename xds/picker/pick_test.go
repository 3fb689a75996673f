package picker

import (
	"slices"
	"strings"
	"testing"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
)

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
