package admission

import "time"

// Config says who may use what, and bounds what runs and what waits.
type Config struct {
	RunningSequencesMax int           `yaml:"running_sequences_max" default:"64" range:"1.." help:"Sequences that run at once; a request takes one for each prompt and choice."`
	WaitingRequestsMax  int           `yaml:"waiting_requests_max" default:"1024" range:"1.." help:"Requests that may wait, over all classes."`
	WaitingTokensMax    int           `yaml:"waiting_tokens_max" default:"4000000" range:"1.." help:"Uncached prompt tokens that may wait, over all requests."`
	WaitingBytesMax     int           `yaml:"waiting_bytes_max" default:"268435456" range:"1.." help:"Memory that waiting requests may hold, in bytes."`
	WaitLimit           time.Duration `yaml:"wait_limit" default:"60s" help:"Longest wait for admission."`
}
