// Package shared keeps the budgets of many gateways in one Redis, or in a cluster.
//
// Goal: a limit holds over all gateways to within one hundredth. Redis is asked
// rarely, and waited for no longer than Config.DecisionLimit. If Redis or a gateway
// fails, nothing is charged twice or kept for ever.
//
// Non-goals: a history. Redis holds only what is needed to decide.
//
// How it works. Redis has one value for each tenant and model: the levels of its
// buckets, and a lease for each gateway. A gateway is charged in Redis before it
// uses anything: for its running requests, and for a slice, from which it admits
// without asking. One script, sync.lua, does everything in one step. It takes the
// total that the gateway should have been charged, and charges or gives back the
// difference from the total that it knows. It decides on waiting asks, each by all
// rules or none, hands out a new slice, and renews the lease. Since totals are sent
// and not differences, the next call corrects one that was lost, late or done
// twice. A lease that is not renewed runs out, and what it held is given back. The
// time is Redis's own.
//
// The slices of all gateways together hold at most a hundredth of the limit, so
// over any 60 seconds admission exceeds limit + burst by at most that.
//
// When Redis does not answer, the breaker opens and Config.OnFailure decides. With
// local, each gateway spends its slice until its lease would have run out, and its
// part of the limit. Redis is told what it used when it is back. In a cluster each
// account has a breaker for its own server too, so that one server that is away
// concerns the budgets that it has, and no others.
//
// A book that Redis does not have, or made anew, says nothing about whether the one
// before was lost or had become full. So each gateway sends what it last saw, and
// when. The new book begins with the latest state that any gateway saw, refilled to
// the time when it was made; if a later one becomes known, that is made up for. Since
// each change of a book is seen by the gateway that makes it, one of them knew all. With
// a state goes what each gateway had been charged in it, since a gateway whose answer was
// lost does not know that itself: of quotas each is charged the difference to what it used.
//
//   - store.go: the methods for gateways, the loop, the use of the breaker
//   - account.go: one tenant and model: its slice, waiting asks, calls to Redis
//   - fallback.go: the rules while Redis does not answer
//   - ledger.go: the calls; redis.go: their transport; sync.lua: the script
package shared
