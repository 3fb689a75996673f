package picker

import (
	"fmt"
	"time"
)

// Config says how replicas are picked.
type Config struct {
	On        bool          `yaml:"on" help:"Answers Envoy's external processing at envoy.listen with the replica that serves a request soonest. It needs siblings.store."`
	Pool      string        `yaml:"pool" help:"File with an InferencePool and InferenceObjectives of the Gateway API inference extension (YAML), read again when it changes; empty takes all replicas."`
	ShedWait  time.Duration `yaml:"shed_wait" default:"1s" range:"1ms..1h" help:"Predicted time to the first token from which on requests with an InferenceObjective of negative priority get 429."`
	ReadLimit time.Duration `yaml:"read_limit" default:"20ms" range:"1us..10s" help:"Longest wait for a prompt to be tokenized whose beginning was not seen before; then it goes by load."`
	ReadsMax  int           `yaml:"reads_max" default:"4" range:"1..1024" help:"Prompts that are tokenized at a time; while there are as many, others go by load and by what is remembered."`
	ChunksMax int           `yaml:"chunks_max" default:"65536" range:"64..16777216" help:"KiB of prompts whose blocks are remembered, of about 250 bytes of memory each; the oldest are forgotten."`
	BodyMax   int           `yaml:"body_bytes_max" default:"2097152" range:"1KiB..1GiB" help:"Longest body that is looked at; longer ones go by load. Where Envoy buffers bodies, one that is longer and does not say so in content-length fails."`
	BodiesMax int           `yaml:"bodies_bytes_max" default:"268435456" range:"1KiB..1TiB" help:"Bytes of all bodies that are looked at at a time; a request whose body does not fit in what is left goes by load at once."`
}

// Mistakes checks what no tag can say.
func (c *Config) Mistakes() error {
	if c.BodiesMax < c.BodyMax {
		return fmt.Errorf("bodies_bytes_max: %d is less than body_bytes_max, %d, so that the longest bodies would never fit", c.BodiesMax, c.BodyMax)
	}
	return nil
}
