package budget

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// Books holds one B for each key, up to a maximum. Beyond it the least
// recently used B is forgotten; if its key comes back, a new B begins, full. A B
// in use is never forgotten, so there may be more: one for each running request.
type Books[B interface{ use() *Use }] struct {
	max int
	new func(Key) B

	mu    sync.Mutex
	byKey map[Key]*list.Element // guarded by mu, as the list of B, latest used first
	order list.List
}

// Use counts the users of a B; a B embeds it.
type Use struct {
	key   Key
	users atomic.Int64
}

func (u *Use) use() *Use { return u }

// Acquire keeps the B in its Books until a Release.
func (u *Use) Acquire() { u.users.Add(1) }

// Release undoes an Acquire.
func (u *Use) Release() { u.users.Add(-1) }

// NewBooks returns empty books that keep atMost unused B.
func NewBooks[B interface{ use() *Use }](atMost int, new func(Key) B) *Books[B] {
	return &Books[B]{max: max(1, atMost), new: new, byKey: map[Key]*list.Element{}}
}

// Open returns the B of a key, acquired.
func (s *Books[B]) Open(k Key) B {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[k]
	if e == nil {
		b := s.new(k)
		b.use().key = k
		e = s.order.PushFront(b)
		s.byKey[k] = e
		b.use().Acquire()
		s.forget()
		return b
	}
	s.order.MoveToFront(e)
	b := e.Value.(B)
	b.use().Acquire()
	return b
}

// Find returns the B of a key, acquired; ok says that there is one.
func (s *Books[B]) Find(k Key) (b B, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[k]
	if e == nil {
		return b, false
	}
	b = e.Value.(B)
	b.use().Acquire()
	return b, true
}

// Each calls visit for every B, latest used first, until it returns false.
func (s *Books[B]) Each(visit func(B) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.order.Front(); e != nil && visit(e.Value.(B)); e = e.Next() {
	}
}

// forget makes room. It looks only at a few of the least recently used B, so that it
// is not slow when many are in use.
func (s *Books[B]) forget() {
	const looks = 8
	e := s.order.Back()
	for i := 0; i < looks && e != nil && len(s.byKey) > s.max; i++ {
		previous := e.Prev()
		if u := e.Value.(B).use(); u.users.Load() == 0 {
			s.order.Remove(e)
			delete(s.byKey, u.key)
		}
		e = previous
	}
}

// Shelf has two Books: those of end users, whose number clients decide, and all
// others.
type Shelf[B interface{ use() *Use }] struct{ users, others *Books[B] }

// NewShelf returns an empty shelf for as many as cfg says.
func NewShelf[B interface{ use() *Use }](cfg Config, new func(Key) B) *Shelf[B] {
	return &Shelf[B]{users: NewBooks(cfg.UsersMax, new), others: NewBooks(cfg.BucketsMax, new)}
}

// Open returns the B of a key, acquired.
func (s *Shelf[B]) Open(k Key) B {
	if k.Kind == KindUser {
		return s.users.Open(k)
	}
	return s.others.Open(k)
}

// Find returns the B of a key, acquired; ok says that there is one.
func (s *Shelf[B]) Find(k Key) (b B, ok bool) {
	if k.Kind == KindUser {
		return s.users.Find(k)
	}
	return s.others.Find(k)
}

// Holders are up to most of those that have a B, of which limits reads the limits.
func (s *Shelf[B]) Holders(most int, limits func(B) Limits) (all []Holder) {
	for _, books := range []*Books[B]{s.others, s.users} {
		books.Each(func(b B) bool {
			if len(all) < most {
				all = append(all, Holder{b.use().key, limits(b)})
			}
			return len(all) < most
		})
	}
	return all
}

// Close releases what Open returned.
func (s *Shelf[B]) Close(b B) { b.use().Release() }
