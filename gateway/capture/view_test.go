package capture

import (
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// TestViewsTellThePromise: what was predicted, what came, and what became of the
// goal that the request was admitted with.
func TestViewsTellThePromise(t *testing.T) {
	predicted := func(r *telemetry.Record) {
		r.Accepted, r.Promised, r.WaitPredicted = r.Reserved, 2*time.Second, 2*second
	}
	for name, c := range map[string]struct {
		r       *telemetry.Record
		promise string
		ratio   float64
	}{
		"broken":             {with(told4s(wire.PartOwn), predicted), "broken", 1.5},
		"kept":               {with(told4s(wire.PartOwn), func(r *telemetry.Record) { predicted(r); r.Promised = 3 * time.Second }), "kept", 1.5},
		"revoked":            {with(refused(telemetry.Revoked, "revoked"), predicted), "revoked", 0},
		"demoted later":      {with(told4s(wire.PartOwn), func(r *telemetry.Record) { predicted(r); r.FirstTokenGoal = 0 }), "revoked", 0},
		"refused on arrival": {with(refused(telemetry.Late, "late"), func(r *telemetry.Record) { r.WaitPredicted = 2 * second }), "", 0},
		"running, in time": {with(told4s(wire.PartOwn), func(r *telemetry.Record) {
			predicted(r)
			r.FirstToken, r.FirstWrite, r.Finished, r.Promised = 0, 0, 0, 15*time.Second
		}), "open", 0},
		"running, too late": {with(told4s(wire.PartOwn), func(r *telemetry.Record) { predicted(r); r.FirstToken, r.FirstWrite, r.Finished = 0, 0, 0 }), "broken", 0},
	} {
		v := newStore(t, Config{}).build(c.r, 0, false, c.r.Arrived+10*second)
		if v := v.view; v.Promise != c.promise || v.PredictionRatio != c.ratio || v.PredictedMS != 2000 || v.FirstTokenGoalMS != float64(max(c.r.Promised, c.r.FirstTokenGoal).Milliseconds()) {
			t.Errorf("%s: %q, predicted %v ms, ratio %v, goal %v ms", name, v.Promise, v.PredictedMS, v.PredictionRatio, v.FirstTokenGoalMS)
		}
	}
}
