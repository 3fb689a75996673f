//go:build cuda

package gpu

import (
	"fmt"

	"github.com/forebay-io/forebay/engine/model"
)

// architectures are those whose passes are compared with references on the emulated driver.
// Others may describe what forward does not know, so they are refused.
var architectures = map[string]bool{
	"llama": true, "granite": true, "smollm3": true, "qwen2": true, "qwen3": true, "qwen3moe": true,
	"gemma2": true, "gemma3": true, "phi3": true, "gpt-oss": true,
}

// headDimMax is what a block of the attention kernels has threads for.
const headDimMax = 256

// check refuses what the GPU does not compute.
func check(c *model.Config, o *model.Options) error {
	if !architectures[c.Architecture] {
		return fmt.Errorf("architecture %s is not computed on the GPU; give --device cpu", c.Architecture)
	}
	if c.Pooling != model.PoolNone {
		return fmt.Errorf("embeddings are not computed on the GPU; give --device cpu")
	}
	if o.BatchTokensMax*max(1, c.ExpertsUsed) > batchMax*8 || o.BatchTokensMax > batchMax {
		return fmt.Errorf("steps of %d tokens are asked for; on the GPU the most are %d", o.BatchTokensMax, batchMax/max(1, c.ExpertsUsed/8))
	}
	for i := range c.Layers {
		d := &c.Layers[i]
		if d.HeadDim > headDimMax || d.HeadDim%4 != 0 {
			return fmt.Errorf("heads of %d numbers are not computed on the GPU; multiples of 4 up to %d are", d.HeadDim, headDimMax)
		}
	}
	return nil
}
