package model

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
)

// sizeMax bounds every size in a Config and the numbers of all heads together, so
// that a product of a few sizes never overflows.
const sizeMax = 1 << 24

func headScale(dim int) float32 { return float32(1 / math.Sqrt(float64(dim))) }

// keys reads the metadata under one architecture's prefix, and keeps what was
// read. The first failure stays in err.
type keys struct {
	file   *gguf.File
	prefix string
	read   map[string]bool
	// tensors that hold numbers of the description, such as rope's factors
	tensors    []string
	routerRead bool // by the architecture
	err        error
}

func (k *keys) fail(name, format string, args ...any) {
	k.keep(fmt.Errorf("%s: key %s%s: %s", k.file.Name(), k.prefix, name, fmt.Sprintf(format, args...)))
}

func (k *keys) keep(err error) {
	if k.err == nil {
		k.err = err
	}
}

// name marks a key as understood and returns its full name.
func (k *keys) name(name string) string {
	k.read[k.prefix+name] = true
	return k.prefix + name
}

// size reads a required whole number from 1 to sizeMax.
func (k *keys) size(name string) int {
	n, present := k.whole(name)
	switch {
	case !present:
		k.fail(name, "is missing")
	case n < 1 || n > sizeMax:
		k.fail(name, "is %d; allowed are 1 to %d", n, sizeMax)
	default:
		return int(n)
	}
	return 1
}

// sizeOr is size, with a value for an absent key.
func (k *keys) sizeOr(name string, absent int) int {
	if _, present := k.whole(name); !present {
		return absent
	}
	return k.size(name)
}

// sizeOrZero is size, but 0 stands for an absent key.
func (k *keys) sizeOrZero(name string) int {
	if n, _ := k.whole(name); n == 0 {
		return 0
	}
	return k.size(name)
}

// whole reads a whole number. Some makers write one for each layer; these must
// all be equal.
func (k *keys) whole(name string) (uint64, bool) {
	full := k.name(name)
	if k.file.Count(full) == 0 {
		n, present, err := k.file.Uint(full)
		if err != nil {
			k.keep(err)
		}
		return n, present
	}
	each, _, err := k.file.Ints(full)
	if err != nil {
		k.keep(err)
		return 0, true
	}
	for _, n := range each {
		switch {
		case n < 0:
			k.fail(name, "has a layer of %d; allowed are numbers from 0", n)
		case n != each[0]:
			k.fail(name, "differs between layers (%d and %d), which is not supported", each[0], n)
		}
	}
	return uint64(each[0]), true
}

// perLayer reads a whole number from 0 to sizeMax for each of n layers: one for all, or
// a list of all blocks, those that are passed over too.
func (k *keys) perLayer(name string, n, absent int) []int {
	full, each := k.name(name), make([]int, n)
	if k.file.Count(full) == 0 {
		one, present, err := k.file.Uint(full)
		switch {
		case err != nil:
			k.keep(err)
		case !present:
			one = uint64(absent)
		case one > sizeMax:
			k.fail(name, "is %d; allowed are up to %d", one, sizeMax)
			one = 1
		}
		for i := range each {
			each[i] = int(one)
		}
		return each
	}
	list, _, err := k.file.Ints(full)
	if err != nil {
		k.keep(err)
		return each
	}
	if blocks := k.size("block_count"); len(list) != blocks {
		k.fail(name, "has %d values for %d layers", len(list), blocks)
		return each
	}
	for i := range each {
		if list[i] < 0 || list[i] > sizeMax {
			k.fail(name, "has a layer of %d; allowed are numbers from 0 to %d", list[i], sizeMax)
			return each
		}
		each[i] = int(list[i])
	}
	return each
}

func (k *keys) number(name string) float64 {
	x, present, err := k.file.Float(k.name(name))
	if err != nil {
		k.keep(err)
	} else if !present {
		k.fail(name, "is missing")
	}
	return x
}

func (k *keys) numberOr(name string, absent float64) float64 {
	if k.file.Text(k.name(name)) == "" {
		return absent
	}
	return k.number(name)
}

func (k *keys) textOr(name, absent string) string {
	s, present, err := k.file.String(k.name(name))
	if err != nil {
		k.keep(err)
	}
	if !present {
		return absent
	}
	return s
}

// zero refuses any number but zero, which would switch a feature on, unless the
// feature is used.
func (k *keys) zero(name string, used bool, reason string) {
	if n, _ := k.whole(name); n != 0 && !used {
		k.fail(name, "is %d: %s", n, reason)
	}
}

// only refuses any number but want; the key may be absent.
func (k *keys) only(name string, want float64) {
	if x := k.numberOr(name, want); x != want {
		k.fail(name, "is %g; only %g is supported", x, want)
	}
}

// scale reads a factor; 0 stands for absent, as in the files of some makers.
func (k *keys) scale(name string, absent float32) float32 {
	x := float32(k.numberOr(name, 0))
	switch {
	case x == 0:
		return absent
	case !(x > 0) || math.IsInf(float64(x), 0):
		k.fail(name, "is %g; allowed are numbers over 0", x)
		return 1
	}
	return x
}

// softCap reads the bound of a soft cap, 0 for none.
func (k *keys) softCap(name string, absent float64) float32 {
	x := k.numberOr(name, absent)
	if !(x >= 0 && x <= 1e6) {
		k.fail(name, "is %g; allowed are numbers from 0 to 1e6", x)
	}
	return float32(x)
}

// theta reads the base of rope's speeds.
func (k *keys) theta(name string, absent float64) float64 {
	x := k.numberOr(name, absent)
	if !(x >= 1 && x <= 1e12) {
		k.fail(name, "is %g; allowed are numbers from 1 to 1e12", x)
	}
	return x
}

// windows reads the window and which layers have it: all but every period-th, or
// as the key says, by another period or layer by layer.
func (k *keys) windows(c *Config, period int) {
	window := k.size("attention.sliding_window")
	const pattern = "attention.sliding_window_pattern"
	if k.file.Count(k.prefix+pattern) == 0 {
		k.setWindows(c, window, k.sizeOr(pattern, period))
		return
	}
	each, _, err := k.file.Bools(k.name(pattern))
	if err != nil {
		k.keep(err)
	} else if len(each) < len(c.Layers) {
		k.fail(pattern, "has %d values for %d layers", len(each), len(c.Layers))
	}
	for i := range c.Layers {
		if k.err == nil && each[i] {
			c.Layers[i].WindowTokens = window
		}
	}
}

// setWindows gives a window to all layers but every period-th; a period of 1
// gives it to all.
func (k *keys) setWindows(c *Config, window, period int) {
	for i := range c.Layers {
		if period == 1 || (i+1)%period != 0 {
			c.Layers[i].WindowTokens = window
		}
	}
}

func (c *Config) hasWindows() bool {
	return slices.ContainsFunc(c.Layers, func(l Layer) bool { return l.WindowTokens > 0 })
}

func (k *keys) needExperts(c *Config) {
	if c.Experts == 0 {
		k.fail("expert_count", "is missing or 0; this architecture is a mixture of experts")
	}
}

// readHarmless reads keys that change nothing, and refuses values that would.
func (k *keys) readHarmless(c *Config) {
	k.name("tensor_data_layout") // of the file that was converted
	k.name("rope.scaling.finetuned")
	k.name("attention.layer_norm_epsilon") // of norms that no other architecture has
	for _, name := range []string{"expert_shared_count", "expert_shared_feed_forward_length", "nextn_predict_layers", "leading_dense_block_count"} {
		k.zero(name, k.read[k.prefix+name], "this is not supported")
	}
	if n, _ := k.whole("moe_every_n_layers"); n > 1 {
		k.fail("moe_every_n_layers", "is %d; only 0 and 1 are supported", n)
	}
	k.readSoftmaxRouter()
	k.only("attention.clamp_kqv", 0)
	if n, _ := k.whole("attention.sliding_window"); n != 0 && int(n) < c.ContextTokens && !c.hasWindows() {
		k.fail("attention.sliding_window", "is %d; a window is not supported in architecture %s", n, c.Architecture)
	}
	for name, want := range map[string]bool{"attention.causal": !c.Encoder.On, "use_parallel_residual": false} {
		k.onlyBool(name, want)
	}
	for _, name := range []string{"attention.key_length_swa", "attention.value_length_swa"} {
		if k.read[k.prefix+name] {
			continue // by the architecture
		}
		if n := k.sizeOr(name, c.HeadDim); n != c.HeadDim {
			k.fail(name, "is %d; only the %d of the other layers is supported", n, c.HeadDim)
		}
	}
}

// onlyBool refuses the other value than want; the key may be absent.
func (k *keys) onlyBool(name string, want bool) {
	if v := k.boolOr(name, want); v != want {
		k.fail(name, "is %v; only %v is supported", v, want)
	}
}

func (k *keys) boolOr(name string, absent bool) bool {
	v, present, err := k.file.Bool(k.name(name))
	if err != nil {
		k.keep(err)
	}
	if !present {
		return absent
	}
	return v
}

// passOver takes the tensors of a layer that is not computed.
func (k *keys) passOver(prefix string) {
	for i := range k.file.Tensors {
		if name := k.file.Tensors[i].Name; strings.HasPrefix(name, prefix) {
			k.tensors = append(k.tensors, name)
		}
	}
}

// checkWhole refuses a single part of a model that is split over files.
func (k *keys) checkWhole() {
	if n, _, _ := k.file.Uint("split.count"); n > 1 {
		k.keep(fmt.Errorf("%s: key split.count: is %d: models split over files are not supported; merge them first", k.file.Name(), n))
	}
}

// checkAllRead refuses keys under the prefix that were not read.
func (k *keys) checkAllRead() {
	for _, key := range k.file.Keys() {
		if strings.HasPrefix(key, k.prefix) && !k.read[key] {
			k.fail(key[len(k.prefix):], "(%s) is not understood, and could change what the model computes", k.file.Text(key))
		}
	}
}

// vocab is the number of embedding rows; the tokenizer may have fewer tokens.
// The key vocab_size adds nothing, and is often wrong by the padding.
func (k *keys) vocab() int {
	k.name("vocab_size")
	t, ok := k.file.Tensor("token_embd.weight")
	if !ok || len(t.Dims) != 2 {
		k.keep(fmt.Errorf("%s: tensor token_embd.weight is missing or not a matrix", k.file.Name()))
		return 0
	}
	rows := t.Dims[1]
	if tokens := k.file.Count("tokenizer.ggml.tokens"); tokens > rows || rows > sizeMax {
		k.keep(fmt.Errorf("%s: tensor token_embd.weight has %d rows; the %d tokens of the tokenizer need one each, and allowed are up to %d",
			k.file.Name(), rows, tokens, sizeMax))
	}
	return rows
}
