package engine

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/forebay-io/forebay/engine/grammar"
	"github.com/forebay-io/forebay/engine/mask"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/wire"
)

// This file holds answers to their grammars. A choice has a matcher of its own,
// which follows its tokens. Masks are found while the forward pass runs, or by the loop
// after it: see ahead.

// follow gives each choice of g a matcher.
func (g *generation) follow(c *mask.Compiled, remember bool) {
	for _, s := range g.choices {
		s.matcher = c.NewMatcher()
		s.matcher.Remember(remember)
	}
}

// constrain leaves the tokens that the choice's grammar allows. Where it cannot, it
// ends the generation and says false.
func (l *loop) constrain(s *sequence, logits []float32) bool {
	return l.grammarMask(s, func() int { return allow(logits[:l.info.VocabTokens], s.mask) })
}

// grammarMask finds which tokens the choice's grammar allows; apply uses the mask, and says how
// many these are. Where there are none, it ends the generation and says false.
func (l *loop) grammarMask(s *sequence, apply func() int) bool {
	l.ledger.lap(model.KernelSampling)
	began := wire.Monotonic()
	if !l.ahead.wait(s) {
		s.findMask()
	}
	s.masked = false
	err := s.maskErr
	left := 0
	if err == nil {
		left = apply()
	}
	l.ledger.masked(s.gen, wire.Monotonic()-began)
	if err == nil && left == 0 {
		err = errors.New("no token of this model may come next")
	}
	if err != nil {
		l.failGrammar(s, err)
	}
	return err == nil
}

// findMask finds the mask of the choice's next token.
func (s *sequence) findMask() {
	if s.mask == nil {
		s.mask = make([]uint64, s.matcher.Words())
	}
	s.maskErr = s.matcher.Mask(s.mask)
}

// nothing is the logits of a mask's word of which no token may come.
var nothing = func() (part [64]float32) {
	for i := range part {
		part[i] = float32(math.Inf(-1))
	}
	return part
}()

// allow sets the logits of all tokens that are not in the mask to -Inf, and counts
// the others.
func allow(logits []float32, mask []uint64) (left int) {
	for i := 0; i < len(logits); i += 64 {
		part, word := logits[i:min(i+64, len(logits))], mask[i/64]
		if len(part) < 64 {
			word &= 1<<len(part) - 1
		}
		n := bits.OnesCount64(word)
		left += n
		if n <= fewMax {
			allowFew(part, word)
			continue
		}
		for out := ^word; out != 0; out &= out - 1 {
			j := bits.TrailingZeros64(out)
			if j >= len(part) {
				break
			}
			part[j] = nothing[0]
		}
	}
	return left
}

// fewMax is how many tokens of a word it is faster to write twice than all others one by one.
const fewMax = 16

// allowFew is allow for a word of which few tokens may come.
func allowFew(part []float32, word uint64) {
	var kept [fewMax]float32
	for in, i := word, 0; in != 0; in, i = in&(in-1), i+1 {
		kept[i%fewMax] = part[bits.TrailingZeros64(in)]
	}
	copy(part, nothing[:])
	for in, i := word, 0; in != 0; in, i = in&(in-1), i+1 {
		part[bits.TrailingZeros64(in)] = kept[i%fewMax]
	}
}

// accept tells the choice's grammar of its token. Whole says that nothing more may
// follow. Where the token may not come, it ends the generation and ok is false.
func (l *loop) accept(s *sequence, id int32) (whole, ok bool) {
	if s.matcher == nil {
		return false, true
	}
	ok, err := s.matcher.Accept(id)
	if err == nil && !ok {
		err = errors.New("a token was sampled that may not come")
	}
	if err != nil {
		l.failGrammar(s, err)
		return false, false
	}
	return s.matcher.Done(), true
}

// failRestricted ends a generation whose options leave no token.
func (l *loop) failRestricted(s *sequence) {
	l.fail(s.gen, wire.Errorf(wire.GrammarFailed, "choice %d has no token to go on with after %d tokens: allowed_token_ids, bad_words, min_tokens and the form of the answer leave none", s.choice, s.generated))
}

// failGrammar ends a generation whose grammar cannot be followed further: it must
// not go on as free text.
func (l *loop) failGrammar(s *sequence, err error) {
	l.ledger.total.GrammarsFailed++
	param, advice := s.gen.options.Grammar.Param, ""
	if limit := (*grammar.LimitError)(nil); errors.As(err, &limit) {
		advice = "; make it simpler, or raise the limit in engine.grammar"
	}
	l.fail(s.gen, &wire.Error{Kind: wire.GrammarFailed, Param: param,
		Message: fmt.Sprintf("choice %d could not follow %s after %d tokens: %v%s", s.choice, param, s.generated, err, advice)})
}
