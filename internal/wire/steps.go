package wire

import (
	"slices"
	"sync"
	"time"
)

// This file has what an engine reports of its steps beside State: which sequences
// each step computed, which it left out and why, and how long its kernels took.

// StepRecord is one step. All instants are nanoseconds of CLOCK_MONOTONIC.
type StepRecord struct {
	// Step numbers the engine's steps, without gaps. Where numbers are missing,
	// records were lost. A number that is not larger than the one before comes
	// from another engine process.
	Step uint64
	// Began is when the forward pass began, after the batch was composed. Ended
	// is when the last token was sampled. The members wait for this part of a step.
	Began, Ended int64
	// Gap, GivenUp and Idle divide the time between the end of the step before
	// and Began. Idle: the loop slept because it had no work. GivenUp: steps that
	// were given up for more urgent work; they leave no record. Gap: the rest, in
	// which the loop took arrivals, reported, and composed.
	Gap, GivenUp, Idle time.Duration
	// Predicted is what the step takes where nothing takes the processors from it,
	// 0 where that is not known yet. CPU is the processor time of the engine's
	// process in the step, on all processors together.
	Predicted, CPU time.Duration
	// Lost are the stretches since the record before in which the engine did not
	// run although it had work, oldest first.
	Lost []LostTime

	DecodeRows    int
	PrefillTokens int
	PagesUsed     int // after the step

	// Members are the sequences that were computed, in the engine's order: by
	// level, then by age. MembersMore counts the members beyond StepListMax.
	Members     []StepMember
	MembersMore int
	// LeftOut are the live sequences that were not computed.
	LeftOut     []StepLeftOut
	LeftOutMore int
	// Preempted are the generations whose pages were taken for this step.
	Preempted     []uint64
	PreemptedMore int

	Kernels [KernelClassCount]KernelTime
}

// StepListMax is the most entries of each list of a StepRecord.
const StepListMax = 256

// StepMember is a sequence's part in a step. Each choice of a generation is a
// member of its own; they share one Serial.
type StepMember struct {
	Serial uint64 // of its Generation
	Tokens int    // computed: 1 in a decode row, else prompt tokens or recomputed ones
	// Own is this member's part of Ended - Began, in proportion to what its work
	// was predicted to cost. The parts of all members sum to the whole.
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
	PartGap                       // between two steps, while it could run: composing, reporting
	PartGivenUp                   // a step with it that was given up for more urgent work
	PartMask                      // finding which tokens its grammar allows

	// The reasons why it was not in the steps that ran:
	PartPages     // it waits for pages
	PartPlaces    // it waits for a place among the running sequences
	PartPrefix    // another sequence computes the block that it needs next, or it is read from disk
	PartHeldBack  // the step's time went to other levels, to the other lane or to sequences due before it
	PartPreempted // its pages were taken
	PartPaused    // its reader asked for a pause
	PartParked    // its reader has not taken what is there

	PartCount
)

var partNames = [...]string{"own", "others_prefill", "others_decode", "gap", "given_up", "mask",
	"pages", "places", "prefix", "held_back", "preempted", "paused", "parked"}

// String returns the part's stable name.
func (p Part) String() string {
	if int(p) < len(partNames) {
		return partNames[p]
	}
	return "unknown"
}

// Parts divide a stretch of time by what it went to.
type Parts [PartCount]time.Duration

// Sum is the length of the whole stretch.
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
	// OthersPrefill counts the prompt tokens of other generations in it.
	OthersPrefill int
	// Largest is the serial of the other member that cost most, 0 for none.
	Largest uint64
}

// SlowStepsKept is how many slow steps are kept for a generation.
const SlowStepsKept = 8

// KernelClass is a kind of work in a step.
type KernelClass uint8

const (
	KernelEmbed    KernelClass = iota // embeddings and positions
	KernelNormRope                    // residual sums, norms, rope, and writing keys and values to their pages
	KernelQKV                         // projections to queries, keys and values
	KernelAttentionPrefill
	KernelAttentionDecode
	KernelOutput // attention's output projection
	KernelMLP    // the feed-forward layer, experts too
	KernelLogits
	KernelSampling
	KernelMask     // which tokens the grammars of answers allow
	KernelKVCopy   // pages copied before a sequence writes to them
	KernelToDevice // to and from a GPU
	KernelFromDevice

	KernelClassCount
)

var kernelNames = [...]string{"embed", "norm_rope", "qkv", "attention_prefill", "attention_decode", "output", "mlp",
	"logits", "sampling", "mask", "kv_copy", "h2d", "d2h"}

// String returns the class's stable name.
func (k KernelClass) String() string {
	if int(k) < len(kernelNames) {
		return kernelNames[k]
	}
	return "unknown"
}

// KernelTime is the wall time of one class's launches in a step.
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

// LaunchTrace is the kernel launches of some steps.
type LaunchTrace struct {
	Launches []Launch
	Steps    int // that were traced
	Missing  int // launches for which there was no room
}

// The most that one launch trace may ask for.
const (
	LaunchTraceStepsMax = 4096
	LaunchTraceMax      = 1 << 16
)

// StepLogSteps is how many steps the logs of an engine and of a Client hold.
const StepLogSteps = 1024

// StepLog holds the records of an engine's last steps, for readers that look only
// now and then. Its methods may be called from any goroutine; After and Added
// may be called on a nil log.
type StepLog struct {
	mu    sync.Mutex
	ring  []StepRecord
	added uint64
}

// membersAhead is for how many members of each step there is memory from the start.
const membersAhead = 8

// NewStepLog makes a log of this many steps, at least 1.
func NewStepLog(steps int) *StepLog {
	l := &StepLog{ring: make([]StepRecord, max(1, steps))}
	room := make([]StepMember, len(l.ring)*membersAhead)
	for i := range l.ring {
		l.ring[i].Members, room = room[:0:membersAhead], room[membersAhead:]
	}
	return l
}

// Add copies r into the log, in place of the oldest record where it is full.
func (l *StepLog) Add(r *StepRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.copyTo(&l.ring[l.added%uint64(len(l.ring))])
	l.added++
}

// After calls each for every record after the first n that were added, the oldest
// first, until each returns false. It returns the n for the next call. Records
// that are no longer in the log are left out. A record is valid until each
// returns; each must not block or use the log.
func (l *StepLog) After(n uint64, each func(*StepRecord) bool) uint64 {
	if l == nil {
		return n
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	size := uint64(len(l.ring))
	if n > l.added { // n counts another log's records
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

// Added is how many records were added.
func (l *StepLog) Added() uint64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.added
}

// copyTo makes to a copy of r that shares nothing with it. The lists of to keep
// their memory where that is large enough.
func (r *StepRecord) copyTo(to *StepRecord) {
	members, leftOut, preempted, lost := to.Members, to.LeftOut, to.Preempted, to.Lost
	*to = *r
	to.Lost = append(lost[:0], r.Lost...)
	to.Members = append(members[:0], r.Members...)
	to.LeftOut = append(leftOut[:0], r.LeftOut...)
	to.Preempted = append(preempted[:0], r.Preempted...)
}

// Clone is a copy of r that shares nothing with it.
func (r *StepRecord) Clone() *StepRecord {
	c := *r
	c.Members, c.LeftOut, c.Preempted, c.Lost = slices.Clone(r.Members), slices.Clone(r.LeftOut), slices.Clone(r.Preempted), slices.Clone(r.Lost)
	return &c
}
