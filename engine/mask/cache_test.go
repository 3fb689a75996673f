package mask

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forebay-io/forebay/engine/grammar"
)

func TestCacheMakesEachGrammarOnceAndStaysBelowItsBound(t *testing.T) {
	trie := NewTrie(vocabulary(rand.New(rand.NewPCG(1, 1))))
	made := atomic.Int32{}
	compile := func(n int) func() (*Compiled, error) {
		return func() (*Compiled, error) {
			made.Add(1)
			b := grammar.NewBuilder(grammar.DefaultLimits())
			g, err := b.Compile(b.Terminal("x", b.Times(b.Literal("ab"), n, n)))
			if err != nil {
				return nil, err
			}
			return Compile(g, trie)
		}
	}
	one, err := compile(1)()
	must(t, err)
	c := NewCache(5 * one.Size())
	made.Store(0)
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			if _, err := c.Get("k", compile(3)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if made.Load() != 1 {
		t.Errorf("16 askers made it %d times", made.Load())
	}
	for n := range 50 {
		if _, err := c.Get(fmt.Sprint(n), compile(n+1)); err != nil {
			t.Fatal(err)
		}
		if n, bytes := c.Size(); bytes > 5*one.Size() && n > 1 {
			t.Fatalf("%d grammars of %d bytes", n, bytes)
		}
	}
	if n, _ := c.Size(); n < 2 {
		t.Errorf("only %d grammars are kept", n)
	}
	failure := errors.New("no")
	for range 2 {
		if _, err := c.Get("bad", func() (*Compiled, error) { return nil, failure }); err != failure {
			t.Error(err)
		}
	}
	if _, err := c.Get("bad", compile(2)); err != nil {
		t.Error("an error was kept:", err)
	}
}
