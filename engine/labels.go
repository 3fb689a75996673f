package engine

import (
	"context"
	"runtime/pprof"
	"strconv"

	"github.com/forebay-io/forebay/engine/step"
)

// This file labels the goroutines that compute for the profiler: with the phase
// of the step (prefill, decode, mixed) and its most urgent level. Labels change
// only where these change, so a run of equal steps pays nothing.

// stepKind says what a step does: an index of stepLabels.
type stepKind int

const (
	stepPrefill = 1 << iota
	stepDecode
	stepLevel // times the level
)

var stepLabels = func() (all [step.Levels * stepLevel]context.Context) {
	phases := [stepLevel]string{stepPrefill: "prefill", stepDecode: "decode", stepPrefill | stepDecode: "mixed"}
	for i := range all {
		labels := pprof.Labels("part", "engine", "phase", phases[i%stepLevel], "level", strconv.Itoa(i/stepLevel))
		all[i] = pprof.WithLabels(context.Background(), labels)
	}
	return all
}()

// labels sets the labels of the goroutines that compute.
type labels struct {
	model interface{ Label(ctx context.Context) } // nil where the model has no team
	last  stepKind
}

// set labels a step by its rows.
func (l *labels) set(rows []row) {
	kind := stepKind(rows[0].seq.gen.level * stepLevel)
	for i := range rows {
		if rows[i].decode {
			kind |= stepDecode
		} else {
			kind |= stepPrefill
		}
	}
	if l.model != nil && kind != l.last {
		l.last = kind
		l.model.Label(stepLabels[kind])
	}
}
