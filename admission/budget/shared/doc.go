// Package shared keeps the budgets of many gateways in one Redis.
//
// Goal: a limit holds over all gateways to within one hundredth, Redis is asked
// rarely and never waited for longer than Config.DecisionLimit, and whatever
// becomes of Redis or of a gateway, nothing is charged twice or kept for ever.
//
// Non-goals: an account of the past. Redis holds what is needed to decide.
//
// How it works. Redis has one value for each tenant and model: the levels of
// its buckets, and a lease for each gateway. All that a gateway uses it was
// charged for before, in Redis: the requests that run, and a slice that is
// free, from which it admits without asking. One script, sync.lua, does all
// in one step: it takes what the gateway has been charged for in all, charges
// or gives back the difference to what it knew, decides on the asks that wait,
// each by all rules or none, hands out a new slice, and renews the lease. Since
// totals are sent and not differences, a call that was lost, late or done twice
// is put right by the next. A lease that is not renewed runs out, and what it
// held is given back. Time is Redis's own.
//
// Of the limit, the slices of all gateways hold a hundredth at most, so that
// is what admission over any 60 seconds may exceed limit + burst by.
//
// When Redis does not answer, the breaker opens, and Config.OnFailure decides:
// with local, each gateway spends its slice while its lease would run, and
// beside it its part of the limit. What it used so is charged when Redis is
// back. A bucket that Redis has forgotten starts empty for those who knew it.
//
//   - store.go: what gateways call, the clock of it all, the breaker's use
//   - account.go: one tenant and model: slice, asks that wait, calls to Redis
//   - fallback.go: what holds while Redis does not answer
//   - ledger.go: the calls, redis.go: over the wire, sync.lua: in Redis
package shared
