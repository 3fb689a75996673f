package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
)

// testCost is an engine of 1 ms a prompt token, 10 ms a step.
var testCost = cost.Cost{Base: 10e6, PrefillToken: 1e6, DecodeRow: 1e6, DecodeContext: 100}

// check holds the invariants of Scheduler against what all entries say.
func (s *Scheduler) check(t *testing.T, entries []*Entry) {
	t.Helper()
	type sum struct{ waiting, long, running, bytes, sequences, kv int }
	classes := map[*class]*sum{}
	for _, k := range s.classes {
		classes[k] = &sum{}
	}
	var seqs, kv, rows, context, answered, count, tokens int
	var outstanding, longs [levelCount]int
	tracked := 0
	for _, e := range entries {
		c := classes[e.class]
		switch e.state {
		case waiting:
			c.waiting++
			c.long += e.lane()
			c.bytes += e.demand.Bytes
			count++
			tokens += e.uncached()
			if !slices.Contains(e.line.lanes[e.lane()].entries, e) || s.expiry.entries[e.inExpiry] != e {
				t.Fatalf("%s waits and is not where it belongs", e.demand.ID)
			}
			if e.onTrack != (e.due > 0) {
				t.Fatalf("%s has due %v and onTrack %v", e.demand.ID, e.due, e.onTrack)
			}
			if e.onTrack {
				tracked++
			}
		case running:
			c.running++
			c.sequences += e.demand.Sequences
			c.kv += e.kv
			seqs += e.demand.Sequences
			kv += e.kv
			if s.running[e.inRunning] != e {
				t.Fatalf("%s runs and is not in running", e.demand.ID)
			}
			switch {
			case e.firstToken > 0:
				rows += e.demand.Sequences
				context += e.demand.PromptTokens + e.tokens
				answered += e.tokens
			case e.long:
				longs[e.level]++
			default:
				outstanding[e.level] += e.uncached()
			}
		default:
			if e.inLane != out || e.inExpiry != out || e.inRunning != out || e.onTrack {
				t.Fatalf("%s is settled and still somewhere", e.demand.ID)
			}
		}
	}
	for k, c := range classes {
		if got := (sum{k.waiting, k.inLane[laneLong], k.running, k.bytes, k.sequences, k.kv}); got != *c {
			t.Fatalf("class %s says %+v, its entries %+v", k.Name, got, *c)
		}
		if k.inLane[laneShort]+k.inLane[laneLong] != k.waiting {
			t.Fatalf("class %s has %v in its lanes and %d waiting", k.Name, k.inLane, k.waiting)
		}
		for i, l := range k.lines {
			if l.listed != i || l.waiting() == 0 {
				t.Fatalf("class %s lists tenant %s wrongly", k.Name, l.tenant.name)
			}
			var short sums
			for _, e := range l.lanes[laneShort].entries {
				short.add(e, 1)
			}
			if l.short != short {
				t.Fatalf("tenant %s has %+v in the short lane, its entries %+v", l.tenant.name, l.short, short)
			}
			if l.deficit > 2*s.quantum(l.tenant) {
				t.Fatalf("tenant %s has a deficit of %v", l.tenant.name, l.deficit)
			}
		}
	}
	v := &s.engine
	if v.sequences != seqs || v.kv != kv || v.rows != rows || v.rowsContext != context || v.rowsTokens != answered || s.count != count || s.tokens != tokens {
		t.Fatalf("the ledger says %d sequences, %d kv, %d rows, %d context, %d of it answered, %d waiting, %d tokens; the entries %d %d %d %d %d %d %d",
			v.sequences, v.kv, v.rows, v.rowsContext, v.rowsTokens, s.count, s.tokens, seqs, kv, rows, context, answered, count, tokens)
	}
	for l := range v.flights {
		f := &v.flights[l]
		short := 0
		for _, e := range f.prefills[laneShort] {
			short += e.uncached()
			if e.left < 1 || e.left > e.demand.PromptTokens {
				t.Fatalf("level %d: %d tokens are left of a prompt of %d", l, e.left, e.demand.PromptTokens)
			}
		}
		if short != outstanding[l] || len(f.prefills[laneLong]) != longs[l] {
			t.Fatalf("level %d: %d tokens under way and %d long, the entries say %d and %d", l, short, len(f.prefills[laneLong]), outstanding[l], longs[l])
		}
	}
	for l := range s.levels {
		tracked -= s.levels[l].track.check(t)
	}
	if tracked != 0 {
		t.Fatalf("the tracks hold %d requests too few", tracked)
	}
	if seqs > s.cfg.RunningSequencesMax || count > s.cfg.WaitingRequestsMax {
		t.Fatalf("over the limits: %d sequences, %d waiting", seqs, count)
	}
}

// check holds the invariants of track and returns how many it holds.
func (t *track) check(tt *testing.T) (n int) {
	tt.Helper()
	var last *Entry
	for _, b := range t.blocks {
		want := block{entries: b.entries}
		want.recount()
		if want.sums != b.sums || want.earliest != b.earliest || want.prefillMax != b.prefillMax {
			tt.Fatalf("a block says %+v and holds %+v", b.sums, want.sums)
		}
		if len(b.entries) == 0 || len(b.entries) >= blockMax {
			tt.Fatalf("a block has %d entries", len(b.entries))
		}
		for _, e := range b.entries {
			if last != nil && !before(last, e) {
				tt.Fatal("a track is out of order")
			}
			last = e
			n++
		}
	}
	return n
}

// play drives a scheduler with random arrivals, steps, tokens, cancels and
// changes of the cache.
type play struct {
	*Scheduler
	t       *testing.T
	rnd     *rand.Rand
	now     time.Duration
	entries []*Entry
	started int
	refused map[Reason]int
	ids     int
	look    func() // called before every decision, where set
}

func newPlay(t *testing.T, seed uint64, cfg Config) *play {
	s, err := NewScheduler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &play{Scheduler: s, t: t, rnd: rand.New(rand.NewPCG(seed, 7)), refused: map[Reason]int{}}
}

func (p *play) arrive(w Demand) *Entry {
	p.ids++
	w.ID = fmt.Sprint(p.ids)
	e, refusal := p.Arrive(w, p.now)
	if (e == nil) == (refusal == nil) {
		p.t.Fatal("neither or both of entry and refusal")
	}
	if refusal != nil {
		p.refused[refusal.Reason]++
		return nil
	}
	p.entries = append(p.entries, e)
	return e
}

func (p *play) pump() {
	p.lookAround()
	for e := p.Next(p.now); e != nil; e = p.Next(p.now) {
		if e.state != running {
			p.t.Fatal("Next gave one that does not run")
		}
		p.started++
		p.lookAround()
	}
	p.checkBusy()
	for _, e := range p.TakeRefused() {
		p.refused[e.refusal.Reason]++
		p.Done(e, Spent{}, p.now)
	}
}

func (p *play) lookAround() {
	if p.look != nil {
		p.look()
	}
}

// checkBusy looks for work that an empty engine was not given.
func (p *play) checkBusy() {
	p.t.Helper()
	if len(p.running) > 0 || p.engine.heard && !p.engine.up {
		return
	}
	for _, e := range p.expiry.entries {
		k := e.class
		head, _ := p.head(k, e.lane())
		if k.mode != Paused && p.load.serves(k.level) && (k.Window == 0 || p.now >= e.arrived+k.Window) && e == head {
			p.t.Fatalf("%s of class %s waits at an empty engine: %v", e.demand.ID, k.Name, p.gate(e))
		}
	}
}

func (p *play) randomDemand() Demand {
	r := p.rnd
	tokens := 1 + r.IntN(200)
	if r.IntN(20) == 0 {
		tokens = 1000 + r.IntN(3000)
	}
	w := Demand{
		Tenant: string(rune('a' + r.IntN(4))), Class: []string{"interactive", "interactive", "batch", "offline", "unknown"}[r.IntN(5)],
		Sequences: 1 + r.IntN(3)/2, PromptTokens: tokens, UncachedTokens: 1 + r.IntN(tokens), DecodeTokens: 1 + r.IntN(300), Bytes: r.IntN(1000),
		Retry: r.IntN(10) == 0, BlockTokens: 16,
	}
	if r.IntN(60) == 0 {
		w.Sequences = 25
	}
	w.DecodeTokens *= w.Sequences
	for i := range tokens / 16 {
		w.Blocks = append(w.Blocks, uint64(r.IntN(3))<<32+uint64(i))
	}
	if r.IntN(10) == 0 {
		w.Within = time.Duration(1+r.IntN(5000)) * time.Millisecond
	}
	return w
}

func (p *play) randomReport() Report {
	r := p.rnd
	rep := Report{Up: r.IntN(50) > 0, At: p.now, Cost: testCost, Room: cost.Room{TokensMax: 256}, KVTokens: 8192, ShortPrefill: r.IntN(600), StepDuration: 20 * time.Millisecond}
	if r.IntN(30) == 0 {
		rep.Cost.PrefillToken *= float64(1 + r.IntN(3))
	}
	for range r.IntN(4) {
		h := uint64(r.IntN(3))<<32 + uint64(r.IntN(10))
		rep.Blocks.Changes = append(rep.Blocks.Changes, hitmap.Change{Hash: h, Evicted: r.IntN(2) == 0})
	}
	rep.Blocks.Missed = r.IntN(100) == 0
	return rep
}

// report gives r to the scheduler. After changes that were missed nothing is
// believed but what r says.
func (p *play) report(r Report) {
	p.Report(r, p.now)
	if r.Up && !r.Blocks.Missed {
		return
	}
	for _, e := range p.expiry.entries {
		if want := p.cache.match(e); e.cached != want {
			p.t.Fatalf("%s is believed to find %d tokens in the cache, and %d are there", e.demand.ID, e.cached, want)
		}
	}
}

func (p *play) randomTurn() {
	r := p.rnd
	p.now += time.Duration(r.IntN(200)) * time.Millisecond
	switch r.IntN(6) {
	case 0, 1:
		p.arrive(p.randomDemand())
	case 2:
		p.report(p.randomReport())
	case 3:
		if len(p.running) > 0 {
			e := p.running[r.IntN(len(p.running))]
			p.Progress(e, e.tokens+1+r.IntN(40), p.now)
		}
	case 4:
		if len(p.running) > 0 {
			e := p.running[r.IntN(len(p.running))]
			p.Done(e, Spent{ComputedTokens: e.uncached(), CachedTokens: e.cached, CompletionTokens: e.tokens, Whole: r.IntN(2) == 0}, p.now)
		}
	case 5:
		if len(p.entries) > 0 && r.IntN(3) == 0 {
			e := p.entries[r.IntN(len(p.entries))]
			p.Done(e, Spent{}, p.now)
			p.Done(e, Spent{}, p.now)
		} else if r.IntN(10) == 0 {
			_ = p.SetMode("offline", Mode(r.IntN(3)), p.now)
		}
	}
	p.pump()
	p.entries = slices.DeleteFunc(p.entries, func(e *Entry) bool { return e.state == settled })
}

func TestSchedulerHoldsItsInvariants(t *testing.T) {
	started := 0
	refused := map[Reason]int{}
	for seed := range uint64(60) {
		p := newPlay(t, seed, Config{
			RunningSequencesMax: 2 + int(seed%20), WaitingRequestsMax: 40,
			Classes: []Class{{Name: "interactive", Late: []string{"refuse", "demote"}[seed%2]}, {Name: "offline", WaitLimit: 20 * time.Second}},
		})
		for range 800 {
			p.randomTurn()
			p.check(t, p.entries)
		}
		for _, e := range p.entries {
			p.Done(e, Spent{}, p.now)
		}
		p.check(t, nil)
		if p.Load() != (Load{}) || p.bytes != 0 || p.waiting != (sums{}) {
			t.Fatalf("not empty at the end: %+v", p.Load())
		}
		for _, watchers := range p.cache.watchers {
			if len(watchers) > 0 {
				t.Fatal("somebody still watches the cache")
			}
		}
		started += p.started
		for r, n := range p.refused {
			refused[r] += n
		}
	}
	t.Log(started, refused)
	for _, r := range []Reason{QueueFull, TimedOut, Late, PastDeadline, ClassClosed, TooLarge} {
		if refused[r] < 3 {
			t.Errorf("%v happened %d times: the play was idle", r, refused[r])
		}
	}
	if started < 1000 {
		t.Errorf("only %d started", started)
	}
}
