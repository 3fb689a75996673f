package engine

import (
	"context"
	"runtime/pprof"
	"strconv"

	"github.com/forebay-io/forebay/engine/step"
)

// This file marks the goroutines that compute for the profiler, by what the
// step does (prefill, decode, both) and by its most urgent level. Labels change
// only where that changes, so a run of like steps pays nothing.

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

// label marks the goroutines that compute the rows.
func (l *loop) label(rows []row) {
	kind := stepKind(rows[0].seq.gen.level * stepLevel)
	for i := range rows {
		if rows[i].decode {
			kind |= stepDecode
		} else {
			kind |= stepPrefill
		}
	}
	m, ok := l.model.(interface{ Label(ctx context.Context) })
	if ok && kind != l.labelled {
		l.labelled = kind
		m.Label(stepLabels[kind])
	}
}
