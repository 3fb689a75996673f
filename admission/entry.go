package admission

import (
	"cmp"
	"time"
)

// state is where a request is. It only moves to the right:
//
//	waiting → running → settled
//	waiting → refused → settled
//	waiting → settled
type state uint8

const (
	waiting state = iota
	running
	refused // while it waited; still to be settled
	settled
)

// Entry is one request in a Scheduler, which owns it until Done.
type Entry struct {
	demand  Demand
	class   *class // where it waits and by whose rules it runs
	asked   *class // the one that it asked for; another than class once it is demoted
	level   int    // its class's; that of asked, if it was demoted and delays nobody there
	line    *line  // its tenant's in class
	state   state
	refusal *Refusal
	ticket  *ticket // of the Queue, nil for a Scheduler alone
	order   uint64  // of arrival, unique

	arrived      time.Duration
	expires      time.Duration // when its wait ends with a refusal
	pausedBefore time.Duration // for which its class was paused before it came
	due          time.Duration // goal for the first token; 0 is no goal, or one given up

	// What it costs, in engine time.
	cached  int           // leading prompt tokens that need no computing
	prefill time.Duration // of what is not cached
	decode  time.Duration // of the expected answer
	cost    time.Duration // by which it is ordered
	size    time.Duration // by which it is compared with what else its tenant asks for
	sized   bool          // size is told by the bytes of its body
	long    bool
	key     time.Duration // see Order in the package's documentation
	behind  time.Duration // the least that key may be, since it went behind others; 0 is none
	output  int           // longest answer of a sequence during overload; 0 leaves it to the demand
	expect  int           // expected tokens of answer, over all sequences
	answer  float64       // tokens of a sequence's answer, more than expected while few answers were seen
	kv      int           // memory that is reserved for it, in tokens

	predicted time.Duration // wait for its first token, as predicted on arrival
	why       Why           // what kept it from starting when it was last looked at

	// From its start on.
	started    time.Duration
	firstToken time.Duration // 0 until then
	left       int           // prompt tokens that are not computed yet, as far as is known
	tokens     int           // of its answer, over all sequences
	charged    time.Duration // to its tenant

	inLane, inExpiry, inRunning int  // places in heaps and lists; out is none
	onTrack                     bool // it is in its level's track
	byShare                     bool // its tenant's share puts it before requests with smaller keys
	links                       [watchCount]link
}

// Refusal is why e was refused, nil if it was not.
func (e *Entry) Refusal() *Refusal { return e.refusal }

// ID is the request's identity, as in its Demand.
func (e *Entry) ID() string { return e.demand.ID }

// Grant says how a started entry runs.
func (e *Entry) Grant() Grant {
	due := e.dueIn(e.class) // even if e.due was given up
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
