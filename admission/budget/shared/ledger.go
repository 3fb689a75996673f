package shared

import (
	"context"
	"encoding/json"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// ledger is what all gateways share. Methods may be called from any goroutine.
type ledger interface {
	// sync does calls in one round trip. Each is done by itself, and its reply has its
	// own error: the call may have been done nevertheless.
	sync(ctx context.Context, calls []*call) []reply
	// read reads books, and the time by which they count, without a change. A book that
	// is not there is nil.
	read(ctx context.Context, keys []string) (books []*stored, now time.Time, err error)
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
	// Was is the total that the last reply said. Base is that without what is given
	// back when a lease runs out.
	Was budget.Amounts `json:"was"`
	// Heard is the Seq of the call whose reply that was, 0 for none.
	Heard int64          `json:"heard"`
	Base  budget.Amounts `json:"base"`
	// Saw is what the last reply showed, nil for none. If Redis has lost the book, the
	// new one begins with what gateways know.
	Saw *sight `json:"saw,omitempty"`
	// Others is of how many other gateways the sight says what they were charged.
	Others int `json:"others"`

	// Asks are what requests need that wait, in order.
	Asks []taking `json:"asks"`
	// Want asks for a slice of at least Typical.
	Want    bool           `json:"want"`
	Typical budget.Amounts `json:"typical"`
	// Leave ends the lease.
	Leave bool `json:"leave"`
}

// taking is what one request takes, and what of it is held and not used yet.
type taking struct {
	Take budget.Amounts `json:"t"`
	Held budget.Amounts `json:"h"`
}

// sight is the state of a book as one gateway saw it.
type sight struct {
	Made    int64                   `json:"c"`  // when the book was made, in ms
	Step    int64                   `json:"n"`  // steps of it until then
	At      int64                   `json:"at"` // now, in ms
	Values  budget.Amounts          `json:"v"`  // levels of buckets, use of others
	Windows [budget.RuleCount]int64 `json:"p"`
	// Others are what other gateways had been charged in this state.
	Others map[string]known `json:"k,omitempty"`
}

// known is what a gateway had been charged in a state of a book.
type known struct {
	Life    int64          `json:"n"`
	Seq     int64          `json:"s"`
	Charged budget.Amounts `json:"c"`
}

// stored is what sync.lua keeps of a book, as far as Go reads it.
type stored struct {
	At      int64                   `json:"at"`
	Levels  [budget.RuleCount]level `json:"v"`
	Windows [budget.RuleCount]int64 `json:"p"`
}

// level is the level of a bucket, or the use of another rule; none where there was no
// limit.
type level struct {
	value float64
	none  bool
}

// UnmarshalJSON reads a number, or false.
func (l *level) UnmarshalJSON(text []byte) error {
	if l.none = string(text) == "false"; l.none {
		return nil
	}
	return json.Unmarshal(text, &l.value)
}

// levels are what is left of each budget at now, by the terms of now.
func (b *stored) levels(t *budget.Terms, now time.Time) budget.Amounts {
	levels := t.Hold
	for k := range levels {
		switch v := b.Levels[k]; {
		case budget.Buckets[k] && !v.none:
			since := max(0, now.Sub(time.UnixMilli(b.At)))
			levels[k] = min(t.Hold[k], v.value+t.Rate[k]*since.Seconds())
		case !budget.Buckets[k] && budget.Window(budget.Rule(k), now) <= b.Windows[k]:
			levels[k] = t.Limit[k] - v.value
		}
	}
	return levels
}

// reply is what sync.lua returns.
type reply struct {
	err error // then there is nothing else

	Stale    bool           `json:"stale"`    // a later call was done before this one
	Known    bool           `json:"known"`    // there was a lease
	Repaired bool           `json:"repaired"` // the key held something else
	Gateways int            `json:"gateways"`
	Saw      sight          `json:"saw"`
	Charged  budget.Amounts `json:"charged"`
	Held     budget.Amounts `json:"held"`
	Slice    budget.Amounts `json:"slice"`  // new, besides what was kept
	Target   budget.Amounts `json:"target"` // the size of a slice now; 0 for no slice
	// Verdicts answer the asks: 0 or 1 + the rule, and how much is missing.
	Verdicts [][2]float64 `json:"verdicts"`
}
