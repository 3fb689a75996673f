package admission

import (
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// Class is a kind of traffic, with its goals and its limits. A field that is
// zero takes what its level's class has by default.
type Class struct {
	Name  string `yaml:"name" help:"Name, as in the header x-forebay-class."`
	Level string `yaml:"level" oneof:"interactive batch offline" help:"Whose place and defaults it takes; empty takes that of its own name, or interactive."`

	FirstTokenGoal time.Duration `yaml:"first_token_goal" help:"Time to first token that admission keeps, from arrival. The level's: interactive 2s, batch 60s, offline none."`
	PrefillSlack   float64       `yaml:"prefill_slack" range:"0.01..100" help:"How often its own prefill a request may take on top of that goal; 0 is 2."`
	TokenGoal      time.Duration `yaml:"token_goal" help:"Time between tokens that the engine keeps. The level's: interactive 100ms, others none."`
	AgeCap         time.Duration `yaml:"age_cap" help:"Time after whose arrival nobody newer goes first. The level's: interactive 10s, batch 2m, offline 30m."`
	WaitLimit      time.Duration `yaml:"wait_limit" help:"Longest wait. The level's: interactive 30s, batch 10m, offline 24h."`
	Window         time.Duration `yaml:"window" help:"Time that an idle engine waits for company. The level's: interactive none, batch 10ms, offline 50ms."`

	Floor float64 `yaml:"floor" range:"0..0.9" help:"Share of engine time that it gets while it has work. The level's: batch 0.15, offline 0.05."`
	Cap   float64 `yaml:"cap" range:"0.01..1" help:"Share of running places and of key and value memory that it may hold. The level's: interactive 1, batch 0.75, offline 0.5."`

	WaitingRequestsMax int   `yaml:"waiting_requests_max" range:"1.." help:"Requests that may wait."`
	WaitingBytesMax    int64 `yaml:"waiting_bytes_max" range:"1.." help:"Memory that they may hold."`
	PromptTokensMax    int   `yaml:"prompt_tokens_max" range:"1.." help:"Longest prompt; what becomes of a longer one, oversized says. 0 leaves it to the model."`
	OutputTokensMax    int   `yaml:"output_tokens_max" range:"1.." help:"Longest answer; more is cut to it. 0 leaves it to the model."`

	Late      string `yaml:"late" oneof:"refuse demote" help:"What becomes of a request that would miss its goal: refused at once, or demoted to the offline class. The level's: batch demote, others refuse."`
	Oversized string `yaml:"oversized" oneof:"allow refuse demote" help:"What becomes of a prompt over prompt_tokens_max, or whose prefill is over admission.oversized_prefill: allowed, refused, or demoted to the offline class. Empty refuses what is over prompt_tokens_max and allows the rest."`

	BusyOutputTokens int `yaml:"busy_output_tokens" range:"1.." help:"Longest answer while the gateway is overloaded; 0 cuts none."`
}

// Tenant is who pays, with its rights and its share.
type Tenant struct {
	Name    string        `yaml:"name" help:"Name in logs and metrics."`
	Keys    []string      `yaml:"keys" secret:"true" help:"API keys that name it, or sha256:HEX of them; * is every key that names nobody, and none."`
	Classes []string      `yaml:"classes" help:"Classes it may use; none listed allows all. A request for another is clamped to the first."`
	Weight  float64       `yaml:"weight" range:"0.01..100" default:"1" help:"Its share of engine time beside others."`
	Limits  budget.Limits `yaml:"limits" help:"Budgets."`
}
