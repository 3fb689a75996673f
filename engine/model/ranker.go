package model

import (
	"math"
	"slices"
)

// Ranker describes the head of a model that scores how well a document answers a query: the
// pooled hidden state goes through a matrix with tanh, where the file has one, and through
// one that gives Outputs numbers.
type Ranker struct {
	Hidden  bool
	Outputs int
	// Yes is the output whose probability is the score, where there are several; the score of
	// one output is its logistic function.
	Yes int
	// Separator is the token that ends the query, for token types: what follows has the
	// second one. -1 is none.
	Separator int32
}

// readRanker reads the head of BERT's cross-encoders and of Qwen3's, whose outputs are the
// logits of the words yes and no.
func (k *keys) readRanker(c *Config) {
	c.Ranker = Ranker{Outputs: 1, Separator: -1}
	labels, _, err := k.file.Strings(k.name("classifier.output_labels"))
	if err != nil {
		k.keep(err)
		return
	}
	switch c.Architecture {
	case "bert":
		_, c.Ranker.Hidden = k.file.Tensor("cls.weight")
		if c.Encoder.TokenTypes {
			// The key's makers spell it so.
			if id, present, err := k.file.Uint("tokenizer.ggml.seperator_token_id"); err == nil && present && id <= math.MaxInt32 {
				c.Ranker.Separator = int32(id)
			}
		}
		if len(labels) > 1 {
			k.fail("classifier.output_labels", "names %d outputs; a ranking head of bert has one", len(labels))
		}
	case "qwen3":
		if c.Ranker.Outputs, c.Ranker.Yes = len(labels), slices.Index(labels, "yes"); c.Ranker.Yes < 0 {
			k.fail("classifier.output_labels", "names %q; one of a ranking head's outputs must be yes", labels)
		}
	default:
		k.fail("pooling_type", "is 4, a ranking head, which is supported in bert and qwen3")
	}
}

// rankerWeights are the tensors of a Ranker.
type rankerWeights struct{ hidden, output linear }

func (l *loader) ranker(to *rankerWeights) {
	c := l.config
	if c.Pooling != PoolRank {
		return
	}
	if c.Ranker.Hidden {
		l.linear(&to.hidden, "cls", c.Embed, c.Embed)
	}
	l.linear(&to.output, "cls.output", c.Embed, c.Ranker.Outputs)
}

// score is the head's answer for a pooled hidden state.
func (p *Pooler) score(in activations) float32 {
	w, r := &p.m.weights.ranker, &p.m.config.Ranker
	if r.Hidden {
		in = p.multiply(&w.hidden, in)
		for i, x := range in.numbers {
			in.numbers[i] = float32(math.Tanh(float64(x)))
		}
	}
	logits := p.multiply(&w.output, in).numbers
	if r.Outputs == 1 {
		return float32(1 / (1 + math.Exp(-float64(logits[0]))))
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - float64(logits[r.Yes]))
	}
	return float32(1 / sum)
}

// second reports whether row i of the batch, of a whole text, is behind the query.
func (p *pass) second(i int) bool {
	s := p.m.config.Ranker.Separator
	return p.m.config.Pooling == PoolRank && s >= 0 && slices.Contains(p.batch.tokens[i-p.batch.positions[i]:i], s)
}
