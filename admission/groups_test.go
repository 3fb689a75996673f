package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// started tells whether a ticket's turn has come, and without an error.
func started(t Ticket) bool {
	select {
	case <-t.Ready():
		return t.Err() == nil
	default:
		return false
	}
}

func openGroups(t *testing.T, cfg Config, clock func() time.Duration, names ...string) *Groups {
	t.Helper()
	g, err := NewGroups(cfg, names, clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// TestFullGroupHoldsUpNobody: requests of random groups start as a twin says that knows
// places alone: the oldest of each group as soon as its group has one free, whatever waits
// for the others.
func TestFullGroupHoldsUpNobody(t *testing.T) {
	names := []string{"large", "small", "own"}
	type request struct {
		Ticket
		id, group int
		done      bool
	}
	held := 0 // starts while an older request of another group waited
	for seed := range uint64(20) {
		random, now := rand.New(rand.NewPCG(seed, 1)), time.Duration(1)
		g := openGroups(t, Config{RunningSequencesMax: 100}, func() time.Duration { return now }, names...)
		places, twin := make([]int, len(names)), make([]map[int]bool, len(names)) // ids that run there
		for i := range names {
			twin[i] = map[int]bool{}
		}
		var all []*request
		for turn := range 300 {
			now += time.Duration(random.IntN(1000)) * time.Microsecond
			switch i := random.IntN(len(names)); random.IntN(3) {
			case 0: // its places change; it has one at least
				places[i] = 1 + random.IntN(4)
				g.Report(Report{Group: names[i], Up: true, At: now, Places: places[i], Room: cost.Room{TokensMax: 1 << 20}})
			case 1:
				ticket, err := g.Admit(Demand{ID: fmt.Sprint(turn), Tenant: "t", Class: "interactive", Group: names[i], Sequences: 1, PromptTokens: 1, UncachedTokens: 1, DecodeTokens: 1})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, &request{Ticket: ticket, id: turn, group: i})
			default:
				if len(all) == 0 {
					continue
				}
				r := all[random.IntN(len(all))]
				r.Done(Spent{})
				r.done = true
				delete(twin[r.group], r.id)
			}
			for k, r := range all {
				most := places[r.group]
				if most == 0 {
					most = 100 // no report has come
				}
				if !r.done && !twin[r.group][r.id] && len(twin[r.group]) < most {
					twin[r.group][r.id] = true
					if slices.ContainsFunc(all[:k], func(o *request) bool { return o.group != r.group && !o.done && !twin[o.group][o.id] }) {
						held++
					}
				}
			}
			for _, r := range all {
				if !r.done && started(r) != twin[r.group][r.id] {
					t.Fatalf("seed %d, turn %d: request %d of %s has started: %v; the twin says %v", seed, turn, r.id, names[r.group], started(r), !started(r))
				}
			}
		}
	}
	if held < 100 {
		t.Errorf("only %d requests started while an older one of another group waited", held)
	}
}

// TestGroupIsAQueueAlone: with goals, prices, tenants and orders of operators, a group
// decides what a queue decides that has its requests alone, so promises count its places
// only, and its tenants' shares are theirs.
func TestGroupIsAQueueAlone(t *testing.T) {
	names := []string{"large", "small"}
	for seed := range uint64(10) {
		random, now := rand.New(rand.NewPCG(seed, 2)), time.Duration(1)
		clock := func() time.Duration { return now }
		cfg := Config{RunningSequencesMax: 5, Classes: []Class{{Name: "interactive", FirstTokenGoal: 300 * time.Millisecond}}}
		g := openGroups(t, cfg, clock, names...)
		alone := make([]Controller, len(names))
		for i := range names {
			alone[i] = openGroups(t, cfg, clock)
		}
		type pair struct{ of, twin Ticket }
		var all []pair
		refused, waited := 0, 0
		for range 600 {
			now += time.Duration(random.IntN(20)) * time.Millisecond
			i := random.IntN(len(names))
			switch random.IntN(4) {
			case 0:
				r := Report{Up: true, At: now, Places: 1 + random.IntN(4), Cost: cost.Cost{PrefillToken: 1e5 * float64(1+i), Base: 1e6}, Room: cost.Room{TokensMax: 512}, KVTokens: 1 << 20}
				alone[i].Report(r)
				r.Group = names[i]
				g.Report(r)
			case 1, 2:
				n := 1 + random.IntN(900)
				d := Demand{Tenant: fmt.Sprint("t", random.IntN(3)), Class: "interactive", Sequences: 1, PromptTokens: n, UncachedTokens: n, DecodeTokens: 50, Draw: random.Uint64() | 1}
				twin, without := alone[i].Admit(d)
				d.Group = names[i]
				of, err := g.Admit(d)
				if fmt.Sprint(err) != fmt.Sprint(without) {
					t.Fatalf("seed %d: in a group %v, alone %v", seed, err, without)
				}
				if err != nil {
					refused++
					continue
				}
				if of.Promise() != twin.Promise() {
					t.Fatalf("seed %d: promised %+v in a group, %+v alone", seed, of.Promise(), twin.Promise())
				}
				all = append(all, pair{of, twin})
			default:
				if len(all) > 0 {
					p := all[random.IntN(len(all))]
					p.of.Progress(3)
					p.twin.Progress(3)
					p.of.Done(Spent{CompletionTokens: 3})
					p.twin.Done(Spent{CompletionTokens: 3})
				}
			}
			for _, p := range all {
				if started(p.of) != started(p.twin) {
					t.Fatalf("seed %d: started in a group: %v, alone: %v", seed, started(p.of), started(p.twin))
				}
				if !started(p.of) {
					waited++
				}
			}
		}
		if refused == 0 || waited == 0 {
			t.Errorf("seed %d: an idle play: %d refused, %d waits", seed, refused, waited)
		}
	}
}

// TestGroupsTogether: what is told and set for all groups at once.
func TestGroupsTogether(t *testing.T) {
	g := openGroups(t, Config{RunningSequencesMax: 1}, func() time.Duration { return 1 }, "large", "small")
	for _, group := range []string{"large", "large", "small"} {
		if _, err := g.Admit(Demand{ID: group, Tenant: "t", Class: "interactive", Group: group, Sequences: 1, PromptTokens: 1, UncachedTokens: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if l := g.Load(); l != (Load{Running: 2, RunningSequences: 2, Waiting: 1, WaitingSequences: 1}) {
		t.Errorf("%+v", l)
	}
	v := g.View()
	if len(v.Running) != 2 || v.Running[0].Group != "large" || v.Running[1].Group != "small" || len(v.Waiting) != 1 || v.Waiting[0].Group != "large" {
		t.Errorf("running %+v, waiting %+v", v.Running, v.Waiting)
	}
	if len(v.Classes) != 2*levelCount || v.Classes[0].Group != "large" || v.Classes[levelCount].Group != "small" || len(v.Tenants) != 2 {
		t.Errorf("classes %+v, tenants %+v", v.Classes, v.Tenants)
	}
	if err := g.SetMode("interactive", Drained); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"large", "small"} {
		d := Demand{Tenant: "t", Class: "interactive", Group: group, Sequences: 1, PromptTokens: 1}
		if _, err := g.Admit(d); err == nil {
			t.Errorf("the drained class of %s takes a request", group)
		}
	}
	if g.SetMode("none", Open) == nil || g.SetClasses([]Class{{Name: "batch", Level: "offline"}}) == nil {
		t.Error("an unknown class, or another level, is taken")
	}
}
