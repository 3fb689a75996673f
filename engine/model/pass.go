package model

import (
	"fmt"
	"iter"
	"math"
	"sync/atomic"

	"github.com/forebay-io/forebay/kernels"
)

// pass is a Model's running step: all that changes from one Forward to the
// next. The caller's goroutine sets the fields between two phases; within a
// phase the workers write disjoint parts of the buffers.
type pass struct {
	m      *Model // fixed, with all that is reached through it but the pages
	phases phases

	batch   batch
	rows    int     // of the batch that are still computed
	layer   int     // -1 outside the layers
	waits   *norm   // of the sum that is to be added to x; nil where none is
	xScale  float32 // multiplies x after that
	stream  int     // of AltUp, at the end
	scratch scratch
	mixture mixture
	workers []kernels.Attention
	logits  []float32
	timer   *Timer

	serial bool         // the caller alone runs the phase by token
	taken  atomic.Int64 // portions of the phase by portion
}

// scratch holds the activations of a batch, one row for each token.
type scratch struct {
	x            []float32   // Embed
	normed       activations // Embed
	q            []float32   // Heads·HeadDim
	heads        activations // Heads·HeadDim: attention's output
	gatedQ       []float32   // 2·Heads·HeadDim, where attention is gated
	k, v         []float32   // KVHeads·HeadDim
	gate         activations // a feed-forward layer's width, or a row for each expert of a token
	up           [][]float32 // the same, gatedRows rows of each worker
	sum          []float32   // Embed, to be added to x
	angles       [][]float32 // for each rope, rows of Dims, as rope.angles says
	attention    []float32   // for each worker
	perLayer     []float32   // PerLayer of each layer
	recurrent    recurrentScratch
	latent       latentScratch
	altUp        altUpScratch
	perLayerRows []float32 // the same for each worker
}

// reserve sets up the buffers.
func (p *pass) reserve() (failure error) {
	m, c, o := p.m, &p.m.config, &p.m.options
	rows := func(n, width int) []float32 {
		if failure != nil {
			return nil
		}
		if n == 0 || width == 0 {
			return nil
		}
		if n > math.MaxInt/8/width {
			failure = fmt.Errorf("%d rows of %d numbers are more than memory can hold", n, width)
			return nil
		}
		x, err := m.memory.float32s(n * width)
		failure = err
		return x
	}
	n, contextTokens := o.BatchTokensMax, min(o.ContextTokens, o.Pages*o.PageTokens)
	most := c.largest()
	scores := kernels.AttentionScratch(m.tileRows*most.group, most.headDim, contextTokens)
	if c.Pooling == PoolNone {
		p.logits = rows(n, c.Vocab)
	}
	p.scratch = scratch{
		x: rows(n, c.Embed), normed: newActivations(m.set, n, c.Embed, rows), sum: rows(n, c.Embed),
		q: rows(n, c.Heads*most.headDim), heads: newActivations(m.set, n, max(c.Heads*most.headDim, c.Recurrent.width()), rows),
		k: rows(n, most.kvWidth), v: rows(n, most.kvWidth),
		gate:      newActivations(m.set, n, max(most.ff, c.ExpertsUsed*c.ExpertFF), rows),
		attention: rows(m.team.Workers(), scores),
	}
	for range m.team.Workers() {
		p.scratch.up = append(p.scratch.up, rows(min(n*max(1, c.ExpertsUsed), gatedRows), max(most.ff, c.ExpertFF)))
	}
	if c.GatedAttention {
		p.scratch.gatedQ = rows(n, 2*c.Heads*most.headDim)
	}
	p.scratch.altUp = newAltUpScratch(c, m.set, n, rows)
	p.scratch.latent = newLatentScratch(c, m.set, n, rows)
	p.scratch.recurrent = newRecurrentScratch(&c.Recurrent, n, m.team.Workers(), rows)
	if c.PerLayer > 0 {
		p.scratch.perLayer, p.scratch.perLayerRows = rows(n, c.PerLayer*len(c.Layers)), rows(m.team.Workers(), c.PerLayer*len(c.Layers))
	}
	for i := range c.Ropes {
		p.scratch.angles = append(p.scratch.angles, rows(n, c.Ropes[i].Dims))
	}
	p.mixture = newMixture(c, m.set, n, rows)
	p.batch = newBatch(n)
	p.batch.contexts = m.newContexts(contextTokens, rows)
	if failure != nil {
		return failure
	}
	p.workers = make([]kernels.Attention, m.team.Workers())
	for w := range p.workers {
		p.workers[w] = kernels.Attention{
			Scale: c.AttentionScale, SoftCap: c.AttentionSoftCap,
			Round: roundsAttention(c, m.weights), Scores: row(p.scratch.attention, w, scores),
		}
	}
	return nil
}

// largest is the largest sizes over all layers.
func (c *Config) largest() (most struct{ headDim, kvWidth, group, ff int }) {
	most.ff = max(c.SharedFF, c.PerLayer)
	for i := range c.Layers {
		l := &c.Layers[i]
		most.headDim, most.kvWidth = max(most.headDim, l.HeadDim), max(most.kvWidth, l.KVHeads*l.HeadDim)
		if most.ff = max(most.ff, l.FF); l.KVHeads > 0 {
			most.group = max(most.group, c.Heads/l.KVHeads)
		}
	}
	return most
}

// phase is a part of the step that runs on the whole team.
type phase struct {
	split split
	work  func(worker int)
}

// split says how the workers divide a phase.
type split int

const (
	byToken   split = iota // each has some of the rows; the caller has all of few
	byPortion              // each takes one portion of the work after the other
	byWorker               // each has one share of the outputs
)

// phases are bound once, so that a step allocates nothing.
type phases struct {
	embed, normAttention, project, place, attend, roundHeads, projectOut phase
	normFF, gateUp, down, normOutput, logits                             phase
	route, scatter, expertsGateUp, expertsDown, gatherExperts            phase
	normBeside, add                                                      phase
	beginStreams, sizeStreams, predictStreams, correctStreams            phase
	laurelLeft, laurelRound, laurelRight, sparseGateUp, sparseActivate   phase
	addToOthers, loadStream, unembedStream, joinStreams                  phase
	projectLatent, normQueryRow, projectQueries, placeLatent, absorb     phase
	gatherFound, expand, roundExpanded, projectLatentOut                 phase
	projectRecurrent, convolve, stepSizes, scan                          phase
	finishRecurrent, projectRecurrentOut                                 phase
	perLayerProject, perLayerEmbed                                       phase
	perLayerInput, perLayerGate, perLayerOut                             phase
}

func (p *pass) bindPhases() {
	p.phases = phases{
		embed:               phase{byToken, p.embed},
		normAttention:       phase{byToken, p.normAttention},
		project:             phase{byPortion, p.project},
		place:               phase{byToken, p.place},
		attend:              phase{byPortion, p.attend},
		roundHeads:          phase{byToken, p.roundHeads},
		projectOut:          phase{byPortion, p.projectOut},
		normFF:              phase{byToken, p.normFF},
		gateUp:              phase{byPortion, p.gateUp},
		down:                phase{byPortion, p.down},
		route:               phase{byToken, p.route},
		scatter:             phase{byToken, p.scatter},
		expertsGateUp:       phase{byWorker, p.expertsGateUp},
		expertsDown:         phase{byWorker, p.expertsDown},
		gatherExperts:       phase{byToken, p.gatherExperts},
		add:                 phase{byToken, p.add},
		projectRecurrent:    phase{byPortion, p.projectRecurrent},
		convolve:            phase{byPortion, p.convolve},
		stepSizes:           phase{byToken, p.stepSizes},
		scan:                phase{byPortion, p.scan},
		finishRecurrent:     phase{byToken, p.finishRecurrent},
		projectRecurrentOut: phase{byPortion, p.projectRecurrentOut},
		normBeside:          phase{byToken, p.normBeside},
		beginStreams:        phase{byPortion, p.beginStreams},
		sizeStreams:         phase{byToken, p.sizeStreams},
		predictStreams:      phase{byToken, p.predictStreams},
		correctStreams:      phase{byToken, p.correctStreams},
		laurelLeft:          phase{byPortion, p.laurelLeft},
		laurelRound:         phase{byToken, p.laurelRound},
		laurelRight:         phase{byPortion, p.laurelRight},
		sparseGateUp:        phase{byPortion, p.sparseGateUp},
		sparseActivate:      phase{byToken, p.sparseActivate},
		loadStream:          phase{byToken, p.loadStream},
		unembedStream:       phase{byPortion, p.unembedStream},
		joinStreams:         phase{byToken, p.joinStreams},
		addToOthers:         phase{byToken, p.addToAllOthers},
		projectLatent:       phase{byPortion, p.projectLatent},
		normQueryRow:        phase{byToken, p.normQueryRow},
		projectQueries:      phase{byPortion, p.projectQueries},
		placeLatent:         phase{byToken, p.placeLatent},
		absorb:              phase{byPortion, p.absorb},
		gatherFound:         phase{byToken, p.gatherFound},
		expand:              phase{byPortion, p.expand},
		roundExpanded:       phase{byToken, p.roundExpanded},
		projectLatentOut:    phase{byPortion, p.projectLatentOut},
		perLayerProject:     phase{byPortion, p.perLayerProject},
		perLayerEmbed:       phase{byToken, p.perLayerEmbed},
		perLayerInput:       phase{byToken, p.perLayerInput},
		perLayerGate:        phase{byPortion, p.perLayerGate},
		perLayerOut:         phase{byPortion, p.perLayerOut},
		normOutput:          phase{byToken, p.normOutput},
		logits:              phase{byPortion, p.outputLogits},
	}
}

// do runs phases one after the other and counts them as one launch of a class.
func (p *pass) do(class KernelClass, all ...phase) {
	for _, ph := range all {
		p.run(ph)
	}
	p.timer.Lap(class, p.layer)
}

// serialNumbersMax is the work by token, in numbers of the residual stream,
// that costs less than a barrier.
const serialNumbersMax = 4096

// run runs a phase on the team.
func (p *pass) run(ph phase) {
	switch ph.split {
	case byToken:
		if p.serial = p.rows*p.m.config.Embed <= serialNumbersMax; p.serial {
			ph.work(0)
			return
		}
	case byPortion:
		p.taken.Store(0)
	}
	p.m.team.Run(ph.work)
}

// share is the worker's rows in a phase by token.
func (p *pass) share(worker int) (lo, hi int) {
	if p.serial {
		return 0, p.rows
	}
	return kernels.Split(p.rows, 1, worker, p.m.team.Workers())
}

// portionRows divides the rows of a product's portions: a kernel's two tiles, and
// a block of the next product's input.
const portionRows = 2 * kernels.RowTile

// portions are the ranges [lo,hi) of a matrix's rows that a worker takes in a
// phase by portion.
func (p *pass) portions(rows int) iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		for {
			lo, hi, ok := kernels.Portion(rows, portionRows, int(p.taken.Add(1))-1, p.m.team.Workers())
			if !ok || lo < hi && !yield(lo, hi) {
				return
			}
		}
	}
}

// row is row i of a buffer of rows of width numbers.
func row(x []float32, i, width int) []float32 { return x[i*width : (i+1)*width] }
