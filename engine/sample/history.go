package sample

// history counts tokens. It is used only where a penalty needs it.
type history struct {
	slot   map[int32]int // nil when unused
	tokens []Seen
	// Where the last tokens alone count: how many, these tokens, of which the oldest is at oldest,
	// and how often each of tokens is among them.
	last   int // 0 for all
	recent []Seen
	oldest int
	count  []int
}

// Seen is a token of the prompt or the answer, and how often it was generated.
type Seen struct {
	ID        int32
	Generated int
}

func (h *history) add(id int32, generated int) {
	if h.slot == nil {
		return
	}
	if h.last > 0 {
		h.push(Seen{id, generated})
	}
	i, known := h.slot[id]
	if !known {
		i = len(h.tokens)
		h.slot[id] = i
		h.tokens = append(h.tokens, Seen{ID: id})
		h.count = append(h.count, 0)
	}
	h.tokens[i].Generated += generated
	h.count[i]++
}

// push makes s one of the last tokens, and forgets the one that no longer is.
func (h *history) push(s Seen) {
	if len(h.recent) < h.last {
		h.recent = append(h.recent, s)
		return
	}
	old := h.recent[h.oldest]
	h.recent[h.oldest] = s
	h.oldest = (h.oldest + 1) % h.last
	i := h.slot[old.ID]
	h.tokens[i].Generated -= old.Generated
	if h.count[i]--; h.count[i] > 0 {
		return
	}
	end := len(h.tokens) - 1
	h.tokens[i], h.count[i] = h.tokens[end], h.count[end]
	h.slot[h.tokens[i].ID] = i
	delete(h.slot, old.ID)
	h.tokens, h.count = h.tokens[:end], h.count[:end]
}
