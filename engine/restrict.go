package engine

import (
	"math"
	"slices"

	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

// restriction is what options say of which tokens may be sampled, beside a grammar.
// Choices share it; it does not change.
type restriction struct {
	allowed []uint64  // a bit for each token; nil allows all
	bad     [][]int32 // tokens that may not come in a row
	early   []int32   // tokens that may not come before minTokens
	least   int       // minTokens
}

// newRestriction is nil where o restricts nothing.
func (e *Engine) newRestriction(o *wire.Options) *restriction {
	if len(o.AllowedTokens) == 0 && len(o.BadWords) == 0 && o.MinTokens == 0 {
		return nil
	}
	r := &restriction{least: o.MinTokens, early: o.StopTokens}
	if len(o.AllowedTokens) > 0 {
		r.allowed = make([]uint64, (e.info.VocabTokens+63)/64)
		for _, id := range o.AllowedTokens {
			r.allowed[id>>6] |= 1 << (id & 63)
		}
	}
	if o.MinTokens > 0 && !o.IgnoreEOS {
		r.early = slices.Concat(e.ends(), o.StopTokens)
	}
	for _, word := range o.BadWords {
		for _, spelling := range [...]string{word, " " + word} {
			if ids := e.loaded.tokenizer.Encode(nil, spelling, tokenizer.EncodeOptions{}); len(ids) > 0 {
				r.bad = append(r.bad, ids)
			}
		}
	}
	return r
}

// findEnds are the model's end tokens.
func (e *Engine) findEnds() (ids []int32) {
	for id := range int32(e.info.VocabTokens) {
		if e.loaded.tokenizer.IsEnd(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// apply sets the logits of the tokens that may not come next to -Inf; generated are
// the choice's tokens so far.
func (r *restriction) apply(generated []int32, logits []float32) {
	no := float32(math.Inf(-1))
	if r.allowed != nil {
		allow(logits, r.allowed)
	}
	r.forbidden(generated, func(id int32) {
		if int(id) < len(logits) {
			logits[id] = no
		}
	})
}

// forbidden visits the tokens that may not come next, beside those that are never allowed.
func (r *restriction) forbidden(generated []int32, visit func(id int32)) {
	if len(generated) < r.least {
		for _, id := range r.early {
			visit(id)
		}
	}
	for _, ids := range r.bad {
		last := len(ids) - 1
		if last <= len(generated) && slices.Equal(generated[len(generated)-last:], ids[:last]) {
			visit(ids[last])
		}
	}
}

// noneLeft says whether every logit is -Inf: the model's own are finite.
func noneLeft(logits []float32) bool {
	return !slices.ContainsFunc(logits, func(x float32) bool { return !math.IsInf(float64(x), -1) })
}
