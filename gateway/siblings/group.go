package siblings

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/cache/shared"
	"github.com/forebay-io/forebay/internal/wire"
)

// Report is what a replica tells of itself in each interval.
type Report struct {
	Address string `json:"address"`
	// API is where proxies reach the replica, and Labels are what it is chosen by.
	API        string            `json:"api,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Version    string            `json:"version"`
	Format     string            `json:"format"`
	Model      string            `json:"model"`
	Ready      bool              `json:"ready"`
	PagesFree  int               `json:"pages_free"` // cached ones too
	PagesTotal int               `json:"pages_total"`
	Running    int               `json:"running"`
	Waiting    int               `json:"waiting"`
	// Proven says that the prices in Outlook rest on work of the last seconds.
	Proven  bool              `json:"proven"`
	Outlook admission.Outlook `json:"outlook"`
}

// Local is this replica, as the Group sees it. Its methods do not wait.
type Local interface {
	Outlook() admission.Outlook
	Load() admission.Load
}

// Group is this replica and its siblings.
type Group struct {
	cfg     Config
	local   Local
	address string
	api     string
	labels  map[string]string
	version string
	fleet   *shared.Fleet
	client  *http.Client // of hops
	news    *http.Client // of questions to peers
	direct  bool         // siblings are found by Config.Peers
	scheme  string
	files   *files // nil without TLS
	state   atomic.Pointer[wire.State]
	typical typical
	pace    pace // owned by the caller of Heard, but for its atomic
	leaving atomic.Bool

	blocks hitmap.Reader // of our own journal; owned by the caller of Heard
	quit   context.Context
	stop   context.CancelFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex // guards all below
	peers   map[string]*peer
	self    peer // of requests that proxies were told to bring here
	counts  Counts
	stopped bool
}

// peer is what is known of a sibling besides its blocks.
type peer struct {
	name    string
	seen    time.Time     // when it was last alive
	age     time.Duration // of the report, at the last look
	text    string        // of the report
	report  *Report
	sent    []sent
	running int
	avoid   time.Time // until when it gets no requests
	hops    uint64
	failed  uint64
}

// sent is engine time that a sibling was given and may not have reported yet.
type sent struct {
	at   time.Time
	work time.Duration
}

// Counts count since the start.
type Counts struct {
	Placed                 [WhyCount]uint64
	Hops                   uint64 // hops out
	Answered               uint64 // of these, those that have ended well or were canceled
	Refused, Failed        uint64 // those that a sibling refused, and that failed
	Taken                  uint64 // hops in
	CachedThere, Elsewhere uint64 // prompt tokens that siblings held, and that were sent to them
	Picked                 uint64 // requests for which proxies were told a replica
}

// Name is this replica's name.
func (g *Group) Name() string { return g.cfg.Name }

// Heard takes the engine's states, in order and from one goroutine.
func (g *Group) Heard(s *wire.State) {
	g.state.Store(s)
	if s.Err != nil || s.Model.Relays {
		g.blocks = hitmap.Reader{}
		g.fleet.Follow(hitmap.News{Missed: true})
		return
	}
	space := sha256.Sum256([]byte(s.Model.Fingerprint + "\x00" + strconv.Itoa(s.Model.PageTokens) + "\x00" + strconv.Itoa(g.cfg.GrainTokens)))
	g.fleet.Join(hex.EncodeToString(space[:8]), g.cfg.GrainTokens/max(1, s.Model.PageTokens))
	g.fleet.Follow(g.blocks.Read(&s.Blocks))
	g.pace.heard(s.PrefillTokens, time.Now())
}

// pace tells whether an engine's prices are proven. One that has computed little, or
// nothing lately, may believe that it is slow: with no work it would never find out.
type pace struct {
	tokens uint64       // computed by the engine
	since  uint64       // tokens when the last proof came
	last   atomic.Int64 // when provenTokens were last computed, in Unix nanoseconds
}

const (
	// provenTokens is how many prompt tokens prove a price, and provenFor for how long.
	provenTokens = 2048
	provenFor    = 10 * time.Second
)

func (p *pace) heard(tokens uint64, now time.Time) {
	if tokens < p.tokens { // another engine
		p.since = 0
		p.last.Store(0)
	}
	if p.tokens = tokens; tokens-p.since >= provenTokens {
		p.since = tokens
		p.last.Store(now.UnixNano())
	}
}

func (p *pace) proven(now time.Time) bool {
	return now.UnixNano()-p.last.Load() < int64(provenFor)
}

// Leave makes siblings send nothing more; what runs goes on.
func (g *Group) Leave() { g.leaving.Store(true) }

// report tells the siblings of this replica until Close.
func (g *Group) report() {
	tick := time.NewTicker(max(time.Millisecond, g.cfg.Interval/2))
	defer tick.Stop()
	for {
		g.fleet.Report(g.own())
		select {
		case <-g.quit.Done():
			return
		case <-tick.C:
		}
	}
}

// own is our own report.
func (g *Group) own() string {
	r := Report{Address: g.address, API: g.api, Labels: g.labels, Version: g.version, Format: Format}
	if s := g.state.Load(); s != nil {
		load := g.local.Load()
		r.Model, r.Ready = s.Model.ID, s.Err == nil && !s.Model.Relays && !g.leaving.Load()
		r.PagesFree, r.PagesTotal, r.Running, r.Waiting = s.PagesFree+s.PagesCached, s.PagesTotal, load.Running, load.Waiting
		r.Outlook, r.Proven = g.local.Outlook(), g.pace.proven(time.Now())
	}
	text, err := json.Marshal(&r)
	if err != nil {
		panic("siblings: a report does not marshal: " + err.Error())
	}
	return string(text)
}

// Query is a request that could go to a sibling.
type Query struct {
	Class        string
	Blocks       []uint64
	PageTokens   int
	PromptTokens int
	Uncached     int // here
}

// Choose decides where a request goes.
func (g *Group) Choose(q *Query) Choice {
	own := g.local.Outlook()
	now := time.Now()
	g.mu.Lock()
	peers := g.able(now)
	prices := make([]*admission.Outlook, 0, 1+len(peers))
	prices = append(prices, &own)
	for _, p := range peers {
		prices = append(prices, &p.report.Outlook)
	}
	all := candidates(q, peers, prices, g.fleet.Match(q.Blocks, nil), now, &g.cfg)
	g.mu.Unlock()
	work := workOf(&own, g.pace.proven(now), prices, q, q.PromptTokens-q.Uncached)
	wait, possible := own.Wait(q.Class, work)
	here := Candidate{Name: g.cfg.Name, FirstToken: wait + work, Work: work, Cached: q.PromptTokens - q.Uncached}
	if s := g.state.Load(); s == nil || s.Err != nil {
		possible = false
	} else if !own.Cost.Known() {
		possible, here = true, Candidate{} // it has computed nothing yet: it learns by computing
	}
	choice := Choose(here, possible, all, g.typical.value(), &g.cfg, rand.IntN)
	if choice.To != nil {
		work = choice.To.Work
	}
	g.typical.observe(work)
	g.count(func(c *Counts) { c.Placed[choice.Why]++ })
	return choice
}

// typical is the mean work of recent requests.
type typical struct{ mean atomic.Int64 } // nanoseconds

// typicalMemory is over about how many requests the mean is taken.
const typicalMemory = 64

func (t *typical) observe(work time.Duration) {
	mean := t.mean.Load()
	if mean == 0 {
		mean = int64(work)
	}
	t.mean.Store(mean + (int64(work)-mean)/typicalMemory) // one that is lost to another goroutine changes little
}

func (t *typical) value() time.Duration { return time.Duration(t.mean.Load()) }

// workOf is the time of a prompt's prefill by o's prices. Where these are not proven it
// is the least by any prices, so that a replica gets the work that proves its own.
func workOf(o *admission.Outlook, proven bool, prices []*admission.Outlook, q *Query, cached int) time.Duration {
	work := o.Work(q.Class, q.PromptTokens-cached, cached)
	for _, other := range prices {
		if !proven && other.Cost.Known() {
			work = min(work, other.Work(q.Class, q.PromptTokens-cached, cached))
		}
	}
	return work
}

// able are the siblings that take requests. g.mu is held.
func (g *Group) able(now time.Time) (all []*peer) {
	for _, s := range g.fleet.Siblings(nil) {
		p := g.peer(&s)
		p.name, p.age = s.Name, s.Age
		p.seen = now
		if p.report != nil && p.report.Ready && p.report.Format == Format && !now.Before(p.avoid) && p.running < g.cfg.HopsMax {
			all = append(all, p)
		}
	}
	if len(g.peers) > peersMost {
		maps.DeleteFunc(g.peers, func(_ string, p *peer) bool { return p.running == 0 && now.Sub(p.seen) > peerKept })
	}
	return all
}

// Of more than peersMost siblings, those that were away for peerKept are forgotten.
const (
	peersMost = hitmap.ReplicasMax
	peerKept  = time.Minute
)

// candidates are predictions for the peers.
func candidates(q *Query, peers []*peer, prices []*admission.Outlook, holders []shared.Holder, now time.Time, cfg *Config) (all []Candidate) {
	for _, p := range peers {
		cached := 0
		for _, h := range holders {
			if h.Name == p.name {
				cached = min(h.Blocks*q.PageTokens, q.PromptTokens-1) // the last token is always computed
			}
		}
		o := &p.report.Outlook
		work := workOf(o, p.report.Proven, prices, q, cached)
		wait, ok := o.Wait(q.Class, work)
		if !ok {
			continue
		}
		// What waited when the report was made has become less since, and what was sent
		// there since is not in it.
		wait = max(0, wait-p.age) + p.ahead(now.Add(-p.age-2*cfg.Interval))
		all = append(all, Candidate{Name: p.name, FirstToken: wait + work + cfg.HopCost, Age: p.age, Cached: cached, Work: work})
	}
	return all
}

// peer is what is known of a sibling, with its report read. g.mu is held.
func (g *Group) peer(s *shared.Sibling) *peer {
	p := g.peers[s.Name]
	if p == nil {
		p = &peer{}
		g.peers[s.Name] = p
	}
	if s.Report != p.text {
		p.text, p.report = s.Report, &Report{}
		if err := json.Unmarshal([]byte(s.Report), p.report); err != nil {
			p.report = nil
		}
	}
	if p.report != nil && s.Address != "" { // where it was found
		p.report.Address = s.Address
	}
	return p
}

// ahead is the engine time that p was given after from, and forgets the rest.
func (p *peer) ahead(from time.Time) (sum time.Duration) {
	kept := p.sent[:0]
	for _, s := range p.sent {
		if s.at.After(from) {
			kept, sum = append(kept, s), sum+s.work
		}
	}
	p.sent = kept
	return sum
}

// begin books a hop to a sibling. g.mu is held.
func (p *peer) begin(now time.Time, work time.Duration) {
	p.running++
	p.hops++
	p.sent = append(p.sent, sent{now, work})
}

// count changes the counts.
func (g *Group) count(f func(*Counts)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.counts)
}

// Fallback counts a request that stays here after a hop failed.
func (g *Group) Fallback() { g.count(func(c *Counts) { c.Placed[WhyFailed]++ }) }

// Kept counts a request of a kind that makes no hop.
func (g *Group) Kept() { g.count(func(c *Counts) { c.Placed[WhyKind]++ }) }

// Open checks what came at path from a sibling.
func (g *Group) Open(path, signature, format string, body []byte) (*Parcel, error) {
	if err := g.checkFormat(format); err != nil {
		return nil, err
	}
	if err := verify(g.fleet.Secret(), signature, path, g.cfg.Name, body, time.Now()); err != nil {
		return nil, err
	}
	return ReadParcel(body)
}

func (g *Group) checkFormat(format string) error {
	if format != Format {
		return fmt.Errorf("the hop has format %q and this replica has %q: another version of forebay sent it", format, Format)
	}
	return nil
}

// Taken counts a hop that came in.
func (g *Group) Taken() { g.count(func(c *Counts) { c.Taken++ }) }

// Use notes that a prompt was asked.
func (g *Group) Use(blocks []uint64) { g.fleet.Use(blocks) }

// Close ends the hops that run, and leaves.
func (g *Group) Close() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.stop()
	g.tasks.Wait()
	g.fleet.Close()
	g.client.CloseIdleConnections()
	g.news.CloseIdleConnections()
}
