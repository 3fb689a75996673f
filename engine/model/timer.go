package model

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// Timer sums what the launches of a step took, by kernel class, and takes down
// single launches while it has room for them. It belongs to the goroutine that
// calls Forward, who starts it before each step; what it does between two of
// its calls is one launch. The zero Timer is off and costs a branch a launch.
type Timer struct {
	Kernels [wire.KernelClassCount]wire.KernelTime
	// Launches are taken down up to their capacity, which is 0 where none are
	// wanted; Missing counts those after.
	Launches []wire.Launch
	Missing  int

	on     bool
	step   uint64
	began  int64     // CLOCK_MONOTONIC
	origin time.Time // the same instant, by a clock that is cheap to read
	last   time.Duration
}

// Start begins step number step, at an instant of CLOCK_MONOTONIC that is now.
func (t *Timer) Start(step uint64, began int64) {
	t.Kernels = [wire.KernelClassCount]wire.KernelTime{}
	t.on, t.step, t.began, t.origin, t.last = true, step, began, time.Now(), 0
}

// Stop switches the timer off until the next Start.
func (t *Timer) Stop() { t.on = false }

// Lap counts the time since the last call as a launch of a class; layer is -1
// outside the layers.
func (t *Timer) Lap(class wire.KernelClass, layer int) {
	if t.on {
		now := time.Since(t.origin)
		t.add(class, layer, t.last, now)
		t.last = now
	}
}

// Skip leaves the time since the last call out.
func (t *Timer) Skip() {
	if t.on {
		t.last = time.Since(t.origin)
	}
}

// lapAttention divides a launch that served prompts and decode rows between
// the two, by how many keys each looked at.
func (t *Timer) lapAttention(layer int, keys attentionKeys) {
	if !t.on {
		return
	}
	now := time.Since(t.origin)
	middle := t.last
	if keys.prefill > 0 {
		middle += time.Duration(float64(now-t.last) * float64(keys.prefill) / float64(keys.prefill+keys.decode))
		t.add(wire.KernelAttentionPrefill, layer, t.last, middle)
	}
	if keys.decode > 0 {
		t.add(wire.KernelAttentionDecode, layer, middle, now)
	}
	t.last = now
}

func (t *Timer) add(class wire.KernelClass, layer int, from, to time.Duration) {
	k := &t.Kernels[class]
	k.Count++
	k.Total += to - from
	k.Max = max(k.Max, to-from)
	switch {
	case len(t.Launches) < cap(t.Launches):
		t.Launches = append(t.Launches, wire.Launch{Step: t.step, Layer: layer, Class: class, Begin: t.began + int64(from), End: t.began + int64(to)})
	case cap(t.Launches) > 0:
		t.Missing++
	}
}

// attentionKeys are how many keys the rows of a batch look at, over all rows.
type attentionKeys struct{ prefill, decode int }

func (k *attentionKeys) add(decode bool, keys int) {
	if decode {
		k.decode += keys
	} else {
		k.prefill += keys
	}
}
