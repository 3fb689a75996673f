package debug

import (
	"cmp"
	"slices"

	"github.com/forebay-io/forebay/gateway/siblings"
)

// CachePage has what the cache holds and saves, and what siblings do for each other,
// as GET /debug/cache?format=json gives it.
type CachePage struct {
	Pages       int `json:"pages"`
	PagesUsed   int `json:"pages_used"`
	PagesCached int `json:"pages_cached"`
	PagesFree   int `json:"pages_free"`
	PageTokens  int `json:"page_tokens"`
	// Hits are those of the requests that are still in memory, those with the most
	// prompt tokens first.
	Hits []CacheHits `json:"hits"`
	// View is that of the siblings, nil without.
	*siblings.View
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
)

func (p *Pages) cachePage() *CachePage {
	s := p.Engine.State()
	c := &CachePage{Pages: s.PagesTotal, PagesUsed: s.PagesUsed, PagesCached: s.PagesCached, PagesFree: s.PagesFree, PageTokens: s.Model.PageTokens, Hits: []CacheHits{}}
	at := map[[2]string]int{}
	for _, r := range p.Records(recordsRead) {
		if r.Dispatched == 0 {
			continue
		}
		key := [2]string{r.Tenant, r.Class}
		i, ok := at[key]
		if !ok {
			i, at[key] = len(c.Hits), len(c.Hits)
			c.Hits = append(c.Hits, CacheHits{Tenant: r.Tenant, Class: r.Class})
		}
		h := &c.Hits[i]
		h.Requests++
		h.PromptTokens += r.CachedTokens + r.ComputedTokens
		h.CachedTokens += r.CachedTokens
	}
	slices.SortFunc(c.Hits, func(a, b CacheHits) int {
		return cmp.Or(b.PromptTokens-a.PromptTokens, cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Class, b.Class))
	})
	c.Hits = c.Hits[:min(len(c.Hits), hitsMax)]
	if p.Siblings != nil {
		v := p.Siblings.View()
		c.View = &v
	}
	return c
}
