//go:build cuda

package gpu

import (
	"fmt"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// architectures are those whose passes are compared on the emulated driver with references, or with the CPU's.
// Others may describe what forward does not know, so they are refused.
var architectures = map[string]bool{
	"llama": true, "granite": true, "smollm3": true, "qwen2": true, "qwen3": true, "qwen3moe": true,
	"gemma2": true, "gemma3": true, "phi3": true, "gpt-oss": true, "glm4": true, "seed_oss": true, "ernie4_5": true,
	"olmo2": true, "exaone4": true, "hunyuan-dense": true, "mistral3": true, "glm4moe": true, "ernie4_5-moe": true, "minimax-m2": true, "qwen2moe": true,
	"olmoe": true, "granitemoe": true, "cohere2": true, "bailingmoe2": true, "phimoe": true, "llama4": true, "lfm2": true, "lfm2moe": true,
}

// onCPU is what to do about a refusal.
const onCPU = "give --device cpu"

// check refuses options that the GPU cannot follow.
func check(c *model.Config, o *model.Options) error {
	if o.BatchTokensMax*max(1, c.ExpertsUsed) > batchMax*8 || o.BatchTokensMax > batchMax {
		return fmt.Errorf("steps of %d tokens are asked for; on the GPU the most are %d", o.BatchTokensMax, batchMax/max(1, c.ExpertsUsed/8))
	}
	return nil
}

// Refusal says why no GPU computes a model: its architecture, what its description asks for, or
// the types of its weights. What the tensors themselves ask for is seen when it is placed.
func (*Device) Refusal(c *model.Config, types []kernels.Type) error {
	for _, t := range types {
		if cuda.TypeName(t) == "" {
			return fmt.Errorf("weights of type %s are not computed on the GPU", t)
		}
	}
	return refusal(c)
}

func refusal(c *model.Config) error {
	if !architectures[c.Architecture] {
		return fmt.Errorf("architecture %s is not computed on the GPU", c.Architecture)
	}
	if c.Pooling != model.PoolNone {
		return fmt.Errorf("embeddings are not computed on the GPU")
	}
	for _, f := range []struct {
		name string
		asks bool
	}{
		{"norms of the residual stream", c.SumNorms}, {"norms of outputs that take the mean off", c.CentredNorms && c.PostNorms},
		{"experts beside a dense layer", c.BesideDense},
		{"its recurrent layers", c.Recurrent.Kind > model.ShortConvolution},
		{"its activation", c.Activation > model.ClampedSiLU},
	} {
		if f.asks {
			return fmt.Errorf("%s: not computed on the GPU", f.name)
		}
	}
	for i := range c.Layers {
		d := &c.Layers[i]
		if d.KVHeads > 0 && (d.HeadDim > cuda.HeadDimMax || d.HeadDim%4 != 0) {
			return fmt.Errorf("heads of %d numbers are not computed on the GPU; multiples of 4 up to %d are", d.HeadDim, cuda.HeadDimMax)
		}
	}
	return nil
}

// checkWeights refuses tensors that the GPU would leave out.
func checkWeights(w *model.DeviceWeights) error {
	for i := range w.Layers {
		if w.Layers[i].PostAttention.Bias != nil || w.Layers[i].PostFF.Bias != nil {
			return fmt.Errorf("norms of outputs have biases: not computed on the GPU")
		}
	}
	return nil
}
