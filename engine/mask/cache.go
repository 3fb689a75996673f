package mask

import (
	"container/list"
	"errors"
	"sync"
)

// Cache keeps compiled grammars by a key of everything that went into them:
// the schema's bytes, the options, the vocabulary. Who asks for a key that is
// being compiled waits for it.
type Cache struct {
	mu      sync.Mutex
	max     int
	entries map[string]*list.Element
	order   *list.List // of *cached, the last used first
	making  map[string]*making
}

type cached struct {
	key string
	c   *Compiled
}

type making struct {
	done chan struct{}
	c    *Compiled
	err  error
}

var errPanicked = errors.New("the grammar's compilation panicked")

// NewCache holds grammars of at most bytesMax, but always the last one.
func NewCache(bytesMax int) *Cache {
	return &Cache{max: bytesMax, entries: map[string]*list.Element{}, order: list.New(), making: map[string]*making{}}
}

// Get returns the grammar of a key, made by compile if it is not there. An
// error is not kept.
func (c *Cache) Get(key string, compile func() (*Compiled, error)) (*Compiled, error) {
	c.mu.Lock()
	if e, ok := c.entries[key]; ok {
		c.order.MoveToFront(e)
		c.evict()
		c.mu.Unlock()
		return e.Value.(*cached).c, nil
	}
	if m, ok := c.making[key]; ok {
		c.mu.Unlock()
		<-m.done
		return m.c, m.err
	}
	m := &making{done: make(chan struct{})}
	c.making[key] = m
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.making, key)
		if m.c != nil {
			c.entries[key] = c.order.PushFront(&cached{key, m.c})
			c.evict()
		} else if m.err == nil {
			m.err = errPanicked
		}
		c.mu.Unlock()
		close(m.done)
	}()
	m.c, m.err = compile()
	return m.c, m.err
}

// Find returns the grammar of a key, nil if it is not there.
func (c *Cache) Find(key string) *Compiled {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).c
}

// evict drops what was not used for longest, by the sizes of now: an automaton
// grows while it is used.
func (c *Cache) evict() {
	for c.order.Len() > 1 && c.bytes() > c.max {
		last := c.order.Back()
		delete(c.entries, last.Value.(*cached).key)
		c.order.Remove(last)
	}
}

func (c *Cache) bytes() (n int) {
	for e := c.order.Front(); e != nil; e = e.Next() {
		v := e.Value.(*cached)
		n += len(v.key) + v.c.Size()
	}
	return n
}

// Size is the number of grammars and of bytes that the cache holds.
func (c *Cache) Size() (grammars, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len(), c.bytes()
}
