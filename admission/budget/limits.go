package budget

import (
	"math"
	"strconv"
	"time"
)

// Limits are the budgets of a scope; 0 is no limit.
type Limits struct {
	RequestsPerMinute     int     `yaml:"requests_per_minute" range:"1..1000000000" help:"Requests a minute."`
	InputTokensPerMinute  int     `yaml:"input_tokens_per_minute" range:"1..1000000000" help:"Uncached prompt tokens a minute."`
	OutputTokensPerMinute int     `yaml:"output_tokens_per_minute" range:"1..1000000000" help:"Generated tokens a minute."`
	TokensPerMinute       int     `yaml:"tokens_per_minute" range:"1..1000000000" help:"Uncached prompt tokens and generated tokens a minute."`
	Concurrency           int     `yaml:"concurrency" range:"1..1000000000" help:"Requests at the same time."`
	TokensPerHour         int     `yaml:"tokens_per_hour" range:"1..1000000000000" help:"Uncached prompt tokens and generated tokens an hour, from minute 0."`
	TokensPerDay          int     `yaml:"tokens_per_day" range:"1..1000000000000" help:"Uncached prompt tokens and generated tokens a day, UTC."`
	TokensPerMonth        int     `yaml:"tokens_per_month" range:"1..1000000000000" help:"Uncached prompt tokens and generated tokens a calendar month, UTC."`
	CostPerDay            float64 `yaml:"cost_per_day" range:"0.000001..1000000000" help:"Money a day, UTC, by budget.prices."`
	CostPerMonth          float64 `yaml:"cost_per_month" range:"0.000001..1000000000" help:"Money a calendar month, UTC, by budget.prices."`
	DryRun                bool    `yaml:"dry_run" help:"Counts what these limits would refuse, and refuses nothing."`
}

// Any says that there is a limit.
func (l *Limits) Any() bool {
	return *l != Limits{} && *l != Limits{DryRun: true}
}

// Rule is one of the budgets.
type Rule uint8

// The rules. When several refuse, a Refusal names the first.
const (
	Requests Rule = iota
	InputTokens
	OutputTokens
	Concurrency
	Day
	Tokens
	Hour
	Month
	CostDay
	CostMonth
	RuleCount
	// Shared is the rule of a refusal without a budget: the shared store did not
	// answer, and Config.OnFailure is closed.
	Shared
)

var ruleNames = [...]string{"requests", "input_tokens", "output_tokens", "concurrency", "day", "tokens", "hour", "month", "cost_day", "cost_month", "", "store"}

// String returns the rule's stable name.
func (r Rule) String() string { return ruleNames[r] }

// Key is the rule's key in the configuration.
func (r Rule) Key() string { return ruleKeys[r] }

var ruleKeys = [RuleCount]string{"requests_per_minute", "input_tokens_per_minute", "output_tokens_per_minute", "concurrency", "tokens_per_day", "tokens_per_minute", "tokens_per_hour", "tokens_per_month", "cost_per_day", "cost_per_month"}

// Buckets says which rules refill with time.
var Buckets = [RuleCount]bool{Requests: true, InputTokens: true, OutputTokens: true, Tokens: true}

// Spans are the windows of rules that begin anew at fixed times: seconds from 1970,
// MonthSpan, or 0 for rules without windows.
var Spans = [RuleCount]int64{Day: daySeconds, Hour: hourSeconds, Month: MonthSpan, CostDay: daySeconds, CostMonth: MonthSpan}

const (
	hourSeconds = 60 * 60
	daySeconds  = 24 * hourSeconds
	// MonthSpan stands for a calendar month in Spans.
	MonthSpan = -1
)

// Window is the number of the window of rule that t is in, 0 where it has none.
func Window(rule Rule, t time.Time) int64 {
	switch span := Spans[rule]; span {
	case 0:
		return 0
	case MonthSpan:
		y, m, _ := t.UTC().Date()
		return int64(y)*12 + int64(m)
	default:
		return t.Unix() / span
	}
}

// untilNext is the time until the rule's next window.
func untilNext(rule Rule, now time.Time) time.Duration {
	if Spans[rule] == MonthSpan {
		y, m, _ := now.UTC().Date()
		return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC).Sub(now)
	}
	return time.Unix((now.Unix()/Spans[rule]+1)*Spans[rule], 0).Sub(now)
}

// Amounts is a number for each rule: of requests, tokens, or money.
type Amounts [RuleCount]float64

// Plus returns a + times × b.
func (a Amounts) Plus(times float64, b Amounts) Amounts {
	for k := range a {
		a[k] += times * b[k]
	}
	return a
}

// Expire takes from a, which is to be given back, what belongs to a window that is
// over: what was not used in it is not given to the next.
func (a *Amounts) Expire(from, now time.Time) {
	if from.Unix()/hourSeconds == now.Unix()/hourSeconds {
		return
	}
	for k := range a {
		if a[k] > 0 && Window(Rule(k), from) != Window(Rule(k), now) {
			a[k] = 0
		}
	}
}

// Price is what one token costs, in the unit of Limits.CostPerDay.
type Price struct{ Prompt, Cached, Output float64 }

// amounts is what some tokens take from each budget, without the request itself.
func (p *Price) amounts(input, cached, output int) Amounts {
	in, out := float64(max(0, input)), float64(max(0, output))
	cost := in*p.Prompt + float64(max(0, cached))*p.Cached + out*p.Output
	return Amounts{InputTokens: in, OutputTokens: out, Day: in + out, Tokens: in + out, Hour: in + out, Month: in + out, CostDay: cost, CostMonth: cost}
}

// Cost is what tokens cost.
func (p *Price) Cost(input, cached, output int) float64 {
	return p.amounts(input, cached, output)[CostDay]
}

// OutputAmounts is what a number of output tokens takes; it may be negative.
func (p *Price) OutputAmounts(n float64) Amounts {
	return Amounts{OutputTokens: n, Day: n, Tokens: n, Hour: n, Month: n, CostDay: n * p.Output, CostMonth: n * p.Output}
}

// Terms are Limits as numbers for counting. A rule whose Limit is 0 does not apply.
type Terms struct {
	Limit Amounts
	Rate  Amounts // refill a second; 0 for budgets that do not refill with time
	Hold  Amounts // the most that a bucket holds
}

// Terms computes l's terms, for buckets that hold what refills in burst.
func (l Limits) Terms(burst time.Duration) (t Terms) {
	t.Limit = Amounts{
		Requests: float64(l.RequestsPerMinute), InputTokens: float64(l.InputTokensPerMinute), OutputTokens: float64(l.OutputTokensPerMinute),
		Concurrency: float64(l.Concurrency), Day: float64(l.TokensPerDay), Tokens: float64(l.TokensPerMinute), Hour: float64(l.TokensPerHour),
		Month: float64(l.TokensPerMonth), CostDay: l.CostPerDay, CostMonth: l.CostPerMonth,
	}
	t.Hold = t.Limit
	for k := range t.Limit {
		if Buckets[k] && t.Limit[k] > 0 {
			t.Rate[k] = t.Limit[k] / 60
			// Whole numbers, as requests and tokens are.
			t.Hold[k] = max(1, float64(int(t.Rate[k]*burst.Seconds())))
		}
	}
	return t
}

// Short returns the first rule whose level is too low for ask, and how much is
// missing; ok says that there is none.
func (t *Terms) Short(levels, ask *Amounts) (rule Rule, missing float64, ok bool) {
	for k := range ask {
		// An ask that is larger than the bucket needs all of it, and leaves a debt.
		if missing := min(ask[k], t.Hold[k]) - levels[k]; t.Limit[k] > 0 && ask[k] > 0 && missing > rounding {
			return Rule(k), missing, false
		}
	}
	return 0, 0, true
}

// rounding is the rounding error that sums of fractions of a token may have.
const rounding = 1e-6

// States are the budgets at levels, as a tenant may see them.
func (t *Terms) States(levels *Amounts, now time.Time) (states States) {
	for k := range states {
		limit := t.Limit[k]
		if limit == 0 {
			continue
		}
		states[k] = State{Limit: limit, Remaining: max(0, levels[k]), Used: max(0, t.Hold[k]-levels[k])}
		if rule := Rule(k); rule != CostDay && rule != CostMonth {
			states[k].Remaining = math.Floor(states[k].Remaining + rounding)
		}
		switch missing := t.Hold[k] - levels[k]; {
		case Spans[k] != 0:
			states[k].Reset = untilNext(Rule(k), now)
		case missing > rounding && t.Rate[k] > 0:
			states[k].Reset = seconds(missing / t.Rate[k])
		}
	}
	return states
}

// Whole are the budgets of which nothing was used.
func Whole(limits Limits, burst time.Duration, now time.Time) States {
	t := limits.Terms(burst)
	return t.States(&t.Hold, now)
}

// number writes x without needless digits.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
