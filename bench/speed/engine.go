package speed

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

// EngineOptions says what to measure.
type EngineOptions struct {
	Version    string // of the program, for the head
	Model      string // the file's name, for the head
	Prefill    int    // tokens of a prompt; 0 measures none
	Depths     []int  // context lengths of decoding; empty measures no decode
	Streams    []int
	Runs       int // runs of each measurement
	Steps      int // decode steps in a run
	Chunk      int // prompt tokens that a step computes
	PageTokens int // of a page, as the engine's
	KVType     kernels.KVType
	Resident   func() int   // bytes of this process, 0 if unknown
	Memory     func() int   // bytes that can still be allocated, 0 if unknown
	Set        *kernels.Set // the kernels to measure
	Device     model.Device // the device to measure; nil is the CPU
	DeviceName string
	Team       *kernels.Team // the threads
}

// Bench is a loaded model under measurement.
type Bench struct {
	o       *EngineOptions
	config  model.Config
	model   *model.Model
	head    Head
	roof    *Roof
	timer   *model.Timer
	tokens  []int32 // of a prompt
	context int     // most positions of a stream
	chunks  []model.Chunk
}

// Load checks that the machine and f's model have room for the options, and loads
// the model.
func Load(f *gguf.File, o *EngineOptions) (*Bench, error) {
	b := &Bench{o: o, timer: new(model.Timer)}
	began := time.Now()
	var err error
	if b.config, err = model.ReadConfig(f); err != nil {
		return nil, err
	}
	streams, deepest := 1, 0
	for _, n := range o.Streams {
		streams = max(streams, n)
	}
	for _, n := range o.Depths {
		deepest = max(deepest, n)
	}
	if deepest > 0 {
		deepest += o.Steps
	}
	b.context = max(o.Prefill, deepest, 1)
	if b.context > b.config.ContextTokens {
		return nil, fmt.Errorf("%d tokens are asked for, prompt or depth and the steps after it; the model's context is %d", b.context, b.config.ContextTokens)
	}
	pages := streams * b.pagesOf(b.context)
	if need, have := pages*b.config.PageBytes(o.KVType, o.PageTokens), o.Memory(); have > 0 && need > have {
		return nil, fmt.Errorf("%d streams of %d tokens need %d MiB for keys and values, and %d MiB of memory are available; ask for fewer streams or less depth", streams, b.context, need>>20, have>>20)
	}
	if b.model, err = model.Load(f, o.Set, o.Team, model.Options{
		ContextTokens: b.context, PageTokens: o.PageTokens, KVType: o.KVType, Pages: pages, BatchTokensMax: max(o.Chunk, streams), States: streams, Device: o.Device,
	}); err != nil {
		return nil, err
	}
	b.head = Head{
		Peer: "forebay", Version: o.Version, Features: cmp.Or(o.DeviceName, o.Set.Name), LoadS: round(time.Since(began).Seconds(), 1000), Model: o.Model,
		Threads: o.Team.Workers(), ChunkTokens: o.Chunk, WeightBytes: b.model.WeightBytes(), ReadBytes: b.config.WeightReadBytes(f),
		KVTokenBytes: b.model.PageBytes() / o.PageTokens, ResidentBytes: o.Resident(),
	}
	b.model.SetTimer(b.timer)
	b.tokens = prompt(b.context, b.config.Vocab)
	b.roof = NewRoof(o.Team)
	return b, nil
}

// Close frees the model.
func (b *Bench) Close() error { return b.model.Close() }

// prompt returns n tokens, the same as the scripts for other engines use.
func prompt(n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((i*7919 + 13) % min(vocab, 250))
	}
	return tokens
}

func (b *Bench) pagesOf(tokens int) int { return (tokens + b.o.PageTokens - 1) / b.o.PageTokens }

// pages returns the page table of a stream. Streams share no pages.
func (b *Bench) pages(stream int) []int32 {
	pages := make([]int32, b.pagesOf(b.context))
	for i := range pages {
		pages[i] = int32(stream*len(pages) + i)
	}
	return pages
}

// Run measures everything and calls line with each result as soon as it is ready:
// a *Head, a *Machine, *Prefill and *Decode.
func (b *Bench) Run(line func(any) error) error {
	if err := line(&b.head); err != nil {
		return err
	}
	if err := line(b.roof.Machine(b.o.Team.Workers())); err != nil {
		return err
	}
	if b.o.Prefill > 0 {
		if err := line(b.prefill(b.o.Prefill)); err != nil {
			return err
		}
	}
	for _, depth := range b.o.Depths {
		for _, streams := range b.o.Streams {
			if err := line(b.decode(depth, streams)); err != nil {
				return err
			}
		}
	}
	return nil
}

// prefill measures a whole prompt. Only the last token's logits are computed.
func (b *Bench) prefill(tokens int) *Prefill {
	p := &Prefill{Tokens: tokens}
	sums := new(classes)
	for run := range b.o.Runs + 1 {
		took := b.fill(tokens, 1, sums)
		if run == 0 { // warms up
			*sums = classes{}
			continue
		}
		p.All = append(p.All, round(float64(tokens)/took.Seconds(), 10))
	}
	p.TokensPerS, p.Shares = round(Median(p.All), 10), sums.shares()
	return p
}

// fill computes a prompt on the first stream's pages, in chunks.
func (b *Bench) fill(tokens, logits int, sums *classes) (took time.Duration) {
	pages := b.pages(0)
	for start := 0; start < tokens; start += b.o.Chunk {
		end := min(start+b.o.Chunk, tokens)
		chunk := model.Chunk{Tokens: b.tokens[start:end], Start: start, Pages: pages}
		if end == tokens {
			chunk.Logits = logits
		}
		b.chunks = append(b.chunks[:0], chunk)
		took += b.step(sums)
	}
	return took
}

// step runs the chunks under the timer.
func (b *Bench) step(sums *classes) time.Duration {
	began := time.Now()
	b.timer.Start(0, 0)
	b.model.Forward(b.chunks)
	took := time.Since(began)
	b.timer.Stop(int64(took))
	sums.add(&b.timer.Kernels, took)
	return took
}

// decode measures steps of one token of each stream.
func (b *Bench) decode(depth, streams int) *Decode {
	b.deepen(depth, streams)
	reads := b.roof.Read(b.o.Team.Workers())
	d := &Decode{Depth: depth, Streams: streams, ReadGBs: giga(reads)}
	d.StepBytes = b.head.ReadBytes + streams*b.config.KVReadBytes(b.o.KVType, depth+b.o.Steps/2)
	pages := make([][]int32, streams)
	for i := range pages {
		pages[i] = b.pages(i)
	}
	sums := new(classes)
	b.decodeStep(depth, 0, pages, new(classes)) // warms up
	for range b.o.Runs {
		steps := make([]float64, b.o.Steps)
		for i := range steps {
			steps[i] = b.decodeStep(depth, i, pages, sums).Seconds()
		}
		d.All = append(d.All, round(float64(streams)/Median(steps), 10))
	}
	rate := Median(d.All)
	seconds := float64(streams) / rate
	d.TokensPerS, d.StepMS = round(rate, 10), round(1e3*seconds, 1000)
	d.ReadShare, d.Shares = round(float64(d.StepBytes)/seconds/reads, 1000), sums.shares()
	return d
}

func (b *Bench) decodeStep(depth, i int, pages [][]int32, sums *classes) time.Duration {
	b.chunks = b.chunks[:0]
	for stream, p := range pages {
		b.chunks = append(b.chunks, model.Chunk{Tokens: b.tokens[i : i+1], Start: depth + i, Pages: p, State: int32(stream), Logits: 1, Decode: true})
	}
	return b.step(sums)
}

// deepen fills the pages of all streams up to depth. It computes the first chunk of
// a prompt and copies its pages repeatedly: attention needs realistic numbers, not
// the right ones.
func (b *Bench) deepen(depth, streams int) {
	if depth == 0 {
		return
	}
	computed := min(depth, b.o.Chunk)
	b.fill(computed, 0, new(classes))
	each, whole := b.pagesOf(b.context), max(1, computed/b.o.PageTokens)
	for i := range streams {
		for page := range b.pagesOf(depth + b.o.Steps) {
			if i > 0 || page >= b.pagesOf(computed) {
				b.model.CopyPage(int32(i*each+page), int32(page%whole))
			}
		}
	}
}

// classes sums the times of steps by kernel class.
type classes struct {
	total time.Duration
	class [model.KernelClassCount]time.Duration
}

func (c *classes) add(kernels *[model.KernelClassCount]model.KernelTime, took time.Duration) {
	c.total += took
	for i := range kernels {
		c.class[i] += kernels[i].Total
	}
}

// shares returns the shares over 0 by name. Time outside of all classes is left out.
func (c *classes) shares() map[string]float64 {
	shares := map[string]float64{}
	for i, took := range c.class {
		if share := round(float64(took)/float64(max(1, c.total)), 1000); share > 0 {
			shares[model.KernelClass(i).String()] = share
		}
	}
	return shares
}

func round(x, places float64) float64 { return math.Round(x*places) / places }
