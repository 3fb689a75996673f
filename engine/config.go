package engine

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/step"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/kernels"
)

// Config configures an engine. Zero fields take their defaults.
type Config struct {
	Model    string `yaml:"model" once:"true" help:"The model: path of a GGUF file, of a part of one that is split, or of a folder, or hf:OWNER/REPO[:FILE] on the Hugging Face Hub; empty serves the embedded demo model."`
	ModelID  string `yaml:"model_id" help:"Name by which clients ask for the model; empty takes the file's name without its extension, or the folder's."`
	Quantize string `yaml:"quantize" oneof:"q8_0 q4_0 q4_k q6_k" help:"Type that the weights get when the model is loaded, for less memory and more speed; empty leaves them as the file has them."`
	Kernels  string `yaml:"kernels" help:"Kernel set to compute with, such as ref, avx2, avx2int8, avx512, avx512vnni, avx512bf16, avx512amx or neon; empty takes the best one this machine has."`
	Threads  int    `yaml:"threads" range:"..1024" help:"Threads that compute; 0 takes as many as the process may use CPUs."`

	ToolFormat string `yaml:"tool_format" help:"Format in which a model calls tools whose chat template has no place for them, such as hermes: tools are then told in the system message. Templates with a place do not need it."`

	ContextTokens    int    `yaml:"context_tokens" range:"..16777216" help:"Longest prompt and output together, in tokens; 0 takes the model's own limit."`
	KVBytes          int64  `yaml:"kv_bytes" help:"Memory for keys and values, in bytes; 0 takes room for eight full contexts, at most 1 GiB."`
	KVType           string `yaml:"kv_type" default:"f16" oneof:"f32 f16 int8 bf16 fp8" help:"Type in which keys and values are kept: f16 takes half of f32's memory and reading time, int8 a quarter, with answers a little further from the model's. On a GPU also bf16, as large as f16 with a wider range and fewer digits, and fp8 (e4m3), as large as int8 and further from the model's."`
	StateBytes       int64  `yaml:"state_bytes" range:"0.." help:"Memory for the states of a model with recurrent layers, in bytes: one for each sequence that runs, and checkpoints from which prompts that begin alike go on; 0 takes two for each of sequences_max, at most 1 GiB."`
	StateTokens      int    `yaml:"state_tokens" default:"2048" range:"16..16777216" help:"Distance of the checkpoints that are kept of a long prompt's state, in tokens."`
	PageTokens       int    `yaml:"page_tokens" default:"16" range:"1..256" help:"Tokens in a page of keys and values, the unit of prefix reuse."`
	TokensCacheBytes int    `yaml:"tokens_cache_bytes" default:"16MiB" range:"64KiB..4GiB" help:"Memory for prompts that were tokenized, in bytes: the next turn of a chat then tokenizes only its new text."`

	BatchTokensMax int           `yaml:"batch_tokens_max" default:"512" range:"1..65536" help:"Most tokens that one step computes."`
	SequencesMax   int           `yaml:"sequences_max" default:"64" range:"1..65536" help:"Most sequences that run at the same time; paused ones do not count."`
	StepBudget     time.Duration `yaml:"step_budget" default:"50ms" help:"Time that a step with prefill in it should take while others wait for their next token."`
	LongShare      float64       `yaml:"long_share" default:"0.25" range:"0.1..1" help:"Most of a step's prefill that long prompts get while short ones wait."`
	LongStretch    float64       `yaml:"long_stretch" default:"1.5" range:"0.01..100" help:"How much of the time of the interactive rows a long prompt may add to their step."`

	BackgroundStretch    float64       `yaml:"background_stretch" default:"0.2" range:"0.001..100" help:"How much of the time of a step's interactive part offline work may add to it."`
	BatchStretch         float64       `yaml:"batch_stretch" default:"1" range:"0.001..100" help:"The same for batch work, which has a goal too; what offline work adds is within it."`
	BackgroundFloor      float64       `yaml:"background_floor" default:"0.05" range:"0.001..0.3" help:"Share of time that batch and offline work each have beside interactive work, even where it does not fit."`
	BackgroundStepBudget time.Duration `yaml:"background_step_budget" default:"25ms" help:"Time that a step without interactive work should take while there was some in the last ten seconds."`

	SelfBenchmarkLimit time.Duration `yaml:"self_benchmark_limit" default:"300ms" range:"1ms..1m" help:"Most time at a start for measuring what steps cost, if no earlier run has kept it."`
	SelfBenchmarkOff   bool          `yaml:"self_benchmark_off" help:"Measure nothing at the start: the first requests teach what steps cost."`
	CostFile           string        `yaml:"cost_file" help:"File that keeps what steps cost from one start to the next; empty takes one in the user's cache directory, none keeps nothing."`

	RepackCache         string `yaml:"repack_cache" help:"Directory that keeps weights as the kernels read them, made if it is not there: later starts map them instead of packing anew. A model takes about its file's size there; empty keeps none."`
	RepackCacheBytesMax int64  `yaml:"repack_cache_bytes_max" default:"64GiB" range:"1MiB..1024TiB" help:"Bytes in that directory; what was not used for longest goes first."`

	PinnedShare float64 `yaml:"pinned_share" default:"0.25" range:"0.01..0.9" help:"Share of the memory for keys and values, and of the states of a model with recurrent layers, that pinned prompts may hold."`
	PinsMax     int     `yaml:"pins_max" default:"256" range:"1..10000" help:"Most prompts that are pinned at a time."`

	DiskCache         string `yaml:"disk_cache" help:"Directory that keeps keys and values of prompts and answers, made if it is not there: what no longer fits into memory, or was there before a restart, is read from it where that takes less time than computing. Layers with windows then keep whole contexts in memory. Empty keeps none."`
	DiskCacheBytesMax int64  `yaml:"disk_cache_bytes_max" default:"8GiB" range:"1MiB..1024TiB" help:"Bytes in that directory; the oldest go first."`
	DiskCacheKeyFile  string `yaml:"disk_cache_key_file" help:"File with a key of 64 hexadecimal digits that encrypts them (AES-256-GCM); empty writes them as they are."`

	StepRecordsOff bool `yaml:"step_records_off" help:"Keep no records of steps and do not time kernels: a request's page then says how long it took, but not which requests ran beside it."`

	WaitingMax         int           `yaml:"waiting_max" default:"64" range:"1..1048576" help:"Most generations that wait for a place or for pages; more are refused as overloaded."`
	GenerationsMax     int           `yaml:"generations_max" default:"1024" range:"1..1048576" help:"Most generations alive at the same time, paused ones too."`
	StreamEventsMax    int           `yaml:"stream_events_max" default:"256" range:"1..1048576" help:"Most events that wait in one stream; a slower reader parks its own generation."`
	ChoicesMax         int           `yaml:"choices_max" default:"16" range:"1..1024" help:"Most choices (n) of one generation."`
	PromptRenderBudget time.Duration `yaml:"prompt_render_budget" default:"2s" help:"Longest time that a chat template may take for one request."`

	Grammar GrammarConfig `yaml:"grammar"`

	Device DeviceConfig `yaml:"device"`

	// Fault is called, in the loop's goroutine, when the device has failed for good; nil
	// panics. The engine answers nothing any more, and the process should end.
	Fault func(error) `yaml:"-"`

	swapAlways bool // also a CPU's pages are swapped: a test without a GPU

	Log *slog.Logger `yaml:"-"` // for notes that are not errors; nil drops them
}

// fill sets the defaults and checks the rest.
func (c *Config) fill() error {
	if err := conf.Complete("engine", c); err != nil {
		return err
	}
	if c.ToolFormat != "" && calls.Lookup(c.ToolFormat) == nil {
		return fmt.Errorf("engine.tool_format is %q, which is no format; take one of %s", c.ToolFormat, strings.Join(calls.Names(), ", "))
	}
	if c.Threads == 0 {
		c.Threads = runtime.GOMAXPROCS(0)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// stepLimits are the bounds of the loop's steps.
func (c *Config) stepLimits() step.Limits {
	return step.Limits{
		Room:    cost.Room{Budget: c.StepBudget, TokensMin: c.PageTokens, TokensMax: c.BatchTokensMax},
		RowsMax: c.SequencesMax, BackgroundBudget: c.BackgroundStepBudget,
		Stretch: c.BackgroundStretch, BatchStretch: c.BatchStretch, Floor: c.BackgroundFloor, LongShare: c.LongShare, LongStretch: c.LongStretch,
	}
}

// The default for KVBytes: room for this many full contexts, at most this much.
const (
	kvContexts = 8
	kvBytesMax = 1 << 30
)

// pagesMax is the most pages that package cache can number.
const pagesMax = 1<<23 - 1

// CacheBytes is the memory that an engine with this configuration takes for keys
// and values, where a whole context takes so many pages of pageBytes.
func (c *Config) CacheBytes(contextPages, pageBytes int) int64 {
	if c.KVBytes != 0 {
		return c.KVBytes
	}
	return min(kvBytesMax, int64(kvContexts*contextPages)*int64(pageBytes))
}

// Paging says how an engine with this configuration lays the keys and values of a model out
// in pages, where a context has contextTokens. On a GPU, and in files, all layers of a block
// are together.
func (c *Config) Paging(m *model.Config, kvType kernels.KVType, contextTokens int, onGPU bool) (model.Paging, cache.Windows) {
	p := m.Paging(&model.Options{ContextTokens: contextTokens, PageTokens: c.PageTokens, KVType: kvType, Windows: c.DiskCache == "" && !onGPU})
	return p, cache.Windows{Tokens: p.WindowTokens, Chunked: p.Chunked, Pages: p.WindowPages, Step: c.BatchTokensMax}
}

// pinLimits are those of p's pool. A checkpoint counts as the blocks of as many bytes, and for no
// more than the distance of checkpoints: where few layers have keys and values, or none, tokens
// take hardly any memory, and a limit in tokens would allow no pin.
func (c *Config) pinLimits(p *loaded) cache.PinLimits {
	l := cache.PinLimits{Pins: c.PinsMax, Pages: int(c.PinnedShare * float64(p.pages)), States: int(c.PinnedShare * float64(p.states))}
	if p.states > 0 {
		l.StateBlocks = min((p.info.StateBytes+p.info.PageBytes-1)/max(1, p.info.PageBytes), c.StateTokens/c.PageTokens)
	}
	return l
}

// stateCount is the number of states of stateBytes, 0 for a model that has none.
func (c *Config) stateCount(stateBytes int) (int, error) {
	switch {
	case stateBytes == 0:
		return 0, nil
	case c.StateBytes == 0:
		return max(2, min(2*c.SequencesMax, kvBytesMax/stateBytes)), nil
	case c.StateBytes < int64(stateBytes):
		return 0, fmt.Errorf("engine.state_bytes is %d, less than one state of %d bytes; give at least that", c.StateBytes, stateBytes)
	}
	return int(min(c.StateBytes/int64(stateBytes), statesMax)), nil
}

// statesMax is the most states that a model keeps.
const statesMax = 1 << 16

// pageCount is the pool's number of pages of pageBytes, of which a block takes blockPages.
func (c *Config) pageCount(contextPages, blockPages, pageBytes int) (int, error) {
	pages := c.CacheBytes(contextPages, pageBytes) / int64(pageBytes)
	if pages < int64(blockPages) {
		return 0, fmt.Errorf("engine.kv_bytes is %d, less than the %d bytes of %d tokens; give at least that", c.KVBytes, blockPages*pageBytes, c.PageTokens)
	}
	return int(min(pages, pagesMax)), nil
}
