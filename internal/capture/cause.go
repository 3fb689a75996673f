package capture

import (
	"time"

	"github.com/forebay-io/forebay/internal/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// Cause is what most of a request's time went to, or what ended it.
type Cause uint8

const (
	CauseNothing       Cause = iota // nothing unusual
	CauseBody                       // its body came slowly
	CausePrepare                    // rendering and tokenizing its prompt
	CauseReserve                    // the store of budgets
	CauseQueue                      // it waited for admission
	CauseOwnPrefill                 // its own prompt
	CauseOthersPrefill              // others' prompts
	CauseOwnDecode                  // its own answer
	CauseOthersDecode               // others' answers, in the same steps
	CauseGap                        // between steps
	CauseGivenUp                    // steps given up for somebody more urgent
	CausePages                      // memory for its keys and values
	CausePlaces                     // places among the running
	CausePrefix                     // another computed the prefix that they share
	CauseHeldBack                   // steps went to others
	CausePreempted                  // its pages were taken
	CauseReader                     // its client read slowly
	CauseHandover                   // from the gateway to the engine
	CauseUnexplained
	CauseRefused
	CauseEngineLost
	CauseEngineFailed
	CauseClientLeft
	CauseDeadline
	CauseDraining
	CauseInternal
	CauseInvalid
	causeCount
)

var causeNames = [causeCount]string{"nothing", "body", "prepare", "reserve", "queue", "own_prefill", "others_prefill", "own_decode",
	"others_decode", "gap", "given_up", "pages", "places", "prefix", "held_back", "preempted", "slow_reader", "handover", "unexplained",
	"refused", "engine_lost", "engine_failed", "client_left", "deadline", "draining", "internal", "invalid"}

// String returns the cause's stable name.
func (c Cause) String() string { return causeNames[c] }

// causes are what the life of a request went to.
type causes [causeCount]time.Duration

// causes adds up the two tables by cause.
func (l *life) causes(blocked time.Duration) (c causes) {
	for p := range phaseCount {
		if to := causeOfPhase[p]; to != CauseNothing {
			c[to] += l.phase(p)
		}
	}
	for p := range wire.PartCount {
		both := l.before[p] + l.after[p]
		switch p {
		case wire.PartOwn:
			c[CauseOwnPrefill] += l.before[p]
			c[CauseOwnDecode] += l.after[p]
		default:
			c[causeOfPart[p]] += both
		}
	}
	c[CauseHandover] += l.handover
	c[CauseUnexplained] += l.beforeUnknown + l.afterUnknown
	// What the gateway waited in writes while the engine went on is no part of the
	// engine's time; after its end it is the reader's.
	emit := l.phase(phaseEmit)
	c[CauseReader] += min(emit, blocked)
	c[CauseHandover] += max(0, emit-blocked)
	return c
}

var causeOfPhase = [phaseCount]Cause{
	phaseRead: CauseBody, phaseIdentify: CausePrepare, phasePrepare: CausePrepare, phaseRender: CausePrepare, phaseTokenize: CausePrepare,
	phaseReserve: CauseReserve, phaseQueue: CauseQueue, phaseDispatch: CauseHandover,
}

var causeOfPart = [wire.PartCount]Cause{
	wire.PartOthersPrefill: CauseOthersPrefill, wire.PartOthersDecode: CauseOthersDecode, wire.PartGap: CauseGap, wire.PartGivenUp: CauseGivenUp,
	wire.PartPages: CausePages, wire.PartPlaces: CausePlaces, wire.PartPrefix: CausePrefix, wire.PartHeldBack: CauseHeldBack,
	wire.PartPreempted: CausePreempted, wire.PartPaused: CauseReader, wire.PartParked: CauseReader,
}

// largest is the cause with the most time.
func (c *causes) largest() Cause {
	most := CauseBody
	for i := range c {
		if c[i] > c[most] {
			most = Cause(i)
		}
	}
	return most
}

// ended is the cause of an end that was no answer, CauseNothing for an answer.
func ended(o telemetry.Outcome) Cause {
	switch o {
	case telemetry.OK:
		return CauseNothing
	case telemetry.QueueFull, telemetry.QueueTimeout, telemetry.RateLimited, telemetry.Late, telemetry.Overloaded, telemetry.ClassClosed, telemetry.LimiterUnavailable:
		return CauseRefused
	case telemetry.EngineUnavailable:
		return CauseEngineLost
	case telemetry.EngineError, telemetry.NonFinite:
		return CauseEngineFailed
	case telemetry.ClientGone:
		return CauseClientLeft
	case telemetry.WriteStall:
		return CauseReader
	case telemetry.DeadlineExceeded:
		return CauseDeadline
	case telemetry.Draining:
		return CauseDraining
	case telemetry.Internal:
		return CauseInternal
	}
	return CauseInvalid
}

// causeOf is the cause of r by its record alone, without its steps.
func causeOf(r *telemetry.Record) Cause {
	if c := ended(r.Outcome); c != CauseNothing {
		return c
	}
	t := timesOf(r)
	l := divide(r, &t, r.Finished)
	c := l.causes(r.Blocked)
	return c.largest()
}
