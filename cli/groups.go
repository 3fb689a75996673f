package cli

import (
	"cmp"
	"slices"

	"github.com/forebay-io/forebay/gateway"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/upstream"
)

// relay is a client of other servers.
type relay interface {
	Name() string
	Addresses() string
}

func groupNames(groups []upstream.Group) (names []string) {
	for i := range groups {
		names = append(names, groups[i].Label())
	}
	return names
}

// modelIDs are the models of the groups, each once.
func modelIDs(groups []upstream.Group) (ids []string) {
	for i := range groups {
		if id := groups[i].ModelID; !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// connectGroups begins to look for the servers of all groups. The queue of each gets its
// states, and heard those of all together, in order.
func (f *front) connectGroups(heard func(*wire.State)) (*upstream.Groups, error) {
	cfg := f.cfg.Upstream
	cfg.Version, cfg.Log, cfg.OnState = version, f.console.logger(f.cfg.Log, "gateway"), heard
	cfg.Groups = slices.Clone(cfg.Groups)
	reporters := map[string]*gateway.Reporter{}
	for i := range cfg.Groups {
		g := &cfg.Groups[i]
		counter, err := openCounter(cmp.Or(g.Tokenizer, cfg.Tokenizer))
		if err != nil {
			return nil, err
		}
		g.Counter, reporters[g.Label()] = counter, &gateway.Reporter{Group: g.Label()}
	}
	return upstream.NewGroups(cfg, func(group string, s *wire.State) { f.queue.Report(reporters[group].Report(s)) })
}

// groups are the gateway's part of upstream.groups.
func (f *front) groups() (all []gateway.Group) {
	of, ok := f.client.(*upstream.Groups)
	if !ok {
		return nil
	}
	for i := range f.cfg.Upstream.Groups {
		g := &f.cfg.Upstream.Groups[i]
		all = append(all, gateway.Group{Name: g.Label(), Model: g.ModelID, Routes: g.Routes, Engine: of.Engines[i]})
	}
	return all
}
