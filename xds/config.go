package xds

import "time"

// Config says where policy comes from, and what is kept of it.
type Config struct {
	Bootstrap  string        `yaml:"bootstrap" help:"Bootstrap file (in gRPC's format) of the control plane that policy comes from; empty takes that of the variable GRPC_XDS_BOOTSTRAP if it is set, off takes none."`
	Protocol   string        `yaml:"protocol" default:"delta" oneof:"delta sotw" help:"Protocol that is tried first: delta, which sends changes and falls back to sotw where the control plane does not know it, or sotw, which sends everything."`
	StateDir   string        `yaml:"state_dir" help:"Folder in which the last good policy is kept for the next start; empty keeps none."`
	FirstWait  time.Duration `yaml:"first_wait" default:"10s" range:"100ms..10m" help:"How long a start waits for the first policy, where none is kept. Then it goes on with its own configuration, unless that lists no tenants and keys: without them it ends, since everybody could use it."`
	FilesMax   int           `yaml:"files_max" default:"10000" range:"1..1000000" help:"Most files of a policy; more are refused."`
	BytesMax   int           `yaml:"total_bytes_max" default:"16777216" range:"1KiB..1GiB" help:"Most bytes of a policy; more are refused."`
	HealthEach time.Duration `yaml:"health_each" default:"5s" range:"100ms..1h" help:"How often the control plane is told how many requests there were and how many of them failed."`
	RetryMax   time.Duration `yaml:"retry_max" default:"30s" range:"1s..1h" help:"Longest pause before the control plane is asked again; pauses grow from 1s."`
}

// Off is the value of Bootstrap that takes none.
const Off = "off"

// backoff is the pause before the control plane is asked for the nth time in a row,
// from 0. random lies in 0..1, so that many gateways do not come back at once: it
// spreads the first pause over all of itself, and later ones by a fifth.
func backoff(n int, random float64, most time.Duration) time.Duration {
	const first, growth, spread = time.Second, 1.6, 0.2
	if n == 0 {
		return time.Duration(random * float64(first))
	}
	d := float64(first)
	for range n {
		d = min(d*growth, float64(most))
	}
	return time.Duration(d * (1 - spread + 2*spread*random))
}
