package engine

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/cache/disk"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
)

// pager copies pages out of the model's memory and back.
type pager interface {
	SavePage(dst []byte, page int32)
	LoadPage(page int32, src []byte)
}

// blockStore is where blocks are kept: on disk, or for a GPU's pages in this machine's memory.
// disk.Store says what the methods mean.
type blockStore interface {
	Put(id disk.ID, fill func(block []byte))
	Room() int
	Has(id disk.ID) bool
	Count(ids []disk.ID) int
	Fetch(ids []disk.ID)
	Take(id disk.ID) (block []byte, coming bool)
	Forget(ids []disk.ID)
	ReadTime() time.Duration
	Stats() disk.Stats
	Close() error
}

// diskCache writes the blocks that ended sequences leave, and reads those that a waiting
// sequence would else compute. A nil diskCache does nothing.
//
// Blocks are copied between two steps, a few at a time: the writer and the reader of the
// store do the rest meanwhile. A sequence whose next block is being read is left out of the
// steps, for as long as reading is expected to take at most, and then computes.
type diskCache struct {
	store      blockStore
	swaps      bool         // the store is this machine's memory: a block is there at once
	first      cache.Hasher // of the pool
	second     cache.Hasher // another chain, so that a block's name has 128 bits
	pages      pager
	blockBytes int
	pageTokens int
	readTime   func() time.Duration // expected of a block
	patience   time.Duration        // how much longer than expected a sequence waits for its blocks

	// Owned by the loop.
	saves    []blockSave
	queued   map[disk.ID]bool // in saves
	savesMax int
}

// blockSave is a block that is to be written, if its page still holds it.
type blockSave struct {
	id   disk.ID
	page int32
}

// diskQueueBytes bounds the copies of blocks that wait to be written, and of those that
// were read and wait for their sequence. diskStepBytes bounds what is copied between two steps.
const (
	diskQueueBytes = 64 << 20
	diskStepBytes  = 8 << 20
	diskPatience   = 50 * time.Millisecond
)

// openDisk opens the folder of the configuration, or for a GPU's pages without one this machine's
// memory. Nothing keeps the engine from starting without it: what is wrong is a warning.
func openDisk(cfg *Config, p *loaded, hasher cache.Hasher, kick func()) *diskCache {
	if cfg.DiskCache == "" {
		return openSwap(cfg, p, hasher)
	}
	d, err := newDisk(cfg, p, hasher, kick)
	if err != nil {
		cfg.Log.Warn("nothing is kept on disk", "why", err)
		return nil
	}
	s := d.store.Stats()
	cfg.Log.Info("blocks are kept on disk", "dir", cfg.DiskCache, "blocks", s.Blocks, "bytes", s.Bytes)
	return d
}

func newDisk(cfg *Config, p *loaded, hasher cache.Hasher, kick func()) (*diskCache, error) {
	m, second, err := keepable(cfg, p)
	if err != nil {
		return nil, err
	}
	var key []byte
	if cfg.DiskCacheKeyFile != "" {
		text, err := os.ReadFile(cfg.DiskCacheKeyFile)
		if err == nil {
			key, err = hex.DecodeString(strings.TrimSpace(string(text)))
		}
		if err != nil || len(key) != 32 {
			return nil, fmt.Errorf("engine.disk_cache_key_file: %s must hold 64 hexadecimal digits, as openssl rand -hex 32 writes them", cfg.DiskCacheKeyFile)
		}
	}
	store, err := disk.Open(disk.Config{
		Dir: cfg.DiskCache, Space: fmt.Sprintf("%s %d", p.info.Fingerprint, cfg.PageTokens), BlockBytes: p.info.PageBytes,
		BytesMax: cfg.DiskCacheBytesMax, Key: key, QueueBytes: diskQueueBytes, ReadyBytes: diskQueueBytes,
		Failed: func(err error) { cfg.Log.Warn("a block on disk", slog.Any("error", err)) }, Ready: kick,
	})
	if err != nil {
		return nil, err
	}
	return newDiskCache(store, m, hasher, second, cfg, p), nil
}

// keepable gives the model whose blocks can be kept beside its pages, and the second chain of
// hashes.
func keepable(cfg *Config, p *loaded) (*model.Model, cache.Hasher, error) {
	var none cache.Hasher
	m, ok := p.model.(*model.Model)
	switch {
	case p.states > 0:
		return nil, none, fmt.Errorf("the states of recurrent layers cannot be kept")
	case !ok:
		return nil, none, fmt.Errorf("the model has no pages")
	case p.wholeTexts():
		return nil, none, fmt.Errorf("the model computes whole texts")
	}
	second, err := cache.NewHasher("second "+p.info.Fingerprint, cfg.PageTokens)
	return m, second, err
}

func newDiskCache(store blockStore, pages pager, first, second cache.Hasher, cfg *Config, p *loaded) *diskCache {
	return &diskCache{
		store: store, first: first, second: second, pages: pages, blockBytes: p.info.PageBytes, pageTokens: cfg.PageTokens,
		readTime: store.ReadTime, patience: diskPatience, queued: map[disk.ID]bool{}, savesMax: p.pages,
	}
}

// blockTime is how long computing a page of a prompt takes by c, and very long where c is not
// known.
func blockTime(c *cost.Cost, pageTokens int) time.Duration {
	if !c.Known() {
		return math.MaxInt64
	}
	return c.Prefill(pageTokens, 0, pageTokens)
}

// ids names the whole blocks of tokens.
func (d *diskCache) ids(salt string, tokens []int32) []disk.ID {
	first, second := d.first.Blocks(salt, tokens), d.second.Blocks(salt, tokens)
	all := make([]disk.ID, len(first))
	for i := range all {
		all[i] = disk.ID{Hash: first[i], Check: second[i]}
	}
	return all
}

// there is how many blocks after the first cached tokens of a prompt are on disk, where reading
// one takes less time than computing it. It may be called from any goroutine.
func (d *diskCache) there(salt string, tokens []int32, cached int, compute time.Duration) (ids []disk.ID, blocks int) {
	if d == nil || cached%d.pageTokens != 0 || d.readTime() >= compute {
		return nil, 0
	}
	reusable := (len(tokens) - 1) / d.pageTokens // the last token is always computed
	if cached/d.pageTokens >= reusable {
		return nil, 0
	}
	ids = d.ids(salt, tokens[:reusable*d.pageTokens])
	return ids, d.store.Count(ids[cached/d.pageTokens:])
}

// want asks for what a sequence that begins to wait will need.
func (d *diskCache) want(s *sequence, compute time.Duration) {
	if d == nil || s.wantsAll() {
		return
	}
	d.forget(s)
	ids, blocks := d.there(s.gen.salt, s.tokens, s.cachedThen, compute)
	if blocks == 0 {
		return
	}
	from := s.cachedThen / d.pageTokens
	s.onDisk = ids[:from+blocks]
	s.cachedThen += blocks * d.pageTokens
	s.readBy = time.Now().Add(d.patience + 2*time.Duration(blocks)*d.readTime())
	d.store.Fetch(s.onDisk[from:])
}

// forget takes a sequence's wishes back.
func (d *diskCache) forget(s *sequence) {
	if d == nil || s.onDisk == nil {
		return
	}
	d.store.Forget(s.onDisk[min(len(s.onDisk), s.computed()/d.pageTokens):])
	s.onDisk = nil
}

// restore moves a sequence forward over blocks that were read. It reports true where the
// next one is still being read and is worth waiting for. budget is what may be copied.
func (d *diskCache) restore(pool *cache.Pool, s *sequence, budget *int) (wait bool) {
	for s.onDisk != nil {
		at := s.computed()
		if at%d.pageTokens != 0 || at/d.pageTokens >= len(s.onDisk) {
			d.forget(s)
			return false
		}
		if *budget < d.blockBytes {
			return true
		}
		block, coming := d.store.Take(s.onDisk[at/d.pageTokens])
		if block == nil {
			if coming && time.Now().Before(s.readBy) {
				return true
			}
			d.forget(s)
			return false
		}
		copies, ok := pool.Reserve(s.kv, d.pageTokens, nil)
		if !ok || len(copies) > 0 { // no page is free, or the sequence was forked
			d.forget(s)
			return false
		}
		d.pages.LoadPage(s.kv.Pages()[at/d.pageTokens], block)
		pool.Commit(s.kv, s.tokens[at:at+d.pageTokens])
		*budget -= d.blockBytes
	}
	return false
}

// note remembers the whole blocks of a sequence that is about to give its pages back.
func (d *diskCache) note(s *sequence) {
	if d == nil || s.kv == nil || s.wantsAll() {
		return
	}
	whole := s.computed() / d.pageTokens
	for i, id := range d.ids(s.gen.salt, s.tokens[:whole*d.pageTokens]) {
		if len(d.saves) < d.savesMax && !d.queued[id] && !d.store.Has(id) {
			d.queued[id] = true
			d.saves = append(d.saves, blockSave{id, s.kv.Pages()[i]})
		}
	}
}

// save copies blocks to the writer, at most diskStepBytes of them. It reports whether it
// could copy more at once.
func (d *diskCache) save(pool *cache.Pool) (more bool) {
	if d == nil || len(d.saves) == 0 {
		return false
	}
	n := min(len(d.saves), d.store.Room(), max(1, diskStepBytes/d.blockBytes))
	for _, b := range d.saves[:n] {
		delete(d.queued, b.id)
		if pool.Holds(b.page, b.id.Hash) {
			d.store.Put(b.id, func(block []byte) { d.pages.SavePage(block, b.page) })
		}
	}
	d.saves = append(d.saves[:0], d.saves[n:]...)
	return n > 0 && len(d.saves) > 0
}

// diskEndLimit is how long an engine that ends goes on writing.
const diskEndLimit = 3 * time.Second

// close writes what it can, and closes the store.
func (d *diskCache) close(pool *cache.Pool) {
	if d == nil {
		return
	}
	for deadline := time.Now().Add(diskEndLimit); len(d.saves) > 0 && time.Now().Before(deadline); {
		if !d.save(pool) {
			time.Sleep(time.Millisecond)
		}
	}
	_ = d.store.Close() // blocks that were not written are computed again
}

// abandon closes the store without the blocks that wait to be saved: their pages are lost.
func (d *diskCache) abandon() {
	if d != nil {
		_ = d.store.Close()
	}
}

// count writes the store's counters into a State.
func (d *diskCache) count(to *wire.State) {
	if d == nil {
		return
	}
	s := d.store.Stats()
	to.Disk = wire.DiskState{Blocks: uint64(s.Blocks), Bytes: uint64(s.Bytes), Read: s.Read, Written: s.Written, Dropped: s.Dropped, Corrupted: s.Corrupted}
}
