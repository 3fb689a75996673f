package main

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// scenario is a kind of load.
type scenario struct {
	// size draws the tokens of a prompt and of its answer; a prompt of 0 tokens
	// has promptWords words.
	size    func(r *rand.Rand) (prompt, output int)
	backlog bool // batch and offline clients beside
	busy    bool // busy loops from the middle on
}

// The sizes of the uniform load, and of the requests of a backlog.
const (
	promptWords   = 40
	answerTokens  = 30
	backlogWords  = 300
	backlogTokens = 150
	backlogEach   = 8 // clients of each class
	busyLoops     = 2
)

func uniform(*rand.Rand) (prompt, output int) { return 0, answerTokens }

// mixed draws prompts of 10 to 2,000 tokens, each length as likely as its double.
func mixed(r *rand.Rand) (prompt, output int) {
	return int(math.Round(10 * math.Pow(200, r.Float64()))), 10 + r.IntN(51)
}

var scenarios = map[string]*scenario{
	"uniform": {size: uniform},
	"mixed":   {size: mixed},
	"backlog": {size: uniform, backlog: true},
	"busy":    {size: uniform, busy: true},
}

func scenarioNames() []string { return slices.Sorted(maps.Keys(scenarios)) }

// source says who sends a request.
type source uint8

const (
	open    source = iota // at its time, whatever became of those before
	closed                // a client that waits for its answers, to measure capacity
	batch                 // the same, of a backlog
	offline               // the same
)

var sourceNames = [...]string{"open", "closed", "batch", "offline"}

func (s source) String() string { return sourceNames[s] }

// class is the value of x-forebay-class; the default is interactive.
func (s source) class() string {
	if s == batch || s == offline {
		return s.String()
	}
	return "interactive"
}

// request is one request of a plan.
type request struct {
	at     time.Duration // from the start of the run; of an open request only
	source source
	words  int // of its prompt
	asked  int // max_tokens
	seed   uint64
}

// planner draws requests, the same ones for the same seeds.
type planner struct {
	random *rand.Rand
	size   func(*rand.Rand) (prompt, output int)
	text   tokenScale
}

func newPlanner(s *scenario, text tokenScale, seed, stream uint64) *planner {
	return &planner{rand.New(rand.NewPCG(seed, stream)), s.size, text}
}

func (p *planner) next(from source) request {
	if from == batch || from == offline {
		return request{source: from, words: p.text.fit(backlogWords, backlogTokens), asked: backlogTokens, seed: p.random.Uint64()}
	}
	prompt, output := p.size(p.random)
	words := promptWords
	if prompt > 0 {
		words = p.text.words(prompt)
	}
	return request{source: from, words: p.text.fit(words, output), asked: output, seed: p.random.Uint64()}
}

// arrivals draws the requests of an open run: gaps are exponential, so the past
// says nothing about the next one.
func (p *planner) arrivals(perSecond float64, length time.Duration) (all []request) {
	for at := time.Duration(0); ; {
		r := p.next(open)
		r.at = at
		all = append(all, r)
		if at += secondsOf(p.random.ExpFloat64() / perSecond); at >= length {
			return all
		}
	}
}

// tokenScale turns words into tokens: a prompt of n words has about base + n ×
// each. Context is the most tokens of prompt and answer, 0 for unknown.
type tokenScale struct {
	base, each float64
	context    int
}

func (t tokenScale) tokens(words int) int { return int(math.Round(t.base + float64(words)*t.each)) }

func (t tokenScale) words(tokens int) int {
	return max(1, int(math.Round((float64(tokens)-t.base)/t.each)))
}

// fit returns words, or as many as the context has room for beside the answer.
func (t tokenScale) fit(words, output int) int {
	if t.context == 0 {
		return words
	}
	return min(words, t.words(t.context-output-16))
}

var vocabulary = [...]string{"river", "engine", "forest", "table", "water", "light", "number", "story", "market", "garden", "window", "paper", "music", "silver", "bridge"}

// appendBody appends the request's body.
func (r *request) appendBody(b []byte, model string) []byte {
	random := rand.New(rand.NewPCG(r.seed, 0))
	b = append(b, `{"model":`...)
	b = strconv.AppendQuote(b, model)
	b = append(b, `,"stream":true,"ignore_eos":true,"temperature":0.8,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(r.asked), 10)
	b = append(b, `,"seed":`...)
	b = strconv.AppendInt(b, int64(random.Uint32()>>2), 10)
	b = append(b, `,"messages":[{"role":"user","content":"`...)
	for i := range r.words {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, vocabulary[random.IntN(len(vocabulary))]...)
	}
	return append(b, `"}]}`...)
}
