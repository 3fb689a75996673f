package shared

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// model is some replicas at one fake Redis, and what each truly holds.
type model struct {
	t      *testing.T
	r      *rand.Rand
	redis  *fakeRedis
	direct bool // without Redis
	names  []string
	nodes  map[string]*node
	busy   *node // makes a round trip
	nested bool  // another acts meanwhile
	log    []string
}

type node struct {
	fleet *Fleet
	space string
	held  map[uint64]bool
}

const (
	modelBlocks = 40
	modelSeeds  = 20
)

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%d ", m.redis.now)+fmt.Sprintf(format, args...))
}

func (m *model) start(name string) {
	o := Options{
		Prefix: "p", Name: name, Interval: time.Hour, Limit: time.Second, Lease: time.Second,
		BlocksMax: 1 << 10, ChangesMax: 8, LogMax: 4 + 40*int(name[0]&1), LoadsMax: 3,
	}
	if m.direct {
		o.Direct, o.Secret = &Direct{Ask: m.ask}, []byte("a secret of all")
	} else {
		o.Client = m.redis.client()
	}
	f, err := assemble(o)
	if err != nil {
		m.t.Fatal(err)
	}
	f.clock, f.batchMax, f.trip.width = m.redis.clock, 3, 4
	m.nodes[name] = &node{fleet: f, held: map[uint64]bool{}}
	m.join(name, "model")
}

func (m *model) join(name, space string) {
	n := m.nodes[name]
	if n.space != space { // another engine
		n.space = space
		clear(n.held)
	}
	n.fleet.Join(space, 1)
}

// follow has the engine of a replica add and evict some blocks.
func (m *model) follow(n *node) {
	var news hitmap.News
	if m.r.IntN(20) == 0 {
		news.Missed = true
		clear(n.held)
	}
	for range m.r.IntN(12) {
		h := 1 + m.r.Uint64N(modelBlocks)
		news.Changes = append(news.Changes, hitmap.Change{Hash: h, Evicted: n.held[h]})
		n.held[h] = !n.held[h]
	}
	n.fleet.Follow(news)
}

// step does one thing at random.
func (m *model) step() {
	name := m.names[m.r.IntN(len(m.names))]
	n := m.nodes[name]
	m.redis.now += m.r.Int64N(60)
	if n == nil {
		if m.r.IntN(4) == 0 {
			m.note("%s starts", name)
			m.start(name)
		}
		return
	}
	switch k := m.r.IntN(100); {
	case k < 30:
		m.note("%s follows", name)
		m.follow(n)
	case k < 80:
		if m.r.IntN(6) == 0 {
			m.redis.fail = []string{"cut", "lost", "late", "full"}[m.r.IntN(4)]
		}
		m.note("%s makes a round trip %s", name, m.redis.fail)
		m.busy = n
		m.round(n)
		m.busy, m.redis.fail = nil, ""
	case k < 84:
		m.redis.arrive()
	case k < 86:
		m.note("%s is killed", name)
		delete(m.nodes, name)
	case k < 88:
		m.note("%s leaves", name)
		if !m.direct {
			n.fleet.leave()
		}
		delete(m.nodes, name)
	case k < 90:
		m.note("%s joins", name)
		m.join(name, []string{"model", "model", "other"}[m.r.IntN(3)])
	case k < 91:
		m.note("flush")
		m.redis.flush()
	case k < 92: // another server has taken over, whose clock is behind
		m.note("another server")
		m.redis.flush()
		m.redis.last, m.redis.behind = 0, m.redis.behind+5000
	case k < 93:
		m.note("%s sleeps", name)
		m.redis.now += m.r.Int64N(70_000)
	}
}

// round makes a round trip of a replica.
func (m *model) round(n *node) {
	if !m.direct {
		n.fleet.round()
		return
	}
	n.fleet.turn(1)
	for _, name := range m.names {
		n.fleet.askOnce(m.t.Context(), name, name)
	}
}

// ask asks a replica directly.
func (m *model) ask(_ context.Context, address string, question []byte) ([]byte, error) {
	m.interleave()
	n := m.nodes[address]
	if n == nil || m.redis.fail == "cut" {
		return nil, errCut
	}
	answer, err := n.fleet.Answer(question)
	m.interleave()
	if m.redis.fail != "" {
		return nil, errCut
	}
	return answer, err
}

// interleave lets another replica act between two commands of a pipeline.
func (m *model) interleave() {
	if m.nested || m.r.IntN(8) > 0 {
		return
	}
	m.nested = true
	defer func(fail string) { m.nested, m.redis.fail = false, fail }(m.redis.fail)
	m.redis.fail = ""
	name := m.names[m.r.IntN(len(m.names))]
	if n := m.nodes[name]; n != nil && m.r.IntN(2) == 0 {
		m.follow(n)
	} else if n != nil && n != m.busy { // a replica makes one round trip at a time
		m.round(n)
	}
}

// settle gives all replicas time, with nothing new and a Redis that works.
func (m *model) settle() {
	m.redis.arrive()
	m.nested = true // nobody acts meanwhile
	for range 60 {
		m.redis.now += 50
		for _, name := range m.names {
			if n := m.nodes[name]; n != nil {
				m.round(n)
			}
		}
	}
	m.nested = false
}

// wrong says what some replica believes that is not so.
func (m *model) wrong() string {
	for _, name := range m.names {
		b := m.nodes[name]
		if b == nil {
			continue
		}
		var known, alive []string
		for _, s := range b.fleet.Siblings(nil) {
			known = append(known, s.Name)
		}
		for _, other := range m.names {
			a := m.nodes[other]
			if a == nil || other == name || a.space != b.space {
				continue
			}
			alive = append(alive, other)
			for h := range uint64(modelBlocks + 1) {
				holders := b.fleet.Match([]uint64{h}, nil)
				if believed := slices.ContainsFunc(holders, func(o Holder) bool { return o.Name == other }); believed != a.held[h] {
					return fmt.Sprintf("%s believes %v that %s holds %d", name, believed, other, h)
				}
			}
		}
		if slices.Sort(known); !slices.Equal(known, alive) {
			return fmt.Sprintf("%s knows %v of %v", name, known, alive)
		}
	}
	return ""
}

// Whatever happens, in whatever order: once it is quiet, what a replica believes of
// another is what that one holds.
func TestWhatIsBelievedIsTrueInTheEnd(t *testing.T) {
	for seed := range uint64(modelSeeds) {
		m := &model{t: t, r: rand.New(rand.NewPCG(seed, 17)), redis: newFakeRedis(), direct: seed%3 == 0, names: []string{"a", "b", "c", "d", "e", "f"}[:2+seed%5], nodes: map[string]*node{}}
		m.redis.between = m.interleave
		for round := range 5 {
			for range 60 {
				m.step()
			}
			if m.settle(); m.wrong() != "" {
				for _, line := range m.log[max(0, len(m.log)-80):] {
					t.Log(line)
				}
				t.Fatalf("seed %d, round %d: %s", seed, round, m.wrong())
			}
			m.log = m.log[:0]
		}
	}
}
