package admission

// heap is a binary heap of entries. An entry knows its place in it, so that any
// entry can be taken out. It may be in several heaps: less says by what this one
// is ordered, and place which of the entry's fields holds its place.
type heap struct {
	entries []*Entry
	less    func(a, b *Entry) bool
	place   func(e *Entry) *int
}

// out is the place of an entry that is in no heap.
const out = -1

func (h *heap) len() int { return len(h.entries) }

// head is the least entry, nil for none.
func (h *heap) head() *Entry {
	if len(h.entries) == 0 {
		return nil
	}
	return h.entries[0]
}

func (h *heap) push(e *Entry) {
	h.entries = append(h.entries, e)
	*h.place(e) = len(h.entries) - 1
	h.up(len(h.entries) - 1)
}

// remove takes e out; it does nothing for one that is not in.
func (h *heap) remove(e *Entry) {
	i := *h.place(e)
	if i == out {
		return
	}
	last := len(h.entries) - 1
	h.swap(i, last)
	h.entries[last] = nil
	h.entries = h.entries[:last]
	*h.place(e) = out
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h *heap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(h.entries[i], h.entries[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap) down(i int) {
	for {
		least := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(h.entries) && h.less(h.entries[child], h.entries[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *heap) swap(i, j int) {
	e := h.entries
	e[i], e[j] = e[j], e[i]
	*h.place(e[i]), *h.place(e[j]) = i, j
}
