package ratelimit

import (
	"math"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forebay-io/forebay/admission/budget"
)

// units are the protocol's names of how long a limit counts.
var units = [budget.RuleCount]rlsv3.RateLimitResponse_RateLimit_Unit{
	budget.Requests: rlsv3.RateLimitResponse_RateLimit_MINUTE, budget.InputTokens: rlsv3.RateLimitResponse_RateLimit_MINUTE,
	budget.OutputTokens: rlsv3.RateLimitResponse_RateLimit_MINUTE, budget.Tokens: rlsv3.RateLimitResponse_RateLimit_MINUTE,
	budget.Hour: rlsv3.RateLimitResponse_RateLimit_HOUR, budget.Day: rlsv3.RateLimitResponse_RateLimit_DAY,
	budget.Month: rlsv3.RateLimitResponse_RateLimit_MONTH,
}

// status is the answer to one descriptor: the refusing limit, or the one with the
// least left.
func (c *charge) status(shadow bool) *rlsv3.RateLimitResponse_DescriptorStatus {
	d := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
	rule, ok := c.tightest()
	if c.refusal != nil {
		if !shadow {
			d.Code = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		rule, ok = c.refusal.Rule, c.refusal.Rule < budget.RuleCount
	}
	if !ok {
		return d
	}
	limit, state := c.states[rule].Limit, c.states[rule]
	if c.refusal != nil {
		limit = c.refusal.Limit
	}
	d.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{Name: rule.Key(), RequestsPerUnit: clampInt(limit), Unit: units[rule]}
	d.LimitRemaining = clampInt(state.Remaining)
	d.DurationUntilReset = durationpb.New(state.Reset)
	return d
}

// tightest is the limit of c's unit with the least left; ok is false where it has none.
func (c *charge) tightest() (tight budget.Rule, ok bool) {
	for _, rule := range c.unit.rules() {
		if s := &c.states[rule]; s.Limit > 0 && (!ok || s.Remaining < c.states[tight].Remaining) {
			tight, ok = rule, true
		}
	}
	return tight, ok
}

// retryAfter is the header that tells a client when to come back.
func retryAfter(wait time.Duration) []*corev3.HeaderValue {
	if wait <= 0 {
		return nil
	}
	return []*corev3.HeaderValue{{Key: "retry-after", Value: strconv.Itoa(int(math.Ceil(wait.Seconds())))}}
}
