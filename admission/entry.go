package admission

import (
	"cmp"
	"time"
)

// state is where a request is. It moves to the right only, and reaches settled
// once:
//
//	waiting → running → settled
//	waiting → refused → settled
//	waiting → settled
type state uint8

const (
	waiting state = iota
	running
	refused // turned away while it waited; still to be settled
	settled
)

// Entry is one request in a Scheduler, which owns it until Done.
type Entry struct {
	demand  Demand
	class   *class // where it waits and by whose rules it runs
	asked   *class // where it wanted to; another one after it was demoted
	level   int    // the class's, or for a demoted one that harms nobody, that of its first class
	line    *line  // its tenant's waiting requests in class
	state   state
	refusal *Refusal
	ticket  *ticket // of the Queue, nil for a Scheduler alone
	order   uint64  // of arrival, unique

	arrived time.Duration
	expires time.Duration // end of the longest wait
	due     time.Duration // of the first token; 0 is no goal, or one given up

	// What it costs, in engine time.
	cached  int           // leading prompt tokens that need no computing
	prefill time.Duration // before its first token
	decode  time.Duration // after it, as expected
	cost    time.Duration // by which it is ordered
	long    bool
	key     time.Duration // fixed by arrival and cost, smaller goes first
	output  int           // longest answer of a sequence while there is overload, 0 for no other limit
	expect  int           // tokens of answer, over all sequences, as expected
	kv      int           // tokens of memory reserved for it

	predicted time.Duration // wait until its first token, foretold on arrival
	why       Why

	// From its start on.
	started    time.Duration
	firstToken time.Duration // 0 until then
	left       int           // prompt tokens of a long prefill that are still to be computed
	tokens     int
	charged    time.Duration // to its tenant

	inLane, inExpiry, inRunning int  // places in lists; out is none
	onTrack                     bool // it has a goal that waits to be kept
	links                       [watchCount]link
}

// Refusal is why it was turned away, nil if it was not.
func (e *Entry) Refusal() *Refusal { return e.refusal }

// ID is the request's.
func (e *Entry) ID() string { return e.demand.ID }

// Grant says how a started entry runs.
func (e *Entry) Grant() Grant {
	due := e.dueIn(e.class) // e.due may have been given up
	return Grant{
		FirstTokenGoal: max(0, due-e.arrived),
		Class:          e.class.Name, Level: e.level, Key: int64(e.key), Long: e.long, TokenGoal: e.class.TokenGoal,
		Waited: e.started - e.arrived, Predicted: e.predicted, Why: e.why, OutputTokens: e.output,
	}
}

// before is the order of service within a level: by key, then by arrival.
func before(a, b *Entry) bool {
	if a.key != b.key {
		return a.key < b.key
	}
	return a.order < b.order
}

func compareEntries(a, b *Entry) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.order, b.order))
}
