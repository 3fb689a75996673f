package gateway

import (
	"slices"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// Group is an engine that alone answers for a model, or for some routes of it. It has a
// queue of its own.
type Group struct {
	Name   string   // of its queue, as in admission.Groups, and in records
	Model  string   // by which clients ask
	Routes []string // whose requests come here; none is all that no other group of the model has
	Engine wire.Engine
}

// groupOf is the group of a request, nil where no group has its model.
func (g *Gateway) groupOf(model, route string) (of *Group) {
	for i := range g.groups {
		k := &g.groups[i]
		switch {
		case k.Model != model:
		case slices.Contains(k.Routes, route):
			return k
		case len(k.Routes) == 0:
			of = k
		}
	}
	return of
}

// choose gives x the engine of its group, and tells whether there is one.
func (g *Gateway) choose(x *exchange, model string) bool {
	k := g.groupOf(model, rightOf(x.record.Route))
	if k == nil {
		return false
	}
	x.engine, x.record.Group = k.Engine, k.Name
	return true
}

// states are those of all groups, each model once.
func (g *Gateway) states() []*wire.State {
	if len(g.groups) == 0 {
		return []*wire.State{g.engine.State()}
	}
	var all []*wire.State
	for i := range g.groups {
		s := g.groups[i].Engine.State()
		at := slices.IndexFunc(all, func(o *wire.State) bool { return o.Model.ID == s.Model.ID })
		switch {
		case at < 0:
			all = append(all, s)
		case all[at].Err != nil:
			all[at] = s
		}
	}
	return all
}

// classLevels sums the classes over groups, and the groups over classes.
func classLevels(views []admission.ClassView) (classes []telemetry.ClassLevel, groups []telemetry.GroupLevel) {
	for _, c := range views {
		at := slices.IndexFunc(classes, func(l telemetry.ClassLevel) bool { return l.Name == c.Name })
		if at < 0 {
			at, classes = len(classes), append(classes, telemetry.ClassLevel{Name: c.Name})
		}
		l := &classes[at]
		l.Running, l.Waiting, l.Margin = l.Running+c.Running, l.Waiting+c.Waiting, max(l.Margin, c.Margin)
		if c.Group == "" {
			continue
		}
		if at = slices.IndexFunc(groups, func(l telemetry.GroupLevel) bool { return l.Name == c.Group }); at < 0 {
			at, groups = len(groups), append(groups, telemetry.GroupLevel{Name: c.Group})
		}
		groups[at].Running += c.Running
		groups[at].Waiting += c.Waiting
	}
	return classes, groups
}
