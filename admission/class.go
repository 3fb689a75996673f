package admission

import (
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// Class is a kind of traffic, with its goals and its limits. A field that is
// zero takes the value of its level's built-in class.
type Class struct {
	Name  string `yaml:"name" help:"Name, as in the header x-forebay-class."`
	Level string `yaml:"level" oneof:"interactive batch offline" help:"Level: interactive, batch or offline, which gives the urgency and the defaults. Empty is the class's own name, or interactive."`

	FirstTokenGoal time.Duration `yaml:"first_token_goal" help:"Goal for the time from arrival to the first token, which admission keeps. By level: interactive 2s, batch 60s, offline none."`
	PrefillSlack   float64       `yaml:"prefill_slack" range:"0.01..100" help:"Times its own prefill that are added to a request's goal; 0 is 2."`
	TokenGoal      time.Duration `yaml:"token_goal" help:"Goal for the time between tokens, which the engine keeps. By level: interactive 100ms, others none."`
	AgeCap         time.Duration `yaml:"age_cap" help:"A request that arrives this much later never passes an older one. By level: interactive 10s, batch 2m, offline 30m."`
	WaitLimit      time.Duration `yaml:"wait_limit" help:"Longest wait for a start. By level: interactive 30s, batch 10m, offline 24h."`
	Window         time.Duration `yaml:"window" help:"Time that an idle engine waits for more requests to share a step. By level: interactive none, batch 10ms, offline 50ms."`

	Floor float64 `yaml:"floor" range:"0..0.9" help:"Share of engine time that the class gets while it has requests. By level: batch 0.15, offline 0.05."`
	Cap   float64 `yaml:"cap" range:"0.01..1" help:"Share of the running places and of the key and value memory that the class may hold. By level: interactive 1, batch 0.75, offline 0.5."`

	WaitingRequestsMax int   `yaml:"waiting_requests_max" range:"1.." help:"Requests of the class that may wait."`
	WaitingBytesMax    int64 `yaml:"waiting_bytes_max" range:"1.." help:"Memory that its waiting requests may hold, in bytes."`
	PromptTokensMax    int   `yaml:"prompt_tokens_max" range:"1.." help:"Longest prompt; oversized says what happens to a longer one. 0 leaves it to the model."`
	OutputTokensMax    int   `yaml:"output_tokens_max" range:"1.." help:"Longest answer; a larger max_tokens is cut to it. 0 leaves it to the model."`

	Late      string `yaml:"late" oneof:"refuse demote" help:"What happens to a request that would miss its goal: refuse it at once, or demote it to the offline class. By level: batch demote, others refuse."`
	Oversized string `yaml:"oversized" oneof:"allow refuse demote" help:"What happens to a prompt over prompt_tokens_max, or with a prefill over admission.oversized_prefill: allow it, refuse it, or demote it to the offline class. Empty refuses the first and allows the second."`

	BusyOutputTokens int `yaml:"busy_output_tokens" range:"1.." help:"Longest answer during overload; 0 cuts none."`
}

// Tenant is a customer of the gateway: its keys, rights, share and budgets.
type Tenant struct {
	Name    string        `yaml:"name" help:"Name in logs and metrics."`
	Keys    []string      `yaml:"keys" secret:"true" help:"API keys that name it, or sha256:HEX of them. * stands for requests without a known key."`
	Classes []string      `yaml:"classes" help:"Classes that it may use; none listed allows all. A request for another class gets the first."`
	Weight  float64       `yaml:"weight" range:"0.01..100" default:"1" help:"Weight of its share of engine time."`
	Limits  budget.Limits `yaml:"limits" help:"Budgets, for each model."`

	PinnedTokensMax int    `yaml:"pinned_tokens_max" range:"0.." help:"Prompt tokens that its requests may pin in memory, in each replica; 0 is none. Of a model with recurrent layers each pinned prompt counts its state too."`
	PrefixGroup     string `yaml:"prefix_group" help:"Tenants of the same group find each other's prompts in the cache, and so can learn by timing which were asked; empty shares with nobody."`

	UserLimits budget.Limits `yaml:"user_limits" help:"Budgets of each end user, besides the tenant's. The field user of a request names them; requests without it are one user's."`
}
