package debug

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/internal/wire"
)

// CachePage has what the cache holds and saves, and what siblings do for each other,
// as GET /debug/cache?format=json gives it.
type CachePage struct {
	Pages       int `json:"pages"`
	PagesUsed   int `json:"pages_used"`
	PagesCached int `json:"pages_cached"`
	PagesFree   int `json:"pages_free"`
	PagesPinned int `json:"pages_pinned"` // of those used
	PageTokens  int `json:"page_tokens"`
	PageBytes   int `json:"page_bytes"`
	// Disk is the tier below the pages; nil where nothing is kept there.
	Disk *wire.DiskState `json:"disk,omitempty"`
	// Held says what the pages hold; its lists are empty where the engine does not tell.
	// Pinned prompts that gave way to one that needed all pages are in PinsYielded.
	Held        CacheHeld `json:"held"`
	PinsYielded uint64    `json:"pins_yielded"`
	// Hits are those of the requests that are still in memory, those with the most
	// prompt tokens first.
	Hits []CacheHits `json:"hits"`
	// View is that of the siblings, nil without.
	*siblings.View
}

// CacheHeld says what the pages hold, by hashes and lengths alone.
type CacheHeld struct {
	// Error says why the lists are empty, where the engine did not tell.
	Error    string       `json:"error,omitempty"`
	Tenants  []HeldTenant `json:"tenants"`
	Prefixes []HeldPrefix `json:"prefixes"`
	Pins     []HeldPin    `json:"pins"`
}

// HeldTenant counts the pages of a tenant, or of a group of tenants, "group:NAME".
type HeldTenant struct {
	Tenant string `json:"tenant"`
	Used   int    `json:"used"`
	Pinned int    `json:"pinned"` // of those used
	Cached int    `json:"cached"`
}

// HeldPrefix is a beginning of prompts that others went on from.
type HeldPrefix struct {
	Tenant string `json:"tenant"`
	Hash   string `json:"hash"`
	Tokens int    `json:"tokens"`
	Uses   int    `json:"uses"`
	Pinned bool   `json:"pinned,omitempty"`
}

// HeldPin is a prompt that stays in memory.
type HeldPin struct {
	Tenant string `json:"tenant"`
	Hash   string `json:"hash"`
	Tokens int    `json:"tokens"`
	LeftMS int64  `json:"left_ms"`
}

// CacheHits are the hits of a tenant's requests in a class.
type CacheHits struct {
	Tenant       string `json:"tenant"`
	Class        string `json:"class"`
	Requests     int    `json:"requests"`
	PromptTokens int    `json:"prompt_tokens"`
	CachedTokens int    `json:"cached_tokens"`
}

// Rate is the part of the prompt tokens that were not computed.
func (h *CacheHits) Rate() float64 { return float64(h.CachedTokens) / float64(max(1, h.PromptTokens)) }

const (
	// recordsRead is over how many of the last requests hits are counted.
	recordsRead = 10000
	// hitsMax bounds the rows of hits.
	hitsMax = 200
	// heldMax bounds the rows of prefixes and of tenants, and heldLimit the wait for them.
	heldMax   = 20
	heldLimit = time.Second
)

func (p *Pages) cachePage() *CachePage {
	s := p.Engine.State()
	c := &CachePage{
		Pages: s.PagesTotal, PagesUsed: s.PagesUsed, PagesCached: s.PagesCached, PagesFree: s.PagesFree, PagesPinned: s.PagesPinned,
		PageTokens: s.Model.PageTokens, PageBytes: s.Model.PageBytes, PinsYielded: s.PinsYielded, Held: p.held(),
	}
	if s.Disk != (wire.DiskState{}) {
		c.Disk = &s.Disk
	}
	c.Hits = p.hits()
	if p.Siblings != nil {
		v := p.Siblings.View()
		c.View = &v
	}
	return c
}

// held asks the engine what its pages hold.
func (p *Pages) held() CacheHeld {
	held := CacheHeld{Tenants: []HeldTenant{}, Prefixes: []HeldPrefix{}, Pins: []HeldPin{}}
	engine, ok := p.Engine.(wire.HoldingsTeller)
	if !ok {
		return held
	}
	ctx, cancel := context.WithTimeout(context.Background(), heldLimit)
	defer cancel()
	got, err := engine.Holdings(ctx, heldMax)
	if err != nil {
		if held.Error = err.Error(); ctx.Err() != nil {
			held.Error = fmt.Sprintf("it was busy for more than %v; ask again", heldLimit)
		}
		return held
	}
	for _, s := range got.Salts {
		held.Tenants = append(held.Tenants, HeldTenant{Tenant: s.Salt, Used: s.Used, Pinned: s.Pinned, Cached: s.Cached})
	}
	for _, f := range got.Prefixes {
		held.Prefixes = append(held.Prefixes, HeldPrefix{Tenant: f.Salt, Hash: hashText(f.Hash), Tokens: f.Tokens, Uses: f.Uses, Pinned: f.Pinned})
	}
	for _, pin := range got.Pins {
		held.Pins = append(held.Pins, HeldPin{Tenant: pin.Salt, Hash: hashText(pin.Hash), Tokens: pin.Tokens, LeftMS: pin.Left.Milliseconds()})
	}
	return held
}

func hashText(hash uint64) string { return fmt.Sprintf("%016x", hash) }

// hits are those of the requests that are still in memory.
func (p *Pages) hits() []CacheHits {
	list := []CacheHits{}
	at := map[[2]string]int{}
	for _, r := range p.Records(recordsRead) {
		if r.Dispatched == 0 {
			continue
		}
		key := [2]string{r.Tenant, r.Class}
		i, ok := at[key]
		if !ok {
			i, at[key] = len(list), len(list)
			list = append(list, CacheHits{Tenant: r.Tenant, Class: r.Class})
		}
		h := &list[i]
		h.Requests++
		h.PromptTokens += r.CachedTokens + r.ComputedTokens
		h.CachedTokens += r.CachedTokens
	}
	slices.SortFunc(list, func(a, b CacheHits) int {
		return cmp.Or(b.PromptTokens-a.PromptTokens, cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Class, b.Class))
	})
	return list[:min(len(list), hitsMax)]
}
