package budget

// Limits are a tenant's budgets for each model; 0 is no limit.
type Limits struct {
	RequestsPerMinute     int `yaml:"requests_per_minute" range:"1.." help:"Requests a minute."`
	InputTokensPerMinute  int `yaml:"input_tokens_per_minute" range:"1.." help:"Uncached prompt tokens a minute."`
	OutputTokensPerMinute int `yaml:"output_tokens_per_minute" range:"1.." help:"Generated tokens a minute."`
	Concurrency           int `yaml:"concurrency" range:"1.." help:"Requests at the same time."`
	TokensPerDay          int `yaml:"tokens_per_day" range:"1.." help:"Prompt and generated tokens a day, UTC."`
}
