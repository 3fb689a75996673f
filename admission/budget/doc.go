// Package budget holds tenants to their limits: requests and tokens a minute,
// requests at once, tokens a day.
//
// Goal: what is reserved at admission is settled exactly once, whatever
// becomes of the request, and limits hold over all gateways that share a store.
//
// Non-goals: who goes first (admission), and HTTP (gateway).
//
// How it counts. Requests, uncached prompt tokens and generated tokens each
// have a bucket that refills by time alone, at a sixtieth of the limit a
// second, and holds at most Config.Burst worth of it, but one token at least.
// So within ANY 60 seconds no more is admitted than limit + burst. A request
// that is larger than the burst, but no larger than the limit, may start when
// the bucket is full and leaves a debt; where such requests come, the bound is
// limit + the largest of them. An answer that grows past what was reserved for
// it is never cut: it takes steps of ExtendTokens, the bucket goes into debt,
// and later requests wait for it.
//
// Local is the store of one process. Package shared has the one for many.
package budget
