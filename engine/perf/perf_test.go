package perf

import (
	"testing"
	"time"
)

// windowed has two layers, of which one sees 100 tokens; a token has 8 bytes of
// keys and values in each. Its 1000 bytes of weights are read but for 100.
var windowed = Model{
	Weights: 1000, ReadToken: 900,
	CacheRead: func(n int) int { return 8*n + 8*min(n, 100) },
	Page:      16 * 16, PageTokens: 16, ContextTokens: 500,
	TokensIn: func(pages int) int { return 16 * pages },
}

func TestMovedAndTime(t *testing.T) {
	for _, c := range []struct {
		context, moved int
		time           time.Duration
	}{
		{1, 900 + 16, 916 * time.Millisecond},
		{100, 900 + 1600, 2500 * time.Millisecond},
		{500, 900 + 4000 + 800, 5700 * time.Millisecond},
	} {
		if got := windowed.Moved(c.context); got != c.moved {
			t.Errorf("at %d tokens %d bytes are moved, want %d", c.context, got, c.moved)
		}
		if got := windowed.TokenTime(c.context, 1000); got != c.time {
			t.Errorf("at %d tokens a token takes %v, want %v", c.context, got, c.time)
		}
	}
}

func TestContextIn(t *testing.T) {
	for memory, want := range map[int]int{
		-1: 0, 999: 0, 1000: 0, 1255: 0, // less than a page beside the weights
		1256: 16, 1511: 16, 1512: 32, 1000 + 31*256: 496, 1000 + 32*256: 500, 1 << 60: 500,
	} {
		if got := windowed.ContextIn(memory); got != want {
			t.Errorf("in %d bytes there is room for %d tokens, want %d", memory, got, want)
		}
	}
	if got := windowed.ContextInCache(255); got != 0 {
		t.Errorf("room for %d tokens in less than a page", got)
	}
}

// TestStateIsMovedWhole: a state is read and written by each token, and takes its memory
// before any context.
func TestStateIsMovedWhole(t *testing.T) {
	m := windowed
	m.State = 300
	if got, want := m.Moved(1), windowed.Moved(1)+600; got != want {
		t.Errorf("%d bytes are moved, want %d", got, want)
	}
	if got := m.ContextIn(1300 + 256); got != 16 {
		t.Errorf("there is room for %d tokens, want 16", got)
	}
}
