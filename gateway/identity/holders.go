package identity

import (
	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
)

// Policy is the present one.
func (d *Directory) Policy() *admission.Policy { return d.current.Load().policy }

// Holders are the keys and mesh identities with limits of their own, in no order.
func (d *Directory) Holders(model string) (all []budget.Holder) {
	s := d.current.Load()
	add := func(c *Caller) {
		if c.Limits.Any() && c.MayModel(model) {
			all = append(all, budget.Holder{Key: budget.Key{Tenant: c.Tenant.Name, Model: model, Kind: budget.KindKey, Name: c.LimitsOf}, Limits: c.Limits})
		}
	}
	for _, k := range s.keys {
		if !k.revoked && !k.disabled {
			add(&k.caller)
		}
	}
	for i := range s.mesh.identities {
		add(s.mesh.identities[i].caller)
	}
	return all
}
