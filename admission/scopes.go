package admission

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/forebay-io/forebay/admission/budget"
)

// PartLimits are the budgets of those of a tenant's requests that are of a model, a
// class and a route.
type PartLimits struct {
	Name   string        `yaml:"name" help:"Name of the entry."`
	Tenant string        `yaml:"tenant" help:"Tenant; empty is each of them, by itself."`
	Model  string        `yaml:"model" help:"Model, as requests name it; empty is each of them, by itself."`
	Class  string        `yaml:"class" help:"Class; empty is any."`
	Route  string        `yaml:"route" oneof:"chat_completions completions embeddings messages rerank responses" help:"Route, as in the metrics; empty is any."`
	Limits budget.Limits `yaml:"limits" help:"Budgets of these requests together, besides the tenant's."`
}

// holds tells whether a request is one of these.
func (p *PartLimits) holds(tenant, model, class, route string) bool {
	return (p.Tenant == "" || p.Tenant == tenant) && (p.Model == "" || p.Model == model) && (p.Class == "" || p.Class == class) && (p.Route == "" || p.Route == route)
}

// scope is that of the requests.
func (p *PartLimits) scope() budget.Scope {
	kind := budget.KindModel
	switch {
	case p.Class != "":
		kind = budget.KindClass
	case p.Route != "":
		kind = budget.KindRoute
	}
	return budget.Scope{Kind: kind, Name: p.Name, Limits: p.Limits}
}

// Scopes are the holders of limits that a request of t must pass; user is the end
// user that it names, or "".
func (p *Policy) Scopes(t *Tenant, model, class, route, user string) (all []budget.Scope) {
	if t.Limits.Any() {
		all = budget.OfTenant(t.Limits)
	}
	for i := range p.parts {
		if part := &p.parts[i]; part.Limits.Any() && part.holds(t.Name, model, class, route) {
			all = append(all, part.scope())
		}
	}
	if t.UserLimits.Any() {
		all = append(all, budget.Scope{Kind: budget.KindUser, Name: hashed(t.Name, user), Limits: t.UserLimits})
	}
	return all
}

// Holders are the tenants, and the parts of their requests, that have limits for a model.
func (p *Policy) Holders(model string) (all []budget.Holder) {
	add := func(t *Tenant, s budget.Scope) {
		all = append(all, budget.Holder{Key: budget.Key{Tenant: t.Name, Model: model, Kind: s.Kind, Name: s.Name}, Limits: s.Limits})
	}
	for _, t := range p.list {
		if t.Limits.Any() {
			add(t, budget.Scope{Kind: budget.KindTenant, Limits: t.Limits})
		}
		for i := range p.parts {
			if part := &p.parts[i]; part.Limits.Any() && part.holds(t.Name, model, part.Class, part.Route) {
				add(t, part.scope())
			}
		}
	}
	return all
}

// UserName is the name of a tenant's end user in records and budgets, "" for none.
func UserName(tenant, user string) string {
	if user == "" {
		return ""
	}
	return hashed(tenant, user)
}

// hashed names a tenant's end user, who may be a person, without telling who it is.
func hashed(tenant, user string) string {
	digest := sha256.Sum256([]byte(tenant + "\x00" + user))
	return hex.EncodeToString(digest[:12])
}
