package sim

import (
	"container/list"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// prefixes remembers the blocks of finished prompts, and evicts the least recently
// used.
type prefixes struct {
	blocksMax int
	order     list.List // of uint64, most recent first
	places    map[uint64]*list.Element
	changes   []hitmap.Change // since the last report
}

func newPrefixes(tokens int) *prefixes {
	return &prefixes{blocksMax: tokens / BlockTokens, places: map[uint64]*list.Element{}}
}

// match is how many leading tokens of a prompt need no computing.
func (p *prefixes) match(j *job) int {
	n := 0
	for n < len(j.Blocks) && p.places[j.Blocks[n]] != nil {
		n++
	}
	return min(max(n*BlockTokens, j.Cached), j.Prompt-1)
}

// use makes the blocks of a prompt the most recent ones, its first one last, so
// that a prefix outlives what continues it.
func (p *prefixes) use(blocks []uint64) {
	if p.blocksMax == 0 {
		return
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		if place := p.places[blocks[i]]; place != nil {
			p.order.MoveToFront(place)
			continue
		}
		p.places[blocks[i]] = p.order.PushFront(blocks[i])
		p.changes = append(p.changes, hitmap.Change{Hash: blocks[i]})
	}
	for p.order.Len() > p.blocksMax {
		oldest := p.order.Back()
		p.order.Remove(oldest)
		delete(p.places, oldest.Value.(uint64))
		p.changes = append(p.changes, hitmap.Change{Hash: oldest.Value.(uint64), Evicted: true})
	}
}
