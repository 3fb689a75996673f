package engine

import (
	"fmt"
	"runtime"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// Config is everything an engine can be told. Zero fields take their defaults.
type Config struct {
	Model   string `yaml:"model" help:"Path of the GGUF model file; empty serves the embedded demo model."`
	ModelID string `yaml:"model_id" help:"Name by which clients ask for the model; empty takes the file's name without its extension."`
	Kernels string `yaml:"kernels" help:"Kernel set to compute with, such as ref, avx2 or avx512; empty takes the best one this machine has."`
	Threads int    `yaml:"threads" help:"Threads that compute; 0 takes as many as the process may use CPUs."`

	ContextTokens int   `yaml:"context_tokens" help:"Longest prompt and output together, in tokens; 0 takes the model's own limit."`
	KVBytes       int64 `yaml:"kv_bytes" help:"Memory for keys and values, in bytes; 0 takes room for eight full contexts, at most 1 GiB."`
	PageTokens    int   `yaml:"page_tokens" default:"16" help:"Tokens in a page of keys and values, the unit of prefix reuse."`

	BatchTokensMax     int           `yaml:"batch_tokens_max" default:"512" help:"Most tokens that one step computes."`
	SequencesMax       int           `yaml:"sequences_max" default:"64" help:"Most sequences that run at the same time; paused ones do not count."`
	StepBudget         time.Duration `yaml:"step_budget" default:"50ms" help:"Time that a step with prefill in it should take while others wait for their next token."`
	WaitingMax         int           `yaml:"waiting_max" default:"64" help:"Most generations that wait for a place or for pages; more are refused as overloaded."`
	GenerationsMax     int           `yaml:"generations_max" default:"1024" help:"Most generations alive at the same time, paused ones too."`
	StreamEventsMax    int           `yaml:"stream_events_max" default:"256" help:"Most events that wait in one stream; a slower reader parks its own generation."`
	ChoicesMax         int           `yaml:"choices_max" default:"16" help:"Most choices (n) of one generation."`
	PromptRenderBudget time.Duration `yaml:"prompt_render_budget" default:"2s" help:"Longest time that a chat template may take for one request."`
}

// fill sets the defaults and says what is wrong with the rest.
func (c *Config) fill() error {
	conf.Fill(c)
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Threads == 0 {
		c.Threads = runtime.GOMAXPROCS(0)
	}
	return nil
}

// Validate says what is out of range in a filled Config, without a look at
// the model.
func (c *Config) Validate() error {
	for _, f := range []struct {
		key      string
		n        int
		min, max int
	}{
		{"threads", c.Threads, 0, 1024},
		{"context_tokens", c.ContextTokens, 0, 1 << 24},
		{"page_tokens", c.PageTokens, 1, 256},
		{"batch_tokens_max", c.BatchTokensMax, 1, 1 << 16},
		{"sequences_max", c.SequencesMax, 1, 1 << 16},
		{"waiting_max", c.WaitingMax, 1, 1 << 20},
		{"generations_max", c.GenerationsMax, 1, 1 << 20},
		{"stream_events_max", c.StreamEventsMax, 1, 1 << 20},
		{"choices_max", c.ChoicesMax, 1, 1 << 10},
	} {
		if f.n < f.min || f.n > f.max {
			return fmt.Errorf("engine.%s is %d; give %d to %d", f.key, f.n, f.min, f.max)
		}
	}
	switch {
	case c.KVBytes < 0:
		return fmt.Errorf("engine.kv_bytes is %d; give 0 or more", c.KVBytes)
	case c.StepBudget <= 0:
		return fmt.Errorf("engine.step_budget is %v; give more than 0", c.StepBudget)
	case c.PromptRenderBudget <= 0:
		return fmt.Errorf("engine.prompt_render_budget is %v; give more than 0", c.PromptRenderBudget)
	}
	return nil
}

// The default for KVBytes: room for this many full contexts, at most this much.
const (
	kvContexts = 8
	kvBytesMax = 1 << 30
)

// pagesMax is how many pages package kv can name.
const pagesMax = 1<<23 - 1

// pageCount is how many pages of pageBytes the pool gets.
func (c *Config) pageCount(contextTokens, pageBytes int) (int, error) {
	bytes := c.KVBytes
	perContext := (contextTokens + c.PageTokens - 1) / c.PageTokens
	if bytes == 0 {
		bytes = min(kvBytesMax, int64(kvContexts*perContext)*int64(pageBytes))
	}
	pages := bytes / int64(pageBytes)
	if pages < 1 {
		return 0, fmt.Errorf("engine.kv_bytes is %d, less than one page of %d bytes; give at least that", bytes, pageBytes)
	}
	return int(min(pages, pagesMax)), nil
}
