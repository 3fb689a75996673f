package wire

import (
	"context"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
)

// State is the engine as of its last step: is it alive, what do its pages hold,
// how much work does it have, what do its steps cost, what has it done since it
// started, and which blocks can it reuse. The groups are embedded: s.PagesUsed
// is a field of a State s.
type State struct {
	// Err says why the engine cannot serve; nil when it can.
	Err   *Error
	Model Model
	// Step counts steps. At is when the loop last turned, in nanoseconds of
	// CLOCK_MONOTONIC; idle turns count, and there is at least one a second.
	Step uint64
	At   int64

	Pages
	States
	Load
	Pace
	Totals

	// Busiest names the other programs that take the processors from the engine,
	// as far as it can see them; "" where none does, or none was looked for.
	Busiest string

	GPU GPUState

	// Steps has the records of the last steps, up to this State's own; nil where
	// none are kept.
	Steps *StepLog `json:"-"`
	// Blocks is the journal of the reusable blocks. A reader that takes every
	// State in order hears each change once; after a State with Err set it
	// begins again with a new hitmap.Reader and an empty set.
	Blocks hitmap.Journal `json:"-"`
	// Upstreams are the servers of an engine that relays; nil for all others.
	Upstreams []UpstreamReport `json:"-"`
}

// Pages counts the pages of the KV cache by what they are used for.
type Pages struct {
	PagesTotal  int
	PagesUsed   int // referenced by a sequence
	PagesCached int // unreferenced, kept for reuse
	PagesFree   int
	PagesPinned int // of PagesUsed, held by pins
}

// States counts the states of recurrent layers, of Model.StateBytes each: those of sequences,
// and copies of cached blocks from which a prompt goes on. All are 0 in other models.
type States struct {
	StatesUsed, StatesCached, StatesFree int
	StatesPinned                         int // of StatesCached, held by pins
	// Checkpoints: copies made, sequences that went on from one, and copies dropped, since the
	// engine started.
	CheckpointsMade, CheckpointsRestored, CheckpointsDropped uint64
	// UnreachedTokens are prompt tokens that were computed though their pages were cached,
	// since there was no checkpoint behind them.
	UnreachedTokens uint64
}

// Load is the work that the engine has.
type Load struct {
	Running   int // sequences with work in the step
	Waiting   int // dispatched, not yet started or waiting for pages
	Paused    int // paused by the gateway, or parked by a slow reader
	Sequences int // all live ones: running, waiting, paused, and left out of the step
	// Places is how many sequences the gateway may have in the engine at once; 0
	// leaves it to the gateway's configuration. It does not cross the socket.
	Places int

	// ShortPrefill and LongPrefill are the prompt tokens that are still to be
	// computed, by lane. They count sequences that run, that have not started,
	// and whose pages were taken; they do not count paused ones.
	ShortPrefill int
	LongPrefill  int
}

// Pace is what steps cost.
type Pace struct {
	// Room is the rule for the prefill of a step.
	Room cost.Room
	// The last step: its tokens by kind, its duration, and the duration that
	// Cost predicted before it ran. They stay as they are in idle turns, where
	// Running is 0.
	StepPrefillTokens int
	StepDecodeTokens  int
	StepDuration      time.Duration
	StepPredicted     time.Duration

	// Cost is the engine's model of its steps, as it is now. RatioMedian and
	// RatioHigh are the median and the 90 % quantile of actual over predicted
	// duration, over about the last thousand steps; 1 before the first.
	Cost        cost.Cost
	RatioMedian float64
	RatioHigh   float64
}

// Totals count since the engine started. When nothing runs, they are the sums over
// all generations of Timings.PrefillTokens, Usage.Cached and Usage.Completion.
type Totals struct {
	PrefillTokens uint64 // computed
	CachedTokens  uint64 // found in the cache
	DecodeTokens  uint64 // generated
	Preempted     uint64 // sequences whose pages were taken
	NonFinite     uint64 // rows ended because the model gave NaN or infinity
	CallFallbacks uint64 // texts that began as a tool call and did not go on as one

	// Grammars: those compiled, those found compiled, those refused, and
	// generations that ended because theirs could not be followed.
	GrammarsCompiled, GrammarsFound, GrammarsRefused, GrammarsFailed uint64

	// PinsYielded counts the pins that ended early, for a sequence that needed all pages.
	PinsYielded uint64

	Disk DiskState
}

// GPUState is what the GPU says of itself; all 0 where there is none, or it does not say it.
type GPUState struct {
	Milliwatts            uint64
	MemoryUsed, MemoryAll uint64 // bytes, of all processes
	ClockMHz, MemClockMHz uint64 // of the processors, and of the memory
	Celsius               uint64
	Throttled             uint64 // a bit for each reason, as NVML numbers them
}

// DiskState is the cache on disk, or of a GPU's pages in this machine's memory: what is there now, and blocks read, written, dropped because
// the disk was too slow or full, and found damaged, since the engine started.
type DiskState struct {
	Blocks    uint64 `json:"blocks"`
	Bytes     uint64 `json:"bytes"`
	Read      uint64 `json:"read"`
	Written   uint64 `json:"written"`
	Dropped   uint64 `json:"dropped"`
	Corrupted uint64 `json:"damaged"`
}

// LaunchTracer is an Engine that can report single kernel launches.
type LaunchTracer interface {
	// TraceLaunches records the kernel launches of the next steps, at most
	// LaunchTraceStepsMax. It returns when these steps are over, after limit, or
	// when ctx ends, with the launches up to then. One trace runs at a time; a
	// second fails with Overloaded.
	TraceLaunches(ctx context.Context, steps int, limit time.Duration) (*LaunchTrace, error)
}

// Model describes the loaded model.
type Model struct {
	ID           string `json:"id"`
	Architecture string `json:"architecture"`
	// Digest identifies the file's contents. Fingerprint changes with everything
	// that can change the bits of the output: contents, kernel set, version.
	Digest        string `json:"digest"`
	Fingerprint   string `json:"fingerprint"`
	Kernels       string `json:"kernels"`
	Device        string `json:"device,omitempty"` // what computes, and why where that was left open
	Quantisation  string `json:"quantisation"`
	ContextTokens int    `json:"context_tokens"`
	VocabTokens   int    `json:"vocab_tokens"`
	Parameters    int64  `json:"parameters"`
	WeightBytes   int64  `json:"weight_bytes"`
	PageTokens    int    `json:"page_tokens"`
	PageBytes     int    `json:"page_bytes"`
	// A sequence of n tokens takes a page for PageTokens of them, and WindowPages more for
	// PageTokens of the first min(n, WindowTokens).
	WindowPages  int   `json:"window_pages,omitempty"`
	WindowTokens int   `json:"window_tokens,omitempty"`
	StateBytes   int   `json:"state_bytes,omitempty"` // of a sequence, beside its pages
	ChoicesMax   int   `json:"choices_max"`           // most choices of one generation
	CreatedUnix  int64 `json:"created_unix"`
	// EmbeddingWidth is the length of an embedder's vectors; 0 of a model that
	// generates.
	EmbeddingWidth int `json:"embedding_width,omitempty"`
	// Ranks says that the embedder's one number is the score of a Request.Document.
	Ranks bool `json:"ranks,omitempty"`
	// Chat is false when the model has no usable template; ChatError says why.
	Chat      bool   `json:"chat"`
	ChatError string `json:"chat_error,omitempty"`
	// Relays says that the engine hands requests to another server: it takes the
	// client's own body, and members of it that nobody here knows.
	Relays bool `json:"relays,omitempty"`
	// ThinkSwitch says that reasoning can be turned on and off, and Efforts that
	// there are several amounts of it.
	ThinkSwitch bool `json:"think_switch,omitempty"`
	Efforts     bool `json:"efforts,omitempty"`
	// ToolFormat names the format in which the model calls tools; ToolsError says why it
	// cannot, where a format is known too.
	ToolFormat string `json:"tool_format,omitempty"`
	ToolsError string `json:"tools_error,omitempty"`
}
