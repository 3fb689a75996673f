package engine

import (
	"slices"
	"testing"
	"time"
)

// swapSetup has memory for so many pages of the demo model, and swaps them although they are
// the CPU's.
func swapSetup(t *testing.T, pages int) labSetup {
	page := int64(newLab(t, labSetup{real: true}).info.PageBytes)
	return labSetup{real: true, cfg: Config{KVBytes: int64(pages) * page, Threads: 1, Device: DeviceConfig{SwapBytes: 64 * page}, swapAlways: true}}
}

// TestSwap: blocks that left the pages are copied back and not computed; tokens and logits are
// those of an engine that has room for all, and the usage says what was cached.
func TestSwap(t *testing.T) {
	qs := diskQuestions()
	want, wantBits := reference(t, labSetup{real: true, cfg: Config{Threads: 1}}, qs)
	b := newLab(t, swapSetup(t, 11))
	b.disk.readTime = func() time.Duration { return 0 } // this machine may be busy
	for round := range 2 {
		for i, q := range qs {
			bits := wantBits[q.id+"/0"]
			q.id += string(rune('0' + round))
			a := b.ask(q)
			mustEnd(t, q, a)
			sameAnswer(t, q, a, want[i])
			if got := b.logitsBits(q.id, 0); !slices.Equal(got, bits) {
				t.Errorf("round %d, %s: other logits than with room for all", round, q.id)
			}
			if cached := a.end.Usage.Cached; cached != 144*round || a.end.Usage.Computed != 150-cached {
				t.Errorf("round %d, %s: %+v", round, q.id, a.end.Usage)
			}
			b.idle()
		}
	}
	b.mustIdle()
	if s := b.State().Disk; s.Read == 0 || s.Dropped > 0 {
		t.Errorf("%+v", s)
	}
}

// TestSwapInSchedules: swapping changes no answer and no logits, whatever is paused or preempted.
func TestSwapInSchedules(t *testing.T) {
	schedules := 6
	if testing.Short() || underRace {
		schedules = 2
	}
	invariance(t, swapSetup(t, 14), chaosQuestions(8, 12), schedules)
}

// TestSwapOutBeforePagesGo: what a preempted sequence has computed is kept before another takes
// its pages in one step, where copying takes less time than computing, and else is not.
func TestSwapOutBeforePagesGo(t *testing.T) {
	for _, cheap := range []bool{true, false} {
		setup := swapSetup(t, 12)
		setup.cfg.StreamEventsMax = 8 // the first goes no further until it is read
		b := newLab(t, setup)
		b.disk.readTime = func() time.Duration { return 0 }
		if !cheap {
			b.disk.readTime = func() time.Duration { return time.Hour }
		}
		first := question{id: "first", tokens: prompt(7, 100), options: greedy(60), level: 2}
		stream, notify := b.begin(first)
		<-notify // it has begun to decode
		urgent := question{id: "urgent", tokens: prompt(8, 180), options: greedy(3)}
		mustEnd(t, urgent, b.ask(urgent))
		mustEnd(t, first, b.read(stream, notify, 1))
		s := b.State()
		if s.Preempted != 1 {
			t.Fatalf("%d sequences were preempted: the test shows nothing", s.Preempted)
		}
		if want := uint64(6); cheap && s.Disk.Read < want || !cheap && s.Disk.Read > 0 {
			t.Errorf("copying is cheap: %v; %d blocks of %d were copied back", cheap, s.Disk.Read, want)
		}
	}
}
