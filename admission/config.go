package admission

import "time"

// Config says who may use what, and bounds what runs and what waits.
type Config struct {
	RunningSequencesMax int           `yaml:"running_sequences_max" default:"64" range:"1.." help:"Sequences that run at once; a request takes one for each prompt and choice."`
	WaitingRequestsMax  int           `yaml:"waiting_requests_max" default:"1024" range:"1.." help:"Requests that may wait, over all classes."`
	WaitingTokensMax    int           `yaml:"waiting_tokens_max" default:"4000000" range:"1.." help:"Uncached prompt tokens that may wait, over all requests."`
	WaitingBytesMax     int           `yaml:"waiting_bytes_max" default:"268435456" range:"1.." help:"Memory that waiting requests may hold, in bytes."`
	WaitLimit           time.Duration `yaml:"wait_limit" help:"Longest wait for admission in every class; 0 leaves it to the classes."`

	Classes      []Class      `yaml:"classes" help:"Kinds of traffic. interactive, batch and offline are always there; naming one changes it."`
	DefaultClass string       `yaml:"default_class" default:"interactive" help:"Class of a request for which nothing else says one."`
	Routes       []RouteClass `yaml:"routes" help:"Classes by route, for requests that name none."`
	Tenants      []Tenant     `yaml:"tenants" help:"Who may use this gateway; none listed serves everybody as one tenant, whatever key they send."`

	Aging            float64       `yaml:"aging" default:"5" range:"0.1..100" help:"Slowdown that a request is promised: one that costs c goes as if it had arrived this many times c later."`
	LongPrefill      time.Duration `yaml:"long_prefill" default:"2s" help:"Prefill from which on a request goes by the long lane, which leaves short ones most of each step."`
	LongShare        float64       `yaml:"long_share" default:"0.25" range:"0.1..0.9" help:"Share of a step's prefill that the long lane gets while short requests wait; the engine's setting should be the same."`
	OversizedPrefill time.Duration `yaml:"oversized_prefill" help:"Prefill from which on a request is oversized, see classes; 0 is never."`
	Quantum          time.Duration `yaml:"quantum" default:"300ms" help:"Engine time by which tenants take turns."`
	LengthsMax       int           `yaml:"lengths_max" default:"20000" range:"64..10000000" help:"Histograms of answer lengths that are kept, about 350 bytes each."`
}

// RouteClass gives the requests of a route a class.
type RouteClass struct {
	Route string `yaml:"route" oneof:"chat_completions completions" help:"Route, as in the metrics."`
	Class string `yaml:"class" help:"Class of its requests."`
}
