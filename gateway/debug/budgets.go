package debug

import (
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
)

// BudgetHoldersMax bounds the holders of limits that a page shows.
const BudgetHoldersMax = 1000

// BudgetsPage has what each holder of limits has used and has left, as
// GET /debug/budgets?format=json gives it; ?tenant=NAME gives one tenant's alone.
type BudgetsPage struct {
	// Shared says that gateways share a store, and Degraded that it does not answer: then
	// the limits are as this gateway knows them.
	Shared   bool        `json:"shared"`
	Degraded bool        `json:"degraded"`
	Limits   []BudgetRow `json:"limits"`
	// More is how many holders of limits are left out.
	More int `json:"more"`
	// Used is what keys have used at this gateway, since it started.
	Used  []telemetry.Use `json:"used"`
	Since time.Time       `json:"since"`
}

// BudgetRow is one limit of one holder.
type BudgetRow struct {
	Tenant string `json:"tenant"`
	Model  string `json:"model"`
	// Kind is tenant, key, user, model, class or route, and Name says which one; a user's
	// is a hash.
	Kind   string `json:"kind"`
	Name   string `json:"name,omitempty"`
	Limit  string `json:"limit"` // its key in the configuration
	DryRun bool   `json:"dry_run,omitempty"`
	// Allowed is the limit. Used of it is what has not refilled, was taken in this hour,
	// day or month, or runs. Left may be taken now, at most the burst. WholeMS is the time
	// until all is left again, if nothing is taken.
	Allowed float64 `json:"allowed"`
	Used    float64 `json:"used"`
	Left    float64 `json:"left"`
	WholeMS float64 `json:"whole_ms"`
}
