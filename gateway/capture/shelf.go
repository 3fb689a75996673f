package capture

import "slices"

// shelf holds the last kept requests, by any of their names.
type shelf struct {
	ring   []*kept
	next   int
	byName map[string][]*kept // id, client's id and trace id; the newest is last
}

func newShelf(size int) shelf { return shelf{ring: make([]*kept, size), byName: map[string][]*kept{}} }

func names(k *kept) []string {
	v := k.view
	all := []string{v.ID, v.TraceID}
	if v.ClientID != "" && v.ClientID != v.ID && v.ClientID != v.TraceID {
		all = append(all, v.ClientID)
	}
	return all
}

// put replaces the oldest entry by k, or an earlier one of the same request. It
// does nothing if that one has the request's end and k has not.
func (h *shelf) put(k *kept) {
	for _, old := range h.byName[k.view.ID] {
		if old.view.ID == k.view.ID {
			if old.view.Running || !k.view.Running {
				h.replace(old, k)
			}
			return
		}
	}
	if old := h.ring[h.next]; old != nil {
		h.forget(old)
	}
	h.ring[h.next] = k
	h.next = (h.next + 1) % len(h.ring)
	h.index(k)
}

func (h *shelf) replace(old, k *kept) {
	h.forget(old)
	h.ring[slices.Index(h.ring, old)] = k
	h.index(k)
}

func (h *shelf) index(k *kept) {
	for _, name := range names(k) {
		h.byName[name] = append(h.byName[name], k)
	}
}

func (h *shelf) forget(k *kept) {
	for _, name := range names(k) {
		list := h.byName[name]
		if i := slices.Index(list, k); i >= 0 {
			list = slices.Delete(list, i, i+1)
		}
		if h.byName[name] = list; len(list) == 0 {
			delete(h.byName, name)
		}
	}
}

// find is the newest of that name, nil for none.
func (h *shelf) find(name string) *kept {
	if list := h.byName[name]; len(list) > 0 {
		return list[len(list)-1]
	}
	return nil
}
