package sim

import (
	"time"

	"github.com/forebay-io/forebay/admission"
)

// ending is how a request ended.
type ending uint8

const (
	unended   ending = iota
	finished         // the whole answer
	refused          // at arrival, or after it waited
	cancelled        // by its client
)

// job is a request on its way through policy and machine.
type job struct {
	*Request
	index int           // its place among the arrivals
	goal  time.Duration // for the time to first token, 0 for none
	limit time.Duration // the longest wait that its class allows
	// cancelAt is when its client cancels, if it does.
	cancelAt time.Duration
	ending   ending
	factor   float64 // on what the model says its prefill costs

	// By the policy.
	demoted   bool
	admitted  bool   // not refused on arrival
	why       string // the reason of its refusal
	predicted time.Duration
	level     int
	key       int64
	long      bool
	tokenGoal time.Duration
	entry     *admission.Entry

	// By the clock. first, last and ended are 0 until they happen.
	released, first, last, ended time.Duration
	started                      bool // released to the machine

	// By the machine.
	order    int    // of its release
	since    uint64 // number of the step that it last had a share in
	computed int    // tokens whose keys and values it holds
	matched  int    // of them, found in the cache
	tokens   int    // generated
}

// pending is how many tokens are known and not computed.
func (j *job) pending() int { return j.Prompt + j.tokens - j.computed }

// decoding tells that only the last sampled token is pending.
func (j *job) decoding() bool { return j.tokens > 0 && j.pending() == 1 }

// deadline is when its first token is late.
func (j *job) deadline() time.Duration { return j.At + j.goal }

// kept tells that the first token came in time.
func (j *job) kept() bool { return j.first > 0 && j.first-j.At <= j.goal }
