package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
)

// Config describes a model: what Forward must compute and at which sizes.
type Config struct {
	Architecture string // as the file names it
	Name         string // general.name, or the architecture

	ContextTokens int // that the model was trained for
	WindowTokens  int // a token sees itself and WindowTokens−1 before it; 0 means all
	Vocab         int // rows of the embedding, and logits of a token
	Layers        int
	Embed         int // width of the residual stream
	FF            int // width of the feed-forward layer
	Heads         int
	KVHeads       int // divides Heads
	HeadDim       int
	NormEps       float32
	Tied          bool // the output matrix is the embedding

	RopeDims    int // of each head's first dimensions, even
	RopeTheta   float64
	RopePairing Pairing
	RopeFactors []float32 // divisors of the RopeDims/2 frequencies; nil means 1

	AttentionScale float32
}

// PageBytes is the memory of pageTokens positions over all layers, keys and
// values: at least 1, and no overflow for up to 2^16 positions.
func (c *Config) PageBytes(pageTokens int) int {
	return c.Layers * 2 * 4 * c.KVHeads * pageTokens * c.HeadDim
}

// Pairing says which two dimensions RoPE turns together.
type Pairing int

const (
	PairNeighbours Pairing = iota // 2i and 2i+1: llama's files
	PairHalves                    // i and i+RopeDims/2
)

// architectures has one row for each architecture that can be computed. The
// function reads all keys under its name; what it does not read is refused.
var architectures = map[string]func(k *keys, c *Config){
	"llama": readLlama,
}

// ReadConfig reads the description of the model in f, without its weights.
func ReadConfig(f *gguf.File) (Config, error) {
	arch, _, err := f.String("general.architecture")
	if err != nil {
		return Config{}, err
	}
	read, ok := architectures[arch]
	if !ok {
		return Config{}, fmt.Errorf("%s: architecture %q is not supported; supported: %s",
			f.Name(), arch, strings.Join(slices.Sorted(maps.Keys(architectures)), ", "))
	}
	c := Config{Architecture: arch}
	k := &keys{file: f, prefix: arch + ".", read: map[string]bool{}}
	k.checkWhole()
	read(k, &c)
	k.checkAllRead()
	if k.err != nil {
		return Config{}, k.err
	}
	c.Name, _, err = f.String("general.name")
	if c.Name == "" {
		c.Name = arch
	}
	return c, err
}

// readLlama reads llama 1 to 3.2, mistral, smollm and what else shares the name.
func readLlama(k *keys, c *Config) {
	k.refuseUnlessZero("expert_count", "mixtures of experts are not supported")
	k.refuseUnlessZero("expert_used_count", "mixtures of experts are not supported")
	k.readTransformer(c)
	if n, _ := k.whole("attention.sliding_window"); n != 0 {
		c.WindowTokens = k.size("attention.sliding_window")
	}
	if scaling := k.textOr("rope.scaling.type", "none"); scaling != "none" {
		k.fail("rope.scaling.type", "is %q; only scaling by the tensor rope_freqs is supported", scaling)
	}
	c.RopePairing = PairNeighbours
	c.RopeFactors = k.ropeFactors(c.RopeDims / 2)
}

// readTransformer reads what all decoder-only transformers have.
func (k *keys) readTransformer(c *Config) {
	c.ContextTokens = k.size("context_length")
	c.Layers = k.size("block_count")
	c.Embed = k.size("embedding_length")
	c.FF = k.size("feed_forward_length")
	c.Heads = k.size("attention.head_count")
	c.KVHeads = k.sizeOr("attention.head_count_kv", c.Heads)
	c.NormEps = float32(k.number("attention.layer_norm_rms_epsilon"))
	c.RopeTheta = k.numberOr("rope.freq_base", 10000)
	c.HeadDim = k.sizeOr("attention.key_length", 0)
	if k.err != nil {
		return
	}
	if !(c.NormEps > 0 && c.NormEps < 1) {
		k.fail("attention.layer_norm_rms_epsilon", "is %g; allowed are numbers over 0 and under 1", c.NormEps)
	}
	if !(c.RopeTheta >= 1 && c.RopeTheta <= 1e12) {
		k.fail("rope.freq_base", "is %g; allowed are numbers from 1 to 1e12", c.RopeTheta)
	}
	if tensors := len(k.file.Tensors); c.Layers > tensors {
		k.fail("block_count", "is %d, but the file has only %d tensors", c.Layers, tensors)
	}
	k.readHeads(c)
	c.Vocab = k.vocab()
	_, untied := k.file.Tensor("output.weight")
	c.Tied = !untied
}

// readHeads reads the size of a head, and what depends on it.
func (k *keys) readHeads(c *Config) {
	if c.Heads%c.KVHeads != 0 {
		k.fail("attention.head_count_kv", "is %d, which does not divide the %d heads", c.KVHeads, c.Heads)
	}
	if c.HeadDim == 0 {
		if c.Embed%c.Heads != 0 {
			k.fail("attention.head_count", "is %d, which does not divide the width of %d; such a model needs the key attention.key_length", c.Heads, c.Embed)
			return
		}
		c.HeadDim = c.Embed / c.Heads
	}
	if c.Heads > sizeMax/c.HeadDim {
		k.fail("attention.head_count", "is %d; allowed are up to %d numbers in all heads, and a head has %d", c.Heads, sizeMax, c.HeadDim)
	}
	c.AttentionScale = headScale(c.HeadDim)
	if v := k.sizeOr("attention.value_length", c.HeadDim); v != c.HeadDim {
		k.fail("attention.value_length", "is %d; only values as long as the keys (%d) are supported", v, c.HeadDim)
	}
	c.RopeDims = k.sizeOr("rope.dimension_count", c.HeadDim)
	if c.RopeDims > c.HeadDim || c.RopeDims%2 != 0 {
		k.fail("rope.dimension_count", "is %d; allowed are even numbers to the head's length of %d", c.RopeDims, c.HeadDim)
	}
}
