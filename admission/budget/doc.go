// Package budget holds tenants, and keys, users and parts below them, to their
// limits: requests and tokens a minute, requests at once, tokens and money a day or
// a month.
//
// Goal: what is reserved at admission is settled exactly once, however the request
// ends, and limits hold over all gateways that share a store.
//
// Non-goals: the order of requests (admission), and HTTP (gateway).
//
// How it counts. Requests, uncached prompt tokens and generated tokens each have a
// bucket. It refills with time, a sixtieth of the limit a second, and holds what
// refills in Config.Burst, and one token at least. So within any 60 seconds at most
// limit + burst is admitted. A request that is larger than the burst, but not than
// the limit, may start when the bucket is full, and leaves a debt; with such
// requests the bound is limit + the largest of them. An answer that grows past its
// reservation is never cut: it takes more in steps of ExtendTokens, the bucket goes
// into debt, and later requests wait for it.
//
// Local is the store of one process. Package shared has the store of many.
package budget
