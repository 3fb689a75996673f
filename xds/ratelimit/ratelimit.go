// Package ratelimit answers Envoy's rate limit service (ShouldRateLimit) from the
// budgets of the gateway's tenants.
//
// Goal: what a proxy asks about and what the gateway itself serves count in the same
// budgets, so that a limit holds over both. A request is taken from all budgets of
// all its descriptors, or from none.
//
// Non-goals: limits of its own (an override in a descriptor is ignored), and requests
// at once, since the protocol does not tell when a request ends.
//
// Ownership: a Service's methods may be called from any goroutine. It holds nothing
// between two calls.
package ratelimit

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/identity"
)

// Config says what the service stands on.
type Config struct {
	Directory *identity.Directory
	Store     budget.Store
	// Model is the model of descriptors that name none.
	Model func() string
	// Shadow answers OK in any case, and counts what it would have refused.
	Shadow bool
	// Took hears of each decision how long it took; nil for nobody.
	Took func(time.Duration)
}

// Service implements rlsv3.RateLimitServiceServer.
type Service struct {
	rlsv3.UnimplementedRateLimitServiceServer
	cfg    Config
	counts [resultCount]atomic.Uint64
}

// Results of decisions.
const (
	resultOK = iota
	resultOver
	resultShadow  // it would have been over the limit
	resultUnknown // no descriptor names a tenant that has limits
	resultCount
)

// ResultNames are the results as metrics name them, in the order of Counts.
var ResultNames = [resultCount]string{"ok", "over_limit", "shadow", "no_limit"}

// New makes a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// Counts are how many decisions had each result.
func (s *Service) Counts() (counts [resultCount]uint64) {
	for i := range counts {
		counts[i] = s.counts[i].Load()
	}
	return counts
}

// descriptorsMax bounds one question.
const descriptorsMax = 64

// ShouldRateLimit implements rlsv3.RateLimitServiceServer.
func (s *Service) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	began := time.Now()
	all := r.GetDescriptors()
	if len(all) == 0 || len(all) > descriptorsMax {
		return nil, status.Errorf(codes.InvalidArgument, "the request has %d descriptors; 1 to %d are allowed", len(all), descriptorsMax)
	}
	charges := make([]charge, len(all))
	for i, d := range all {
		if err := s.read(d, r.GetHitsAddend(), &charges[i]); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "descriptor %d: %v", i, err)
		}
	}
	response := s.decide(ctx, charges)
	if s.cfg.Took != nil {
		s.cfg.Took(time.Since(began))
	}
	return response, nil
}

// decide takes all charges, or gives back what it took.
func (s *Service) decide(ctx context.Context, charges []charge) *rlsv3.RateLimitResponse {
	response := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK, Statuses: make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(charges))}
	limited, over := false, false
	var wait time.Duration
	for i := range charges {
		c := &charges[i]
		limited = limited || c.caller != nil && len(c.ask.Scopes) > 0
		if refusal := c.take(ctx, s.cfg.Store); refusal != nil {
			over = true
			wait = max(wait, refusal.RetryAfter)
		}
	}
	for i := range charges {
		charges[i].end(over && !s.cfg.Shadow)
		response.Statuses[i] = charges[i].status(s.cfg.Shadow)
	}
	switch {
	case over && s.cfg.Shadow:
		s.counts[resultShadow].Add(1)
	case over:
		s.counts[resultOver].Add(1)
		response.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
		response.ResponseHeadersToAdd = retryAfter(wait)
	case limited:
		s.counts[resultOK].Add(1)
	default:
		s.counts[resultUnknown].Add(1)
	}
	return response
}

// unit is what a descriptor's hits count.
type unit string

// The units. Used tokens are charged in any case, and may leave a debt: they are for
// Envoy's apply_on_stream_done, which ignores the answer.
const (
	requests         unit = "requests"
	inputTokens      unit = "input_tokens"
	outputTokens     unit = "output_tokens"
	usedInputTokens  unit = "used_input_tokens"
	usedOutputTokens unit = "used_output_tokens"
)

// charge is what one descriptor asks for.
type charge struct {
	caller      *identity.Caller // nil where no tenant is named
	unit        unit
	hits        int
	back        bool // gives hits back
	ask         budget.Ask
	reservation *budget.Reservation
	refusal     *budget.Refusal
	states      budget.States
}

// hitsMax bounds what one descriptor may take.
const hitsMax = 1_000_000_000

// read reads a descriptor. Entries that are not known are ignored, since one
// descriptor may be for several services.
func (s *Service) read(d *limitv3.RateLimitDescriptor, addend uint32, c *charge) error {
	var class, route, user string
	c.unit = requests
	c.ask.Elsewhere = true
	for _, e := range d.GetEntries() {
		switch value := e.GetValue(); e.GetKey() {
		case "tenant":
			c.caller = s.cfg.Directory.Vouched(value, "")
		case "authorization":
			c.caller, _ = s.cfg.Directory.Identify(&identity.Presented{Bearer: bearer(value)}, time.Now())
		case "model":
			c.ask.Model = value
		case "class":
			class = value
		case "route":
			route = value
		case "user":
			user = value
		case "unit":
			c.unit = unit(value)
		}
	}
	switch c.unit {
	case requests, inputTokens, outputTokens, usedInputTokens, usedOutputTokens:
	default:
		return errors.New("the unit is none of requests, input_tokens, output_tokens, used_input_tokens, used_output_tokens")
	}
	hits := uint64(max(1, addend))
	if own := d.GetHitsAddend(); own != nil {
		hits = own.GetValue()
	}
	c.hits, c.back = int(min(hits, hitsMax)), d.GetIsNegativeHits()
	if c.caller == nil {
		return nil
	}
	if c.ask.Model == "" && s.cfg.Model != nil {
		c.ask.Model = s.cfg.Model()
	}
	tenant := &c.caller.Tenant
	c.ask.Tenant = tenant.Name
	c.ask.Scopes = c.caller.Policy.Scopes(tenant, c.ask.Model, class, route, user)
	if c.caller.Limits.Any() {
		c.ask.Scopes = append(c.ask.Scopes, budget.Scope{Kind: budget.KindKey, Name: c.caller.LimitsOf, Limits: c.caller.Limits})
	}
	return nil
}

// bearer is the key in the value of the header Authorization, or the value itself.
func bearer(value string) []byte {
	const scheme = "bearer "
	if len(value) > len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
		value = value[len(scheme):]
	}
	return []byte(value)
}

// take reserves what c asks for.
func (c *charge) take(ctx context.Context, store budget.Store) *budget.Refusal {
	if len(c.ask.Scopes) == 0 {
		return nil
	}
	if !c.back {
		switch c.unit {
		case requests:
			c.ask.Requests = c.hits
		case inputTokens:
			c.ask.Input = c.hits
		case outputTokens:
			c.ask.Output, c.ask.Asked = c.hits, c.hits
		}
	}
	var err error
	if c.reservation, err = store.Reserve(ctx, c.ask); err != nil {
		if !errors.As(err, &c.refusal) {
			c.refusal = &budget.Refusal{Rule: budget.Shared}
		}
		c.states = c.refusal.States
		return c.refusal
	}
	c.states = c.reservation.States()
	if rule, ok := c.empty(); ok {
		c.refusal = &budget.Refusal{Rule: rule, Limit: c.states[rule].Limit, RetryAfter: c.states[rule].Reset}
		return c.refusal
	}
	return nil
}

// empty is the first budget without anything left, where c only asks whether there is
// something.
func (c *charge) empty() (budget.Rule, bool) {
	if c.hits > 0 || c.unit == usedInputTokens || c.unit == usedOutputTokens {
		return 0, false
	}
	for _, rule := range c.unit.rules() {
		if s := &c.states[rule]; s.Limit > 0 && s.Remaining <= 0 {
			return rule, true
		}
	}
	return 0, false
}

// end settles what was taken, or gives it back. What was used is charged in any case.
func (c *charge) end(giveBack bool) {
	if c.reservation == nil {
		return
	}
	input, output := 0, 0
	switch c.unit {
	case inputTokens, usedInputTokens:
		input = c.hits
	case outputTokens, usedOutputTokens:
		output = c.hits
	}
	used := c.unit == usedInputTokens || c.unit == usedOutputTokens
	switch {
	case giveBack && !used:
		c.reservation.Refund()
	case c.back && c.unit == requests:
		c.reservation.Return(c.hits, 0, 0)
	case c.back:
		c.reservation.Return(0, input, output)
	default:
		c.reservation.Settle(input, output)
	}
	if c.refusal == nil {
		c.states = c.reservation.States()
	}
}

// rules are the budgets that a unit takes from, the first being the one that is
// shown where all have as much left.
func (u unit) rules() []budget.Rule {
	switch u {
	case requests:
		return []budget.Rule{budget.Requests}
	case inputTokens, usedInputTokens:
		return []budget.Rule{budget.InputTokens, budget.Tokens, budget.Hour, budget.Day, budget.Month}
	}
	return []budget.Rule{budget.OutputTokens, budget.Tokens, budget.Hour, budget.Day, budget.Month}
}

// clampInt is n as the protocol holds it.
func clampInt(n float64) uint32 { return uint32(max(0, min(n, math.MaxUint32))) }
