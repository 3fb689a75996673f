package gateway

import (
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// run is a request in the engine: one generation for each prompt, from dispatch
// to the end of the last. Before dispatch it has no streams. What it holds, a
// reservation and a place, goes back once it has ended; nil where it holds none.
type run struct {
	x           *exchange
	call        *call
	reservation *budget.Reservation
	ticket      admission.Ticket

	reply     reply
	relayed   []*wire.Prompt // the prompts, where another server counts them; else nil
	prompts   []*wire.Prompt
	granted   admission.Grant
	class     *admission.Class
	generate  func(*wire.Generation) *wire.Stream
	streams   []*wire.Stream // one for each prompt that was dispatched
	events    []wire.Event
	intervals telemetry.Intervals
	tokens    []int   // generated so far, of each choice
	tokenAt   []int64 // when the last ones of each came

	usage        []wire.Usage // of each prompt, as far as it is known
	stops        int          // choices that ended by themselves
	live         int          // streams that have not ended
	canceled     bool
	engineFailed bool
}

// dispatch starts the generations of the prompts, as they were granted. generate is the
// engine's, or that of a sibling.
func (r *run) dispatch(class *admission.Class, prompts []*wire.Prompt, granted admission.Grant, generate func(*wire.Generation) *wire.Stream) {
	x := r.x
	x.noteGrant(granted)
	r.reply = newReply(x, r.call, prompts)
	if prompts[0].Relayed != nil {
		r.relayed = prompts
	}
	r.tokens, r.tokenAt = make([]int, x.record.Choices), make([]int64, x.record.Choices)
	r.intervals = x.g.recorder.Intervals(x.record.Class)
	x.record.Serial = x.g.serials.Add(uint64(len(prompts))) - uint64(len(prompts)) + 1
	x.record.Dispatched = wire.Monotonic()
	x.g.capture.Started(&x.record)
	x.enter(stageGenerating)
	r.prompts, r.class, r.granted, r.generate = prompts, class, granted, generate
	r.streams, r.usage = make([]*wire.Stream, 0, len(prompts)), make([]wire.Usage, len(prompts))
	for i, p := range prompts {
		r.usage[i].Prompt = p.Length()
	}
	for range r.call.atOnce(len(prompts)) {
		r.start()
	}
	if len(r.streams) == len(prompts) {
		r.prompts = nil // their memory is not needed while the answer comes
	}
}

// start dispatches the next prompt, if there is one.
func (r *run) start() {
	x, i := r.x, len(r.streams)
	if i >= len(r.prompts) {
		return
	}
	p, granted, options := r.prompts[i], &r.granted, r.call.options
	options.MaxTokens = grantTokens(options.MaxTokens, p.Room, r.class.OutputTokensMax, granted.OutputTokens)
	options.MinTokens = min(options.MinTokens, options.MaxTokens) // more was asked for than is granted
	// Each prompt is an independent draw with a seed of its own.
	options.Seed += uint64(i)
	r.streams = append(r.streams, r.generate(&wire.Generation{
		ID: x.promptID(i), Serial: x.record.Serial + uint64(i), Prompt: p, Options: options, Salt: x.salt(),
		Class: granted.Class, Level: granted.Level, Key: granted.Key, Long: granted.Long, TokenGoal: granted.TokenGoal, Pin: r.call.pin,
		Trace: x.record.Trace, Notify: x.notify,
	}))
	r.live++
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
func (r *run) relay() (usage wire.Usage, err error) {
	x := r.x
	for r.live > 0 {
		if err := x.await(x.notify); err != nil {
			return usage, err
		}
		now := wire.Monotonic()
		for prompt, s := range r.streams {
			if s == nil {
				continue
			}
			r.events = s.Take(r.events[:0])
			for i := range r.events {
				e := &r.events[i]
				if e.End == nil {
					index := prompt*r.call.options.N + e.Choice
					r.note(index, prompt, e, now)
					if r.call.hideReasoning {
						withoutReasoning(e)
					}
					r.reply.event(index, prompt, e)
					continue
				}
				r.noteEnd(prompt, e.End)
				if e.End.Err != nil {
					return usage, e.End.Err
				}
				usage.Prompt += e.End.Usage.Prompt
				usage.Cached += e.End.Usage.Cached
				usage.Completion += e.End.Usage.Completion
				usage.Reasoning += e.End.Usage.Reasoning
				usage.Pinned, usage.PinRefused = e.End.Usage.Pinned, e.End.Usage.PinRefused // of one prompt
				r.start()
			}
			clear(r.events)
		}
		x.record.Taken = now
		if now-x.shown > showInterval {
			x.show(now)
		}
		if r.ticket != nil { // a sibling has its own
			r.ticket.Progress(x.record.CompletionTokens)
		}
		if r.reservation != nil {
			r.reservation.Used(x.record.CompletionTokens)
		}
		if r.live == 0 && r.call.stream { // what is left leaves together with the end
			break
		}
		if err := r.reply.flush(); err != nil {
			return usage, err
		}
	}
	return usage, nil
}

// note records the counts and instants of one event of the choice at index, which
// answers the given prompt.
func (r *run) note(index, prompt int, e *wire.Event, now int64) {
	record := &r.x.record
	if more := e.TokenCount - r.tokens[index]; more > 0 {
		if u := &r.usage[prompt]; u.Cached+u.Computed == 0 { // its first: the prompt is computed
			u.Cached, u.Computed = e.Cached, u.Prompt-e.Cached
			r.count()
		}
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
	if e.Text == "" && e.Embedding == nil && len(e.Pieces) == 0 && (e.Relayed == nil || len(e.Relayed.Delta) == 0) {
		return
	}
	if record.FirstToken == 0 {
		record.FirstToken = now
	}
	record.LastToken = now
}

// noteEnd records the end of one generation.
func (r *run) noteEnd(prompt int, e *wire.End) {
	record := &r.x.record
	r.live--
	r.engineFailed = r.engineFailed || e.Err != nil && !(r.canceled && e.Err.Kind == wire.Canceled)
	if e.Usage.Prompt > 0 { // otherwise the engine never had it, or is gone
		r.correct(prompt, &e.Usage)
		r.usage[prompt] = e.Usage
		r.count()
	}
	if e.Timings.Finished >= record.Engine.Finished {
		record.Engine = e.Timings
	}
}

// count brings the tokens of the record up to what is known of the prompts.
func (r *run) count() {
	record := &r.x.record
	record.CachedTokens, record.ComputedTokens, record.ReasoningTokens = 0, 0, 0
	for _, u := range r.usage {
		record.CachedTokens += u.Cached
		record.ComputedTokens += u.Computed
		record.ReasoningTokens += u.Reasoning
	}
}

// cancel ends the generations that have not ended, and reports whether there are any.
func (r *run) cancel() bool {
	r.canceled = r.live > 0
	for _, s := range r.streams {
		s.Cancel()
	}
	return r.canceled
}

// finish hears what the engine computed, at most for limit, and gives place and
// reservation back.
func (r *run) finish(limit time.Duration) {
	r.x.record.Unanswered = !r.awaitEnds(limit)
	completion := 0
	for i, s := range r.streams {
		s.Close()
		completion += r.usage[i].Completion
	}
	if untaken := completion - r.x.record.CompletionTokens; untaken > 0 {
		r.x.record.CompletionTokens, r.x.record.UntakenTokens = completion, untaken
	}
	if r.ticket != nil {
		r.ticket.Done(r.spent())
	}
	r.settle()
}

// awaitEnds waits for the answers to a cancel. It reports false when limit was over.
func (r *run) awaitEnds(limit time.Duration) bool {
	if r.live == 0 {
		return true
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		for prompt, s := range r.streams {
			for _, e := range s.Take(nil) { // its end, and nothing else
				r.noteEnd(prompt, e.End)
				r.x.record.Taken = wire.Monotonic()
			}
		}
		if r.live == 0 {
			return true
		}
		select {
		case <-r.x.notify:
		case <-late.C:
			return false
		}
	}
}

// spent is what admission charges: nothing for a request that never ran.
func (r *run) spent() admission.Spent {
	record := &r.x.record
	if record.Dispatched == 0 {
		return admission.Spent{}
	}
	return admission.Spent{
		ComputedTokens: record.ComputedTokens, CachedTokens: record.CachedTokens, CompletionTokens: record.CompletionTokens,
		Unheard: record.Unanswered, Whole: r.stops == record.Choices,
	}
}

// settle ends the reservation on every path. A request that never ran, or that
// failed by the engine's fault before its first token, costs nothing.
func (r *run) settle() {
	record := &r.x.record
	record.Refunded = record.Dispatched == 0 || r.engineFailed && record.CompletionTokens == 0
	if !record.Refunded && r.x.g.budget != nil {
		price := r.x.g.budget.Price(record.Model)
		record.Cost = price.Cost(record.ComputedTokens, record.CachedTokens, record.CompletionTokens)
	}
	switch {
	case r.reservation == nil:
	case record.Refunded:
		r.reservation.Refund()
	default:
		r.reservation.Cached(record.CachedTokens)
		r.reservation.Settle(record.ComputedTokens, record.CompletionTokens)
	}
}
