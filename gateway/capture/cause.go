package capture

import (
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// cause is what most of a request's time went to, or what ended it.
type cause uint8

const (
	causeNothing       cause = iota // nothing unusual
	causeBody                       // its body came slowly
	causePrepare                    // its prompt was rendered and tokenized
	causeReserve                    // the store of budgets was asked
	causeQueue                      // it waited for admission
	causeOwnPrefill                 // its own prompt
	causeOthersPrefill              // other requests' prompts
	causeOwnDecode                  // its own answer
	causeOthersDecode               // other requests' answers, in the same steps
	causeGap                        // the time between steps
	causeGrammar                    // its grammar: compiling it, and finding which tokens it allows
	causeGivenUp                    // steps given up for a more urgent request
	causePages                      // no free memory for its keys and values
	causePlaces                     // no free place among the running sequences
	causePrefix                     // another request computed their common prefix
	causeHeldBack                   // the steps went to others
	causePreempted                  // its pages were taken
	causeReader                     // its client read slowly
	causeHandover                   // the way from the gateway to the engine
	causeToEngine                   // the way to the engine and back, for its prompt
	causeFrozen                     // the engine's process was stopped
	causeTaken                      // other programs had the processors
	causeStolen                     // the hypervisor gave the processors to other machines
	causeThrottled                  // the engine's CPU limit was used up
	causePaging                     // the engine waited for memory from a disk
	causeSibling                    // another replica computed it
	causeUnexplained
	causeLoading // there was no engine yet: its model was being downloaded
	causeRefused
	causeEngineLost
	causeEngineFailed
	causeClientLeft
	causeDeadline
	causeDraining
	causeInternal
	causeInvalid
	causeCount
)

var causeNames = [causeCount]string{"nothing", "body", "prepare", "reserve", "queue", "own_prefill", "others_prefill", "own_decode",
	"others_decode", "gap", "grammar", "given_up", "pages", "places", "prefix", "held_back", "preempted", "slow_reader", "handover", "to_engine",
	"frozen", "taken", "stolen", "throttled", "paging", "sibling", "unexplained", "loading", "refused", "engine_lost", "engine_failed", "client_left", "deadline", "draining", "internal", "invalid"}

// String returns the cause's stable name.
func (c cause) String() string { return causeNames[c] }

// CauseNames and ReasonNames are what pages and commands may ask for.
func CauseNames() []string  { return causeNames[:] }
func ReasonNames() []string { return reasonNames[:] }

// causes is the time that each cause took.
type causes [causeCount]time.Duration

// scope is the part of a life that matters. Of a request that missed a goal, this
// is the time that the goal is about.
type scope uint8

const (
	scopeAll    scope = iota
	scopeBefore       // up to the first token
	scopeAfter        // after the first token
)

// scopeOf is the scope of a request that missed these goals.
func scopeOf(broken telemetry.Goals) scope {
	switch early := broken & (telemetry.FirstTokenGoal | telemetry.QueueGoal); {
	case broken == 0:
		return scopeAll
	case early == broken:
		return scopeBefore
	case early == 0:
		return scopeAfter
	}
	return scopeAll
}

// causes sums up phases and parts by cause, within the scope.
func (l *life) causes(blocked time.Duration, within scope) (c causes) {
	unknown := causeUnexplained
	if l.away {
		unknown = causeSibling
	}
	if within != scopeAfter {
		for p := range phaseEngineQueue {
			c[causeOfPhase[p]] += l.phase(p) - l.lost[p].sum()
			c.addLosses(&l.lost[p])
		}
		c.addLosses(&l.lostBefore)
		for p := range wire.PartCount {
			c[causeOfPart[p]] += l.before[p]
		}
		c[causeOwnPrefill] += l.before[wire.PartOwn]
		c[causeHandover] += l.handover
		c[unknown] += l.beforeUnknown
	}
	if within != scopeBefore {
		c.addLosses(&l.lostAfter)
		for p := range wire.PartCount {
			c[causeOfPart[p]] += l.after[p]
		}
		c[causeOwnDecode] += l.after[wire.PartOwn]
		c[unknown] += l.afterUnknown
		// Blocked writes count only after the engine's end: before it, they did not
		// hold up the engine.
		emit := l.phase(phaseEmit)
		c[causeReader] += min(emit, blocked)
		c[causeHandover] += max(0, emit-blocked)
	}
	c[causeNothing] = 0 // holds the own parts, which are counted by phase
	return c
}

func (c *causes) addLosses(l *losses) {
	for lost, d := range l {
		c[causeOfLost[lost]] += d
	}
}

var causeOfLost = [wire.LostCauseCount]cause{wire.LostFrozen: causeFrozen, wire.LostTaken: causeTaken, wire.LostStolen: causeStolen,
	wire.LostThrottled: causeThrottled, wire.LostPaging: causePaging}

// within is the duration of the scope.
func (l *life) within(s scope) time.Duration {
	before := time.Duration(l.ends[phasePrefill] - l.begin)
	switch s {
	case scopeBefore:
		return before
	case scopeAfter:
		return l.wall() - before
	}
	return l.wall()
}

var causeOfPhase = [phaseCount]cause{
	phaseRead: causeBody, phaseIdentify: causePrepare, phasePrepare: causeToEngine, phaseCompile: causeGrammar, phaseRender: causePrepare, phaseTokenize: causePrepare,
	phaseReserve: causeReserve, phaseQueue: causeQueue, phaseDispatch: causeHandover,
}

var causeOfPart = [wire.PartCount]cause{
	wire.PartOthersPrefill: causeOthersPrefill, wire.PartOthersDecode: causeOthersDecode, wire.PartGap: causeGap, wire.PartGivenUp: causeGivenUp, wire.PartMask: causeGrammar,
	wire.PartPages: causePages, wire.PartPlaces: causePlaces, wire.PartPrefix: causePrefix, wire.PartHeldBack: causeHeldBack,
	wire.PartPreempted: causePreempted, wire.PartPaused: causeReader, wire.PartParked: causeReader,
}

// lostShare is the part of the time, in percent, from which on the loss of the
// processors is the cause: all other work takes as long as it takes.
const lostShare = 30

// largest is the cause that took the most time, or what took the engine's
// processors for a large part of it.
func (c *causes) largest() cause {
	whole, lost, worst := time.Duration(0), time.Duration(0), causeFrozen
	for _, d := range c {
		whole += d
	}
	for _, l := range causeOfLost {
		if lost += c[l]; c[l] > c[worst] {
			worst = l
		}
	}
	if lost > 0 && lost*100 >= whole*lostShare {
		return worst
	}
	most := causeBody
	for i := range c {
		if c[i] > c[most] {
			most = cause(i)
		}
	}
	return most
}

// CauseOf is the stable name of the cause of r by its record alone, without its steps.
func CauseOf(r *telemetry.Record) string { return causeOf(r).String() }

// causeOf is CauseOf as a number.
func causeOf(r *telemetry.Record) cause {
	if c := endOf(r); c != causeNothing {
		return c
	}
	l := divide(r, r.Finished)
	c := l.causes(r.Blocked, scopeOf(r.Broken))
	return c.largest()
}
