package capture

import (
	"encoding/hex"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// build makes the view of r at the instant now: its end, or for one that still
// runs the instant of looking.
func (s *Store) build(r *telemetry.Record, why Reasons, brief bool, now int64) *View {
	running := r.Finished == 0
	end := r.Finished
	if running {
		end, r.Broken = now, r.Missed(now)
	}
	v := viewOf(r, why)
	v.Running, v.Brief, v.WallMS = running, brief, ms(end-r.Arrived)
	if running {
		v.Outcome, v.Status = "running", 0
	}
	times := timesOf(r)
	if !brief {
		w := s.steps.witnessed(r, end)
		v.Steps, v.StepsMore = w.stepViews(&s.requests)
		v.Neighbours, v.NeighboursMore = w.neighbourViews(&s.requests)
		v.Kernels = w.kernelViews()
		if r.Engine.Finished == 0 {
			times = w.times
		}
	} else {
		v.slowest, _ = s.requests.find(r.Engine.Slow[0].Largest)
	}
	l := divide(r, &times, end)
	v.Parts, v.Stall = l.parts(), l.stall()
	within := scopeOf(r.Broken)
	a := account{r: r, v: v, life: &l, within: within, causes: l.causes(r.Blocked, within), running: running}
	v.Cause = a.causes.largest().String()
	if c := ended(r.Outcome); c != CauseNothing && !running {
		v.Cause = c.String()
	}
	usual := why&^quiet == 0
	v.Sentence = a.sentence(usual && !running)
	return v
}

// viewOf is what the record alone says.
func viewOf(r *telemetry.Record, why Reasons) *View {
	v := &View{
		ID: r.ID, ClientID: r.ClientID, TraceID: hex.EncodeToString(r.Trace.TraceID[:]), SpanID: hex.EncodeToString(r.Trace.SpanID[:]),
		TraceFlags: r.Trace.Flags, TraceState: r.Trace.State,
		Arrived: time.Now().Add(time.Duration(r.Arrived - wire.Monotonic())).Round(time.Microsecond),
		Tenant:  r.Tenant, Class: r.Class, DemotedFrom: r.DemotedFrom, Route: r.Route, Model: r.Model, Stream: r.Stream,
		Outcome: r.Outcome.String(), Status: r.Status, Error: r.ErrorKind,
		Reasons: why.Names(), Broken: r.Broken.Names(),
		FirstTokenMS: ms(r.FirstTokenDelay()), TokenMS: round(r.TokenTime() / 1e6), BlockedMS: ms(int64(r.Blocked)),
		PredictedMS: ms(r.WaitPredicted), WaitReason: r.WaitReason,
		FirstTokenGoalMS: ms(int64(r.FirstTokenGoal)), TokenGoalMS: ms(int64(r.TokenGoal)),
		Prompts: r.Prompts, Choices: r.Choices,
		PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens, CompletionTokens: r.CompletionTokens, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
		EngineSteps: r.Engine.Steps, PrefillSteps: r.Engine.PrefillSteps, PrefillChunks: r.Engine.PrefillChunks, PrefillTokens: r.Engine.PrefillTokens, Preempted: r.Engine.Preempted,
		Steps: []StepView{}, Kernels: []KernelView{}, Neighbours: []NeighbourView{},
	}
	if r.ParentSpan != [8]byte{} {
		v.ParentID = hex.EncodeToString(r.ParentSpan[:])
	}
	if r.Admitted != 0 {
		v.QueueMS = ms(r.Admitted - r.Prepared)
	}
	return v
}
