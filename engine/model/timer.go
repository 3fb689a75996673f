package model

import "time"

// KernelTime is the wall time of one class's launches in a step.
type KernelTime struct {
	Count uint32
	Total time.Duration
	Max   time.Duration // of one launch
}

// Launch is one kernel launch, on all workers together.
type Launch struct {
	Step       uint64
	Layer      int // -1 outside the layers
	Class      KernelClass
	Begin, End int64 // nanoseconds of the caller's clock
}

// Timer sums the time of a step's launches by kernel class, and keeps single
// launches while it has room for them. It belongs to the goroutine that calls
// Forward, which starts it before each step; the work between two calls of the
// Timer is one launch. The zero Timer is off, and then costs a branch a launch.
//
// It reads a clock of unknown unit: a step of a small model is so short that
// reading a clock of nanoseconds after every launch would show in it. The
// instants at which the step begins and ends, which the caller gives in
// nanoseconds, give the unit.
type Timer struct {
	// Kernels and Launches are valid after Stop.
	Kernels [KernelClassCount]KernelTime
	// Launches grows up to its capacity, which is 0 where none are wanted;
	// Missing counts the launches after that.
	Launches []Launch
	Missing  int

	on       bool
	step     uint64
	began    int64 // nanoseconds of the caller's clock
	origin   int64 // the same instant in ticks
	last     int64 // ticks since then; so are all times until Stop
	unscaled int   // the first launch of this step
}

// Start begins step number step; began is the caller's clock now.
func (t *Timer) Start(step uint64, began int64) {
	t.Kernels = [KernelClassCount]KernelTime{}
	t.on, t.step, t.began, t.origin, t.last, t.unscaled = true, step, began, ticks(), 0, len(t.Launches)
}

// Stop ends the step and switches the timer off until the next Start; ended is
// the caller's clock now.
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

// now is the ticks since Start. It never goes back, even where the clocks of
// two cores differ a little.
func (t *Timer) now() int64 { return max(t.last, ticks()-t.origin) }

// Lap counts the time since the last call as a launch of a class; layer is -1
// outside the layers.
func (t *Timer) Lap(class KernelClass, layer int) {
	if t.on {
		now := t.now()
		t.add(class, layer, t.last, now)
		t.last = now
	}
}

// Skip counts the time since the last call for no class.
func (t *Timer) Skip() {
	if t.on {
		t.last = t.now()
	}
}

// lapAttention divides a launch that served prompts and decode rows between
// the two, in proportion to the keys that each looked at.
func (t *Timer) lapAttention(layer int, keys attentionKeys) {
	if !t.on {
		return
	}
	now := t.now()
	t.addAttention(layer, keys, now)
	t.last = now
}

// addAttention divides the time since the last call.
func (t *Timer) addAttention(layer int, keys attentionKeys, now int64) {
	middle := t.last
	if keys.prefill > 0 {
		middle += int64(float64(now-t.last) * float64(keys.prefill) / float64(keys.prefill+keys.decode))
		t.add(KernelAttentionPrefill, layer, t.last, middle)
	}
	if keys.decode > 0 {
		t.add(KernelAttentionDecode, layer, middle, now)
	}
}

func (t *Timer) add(class KernelClass, layer int, from, to int64) {
	k := &t.Kernels[class]
	k.Count++
	k.Total += time.Duration(to - from)
	k.Max = max(k.Max, time.Duration(to-from))
	switch {
	case len(t.Launches) < cap(t.Launches):
		t.Launches = append(t.Launches, Launch{Step: t.step, Layer: layer, Class: class, Begin: from, End: to})
	case cap(t.Launches) > 0:
		t.Missing++
	}
}

// attentionKeys counts the keys that the rows of a batch look at, summed over
// the rows.
type attentionKeys struct{ prefill, decode int }

func (k *attentionKeys) add(decode bool, keys int) {
	if decode {
		k.decode += keys
	} else {
		k.prefill += keys
	}
}
