package spans

import "testing"

// TestSharedTracesAreSentOnce: the first request of a step sends the step, a later
// one its own span in it, until something was lost.
func TestSharedTracesAreSentOnce(t *testing.T) {
	var sent sentTraces
	sizes := func(trees []Tree) (n [2]int) {
		for i := range trees {
			sent.choose(&trees[i])
			n[min(i, 1)] += len(trees[i].Spans)
		}
		return n
	}
	const own, steps = 19, 10 * 9
	for _, want := range [][2]int{{own, steps}, {own, 10}, {own, 10}} {
		if got := sizes(streamed(1)); got != want {
			t.Errorf("%v spans are sent, want %v", got, want)
		}
	}
	if got := sizes(streamed(2)); got != [2]int{own, steps} {
		t.Errorf("of another run of the engine %v spans are sent", got)
	}
	sent.forget()
	if got := sizes(streamed(1)); got != [2]int{own, steps} {
		t.Errorf("after a loss %v spans are sent", got)
	}
	for i := range sentTracesMax {
		sent.choose(&Tree{TraceID: [16]byte{1: byte(i), 2: byte(i >> 8), 3: 1}, Member: new(Span)})
	}
	if len(sent.sent) != sentTracesMax {
		t.Errorf("%d traces are remembered", len(sent.sent))
	}
	if got := sizes(streamed(1)); got != [2]int{own, steps} {
		t.Errorf("after many others %v spans are sent", got)
	}
}
