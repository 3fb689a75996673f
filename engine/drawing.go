package engine

import (
	"math/bits"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/sample"
	"github.com/forebay-io/forebay/internal/wire"
)

// This file samples where the model is on a device that can: logits stay there, and a step
// copies tokens, or the few candidates that filters leave. The tokens are those of the
// sampler on this side, up to the rounding of weights. What the device cannot sample comes to
// this side as on the CPU: what Sampler.Plannable refuses, log-probabilities of a prompt, more candidates than
// the device lists.

// drawer is a model whose device samples; package model has the promises.
type drawer interface {
	DrawsMax(vocab int) int
	Sample(draws []model.DeviceDraw, vocab int)
	Row(row int) []float32
}

// planner is a sampler that can leave the search to a device.
type planner interface {
	sampler
	Plannable() bool
	Plan(d *sample.Draw)
	Finish(d *sample.Draw, rest *sample.Rest) int32
}

// drawing is what the device has to sample in this step.
type drawing struct {
	model drawer // nil where this side samples
	most  int    // draws at once
	draws []model.DeviceDraw
	seqs  []*sequence
}

// use lets m's device sample, if it can.
func (d *drawing) use(m drawer, vocab int) {
	if d.most = m.DrawsMax(vocab); d.most > 0 {
		d.model = m
	}
}

// stays reports whether the logits of a row may stay on the device: those of a next token,
// for choices whose samplers leave it to the device.
func (d *drawing) stays(s *sequence, rows int) bool {
	if d.model == nil || rows != 1 || s.pool != nil || s.wantsPrompt() {
		return false
	}
	p, ok := s.sampler.(planner) // the other choices have the same options
	return ok && p.Plannable()
}

// plan asks for the next token of s, from a row of logits. Where no token may come, it ends
// the generation.
func (l *loop) plan(s *sequence, row int) {
	d := &l.drawing
	mask, ok := l.maskOf(s)
	if !ok {
		return
	}
	draw := model.DeviceDraw{Row: row, Mask: mask, Tops: -1}
	if s.gen.options.Logprobs {
		draw.Tops = s.gen.options.TopLogprobs
	}
	s.sampler.(planner).Plan(&draw.Draw)
	d.draws, d.seqs = append(d.draws, draw), append(d.seqs, s)
	if len(d.draws) == d.most {
		l.takeDrawn()
	}
}

// maskOf is which tokens may come next by restriction and grammar, nil for all.
func (l *loop) maskOf(s *sequence) (mask []uint64, ok bool) {
	r := s.gen.restriction
	if r == nil && s.matcher == nil {
		return nil, true
	}
	if s.matcher != nil {
		if !l.grammarMask(s, func() int { return ones(s.mask) }) {
			return nil, false
		}
	} else {
		if s.mask == nil {
			s.mask = make([]uint64, (l.info.VocabTokens+63)/64)
		}
		for i := range s.mask {
			s.mask[i] = ^uint64(0)
		}
	}
	mask = s.mask
	if r != nil {
		for i := range r.allowed {
			mask[i] &= r.allowed[i]
		}
		r.forbidden(s.tokens[len(s.tokens)-s.generated:], func(id int32) {
			if int(id) < l.info.VocabTokens {
				mask[id>>6] &^= 1 << (id & 63)
			}
		})
	}
	return mask, true
}

// ones counts the tokens of a mask.
func ones(mask []uint64) (n int) {
	for _, word := range mask {
		n += bits.OnesCount64(word)
	}
	return n
}

// takeDrawn takes the tokens of all draws.
func (l *loop) takeDrawn() {
	d := &l.drawing
	if len(d.draws) == 0 {
		return
	}
	d.model.Sample(d.draws, l.info.VocabTokens)
	for i, s := range d.seqs {
		if draw := &d.draws[i]; !s.gen.ended {
			l.finishDraw(s, draw)
		}
	}
	clear(d.draws) // keep nothing of an ended sequence alive
	clear(d.seqs)
	d.draws, d.seqs = d.draws[:0], d.seqs[:0]
}

func (l *loop) finishDraw(s *sequence, draw *model.DeviceDraw) {
	switch draw.Found {
	case model.Found:
		id := s.sampler.(planner).Finish(&draw.Draw, &draw.Rest)
		l.take(s, id, from{draw: draw})
	case model.FoundTooMuch:
		l.next(s, l.drawing.model.Row(draw.Row), true)
	case model.FoundNone:
		if s.gen.restriction != nil {
			l.failRestricted(s)
			return
		}
		l.failNonFinite(s, len(s.tokens))
	default:
		l.failNonFinite(s, len(s.tokens))
	}
}

// from is where a token's log-probability is found: in a row of logits, or in what the device
// has left of one.
type from struct {
	logits []float32
	draw   *model.DeviceDraw
}

// logprob is a token's log-probability with those of the likeliest tokens, from
// the model's own distribution.
func (l *loop) logprob(at from, id int32, top int) (t wire.TokenLogprob) {
	known := false
	if at.draw != nil {
		if t, known = at.draw.Rest.Logprob(id, top); !known { // it was not sampled, such as the end of reasoning
			at.logits = l.drawing.model.Row(at.draw.Row)
		}
	}
	if !known {
		t = sample.TopLogprobs(l.set, at.logits[:l.info.VocabTokens], id, top) // rows of padding are no tokens
	}
	t.Bytes = l.tokenizer.Bytes(id)
	for i := range t.Top {
		t.Top[i].Bytes = l.tokenizer.Bytes(t.Top[i].ID)
	}
	return t
}
