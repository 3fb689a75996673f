package engine

import (
	"math"

	"github.com/forebay-io/forebay/internal/wire"
)

// embed takes in hidden states of a sequence, and ends the generation with the text's
// vector once its last token is computed.
func (l *loop) embed(s *sequence, hidden []float32, now int64) {
	s.pool.Add(hidden)
	if s.pending() > 0 {
		return
	}
	vector := s.pool.Vector()
	for _, x := range vector {
		if math.IsNaN(float64(x)) {
			l.failNonFinite(s, len(s.tokens))
			return
		}
	}
	l.ledger.firstToken(s.gen, now)
	l.outbox.put(s.gen, wire.Event{Choice: s.choice, Embedding: vector, Finish: wire.FinishStop})
	l.finish(s)
}
