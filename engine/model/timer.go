package model

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// Timer sums what the launches of a step took, by kernel class, and takes down
// single launches while it has room for them. It belongs to the goroutine that
// calls Forward, who starts it before each step; what it does between two of
// its calls is one launch. The zero Timer is off and costs a branch a launch.
//
// It reads a clock of unknown unit, since a step of a small model is over so
// soon that a clock of nanoseconds, read after every launch, would show in it.
// The two instants that a step begins and ends at give the unit.
type Timer struct {
	// Kernels and Launches are of use after Stop.
	Kernels [wire.KernelClassCount]wire.KernelTime
	// Launches are taken down up to their capacity, which is 0 where none are
	// wanted; Missing counts those after.
	Launches []wire.Launch
	Missing  int

	on       bool
	step     uint64
	began    int64 // CLOCK_MONOTONIC
	origin   int64 // the same instant in ticks
	last     int64 // ticks since then, as all is until Stop
	unscaled int   // the first launch of this step
}

// Start begins step number step, at an instant of CLOCK_MONOTONIC that is now.
func (t *Timer) Start(step uint64, began int64) {
	t.Kernels = [wire.KernelClassCount]wire.KernelTime{}
	t.on, t.step, t.began, t.origin, t.last, t.unscaled = true, step, began, ticks(), 0, len(t.Launches)
}

// Stop ends the step, at an instant of CLOCK_MONOTONIC that is now, and
// switches the timer off until the next Start.
func (t *Timer) Stop(ended int64) {
	if !t.on {
		return
	}
	t.Skip()
	t.on = false
	unit := float64(max(0, ended-t.began)) / float64(max(1, t.last))
	for i := range t.Kernels {
		k := &t.Kernels[i]
		k.Total, k.Max = time.Duration(float64(k.Total)*unit), time.Duration(float64(k.Max)*unit)
	}
	for i := t.unscaled; i < len(t.Launches); i++ {
		l := &t.Launches[i]
		l.Begin, l.End = t.began+int64(float64(l.Begin)*unit), t.began+int64(float64(l.End)*unit)
	}
}

// now is the ticks since Start. A clock that differs from core to core by a
// little does not make it go back.
func (t *Timer) now() int64 { return max(t.last, ticks()-t.origin) }

// Lap counts the time since the last call as a launch of a class; layer is -1
// outside the layers.
func (t *Timer) Lap(class wire.KernelClass, layer int) {
	if t.on {
		now := t.now()
		t.add(class, layer, t.last, now)
		t.last = now
	}
}

// Skip leaves the time since the last call out.
func (t *Timer) Skip() {
	if t.on {
		t.last = t.now()
	}
}

// lapAttention divides a launch that served prompts and decode rows between
// the two, by how many keys each looked at.
func (t *Timer) lapAttention(layer int, keys attentionKeys) {
	if !t.on {
		return
	}
	now := t.now()
	middle := t.last
	if keys.prefill > 0 {
		middle += int64(float64(now-t.last) * float64(keys.prefill) / float64(keys.prefill+keys.decode))
		t.add(wire.KernelAttentionPrefill, layer, t.last, middle)
	}
	if keys.decode > 0 {
		t.add(wire.KernelAttentionDecode, layer, middle, now)
	}
	t.last = now
}

func (t *Timer) add(class wire.KernelClass, layer int, from, to int64) {
	k := &t.Kernels[class]
	k.Count++
	k.Total += time.Duration(to - from)
	k.Max = max(k.Max, time.Duration(to-from))
	switch {
	case len(t.Launches) < cap(t.Launches):
		t.Launches = append(t.Launches, wire.Launch{Step: t.step, Layer: layer, Class: class, Begin: from, End: to})
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
