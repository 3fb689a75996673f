package capture

import "slices"

// shelf holds the last views, by any of their names.
type shelf struct {
	ring   []*View
	next   int
	byName map[string][]*View // id, client's id and trace id; the newest is last
}

func newShelf(size int) shelf { return shelf{ring: make([]*View, size), byName: map[string][]*View{}} }

func names(v *View) []string {
	all := []string{v.ID, v.TraceID}
	if v.ClientID != "" && v.ClientID != v.ID && v.ClientID != v.TraceID {
		all = append(all, v.ClientID)
	}
	return all
}

// put puts v over the oldest, or over an earlier view of the same request, unless
// that is of its end and v is not.
func (h *shelf) put(v *View) {
	for _, old := range h.byName[v.ID] {
		if old.ID == v.ID {
			if old.Running || !v.Running {
				h.replace(old, v)
			}
			return
		}
	}
	if old := h.ring[h.next]; old != nil {
		h.forget(old)
	}
	h.ring[h.next] = v
	h.next = (h.next + 1) % len(h.ring)
	h.index(v)
}

func (h *shelf) replace(old, v *View) {
	h.forget(old)
	h.ring[slices.Index(h.ring, old)] = v
	h.index(v)
}

func (h *shelf) index(v *View) {
	for _, name := range names(v) {
		h.byName[name] = append(h.byName[name], v)
	}
}

func (h *shelf) forget(v *View) {
	for _, name := range names(v) {
		list := h.byName[name]
		if i := slices.Index(list, v); i >= 0 {
			list = slices.Delete(list, i, i+1)
		}
		if h.byName[name] = list; len(list) == 0 {
			delete(h.byName, name)
		}
	}
}

// find is the newest of that name.
func (h *shelf) find(name string) *View {
	if list := h.byName[name]; len(list) > 0 {
		return list[len(list)-1]
	}
	return nil
}
