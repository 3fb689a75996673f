package wire

import (
	"slices"
	"sync"
	"time"
)

// This file is what an engine tells of its steps, beside State: who was in
// each, who was not and why, and which kernels took the time.

// StepRecord is one step. All instants are nanoseconds of CLOCK_MONOTONIC.
type StepRecord struct {
	// Step counts the engine's steps, by one for each. A gap is steps whose
	// records were lost; one that is not more than the record before it is of
	// another engine process.
	Step uint64
	// Began is when the forward began, composing done; Ended is when the last
	// token was sampled. So the part of a step that its members wait for.
	Began, Ended int64
	// Gap, GivenUp and Idle are the time between the end of the step before and
	// Began: Idle where the loop slept for want of work, GivenUp in steps that
	// were given up for somebody more urgent, which leave no record, and Gap
	// the rest, in which it took arrivals, reported, and composed.
	Gap, GivenUp, Idle time.Duration

	DecodeRows    int
	PrefillTokens int
	PagesUsed     int // after the step

	// Members are the sequences that were computed, in the order of the engine:
	// by level, then by age. MembersMore counts those beyond StepListMax.
	Members     []StepMember
	MembersMore int
	// LeftOut are the sequences that were there and not computed.
	LeftOut     []StepLeftOut
	LeftOutMore int
	// Preempted are the generations whose pages were taken for this step.
	Preempted     []uint64
	PreemptedMore int

	Kernels [KernelClassCount]KernelTime
}

// StepListMax is the most entries of each list of a StepRecord.
const StepListMax = 256

// StepMember is a sequence's part in a step. Choices of one generation are
// members each, with one Serial.
type StepMember struct {
	Serial uint64 // its Generation's
	Tokens int    // computed: 1 of a decode row, else prompt tokens or recomputed ones
	// Own is the part of Ended - Began that is this member's, by what its work
	// was predicted to cost beside the others'. All members' are the whole.
	Own    time.Duration
	Level  uint8
	Decode bool
}

// StepLeftOut is a sequence that was not computed in a step, and why.
type StepLeftOut struct {
	Serial uint64
	Why    Part // PartPages and those after it
}

// Part is what a stretch of a generation's time went to.
type Part uint8

const (
	PartOwn           Part = iota // its own computing
	PartOthersPrefill             // computing others' prompts in the same steps
	PartOthersDecode              // computing others' next tokens in the same steps
	PartGap                       // between two steps, with nothing against it: composing, reporting
	PartGivenUp                   // a step of its own that was given up for somebody more urgent

	// It was not in the steps that ran, since:
	PartPages     // it waits for pages
	PartPlaces    // it waits for a place among those that run
	PartPrefix    // another computes the block that it needs next
	PartHeldBack  // the step's time went to other levels, to the other lane or to those due before it
	PartPreempted // its pages were taken
	PartPaused    // its reader asked for a pause
	PartParked    // its reader has not taken what is there

	PartCount
)

var partNames = [...]string{"own", "others_prefill", "others_decode", "gap", "given_up",
	"pages", "places", "prefix", "held_back", "preempted", "paused", "parked"}

// String returns the part's stable name.
func (p Part) String() string {
	if int(p) < len(partNames) {
		return partNames[p]
	}
	return "unknown"
}

// Parts are a stretch of time, divided by what it went to.
type Parts [PartCount]time.Duration

// Sum is the whole stretch.
func (p *Parts) Sum() (sum time.Duration) {
	for _, d := range p {
		sum += d
	}
	return sum
}

// SlowStep is a step that a generation waited long for.
type SlowStep struct {
	Step     uint64 // 0 for none
	Duration time.Duration
	// OthersPrefill counts the prompt tokens of others in it.
	OthersPrefill int
	// Largest is the serial of the other member that cost most, 0 for none.
	Largest uint64
}

// SlowStepsKept is how many are kept of a generation.
const SlowStepsKept = 8

// KernelClass is a kind of work in a step.
type KernelClass uint8

const (
	KernelEmbed    KernelClass = iota // embeddings and positions
	KernelNormRope                    // adding to the residual stream, norms, rope, and writing keys and values to their pages
	KernelQKV                         // projections to queries, keys and values
	KernelAttentionPrefill
	KernelAttentionDecode
	KernelOutput // attention's output projection
	KernelMLP    // the feed-forward layer, experts too
	KernelLogits
	KernelSampling
	KernelKVCopy   // pages copied before a sequence writes to them
	KernelToDevice // to and from a GPU
	KernelFromDevice

	KernelClassCount
)

var kernelNames = [...]string{"embed", "norm_rope", "qkv", "attention_prefill", "attention_decode", "output", "mlp",
	"logits", "sampling", "kv_copy", "h2d", "d2h"}

// String returns the class's stable name.
func (k KernelClass) String() string {
	if int(k) < len(kernelNames) {
		return kernelNames[k]
	}
	return "unknown"
}

// KernelTime is what the launches of one class took in a step, wall time.
type KernelTime struct {
	Count uint32
	Total time.Duration
	Max   time.Duration // of one launch
}

// Launch is one kernel launch, on all workers together.
type Launch struct {
	Step       uint64
	Layer      int // -1 outside the layers
	Class      KernelClass
	Begin, End int64 // nanoseconds of CLOCK_MONOTONIC
}

// Capture is what a capture of launches gave.
type Capture struct {
	Launches []Launch
	Steps    int // that were captured
	Missing  int // launches for which there was no room
}

// What one capture may ask for.
const (
	CaptureStepsMax    = 4096
	CaptureLaunchesMax = 1 << 16
)

// StepLogSteps is how many steps the logs of an engine and of a Client hold.
const StepLogSteps = 1024

// StepLog holds an engine's last steps for readers that look late. Its
// methods may be called from any goroutine, After on a nil log too.
type StepLog struct {
	mu    sync.Mutex
	ring  []StepRecord
	added uint64
}

// membersAhead is how many members of each step have their room from the start.
const membersAhead = 8

// NewStepLog makes a log of so many steps, at least 1.
func NewStepLog(steps int) *StepLog {
	l := &StepLog{ring: make([]StepRecord, max(1, steps))}
	room := make([]StepMember, len(l.ring)*membersAhead)
	for i := range l.ring {
		l.ring[i].Members, room = room[:0:membersAhead], room[membersAhead:]
	}
	return l
}

// Add copies r into the log, over the oldest where it is full.
func (l *StepLog) Add(r *StepRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.copyTo(&l.ring[l.added%uint64(len(l.ring))])
	l.added++
}

// After calls each with every record after the first n that the log was
// given, oldest first, until it returns false, and returns the n to begin
// with the next time. Records that are no longer there are left out. A record
// is valid until each returns, which must not block or use the log.
func (l *StepLog) After(n uint64, each func(*StepRecord) bool) uint64 {
	if l == nil {
		return n
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	size := uint64(len(l.ring))
	if n > l.added { // of another log
		n = 0
	}
	if l.added > size {
		n = max(n, l.added-size)
	}
	for n < l.added {
		n++
		if !each(&l.ring[(n-1)%size]) {
			break
		}
	}
	return n
}

// Added is how many records the log was given.
func (l *StepLog) Added() uint64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.added
}

// copyTo makes to a copy of r that shares nothing with it, in to's own memory
// where that is enough.
func (r *StepRecord) copyTo(to *StepRecord) {
	members, leftOut, preempted := to.Members, to.LeftOut, to.Preempted
	*to = *r
	to.Members = append(members[:0], r.Members...)
	to.LeftOut = append(leftOut[:0], r.LeftOut...)
	to.Preempted = append(preempted[:0], r.Preempted...)
}

// Clone is a copy of r that shares nothing with it.
func (r *StepRecord) Clone() *StepRecord {
	c := *r
	c.Members, c.LeftOut, c.Preempted = slices.Clone(r.Members), slices.Clone(r.LeftOut), slices.Clone(r.Preempted)
	return &c
}
