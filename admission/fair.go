package admission

import (
	"math"
	"time"
)

// tenant is one tenant over all classes.
type tenant struct {
	name             string
	weight           float64
	configured       bool // named in the configuration; others may be forgotten
	waiting, running int
	backlog          time.Duration // cost of what waits
	served           meter         // engine time
	arrivals         meter         // requests, over retryMemory
	retries          meter         // those of them that are retries
	over             float64       // its part of the engine over its fair share, see weigh
}

// line holds the waiting requests of one tenant in one class.
type line struct {
	tenant  *tenant
	class   *class
	deficit time.Duration
	lanes   [laneCount]heap
	running int
	listed  int  // place in class.lines; out while nothing waits
	short   sums // of what waits in the short lane

	asked     asked
	bodies    *bodies // nil until one is known
	isAsking  bool    // it is in its level's asking
	asks      float64 // by the last partOf, as the next
	overShare bool    // it asks for more than its fair share
}

const (
	laneShort = iota
	laneLong
	laneCount
)

func (e *Entry) lane() int {
	if e.long {
		return laneLong
	}
	return laneShort
}

// tenantsMax is the most tenants that the configuration does not name.
const tenantsMax = 4096

// tenant finds a tenant by its name, and makes one that is not configured.
func (s *Scheduler) tenant(name string) *tenant {
	t := s.tenants[name]
	if t != nil {
		return t
	}
	if len(s.tenants) >= tenantsMax+len(s.cfg.Tenants) {
		s.forgetTenants()
	}
	t = &tenant{name: name, weight: 1}
	s.tenants[name] = t
	return t
}

// SetTenants gives the tenants other weights. A tenant that is not listed any more
// counts as one that the configuration does not name.
func (s *Scheduler) SetTenants(list []Tenant) {
	for _, t := range s.tenants {
		t.configured, t.weight = false, 1
	}
	s.cfg.Tenants = list
	for i := range list {
		t := s.tenant(list[i].Name)
		t.configured, t.weight = true, max(list[i].Weight, 0.01)
	}
}

// forgetTenants drops the tenants without requests that are not configured.
func (s *Scheduler) forgetTenants() {
	for name, t := range s.tenants {
		if !t.configured && t.waiting+t.running == 0 {
			delete(s.tenants, name)
			for _, k := range s.classes {
				delete(k.held, t)
			}
		}
	}
}

func (s *Scheduler) lineOf(k *class, t *tenant) *line {
	l := k.held[t]
	if l == nil {
		l = &line{tenant: t, class: k, listed: out, deficit: s.quantum(t)}
		for i := range l.lanes {
			l.lanes[i] = heap{less: before, place: func(e *Entry) *int { return &e.inLane }}
		}
		k.held[t] = l
	}
	if l.listed == out {
		// A tenant that comes back earned nothing while it wanted nothing.
		l.deficit = min(l.deficit, s.quantum(t))
	}
	return l
}

// quantum is the engine time that a tenant gets at a time.
func (s *Scheduler) quantum(t *tenant) time.Duration {
	return time.Duration(t.weight * float64(s.cfg.Quantum))
}

func (l *line) waiting() int { return l.lanes[laneShort].len() + l.lanes[laneLong].len() }

func (l *line) add(e *Entry) {
	if l.listed == out {
		l.listed = len(l.class.lines)
		l.class.lines = append(l.class.lines, l)
	}
	l.lanes[e.lane()].push(e)
	l.tenant.waiting++
	if !e.long {
		l.short.add(e, 1)
	}
}

func (l *line) remove(e *Entry) {
	l.lanes[e.lane()].remove(e)
	l.tenant.waiting--
	if !e.long {
		l.short.add(e, -1)
	}
	if l.waiting() > 0 {
		return
	}
	all := l.class.lines
	last := len(all) - 1
	all[l.listed] = all[last]
	all[l.listed].listed = l.listed
	all[last] = nil
	l.class.lines, l.listed = all[:last], out
}

// head is the request of k's lane that goes first: the smallest key among the
// tenants with a deficit left. It is nil for an empty lane, and where no tenant
// has a deficit left; then rounds is how many quanta each must get until one has.
// A promise goes before fairness: where the smallest key of all could not wait for
// a quantum more, it goes first, and its tenant pays later.
func (s *Scheduler) head(k *class, lane int) (best *Entry, rounds float64) {
	if k.inLane[lane] == 0 {
		return nil, 0
	}
	var first *Entry
	rounds = math.Inf(1)
	for _, l := range k.lines {
		e := l.lanes[lane].head()
		if e != nil && (first == nil || before(e, first)) {
			first = e
		}
		switch {
		case e == nil:
		case l.deficit > 0:
			if best == nil || before(e, best) {
				best = e
			}
		default:
			rounds = min(rounds, math.Floor(float64(-l.deficit)/float64(s.quantum(l.tenant)))+1)
		}
	}
	switch {
	case first.due > 0 && s.now+first.prefill+s.cfg.Quantum > first.due:
		return first, 0
	case best != nil:
		return best, 0
	}
	return nil, rounds
}

// refill is the quanta that all tenants with something in a lane get at a time.
type refill struct {
	class  *class
	lane   int
	rounds float64
}

func (s *Scheduler) refill(r refill) {
	for _, l := range r.class.lines {
		if l.lanes[r.lane].head() != nil {
			q := s.quantum(l.tenant)
			l.deficit = min(l.deficit+time.Duration(r.rounds*float64(q)), 2*q)
		}
	}
}

// charge books engine time to e's tenant and class, and credits the floors of
// the other classes. A negative cost gives time back.
func (s *Scheduler) charge(e *Entry, cost time.Duration) {
	e.charged += cost
	e.line.deficit -= cost
	if cost < 0 {
		e.line.deficit = min(e.line.deficit, 2*s.quantum(e.line.tenant))
	}
	e.line.tenant.served.add(float64(cost), s.now)
	e.class.served.add(float64(cost), s.now)
	s.levels[e.class.level].served.add(float64(cost), s.now)
	for _, k := range s.classes {
		if k.Floor == 0 {
			continue
		}
		earned := time.Duration(k.Floor * float64(cost))
		if k == e.class {
			earned -= cost
		} else if k.waiting == 0 && cost > 0 {
			continue // a floor is for a class with waiting requests
		}
		k.credit = max(min(k.credit+earned, s.cfg.Quantum), -s.cfg.Quantum)
	}
}

// settle corrects the charge of e, which ended with some tokens of answer, to what
// was computed for it.
func (s *Scheduler) settle(e *Entry, spent Spent, tokens int) {
	actual := s.engine.cost.Prefill(spent.ComputedTokens, spent.CachedTokens, s.engine.chunk)
	if spent.Unheard {
		actual = e.prefill
		if tokens == 0 { // no more of it than the time allowed
			actual = min(actual, max(0, s.now-e.started))
		}
	}
	actual += time.Duration(float64(tokens) * float64(s.engine.tokenCost(e)))
	s.charge(e, actual-e.charged)
}

// weigh finds how far each tenant with requests is over its fair share: over is 1
// at the share itself. What waits counts like what was served.
func (s *Scheduler) weigh() {
	sum, n := 0.0, 0
	for _, t := range s.tenants {
		t.over = 0
		if t.waiting+t.running == 0 {
			continue
		}
		t.over = (t.served.value(s.now) + float64(t.backlog)) / t.weight
		sum += t.over
		n++
	}
	for _, t := range s.tenants {
		if n < 2 || sum == 0 {
			t.over = 1
			continue
		}
		t.over *= float64(n) / sum
	}
}

// owed tells whether a class may pass more urgent ones, because it has had less
// than its floor.
func (k *class) owed(s *Scheduler) bool {
	return k.Floor > 0 && k.level > 0 && k.credit >= s.cfg.Quantum/2 && s.load.floors(k.level)
}
