package shared

import (
	"context"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// ledger is what all gateways share. Methods may be called from any goroutine.
type ledger interface {
	// sync does calls in one round trip. Each is done by itself: after an error
	// none, some or all were done.
	sync(ctx context.Context, calls []*call) ([]reply, error)
	// alive tells that this gateway is alive, or with leave that it ends, and counts
	// the gateways that are alive.
	alive(ctx context.Context, id string, lease time.Duration, leave bool) (gateways int, err error)
	close()
}

// call is one gateway's part in one step of a book; sync.lua takes it as JSON.
type call struct {
	key string // of the book

	ID    string `json:"id"`
	Life  int64  `json:"life"` // grows each time this gateway begins the account anew
	Seq   int64  `json:"seq"`  // grows by each call in a life
	Lease int64  `json:"lease"`
	// Gateways is how many are alive, as far as known, at least 1.
	Gateways int `json:"gateways"`

	Limit budget.Amounts `json:"limit"`
	Rate  budget.Amounts `json:"rate"`
	Hold  budget.Amounts `json:"hold"`

	// Charged is the total that this gateway should have been charged. Held is how
	// much of it is given back if its lease runs out, and Kept the free slice in
	// that.
	Charged budget.Amounts `json:"charged"`
	Held    budget.Amounts `json:"held"`
	Kept    budget.Amounts `json:"kept"`
	// Base is the total that it was charged before, for a book without its lease.
	Base budget.Amounts `json:"base"`
	// Had says that it must have a lease, or that Redis failed not long ago: so a
	// book that does not exist was lost. Day and Used are what the book last said.
	Had  bool    `json:"had"`
	Day  int64   `json:"day"`
	Used float64 `json:"used"`

	// Asks are input and output tokens of requests that wait, in order.
	Asks [][2]float64 `json:"asks"`
	// Want asks for a slice of at least Typical.
	Want    bool           `json:"want"`
	Typical budget.Amounts `json:"typical"`
	// Leave ends the lease.
	Leave bool `json:"leave"`
}

// reply is what sync.lua returns.
type reply struct {
	Stale    bool           `json:"stale"` // a later call was done before this one
	Known    bool           `json:"known"` // there was a lease
	Gateways int            `json:"gateways"`
	Day      int64          `json:"day"`
	Level    budget.Amounts `json:"level"`
	Used     float64        `json:"used"` // tokens, of the day
	Charged  budget.Amounts `json:"charged"`
	Held     budget.Amounts `json:"held"`
	Slice    budget.Amounts `json:"slice"`  // new, besides what was kept
	Target   budget.Amounts `json:"target"` // the size of a slice now; 0 for no slice
	// Verdicts answer the asks: 0 or 1 + the rule, and how much is missing.
	Verdicts [][2]float64 `json:"verdicts"`
}
