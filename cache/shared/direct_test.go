package shared

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// town is where replicas without Redis find each other in a test.
type town struct {
	mu    sync.Mutex
	nodes map[string]*Fleet // by address, which is the name
}

func (w *town) set(address string, f *Fleet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes[address] = f; f == nil {
		delete(w.nodes, address)
	}
}

func (w *town) addresses(context.Context) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for address := range w.nodes {
		all = append(all, address)
	}
	return all
}

func (w *town) ask(_ context.Context, address string, question []byte) ([]byte, error) {
	w.mu.Lock()
	f := w.nodes[address]
	w.mu.Unlock()
	if f == nil {
		return nil, errors.New("nobody is there")
	}
	return f.Answer(question)
}

func (w *town) open(t *testing.T, name string) *Fleet {
	o := options("", name)
	o.Client.Close()
	o.Client, o.Secret, o.Lease = nil, []byte("a secret of all"), time.Second
	o.Direct = &Direct{Addresses: w.addresses, Every: 5 * time.Millisecond, Ask: w.ask}
	f := open(t, o)
	w.set(name, f)
	return f
}

func TestReplicasKnowEachOtherWithoutRedis(t *testing.T) {
	w := &town{nodes: map[string]*Fleet{}}
	a := w.open(t, "a")
	if _, up := a.Counts(); !up {
		t.Error("one alone misses nobody")
	}
	a.Follow(added(1, 2, 3))
	b := w.open(t, "b")
	eventually(t, "b knows what a holds", func() bool { return holds(b, "[{a 3}]", 1, 2, 3) && len(a.Siblings(nil)) == 1 })
	eventually(t, "b knows a's load", func() bool {
		s := b.Siblings(nil)
		return len(s) == 1 && s[0].Report == "load of a" && s[0].Address == "a"
	})
	a.Follow(evicted(3))
	eventually(t, "b knows what a evicted", func() bool { return holds(b, "[{a 2}]", 1, 2, 3) })
	a.Follow(hitmap.News{Missed: true})
	eventually(t, "b knows that a's engine was lost", func() bool { return holds(b, "[]", 1) })
	for h := range uint64(3 * recentMax) {
		a.Follow(added(10 + h))
	}
	eventually(t, "b knows all of them", func() bool { s := b.Siblings(nil); return len(s) == 1 && s[0].Blocks == 3*recentMax })
	a.Join("other", 1)
	eventually(t, "a has another model", func() bool { return len(b.Siblings(nil)) == 0 })
	a.Join("model", 1)
	eventually(t, "a is back", func() bool { return len(b.Siblings(nil)) == 1 })
	w.set("a", nil)
	eventually(t, "nobody answers b", func() bool { return len(b.Siblings(nil)) == 0 })
	eventually(t, "b asks nobody but itself", func() bool { _, up := b.Counts(); return up })
}

// A replica at an address that does not answer is missed.
func TestNobodyAnswers(t *testing.T) {
	w := &town{nodes: map[string]*Fleet{"nowhere": nil}}
	a := w.open(t, "a")
	eventually(t, "a misses the other", func() bool { counts, up := a.Counts(); return !up && counts.Failed > 0 })
	w.open(t, "nowhere")
	eventually(t, "it is there", func() bool { _, up := a.Counts(); return up && len(a.Siblings(nil)) == 1 })
}

func TestAnswersAreChecked(t *testing.T) {
	w := &town{nodes: map[string]*Fleet{}}
	a := w.open(t, "a")
	for _, text := range []string{"", "x", `{"epoch":-1}`, `[]`} {
		if _, err := a.Answer([]byte(text)); err == nil {
			t.Errorf("%q was answered", text)
		}
	}
	if text, err := a.Answer([]byte(`{"space":"model","epoch":7,"number":18446744073709551615}`)); err != nil {
		t.Errorf("%s, %v", text, err)
	}
}
