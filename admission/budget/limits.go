package budget

import "time"

// Limits are the budgets of a scope; 0 is no limit.
type Limits struct {
	RequestsPerMinute     int `yaml:"requests_per_minute" range:"1..1000000000" help:"Requests a minute."`
	InputTokensPerMinute  int `yaml:"input_tokens_per_minute" range:"1..1000000000" help:"Uncached prompt tokens a minute."`
	OutputTokensPerMinute int `yaml:"output_tokens_per_minute" range:"1..1000000000" help:"Generated tokens a minute."`
	Concurrency           int `yaml:"concurrency" range:"1..1000000000" help:"Requests at the same time."`
	TokensPerDay          int `yaml:"tokens_per_day" range:"1..1000000000000" help:"Uncached prompt tokens and generated tokens a day, UTC."`
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
	RuleCount
	// Shared is the rule of a refusal without a budget: the shared store did not
	// answer, and Config.OnFailure is closed.
	Shared
)

var ruleNames = [...]string{Requests: "requests", InputTokens: "input_tokens", OutputTokens: "output_tokens", Concurrency: "concurrency", Day: "day", RuleCount: "", Shared: "store"}

// String returns the rule's stable name.
func (r Rule) String() string { return ruleNames[r] }

var ruleKeys = [RuleCount]string{"requests_per_minute", "input_tokens_per_minute", "output_tokens_per_minute", "concurrency", "tokens_per_day"}

// Amounts is a number for each rule, of requests, tokens, tokens, requests, tokens.
type Amounts [RuleCount]float64

// Plus returns a + times × b.
func (a Amounts) Plus(times float64, b Amounts) Amounts {
	for k := range a {
		a[k] += times * b[k]
	}
	return a
}

// Terms are Limits as numbers for counting. A rule whose Limit is 0 does not apply.
type Terms struct {
	Limit Amounts
	Rate  Amounts // refill a second; 0 for budgets that do not refill with time
	Hold  Amounts // the most that a bucket holds
}

// Terms computes l's terms, for buckets that hold what refills in burst.
func (l Limits) Terms(burst time.Duration) (t Terms) {
	t.Limit = Amounts{float64(l.RequestsPerMinute), float64(l.InputTokensPerMinute), float64(l.OutputTokensPerMinute), float64(l.Concurrency), float64(l.TokensPerDay)}
	t.Hold = t.Limit
	for k := Requests; k <= OutputTokens; k++ {
		t.Rate[k] = t.Limit[k] / 60
		if t.Limit[k] > 0 {
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
		states[k] = State{Limit: int(limit), Remaining: int(max(0, levels[k]+rounding))}
		switch missing := t.Hold[k] - levels[k]; {
		case Rule(k) == Day:
			states[k].Reset = untilTomorrow(now)
		case missing > rounding && t.Rate[k] > 0:
			states[k].Reset = seconds(missing / t.Rate[k])
		}
	}
	return states
}
