package wire

import (
	"context"
	"encoding/json"
	"time"
)

// Engine runs a model. The engine itself, the socket client and the scripted fake
// of wiretest implement it; wiretest tests what the three must have in common.
type Engine interface {
	// Prepare renders the chat template, tokenizes, and measures the prompt
	// against the model. It does no model work and may be called from any
	// goroutine. Cancelling ctx abandons it.
	Prepare(ctx context.Context, r *Request) (*Prompt, error)

	// Generate starts one generation of g.Options.N choices and returns at
	// once; failures arrive as the stream's last event. It fails with Invalid
	// only where g does not pass Check, or asks for more than its prompt's
	// Room. The reader must close the stream on every path. Cancel, and Close
	// before the end, end the generation early; every page is free before two
	// further steps have ended.
	Generate(g *Generation) *Stream

	// State returns the last step report. It never blocks and never returns
	// nil; the returned value is shared and must not be changed.
	State() *State
}

// Quick is an Engine that prepares some prompts at once, so that nobody need wait for
// them beside their client.
type Quick interface {
	// PrepareNow is Prepare for a prompt that takes neither long nor another's answer.
	// For any other it returns ok false.
	PrepareNow(r *Request) (p *Prompt, err error, ok bool)
}

// Request is a client's prompt, validated for shape but not against a model.
// Exactly one of Messages, Text and Tokens is set.
type Request struct {
	// ID is the gateway's own unique id, never the client's.
	ID string

	// Messages is a JSON array of chat messages, in the client's own key
	// order. Each is an object with a known role; content is a string, null,
	// absent, or an array of {"type":"text","text":…} parts.
	Messages json.RawMessage
	// Tools is a JSON array of tool definitions, handed to the template.
	Tools json.RawMessage
	// Think turns reasoning on or off, and Effort is low, medium or high, where the
	// template has a variable for it. TemplateOptions win over both.
	Think  Think
	Effort string
	// NoCalls says that the answer may not call, as Options.NoCalls.
	NoCalls bool
	// TemplateOptions is a JSON object of further template variables.
	TemplateOptions json.RawMessage

	// Continue says that the answer goes on with the last of Messages.
	Continue bool

	// Text is a raw prompt, tokenized with the special tokens that the model
	// file asks for; control strings in it stay text.
	Text *string
	// Document is a text that a model which Ranks scores for the query, which is Text.
	Document *string
	// Tokens is a prompt of token ids, used as they are.
	Tokens []int32

	// Body is the client's whole request, valid JSON, for an engine that relays it to another
	// server (Model.Relays); nil for all others. It does not cross the socket.
	Body json.RawMessage
	// Grammar is what the answer must match, nil for none: the same as in the
	// Options of its generation, so that a fault in it is found before the queue.
	Grammar *Grammar

	// Salt separates prefix reuse between tenants. The gateway derives it from
	// the authenticated tenant; a client never chooses it.
	Salt string
}

// Think is what a request wants of reasoning.
type Think uint8

const (
	ThinkDefault Think = iota // as the template has it
	ThinkOn
	ThinkOff
	thinks
)

// Options say how to generate. They cross the socket once, with Generate;
// Check says what is allowed.
type Options struct {
	// MaxTokens bounds each choice; 0 means the prompt's Room.
	MaxTokens int
	// N is the number of choices, at least 1. They share the prompt's pages.
	N int

	// Temperature 0 is greedy.
	Temperature float32
	// TopK keeps the k likeliest tokens; 0 keeps all.
	TopK int
	// TopP keeps the smallest set whose probability reaches it; 0 and 1 keep all.
	TopP float32
	// MinP drops tokens below this share of the likeliest; 0 keeps all.
	MinP float32
	// TypicalP keeps the fewest tokens whose information is nearest to the mean of
	// all, so that their probability reaches it; 0 and 1 keep all. It comes before
	// TopP.
	TypicalP float32
	// XTCProbability is how often a token is drawn without the top choices: of the
	// tokens with at least XTCThreshold of the probability, after all other filters,
	// the least likely alone stays. 0 is never.
	XTCProbability, XTCThreshold float32
	// TopNSigma drops tokens whose logit is further below the largest than this many
	// standard deviations of all logits, before TopK; 0 keeps all.
	TopNSigma float32
	// MirostatTau is the surprise that tokens shall have on average, in bits, and MirostatEta
	// how fast the bound on a token's surprise follows. What is above the bound is dropped, after
	// all other filters but XTC. Tau 0 bounds nothing.
	MirostatTau, MirostatEta float32
	// Seed fixes the random stream of choice i to (Seed, i). The gateway
	// draws one where the client gave none.
	Seed uint64

	// RepetitionPenalty divides positive and multiplies negative logits, once
	// for each distinct token of prompt and output; 0 and 1 do nothing.
	RepetitionPenalty float32
	// PresencePenalty is subtracted once, FrequencyPenalty once per
	// occurrence, for tokens generated so far; the prompt does not count.
	PresencePenalty  float32
	FrequencyPenalty float32
	// RepeatLast bounds the three penalties to that many of the last tokens; 0 does not.
	RepeatLast int
	// DRY penalizes tokens that would repeat a sequence.
	DRY DRY
	// LogitBias is added to the logits before sampling.
	LogitBias []LogitBias
	// AllowedTokens, where there are any, are the only ones that are sampled.
	AllowedTokens []int32
	// BadWords are texts whose tokens, as the tokenizer makes them with and without
	// a space in front, are not sampled in a row.
	BadWords []string

	// Stop ends a choice before the first byte of any of these texts, or after the
	// last where KeepStop is set. StopTokens end it as the model's own end tokens do.
	Stop       []string
	StopTokens []int32
	KeepStop   bool
	// MinTokens is how many tokens each choice has at least: no end token, stop
	// token or stop text ends it before.
	MinTokens int
	// IgnoreEOS keeps generating past the model's end tokens.
	IgnoreEOS bool
	// Grammar holds the answer to a form; nil for free text. A choice ends where
	// nothing more may follow, or by its length.
	Grammar *Grammar

	// Echo says that the client reads the prompt's text before each choice. Where
	// that text ends within a character, those bytes (chars.Open) are left out of
	// it and begin the choice's text, which may complete the character.
	Echo bool

	// Logprobs asks for the log-probability of each generated token and of
	// the TopLogprobs likeliest ones, from the model's own distribution
	// (before temperature, penalties and bias).
	Logprobs    bool
	TopLogprobs int
	// PromptLogprobs asks for the prompt's log-probabilities too, with those of the
	// PromptTop likeliest tokens (they come as the first event of choice 0). It forgoes
	// prefix reuse.
	PromptLogprobs bool
	PromptTop      int

	// Split takes a chat's answer apart, by the format of its model: reasoning and
	// tool calls are Pieces of events. Without it Text is all that the model says.
	Split bool
	// Tools is a JSON array of the tools that the answer may call, as in the
	// Request; calls of an answer that has none are text. It needs Split.
	Tools json.RawMessage
	// NoCalls forbids the tokens that begin a call, where the format has some.
	NoCalls bool
	// ReasoningMax ends the reasoning of a choice after that many tokens, and the
	// answer goes on; 0 does not. It needs Split.
	ReasoningMax int
	// CallsMax ends a choice after that many calls; 0 does not.
	CallsMax int
	// Embed asks an embedder for the prompt's vector, and nothing else: one choice,
	// which generates no token.
	Embed bool
}

// DRY is the penalty of a token that would make a sequence at the end of prompt and answer
// longer that was there before: Multiplier·Base^(its length − Length), for sequences of at
// least Length tokens ("don't repeat yourself"). Multiplier 0 is none.
type DRY struct {
	Multiplier, Base float32
	Length           int
	// Last bounds where it looks to that many of the last tokens; 0 does not.
	Last int
	// Breakers are texts that no sequence goes across.
	Breakers []string
}

// LogitBias is one entry of Options.LogitBias.
type LogitBias struct {
	Token int32
	Bias  float32
}

// Prompt is a prepared request: what Generate needs, and what the gateway
// needs to price it. It holds no engine resource.
type Prompt struct {
	// Tokens are nil where the engine relays requests: it counts them, and no more.
	Tokens []int32
	// Count is how many tokens the prompt has where Tokens is nil. The usage of the
	// answer may correct it. Relayed is what Generate needs then. Neither crosses the
	// socket.
	Count   int
	Relayed any
	// Text is the prompt as the model reads it: the rendered template, the
	// raw text, or the decoded token ids.
	Text string
	// Room is how many tokens each choice may generate after this prompt: what
	// the model's context or the page pool leaves, at least 1.
	Room int
	// CachedTokens is how many leading tokens need no computing at this moment.
	CachedTokens int
	// BlockHashes are the chained salted hashes of the prompt's full blocks.
	BlockHashes []uint64
	// Calls is how many tool calls the messages have. Some formats go on counting.
	Calls int
	// Unenforced are the places in the Grammar's schema of words that have no
	// effect, as JSON pointers, at most UnenforcedMax.
	Unenforced []string
	// Render, Tokenize and Compile are how long the chat template, the tokenizer
	// and the grammar took.
	Render, Tokenize, Compile time.Duration
}

// Length is how many tokens the prompt has.
func (p *Prompt) Length() int {
	if p.Tokens == nil {
		return p.Count
	}
	return len(p.Tokens)
}

// UnenforcedMax bounds Prompt.Unenforced.
const UnenforcedMax = 16

// Generation is one dispatched request.
type Generation struct {
	ID string
	// Serial names the generation in step records: unique in the gateway's
	// life, or 0 for none.
	Serial  uint64
	Prompt  *Prompt
	Options Options
	Salt    string
	// Class is the scheduling class, for reports alone.
	Class string
	// Level is 0 for work that people wait for, and larger for work that may
	// wait longer; it is not negative. Key orders the generations of a level,
	// the smallest first. Long says that the prefill belongs to the lane of
	// long ones. TokenGoal is the longest time between two tokens of a
	// generation in level 0; 0 for no goal.
	Level     int
	Key       int64
	Long      bool
	TokenGoal time.Duration
	Pin       Pin
	Trace     TraceContext
	// Notify receives, without blocking, when the stream has events. Its
	// capacity must be at least 1; several streams may share it.
	Notify chan<- struct{}
}

// Check refuses what an engine with model m cannot do. It does not check the
// length of prompt and answer, for which only the engine knows the limits.
func (g *Generation) Check(m *Model) *Error {
	switch {
	case g.Prompt == nil:
		return InvalidParam("prompt", "the generation has no prompt")
	case g.Level < 0:
		return InvalidParam("level", "the level is %d; it must be 0 or more", g.Level)
	case g.TokenGoal < 0:
		return InvalidParam("token_goal", "the time between tokens is %v; it must be 0 or more", g.TokenGoal)
	case g.Pin.For < 0 || g.Pin.TokensMax < 0:
		return InvalidParam("pin", "a pin for %v of at most %d tokens; give 0 or more of both", g.Pin.For, g.Pin.TokensMax)
	}
	return g.Options.Check(m)
}

// TraceContext is the W3C trace context of a request. The zero value means none.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
	State   string
}

// Event is what happened to one choice in one step. The last event of a
// stream has End set; nothing follows it.
type Event struct {
	// Choice is in [0, N).
	Choice int
	// Text is new valid UTF-8, cut before any stop text. It may be empty while
	// a character or a possible stop text is incomplete.
	Text string
	// Pieces follow Text, in their order, where Options.Split is set: what is not
	// content, and content after that.
	Pieces []Piece
	// TokenCount is how many tokens this choice has generated up to here. It
	// includes tokens whose text is held back, or cut by a stop text.
	TokenCount int
	// Logprobs are those of the tokens whose text starts in Text.
	Logprobs []TokenLogprob
	// PromptLogprobs are set on the first event, where they were asked for.
	PromptLogprobs []TokenLogprob
	// Relayed is what else another server sent for the choice; nil where the
	// engine is our own. It does not cross the socket.
	Relayed *Relayed
	// Cached, on the first event of choice 0, is Usage.Cached.
	Cached int
	// Embedding is set on the last event where Options.Embed asked for it. It has
	// Model.EmbeddingWidth numbers and the length 1.
	Embedding []float32
	// Finish is set on a choice's last event, and StopText where one of Options.Stop ended
	// it; "" from another server, which does not say which.
	Finish   Finish
	StopText string
	// End is set on the stream's last event, after every choice's last.
	End *End
}

// Piece is a part of a split answer.
type Piece struct {
	Kind PieceKind
	// ID and Name are those of a call that begins. Both are whole, and no other
	// call of the choice has the id.
	ID, Name string
	// Text is valid UTF-8: new content, reasoning, or arguments of the call that
	// began last.
	Text string
}

// PieceKind is what a Piece is.
type PieceKind uint8

const (
	PieceContent PieceKind = iota
	PieceReasoning
	PieceCall      // a call begins, after the end of the one before
	PieceArguments // the arguments of a call that ends are JSON, if the model wrote JSON
	PieceCallEnd
	pieceKinds
)

// TokenLogprob is one token with its log-probability and the likeliest tokens at
// its position.
type TokenLogprob struct {
	ID int32
	// Bytes are the token's own bytes, which may be part of a character.
	Bytes []byte
	// Logprob is NaN for the first prompt token: no token before it predicts it.
	Logprob float32
	// Rank of a prompt's token is 1 where no token is likelier; 0 for the first token, and for
	// tokens of the answer.
	Rank int
	Top  []TopLogprob
}

// TopLogprob is one of the likeliest tokens at a position.
type TopLogprob struct {
	ID      int32
	Bytes   []byte
	Logprob float32
}

// Finish says why a choice ended.
type Finish uint8

const (
	FinishNone   Finish = iota // still running
	FinishStop                 // end token or stop text
	FinishLength               // MaxTokens or the context's end
	FinishCalls                // as FinishStop, after at least one whole tool call
	FinishFilter               // another server's filter of content cut it
	finishes
)

// End closes a stream.
type End struct {
	// Err is nil after success. Its kind is Canceled after a cancel.
	Err *Error
	// Usage and Timings are of a failed or cancelled generation too, up to its end.
	// They are zero where the engine never took it in, or is gone.
	Usage   Usage
	Timings Timings
}

// Usage counts the tokens of a generation. Where its prompt was computed to the
// end, Cached and Computed sum to Prompt.
type Usage struct {
	Prompt     int // its length
	Cached     int // prompt tokens that were found in the cache
	Computed   int // prompt tokens that were computed; what was computed twice counts once
	Completion int // generated, over all choices, those too that the reader did not take
	Reasoning  int // tokens of Completion that are reasoning; only with Options.Split
	Pinned     int // prompt tokens that stay in memory, as the Generation's Pin asked
	// PinRefused says why Pinned is 0 where a pin was asked for.
	PinRefused PinRefusal
}

// Timings are instants of the engine, in nanoseconds of CLOCK_MONOTONIC, the
// clock that all processes of a machine share. Zero means it did not happen.
type Timings struct {
	Arrived    int64 // Generate was called
	Received   int64 // taken over by the loop, between two steps
	Scheduled  int64 // first token entered a step
	FirstToken int64 // end of the step that sampled the first token
	Finished   int64

	Steps         int // steps that worked for this generation
	PrefillSteps  int // steps that computed its prompt, or recomputed pages that were taken
	DecodeSteps   int // steps that computed next tokens; with several choices a step may count as both
	PrefillChunks int // rows of its prefill steps
	PrefillTokens int // tokens of these rows
	Preempted     int // times its pages were taken away and recomputed

	// BeforeFirst divides the time from Received to FirstToken, and AfterFirst
	// the time from FirstToken to Finished; the parts sum to it exactly. Where
	// there was no first token, all time is in BeforeFirst. A generation of
	// several choices is in a step where one of its choices is.
	BeforeFirst, AfterFirst Parts
	// Slow are the steps that it waited longest for, the longest first. Its own
	// prefill in a step does not count as waiting.
	Slow [SlowStepsKept]SlowStep
}
