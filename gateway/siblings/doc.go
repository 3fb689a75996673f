// Package siblings sends a request to the replica where its first token comes first.
//
// Goal: a prompt that any replica has computed is not computed again, unless that is
// sooner. Where a request goes is decided here, from memory, by one rule: the least
// predicted time to the first token, over this replica and its siblings.
//
//	predicted = the backlog before it + the prefill that is not cached + the hop
//
// While all replicas are busy the prefill counts for more than its time, since it delays
// everybody who waits (Choose).
//
// A sibling tells its backlog and its prices in a report (admission.Outlook), and its
// blocks, through package cache/shared: by Redis, or where siblings are found by a list
// or a name, by questions to each other (ADR 0036). What was sent to it since counts too. A
// request stays here unless another is sooner by Config.GainMin and a tenth: so two
// replicas that are alike do not exchange their requests. Nobody herds: a prefix that
// everybody asks for is computed again elsewhere once its holder's backlog costs more
// than that.
//
// The hop: one HTTP request carries a generation as the engine would get it (tokens,
// options, the tenant's salt), with its tenant, class, deadline and trace. It is
// signed with a secret that all replicas have. The sibling queues it in its own
// admission, and reserves no budget: that was done by the gateway that has the client.
// A request makes one hop at most. A hop that fails before its first token leaves
// the request where it was; after that the client is told that its stream has ended.
// Replicas whose fingerprints differ do not exchange requests, so the tokens are the
// same wherever they are computed.
//
// A proxy in front of the replicas may ask too (Pick): it gets the address of the API of
// the replica that is soonest, and brings the request there itself.
//
// Non-goals: what a reply looks like to its client, budgets, the order of requests
// (gateway, admission). Fairness between tenants holds in each replica; over all of
// them it does not: a tenant that sends to many replicas has a share of each.
//
// Ownership: a Group's methods may be called from any goroutine. Close ends its hops.
package siblings
