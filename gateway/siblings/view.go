package siblings

import (
	"slices"
	"strings"
	"time"

	"github.com/forebay-io/forebay/cache/shared"
	"github.com/forebay-io/forebay/gateway/telemetry"
)

// View is a picture of the siblings, for people to look at.
type View struct {
	Name     string        `json:"name"`
	Address  string        `json:"address"`
	Direct   bool          `json:"direct"`     // siblings are asked at siblings.peers, without Redis
	StoreUp  bool          `json:"store_up"`   // Redis answers, or a sibling, or there is none
	Blocks   int           `json:"blocks"`     // of siblings that are remembered
	Own      int           `json:"own_blocks"` // ours, of which they are told
	Siblings []SiblingView `json:"siblings"`
	Placed   []PlacedView  `json:"placed"`
	Hops     uint64        `json:"hops"`
	Refused  uint64        `json:"hops_refused"`
	Failed   uint64        `json:"hops_failed"`
	Taken    uint64        `json:"hops_taken"`
	Counts   shared.Counts `json:"store"`
}

// PlacedView counts requests by why they were served where they were.
type PlacedView struct {
	Why   string `json:"why"`
	Count uint64 `json:"count"`
}

// SiblingView is one sibling.
type SiblingView struct {
	Name      string  `json:"name"`
	Address   string  `json:"address"`
	Version   string  `json:"version"`
	Model     string  `json:"model"`
	Ready     bool    `json:"ready"`
	AgeMS     float64 `json:"age_ms"` // of its report
	WaitMS    float64 `json:"wait_ms"`
	Running   int     `json:"running"`
	Waiting   int     `json:"waiting"`
	PagesFree int     `json:"pages_free"`
	Pages     int     `json:"pages"`
	Blocks    int     `json:"blocks"` // of it that are remembered here
	Synced    bool    `json:"synced"` // they are all that it told
	Here      int     `json:"running_for_us"`
	Hops      uint64  `json:"hops"`
	Failed    uint64  `json:"hops_failed"`
	Avoided   bool    `json:"avoided"` // for some time, after a hop to it failed
}

// View is a picture of this moment. The wait is that of the first class.
func (g *Group) View() View {
	counts, up := g.fleet.Counts()
	v := View{Name: g.cfg.Name, Address: g.address, Direct: g.direct, StoreUp: up, Blocks: counts.Blocks, Own: g.fleet.Own(), Siblings: []SiblingView{}, Counts: counts}
	now := time.Now()
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.fleet.Siblings(nil) {
		p := g.peer(&s)
		if p.report == nil {
			continue
		}
		r := p.report
		one := SiblingView{
			Name: s.Name, Address: r.Address, Version: r.Version, Model: r.Model, Ready: r.Ready, AgeMS: ms(s.Age), Running: r.Running, Waiting: r.Waiting,
			PagesFree: r.PagesFree, Pages: r.PagesTotal, Blocks: s.Blocks, Synced: s.Synced, Here: p.running, Hops: p.hops, Failed: p.failed, Avoided: now.Before(p.avoid),
		}
		if len(r.Outlook.Classes) > 0 {
			one.WaitMS = ms(r.Outlook.Classes[0].Short)
		}
		v.Siblings = append(v.Siblings, one)
	}
	slices.SortFunc(v.Siblings, func(a, b SiblingView) int { return strings.Compare(a.Name, b.Name) })
	for why, n := range g.counts.Placed {
		v.Placed = append(v.Placed, PlacedView{Why(why).String(), n})
	}
	v.Hops, v.Refused, v.Failed, v.Taken = g.counts.Hops, g.counts.Refused, g.counts.Failed, g.counts.Taken
	return v
}

// Metrics are the counts of this moment.
func (g *Group) Metrics() telemetry.SiblingCounts {
	v := g.View()
	g.mu.Lock()
	defer g.mu.Unlock()
	c := telemetry.SiblingCounts{
		Up: v.StoreUp, Siblings: len(v.Siblings), Blocks: v.Blocks, Own: v.Own, Evicted: v.Counts.Evicted, Sent: v.Counts.Sent, Dropped: v.Counts.Dropped,
		Received: v.Counts.Received, Resyncs: v.Counts.Resyncs, Trips: v.Counts.Trips, Failed: v.Counts.Failed, BytesIn: v.Counts.BytesIn, BytesOut: v.Counts.BytesOut,
		Taken: v.Taken, TokensHeld: g.counts.CachedThere, TokensComputed: g.counts.Elsewhere - g.counts.CachedThere,
	}
	for _, p := range v.Placed {
		c.Placed = append(c.Placed, telemetry.ReasonCount{Reason: p.Why, Count: p.Count})
	}
	c.Hops = []telemetry.ReasonCount{{Reason: "ok", Count: g.counts.Answered}, {Reason: "refused", Count: v.Refused}, {Reason: "failed", Count: v.Failed}}
	return c
}
