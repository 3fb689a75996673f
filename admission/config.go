package admission

import "time"

// Config says who may use which class, and bounds what runs and what waits.
type Config struct {
	RunningSequencesMax int           `yaml:"running_sequences_max" default:"64" range:"1.." help:"Sequences that run at once; a request takes one for each prompt and choice."`
	WaitingRequestsMax  int           `yaml:"waiting_requests_max" default:"1024" range:"1.." help:"Requests that may wait, over all classes."`
	WaitingTokensMax    int           `yaml:"waiting_tokens_max" default:"4000000" range:"1.." help:"Uncached prompt tokens that may wait, over all requests."`
	WaitingBytesMax     int           `yaml:"waiting_bytes_max" default:"268435456" range:"1.." help:"Memory that waiting requests may hold, in bytes."`
	WaitLimit           time.Duration `yaml:"wait_limit" help:"Longest wait for a start, in every class; 0 leaves it to the classes."`

	Classes      []Class      `yaml:"classes" help:"Kinds of traffic. interactive, batch and offline always exist; an entry of that name changes one."`
	DefaultClass string       `yaml:"default_class" default:"interactive" help:"Class of a request whose class nothing else says."`
	Routes       []RouteClass `yaml:"routes" help:"Classes by route, for requests that name none."`
	Tenants      []Tenant     `yaml:"tenants" help:"Who may use this gateway. If none is listed, all requests belong to one tenant and no key is checked."`
	PartLimits   []PartLimits `yaml:"part_limits" help:"Budgets of a part of a tenant's requests: by model, class and route."`

	Aging            float64       `yaml:"aging" default:"2" range:"0.1..100" help:"Order of service: a request of cost c goes by its arrival plus this many times c, so that small ones pass large ones for that long."`
	LongPrefill      time.Duration `yaml:"long_prefill" default:"2s" help:"Prefill time from which a request goes by the long lane, which leaves most of each step to short ones."`
	LongShare        float64       `yaml:"long_share" default:"0.25" range:"0.1..0.9" help:"Share of a step's prefill that the long lane gets while short requests wait. Set the engine's to the same."`
	OversizedPrefill time.Duration `yaml:"oversized_prefill" help:"Prefill time from which a request is oversized, see classes; 0 is never."`
	LastingWait      float64       `yaml:"lasting_wait" default:"0.3" range:"0.1..1" help:"How long the queue of interactive requests is kept in a lasting overload, as a share of first_token_goal. A burst may use the whole goal."`
	Quantum          time.Duration `yaml:"quantum" default:"300ms" help:"Engine time that each tenant gets in a turn, times its weight."`
	LengthsMax       int           `yaml:"lengths_max" default:"20000" range:"64..10000000" help:"Most histograms of answer lengths, of about 350 bytes each."`
}

// RouteClass gives the requests of a route a class.
type RouteClass struct {
	Route string `yaml:"route" oneof:"chat_completions completions embeddings messages rerank responses" help:"Route, as in the metrics."`
	Class string `yaml:"class" help:"Class of its requests."`
}
