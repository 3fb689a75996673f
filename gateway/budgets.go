package gateway

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/debug"
	"github.com/forebay-io/forebay/gateway/telemetry"
)

// standingsLimit bounds the wait for the shared store when an operator asks.
const standingsLimit = 2 * time.Second

// budgetsPage is what holders of limits have used, of one tenant, or "" for all.
func (g *Gateway) budgetsPage(tenant string) *debug.BudgetsPage {
	other := func(name string) bool { return tenant != "" && name != tenant }
	p := &debug.BudgetsPage{Limits: []debug.BudgetRow{}, Since: g.since.UTC().Round(time.Second)}
	p.Used = slices.DeleteFunc(g.recorder.Uses(), func(u telemetry.Use) bool { return other(u.Tenant) })
	if g.budget == nil {
		return p
	}
	holders := slices.DeleteFunc(g.holders(), func(h budget.Holder) bool { return other(h.Tenant) })
	p.More = max(0, len(holders)-debug.BudgetHoldersMax)
	holders = holders[:len(holders)-p.More]
	ctx, cancel := context.WithTimeout(context.Background(), standingsLimit)
	defer cancel()
	states, err := g.budget.Standings(ctx, holders)
	p.Shared, p.Degraded = g.budget.Shared(), err != nil
	for i := range holders {
		p.Limits = appendRows(p.Limits, &holders[i], &states[i])
	}
	return p
}

// appendRows appends a row for each limit of a holder.
func appendRows(rows []debug.BudgetRow, h *budget.Holder, states *budget.States) []debug.BudgetRow {
	for rule, s := range states {
		if s.Limit == 0 {
			continue
		}
		rows = append(rows, debug.BudgetRow{
			Tenant: h.Tenant, Model: h.Model, Kind: h.Kind, Name: h.Name, Limit: budget.Rule(rule).Key(), DryRun: h.Limits.DryRun,
			Allowed: s.Limit, Used: s.Used, Left: s.Remaining, WholeMS: milliseconds(int64(s.Reset)),
		})
	}
	return rows
}

// holders are all that have limits for the models of now, as configured or met: the
// tenant first, then its keys, the parts of its requests, and end users.
func (g *Gateway) holders() (all []budget.Holder) {
	now := map[string]bool{}
	for _, s := range g.states() {
		model := s.Model.ID
		now[model] = true
		all = append(append(all, g.identity.Policy().Holders(model)...), g.identity.Holders(model)...)
	}
	known := make(map[budget.Key]bool, len(all))
	for i := range all {
		known[all[i].Key] = true
	}
	// Users, tokens of issuers, and earlier models are known by their budgets alone.
	for _, h := range g.budget.Holders(debug.BudgetHoldersMax) {
		if !known[h.Key] && (h.Kind == budget.KindUser || h.Kind == budget.KindKey || !now[h.Model]) {
			all = append(all, h)
		}
	}
	order := []string{budget.KindTenant, budget.KindKey, budget.KindModel, budget.KindClass, budget.KindRoute, budget.KindUser}
	slices.SortFunc(all, func(a, b budget.Holder) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Model, b.Model), slices.Index(order, a.Kind)-slices.Index(order, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}
