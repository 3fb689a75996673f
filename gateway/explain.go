package gateway

import (
	"strconv"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/internal/wire"
)

// Headers by which an answer of a generation route says how it was scheduled.
const (
	demotedHeader    = "X-Forebay-Demoted-From"
	waitHeader       = "X-Forebay-Wait-Ms"
	waitReasonHeader = "X-Forebay-Wait-Reason"
	predictedHeader  = "X-Forebay-Predicted-Wait-Ms"
	ignoredHeader    = "X-Forebay-Ignored"
	groupHeader      = "X-Forebay-Group"
)

// whyQueued is the reason told by a stream that began while its request waited.
const whyQueued = "queued"

// explained appends the headers of this moment: the fields that were ignored, the
// class, the wait and why, and what is left of the tenant's budgets.
func (x *exchange) explained(all []httpd.Field) []httpd.Field {
	r := &x.record
	if x.record.Ignored != "" {
		all = append(all, httpd.Field{Name: ignoredHeader, Value: x.record.Ignored})
	}
	if r.Class == classNone {
		return all
	}
	all = append(all, httpd.Field{Name: classHeader, Value: r.Class})
	if r.DemotedFrom != "" {
		all = append(all, httpd.Field{Name: demotedHeader, Value: r.DemotedFrom})
	}
	if r.Prepared != 0 {
		until, why := r.Admitted, r.WaitReason
		if until == 0 {
			until = wire.Monotonic()
		}
		if why == "" {
			why = whyQueued
		}
		all = append(all, httpd.Field{Name: waitHeader, Value: strconv.FormatInt((until-r.Prepared)/1e6, 10)}, httpd.Field{Name: waitReasonHeader, Value: why})
	}
	if r.Group != "" {
		all = append(all, httpd.Field{Name: groupHeader, Value: r.Group})
	}
	if r.ServedBy != "" {
		all = append(all, httpd.Field{Name: servedByHeader, Value: r.ServedBy})
		if r.Placement != "" {
			all = append(all, httpd.Field{Name: placementHeader, Value: x.placement()})
		}
	}
	if x.budgets != nil {
		return appendBudgets(all, x.budgets(), x.refusedBy)
	}
	return all
}

// rateNames are the budgets' names in OpenAI's headers.
var rateNames = [...]string{budget.Requests: "Requests", budget.InputTokens: "Input-Tokens", budget.OutputTokens: "Output-Tokens"}

// tokenRules are the budgets of which one is shown as that of tokens.
var tokenRules = [...]budget.Rule{budget.InputTokens, budget.OutputTokens, budget.Tokens, budget.Hour, budget.Day, budget.Month}

// appendBudgets appends the x-ratelimit headers of the budgets that are set. The
// header for tokens shows the limit of tokens that refused the request, or the one
// with the smallest part left.
func appendBudgets(all []httpd.Field, states budget.States, refusedBy budget.Rule) []httpd.Field {
	var tokens budget.State
	for _, rule := range tokenRules {
		s := states[rule]
		if rule == refusedBy {
			tokens = s
			break
		}
		if s.Limit > 0 && (tokens.Limit == 0 || s.Remaining*tokens.Limit < tokens.Remaining*s.Limit) {
			tokens = s
		}
	}
	for rule, name := range rateNames {
		all = appendBudget(all, name, states[rule])
	}
	return appendBudget(all, "Tokens", tokens)
}

func appendBudget(all []httpd.Field, name string, s budget.State) []httpd.Field {
	if s.Limit == 0 {
		return all
	}
	return append(all,
		httpd.Field{Name: "X-Ratelimit-Limit-" + name, Value: strconv.Itoa(int(s.Limit))},
		httpd.Field{Name: "X-Ratelimit-Remaining-" + name, Value: strconv.Itoa(int(s.Remaining))},
		httpd.Field{Name: "X-Ratelimit-Reset-" + name, Value: s.Reset.Round(time.Millisecond).String()})
}
