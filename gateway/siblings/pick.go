package siblings

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/cache/shared"
)

// This file chooses a replica for a proxy, which brings the request there itself. The
// rule is that of Choose; but this replica is one of many, since for the proxy all are
// as far away.

// Endpoint is a replica that a proxy may bring a request to.
type Endpoint struct {
	Candidate
	Address string // of its API
}

// endpointsMax is how many replicas a proxy is told: the one that was chosen, and those
// to try when it cannot be reached.
const endpointsMax = 3

// Pick chooses a replica among the members, and books the request there. Those that
// follow are for the case that it cannot be reached. Where the query names no class, or
// one that a replica does not have, the first one of that replica counts. Nil says that
// no member takes requests.
func (g *Group) Pick(q *Query, member func(address string, labels map[string]string) bool) []Endpoint {
	own, now := g.local.Outlook(), time.Now()
	holders := g.fleet.Match(q.Blocks, []shared.Holder{{Name: g.cfg.Name, Blocks: g.fleet.Held(q.Blocks)}})
	g.mu.Lock()
	defer g.mu.Unlock()
	peers := g.members(&own, now, member)
	all := picks(q, peers, holders, now, &g.cfg)
	choice := Choose(Candidate{}, false, all, g.typical.value(), &g.cfg, rand.IntN)
	if choice.To == nil {
		return nil
	}
	g.typical.observe(choice.To.Work)
	slices.SortStableFunc(all, func(a, b Candidate) int { return int(a.FirstToken - b.FirstToken) })
	all = slices.DeleteFunc(all, func(c Candidate) bool { return c.Name == choice.To.Name })
	list := make([]Endpoint, 0, endpointsMax)
	for _, c := range append([]Candidate{*choice.To}, all[:min(len(all), endpointsMax-1)]...) {
		p := peers[slices.IndexFunc(peers, func(p *peer) bool { return p.name == c.Name })]
		list = append(list, Endpoint{c, p.report.API})
		if len(list) == 1 {
			p.sent = append(p.sent, sent{now, c.Work})
			g.counts.Picked++
		}
	}
	return list
}

// Able reports whether a member takes requests.
func (g *Group) Able(member func(address string, labels map[string]string) bool) bool {
	own := g.local.Outlook()
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members(&own, time.Now(), member)) > 0
}

// members are the replicas that take requests, with this one, and that proxies can
// reach. g.mu is held.
func (g *Group) members(own *admission.Outlook, now time.Time, member func(address string, labels map[string]string) bool) []*peer {
	g.self.name, g.self.report = g.cfg.Name, &Report{API: g.api, Labels: g.labels, Outlook: *own, Proven: g.pace.proven(now)}
	peers := g.able(now)
	if s := g.state.Load(); s != nil && s.Err == nil && !s.Model.Relays && !g.leaving.Load() {
		peers = append(peers, &g.self)
	}
	return slices.DeleteFunc(peers, func(p *peer) bool { return p.report.API == "" || !member(p.report.API, p.report.Labels) })
}

// picks are predictions for peers, which may hold nothing of the prompt and know no
// prices yet: one that has computed nothing learns by computing.
func picks(q *Query, peers []*peer, holders []shared.Holder, now time.Time, cfg *Config) (all []Candidate) {
	prices := make([]*admission.Outlook, 0, len(peers))
	for _, p := range peers {
		prices = append(prices, &p.report.Outlook)
	}
	for _, p := range peers {
		one := *q
		if classes := p.report.Outlook.Classes; len(classes) > 0 && !slices.ContainsFunc(classes, func(c admission.ClassOutlook) bool { return c.Name == q.Class }) {
			one.Class = classes[0].Name
		}
		if p.report.Outlook.Cost.Known() {
			all = append(all, candidates(&one, []*peer{p}, prices, holders, now, cfg)...)
			continue
		}
		work := leastWork(prices, &one)
		all = append(all, Candidate{Name: p.name, FirstToken: p.ahead(now.Add(-unknownFor)) + work, Work: work})
	}
	return all
}

// unknownFor is for how long a request that was sent to a replica without prices counts
// as its backlog.
const unknownFor = 5 * time.Second

// leastWork is a whole prompt's work by the lowest of all prices, 0 where nobody knows any.
func leastWork(prices []*admission.Outlook, q *Query) (least time.Duration) {
	for _, o := range prices {
		if work := o.Work(q.Class, q.PromptTokens, 0); o.Cost.Known() && (least == 0 || work < least) {
			least = work
		}
	}
	return least
}

// apiOf is the address of this replica's API for proxies, "" where there is none that
// they could reach.
func apiOf(cfg *Config, hops string) string {
	if cfg.AdvertiseAPI != "" || cfg.API == nil {
		return cfg.AdvertiseAPI
	}
	host, port, err := net.SplitHostPort(cfg.API.String())
	if err != nil {
		return ""
	}
	there, _, err := net.SplitHostPort(hops)
	if err != nil {
		return ""
	}
	switch ip, other := net.ParseIP(host), net.ParseIP(there); {
	case (ip == nil || ip.IsUnspecified()) && other != nil && other.IsUnspecified():
		return "" // with Config.Peers no address of ours is known
	case ip == nil || ip.IsUnspecified():
		host = there
	case ip.IsLoopback() && (other == nil || !other.IsLoopback()):
		return "" // siblings are elsewhere, and so may proxies be
	}
	return net.JoinHostPort(host, port)
}

// readLabels reads KEY=VALUE,KEY=VALUE.
func readLabels(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("siblings.labels: %q is not KEY=VALUE", pair)
		}
		labels[key] = value
	}
	return labels, nil
}
