package admission

import (
	"slices"
	"time"
)

// Groups is the Controller of a gateway whose engines are in groups, each with a Queue
// of its own. No engine is in two groups, so nothing that waits in one group holds up
// another: not its order, its promises, nor its tenants' shares. The limits of Config
// hold for each of them.
type Groups struct {
	names  []string
	queues []*Queue
}

// NewGroups makes a queue for each name, and one without a name where there are none.
// The clock is that of NewQueue.
func NewGroups(cfg Config, names []string, clock func() time.Duration) (*Groups, error) {
	if len(names) == 0 {
		names = []string{""}
	}
	g := &Groups{names: slices.Clone(names)}
	for range names {
		q, err := NewQueue(cfg, clock)
		if err != nil {
			g.Close()
			return nil, err
		}
		g.queues = append(g.queues, q)
	}
	return g, nil
}

// Close is Queue.Close of all.
func (g *Groups) Close() {
	for _, q := range g.queues {
		q.Close()
	}
}

// of is the queue of a group, the first one for a name that none has.
func (g *Groups) of(name string) *Queue { return g.queues[max(0, slices.Index(g.names, name))] }

// Admit implements Controller.
func (g *Groups) Admit(d Demand) (Ticket, error) { return g.of(d.Group).Admit(d) }

// Refuse implements Controller.
func (g *Groups) Refuse(d *Demand) error { return g.of(d.Group).Refuse(d) }

// Expected implements Controller.
func (g *Groups) Expected(d *Demand) int { return g.of(d.Group).Expected(d) }

// Report implements Controller.
func (g *Groups) Report(r Report) { g.of(r.Group).Report(r) }

// Outlook implements Controller: that of the first group, since only a gateway with one
// has siblings to compare it with.
func (g *Groups) Outlook() Outlook { return g.queues[0].Outlook() }

// Load implements Controller: the sum of all.
func (g *Groups) Load() (all Load) {
	for _, q := range g.queues {
		l := q.Load()
		all.Running += l.Running
		all.RunningSequences += l.RunningSequences
		all.Waiting += l.Waiting
		all.WaitingSequences += l.WaitingSequences
	}
	return all
}

// View implements Controller: one group after another.
func (g *Groups) View() View {
	all := g.queues[0].View()
	all.name(g.names[0])
	for i, q := range g.queues[1:] {
		v := q.View()
		v.name(g.names[i+1])
		all.Classes = append(all.Classes, v.Classes...)
		all.Tenants = append(all.Tenants, v.Tenants...)
		all.Waiting = append(all.Waiting, v.Waiting...)
		all.Running = append(all.Running, v.Running...)
		all.Margin = max(all.Margin, v.Margin)
		all.Brownout = max(all.Brownout, v.Brownout)
		all.Lengths = all.Lengths.worse(v.Lengths)
	}
	return all
}

// name gives all rows the name of their group.
func (v *View) name(group string) {
	for i := range v.Classes {
		v.Classes[i].Group = group
	}
	for i := range v.Tenants {
		v.Tenants[i].Group = group
	}
	for i := range v.Waiting {
		v.Waiting[i].Group = group
	}
	for i := range v.Running {
		v.Running[i].Group = group
	}
}

// worse is the worse of two in each respect; a model that has seen nothing says nothing.
func (l LengthView) worse(o LengthView) LengthView {
	switch {
	case l == LengthView{}:
		return o
	case o == LengthView{}:
		return l
	}
	return LengthView{min(l.PairAccuracy, o.PairAccuracy), min(l.Covered, o.Covered), max(l.ReserveRatio, o.ReserveRatio)}
}

// SetMode implements Controller: the class of every group.
func (g *Groups) SetMode(class string, m Mode) error {
	for _, q := range g.queues {
		if err := q.SetMode(class, m); err != nil {
			return err // of the first one, since all have the same classes
		}
	}
	return nil
}

// SetClasses is Scheduler.SetClasses of all.
func (g *Groups) SetClasses(table []Class) error {
	for _, q := range g.queues {
		if err := q.SetClasses(table); err != nil {
			return err // of the first one, since all have the same classes
		}
	}
	return nil
}

// SetTenants is Queue.SetTenants of all.
func (g *Groups) SetTenants(list []Tenant) {
	for _, q := range g.queues {
		q.SetTenants(list)
	}
}
