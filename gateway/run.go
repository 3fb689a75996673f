package gateway

import (
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// run is a request in the engine: one generation for each prompt, from dispatch
// to the end of the last. Before dispatch it has no streams.
type run struct {
	x    *exchange
	call *call

	reply     reply
	streams   []*wire.Stream // one for each prompt
	events    []wire.Event
	intervals telemetry.Intervals
	tokens    []int   // generated so far, of each choice
	tokenAt   []int64 // when the last ones of each came

	stops        int // choices that ended by themselves
	ended        int // streams that ended
	engineFailed bool
}

// dispatch starts one generation for each prompt, as it was granted.
func (r *run) dispatch(class *admission.Class, prompts []*wire.Prompt, granted admission.Grant) {
	x := r.x
	x.noteGrant(granted)
	r.reply = newReply(x, r.call, prompts)
	r.tokens, r.tokenAt = make([]int, x.record.Choices), make([]int64, x.record.Choices)
	r.intervals = x.g.recorder.Intervals(x.record.Class)
	x.record.Serial = x.g.serials.Add(uint64(len(prompts))) - uint64(len(prompts)) + 1
	x.record.Dispatched = wire.Monotonic()
	x.g.capture.Started(&x.record)
	x.enter(stageGenerating)
	r.streams = make([]*wire.Stream, 0, len(prompts))
	for i, p := range prompts {
		options := r.call.options
		options.MaxTokens = grantTokens(options.MaxTokens, p.Room, class.OutputTokensMax, granted.OutputTokens)
		// Each prompt is an independent draw with a seed of its own.
		options.Seed += uint64(i)
		r.streams = append(r.streams, x.g.engine.Generate(&wire.Generation{
			ID: x.promptID(i), Serial: x.record.Serial + uint64(i), Prompt: p, Options: options, Salt: x.salt(),
			Class: granted.Class, Level: granted.Level, Key: granted.Key, Long: granted.Long, TokenGoal: granted.TokenGoal,
			Trace: x.record.Trace, Notify: x.notify,
		}))
	}
}

// close cancels the generations that have not ended.
func (r *run) close() {
	for _, s := range r.streams {
		s.Close()
	}
}

// notePromise records that admission took the request in, and what it was told.
func (x *exchange) notePromise(p admission.Promise) {
	r := &x.record
	r.Accepted = wire.Monotonic()
	r.Promised, r.FirstTokenGoal, r.WaitPredicted = p.Goal, p.Goal, int64(p.Predicted)
}

// noteGrant records what was granted.
func (x *exchange) noteGrant(granted admission.Grant) {
	r := &x.record
	if granted.Class != r.Class {
		if r.DemotedFrom == "" {
			r.DemotedFrom = r.Class
		}
		r.Class = granted.Class
	}
	if r.Promised == 0 || granted.FirstTokenGoal == 0 { // what was promised stands, unless it was demoted
		r.FirstTokenGoal = granted.FirstTokenGoal
	}
	r.TokenGoal, r.WaitReason = granted.TokenGoal, granted.Why.String()
	if r.Admitted-r.Prepared < int64(time.Millisecond) { // no wait, as the headers count it
		r.WaitReason = admission.WhyNot.String()
	}
}

// relay hands every event to the reply until all streams have ended.
func (r *run) relay(ticket admission.Ticket, m *meter) (usage wire.Usage, err error) {
	x := r.x
	for live := len(r.streams); live > 0; {
		if err := x.await(x.notify); err != nil {
			return usage, err
		}
		now := wire.Monotonic()
		for prompt, s := range r.streams {
			r.events = s.Take(r.events[:0])
			for i := range r.events {
				e := &r.events[i]
				if e.End == nil {
					index := prompt*r.call.options.N + e.Choice
					r.note(index, e, now)
					r.reply.event(index, prompt, e)
					continue
				}
				live--
				r.noteEnd(e.End)
				if e.End.Err != nil {
					return usage, e.End.Err
				}
				usage.Prompt += e.End.Usage.Prompt
				usage.Cached += e.End.Usage.Cached
				usage.Completion += e.End.Usage.Completion
				usage.Reasoning += e.End.Usage.Reasoning
			}
			clear(r.events)
		}
		x.record.Taken = now
		if now-x.shown > showInterval {
			x.show(now)
		}
		ticket.Progress(x.record.CompletionTokens)
		m.used(x.record.CompletionTokens)
		if err := r.reply.flush(); err != nil {
			return usage, err
		}
	}
	return usage, nil
}

// note records the counts and instants of one event of the choice at index.
func (r *run) note(index int, e *wire.Event, now int64) {
	record := &r.x.record
	if more := e.TokenCount - r.tokens[index]; more > 0 {
		record.CompletionTokens += more
		if last := r.tokenAt[index]; last != 0 {
			r.intervals.Observe(now-last, more)
		}
		r.tokens[index], r.tokenAt[index] = e.TokenCount, now
	}
	if e.Finish == wire.FinishStop || e.Finish == wire.FinishCalls {
		r.stops++
	}
	if e.Finish != wire.FinishNone && index < len(record.Finishes) {
		record.Finishes[index] = r.call.finishOf(e)
	}
	for i := range e.Pieces {
		if e.Pieces[i].Kind == wire.PieceCallEnd {
			record.ToolCalls++
		}
	}
	if e.Text == "" && len(e.Pieces) == 0 {
		return
	}
	if record.FirstToken == 0 {
		record.FirstToken = now
	}
	record.LastToken = now
}

// noteEnd records the end of one generation.
func (r *run) noteEnd(e *wire.End) {
	record := &r.x.record
	r.ended++
	r.engineFailed = r.engineFailed || e.Err != nil
	record.CachedTokens += e.Usage.Cached
	record.ReasoningTokens += e.Usage.Reasoning
	if e.Timings.Finished >= record.Engine.Finished {
		record.Engine = e.Timings
	}
}

// spent is what admission charges: nothing for a request that never ran.
func (r *run) spent() admission.Spent {
	record := &r.x.record
	if record.Dispatched == 0 {
		return admission.Spent{}
	}
	return admission.Spent{PromptTokens: record.PromptTokens, CompletionTokens: record.CompletionTokens, Whole: r.stops == record.Choices}
}
