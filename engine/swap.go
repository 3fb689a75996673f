package engine

import (
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/cache/host"
	"github.com/forebay-io/forebay/internal/cost"
)

// This file is the swap of a GPU's pages: blocks that leave them are kept in this machine's
// memory, and copied back where that takes less time than computing them. It is a diskCache
// whose store has every block at once.

// timedPages tells a store how long blocks take to be copied back.
type timedPages struct {
	pager
	store *host.Store
}

func (t timedPages) LoadPage(page int32, block []byte) {
	began := time.Now()
	t.pager.LoadPage(page, block)
	t.store.Copied(time.Since(began))
}

// openSwap takes the memory of the configuration, piece by piece, where the pages are a GPU's.
func openSwap(cfg *Config, p *loaded, hasher cache.Hasher) *diskCache {
	if p.gpu == nil && !cfg.swapAlways || cfg.Device.SwapBytes < int64(p.info.PageBytes) {
		return nil
	}
	m, second, err := keepable(cfg, p)
	if err != nil {
		cfg.Log.Info("pages are not swapped to memory", "why", err)
		return nil
	}
	store := host.New(p.info.PageBytes, cfg.Device.SwapBytes)
	d := newDiskCache(store, timedPages{m, store}, hasher, second, cfg, p)
	d.swaps = true
	return d
}

// swapOut copies the blocks of a preempted sequence before others take its pages, where copying
// them out and in takes less time than computing them.
func (d *diskCache) swapOut(pool *cache.Pool, c *cost.Cost) {
	if d == nil || !d.swaps || 2*d.readTime() >= blockTime(c, d.pageTokens) {
		return
	}
	for d.save(pool) {
	}
}

// swapIn finds what is kept of a sequence that has just been given its cached pages.
func (d *diskCache) swapIn(s *sequence, c *cost.Cost) {
	if d == nil || !d.swaps || s.kv == nil || s.wantsAll() {
		return
	}
	d.forget(s)
	at := s.computed()
	if ids, blocks := d.there(s.gen.salt, s.tokens, at, blockTime(c, d.pageTokens)); blocks > 0 {
		s.onDisk, s.readBy = ids[:at/d.pageTokens+blocks], time.Now().Add(d.patience)
	}
}
