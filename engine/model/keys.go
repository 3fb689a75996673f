package model

import (
	"fmt"
	"math"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// sizeMax bounds every size in a Config and the numbers of all heads together, so
// that products of a few never overflow.
const sizeMax = 1 << 24

func headScale(dim int) float32 { return float32(1 / math.Sqrt(float64(dim))) }

// keys reads the metadata under one architecture's prefix and remembers what
// was read. The first failure sticks in err.
type keys struct {
	file   *gguf.File
	prefix string
	read   map[string]bool
	err    error
}

func (k *keys) fail(name, format string, args ...any) {
	k.keep(fmt.Errorf("%s: key %s%s: %s", k.file.Name(), k.prefix, name, fmt.Sprintf(format, args...)))
}

func (k *keys) keep(err error) {
	if k.err == nil {
		k.err = err
	}
}

// name marks a key as understood and gives its full name.
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

// sizeOr is size with a value for an absent key.
func (k *keys) sizeOr(name string, absent int) int {
	if _, present := k.whole(name); !present {
		return absent
	}
	return k.size(name)
}

// whole reads a whole number; some makers write one per layer, which must all
// be equal.
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

// refuseUnlessZero refuses a feature that a number other than zero switches on.
func (k *keys) refuseUnlessZero(name, reason string) {
	if n, _ := k.whole(name); n != 0 {
		k.fail(name, "is %d: %s", n, reason)
	}
}

// checkWhole refuses one part of a model that is split over files.
func (k *keys) checkWhole() {
	if n, _, _ := k.file.Uint("split.count"); n > 1 {
		k.keep(fmt.Errorf("%s: key split.count: is %d: models split over files are not supported; merge them first", k.file.Name(), n))
	}
}

// checkAllRead refuses keys under the prefix that nobody asked for.
func (k *keys) checkAllRead() {
	for _, key := range k.file.Keys() {
		if strings.HasPrefix(key, k.prefix) && !k.read[key] {
			k.fail(key[len(k.prefix):], "(%s) is not understood, and could change what the model computes", k.file.Text(key))
		}
	}
}

// vocab is the number of embedding rows; the tokenizer may have fewer tokens.
// vocab_size says nothing more and is often wrong by the padding.
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

// ropeFactors reads the tensor rope_freqs.weight, nil if the file has none.
func (k *keys) ropeFactors(n int) []float32 {
	t, ok := k.file.Tensor(ropeFactorsName)
	if !ok || k.err != nil {
		return nil
	}
	if t.Type != kernels.F32 || len(t.Dims) != 1 || t.Dims[0] != n {
		k.keep(fmt.Errorf("%s: tensor %s is %s %v; needed is F32 [%d]", k.file.Name(), t.Name, t.Type, t.Dims, n))
		return nil
	}
	factors := make([]float32, n)
	kernels.Dequantize(factors, t.Type, t.Data)
	for i, x := range factors {
		if !(x > 0) || math.IsInf(float64(x), 0) {
			k.keep(fmt.Errorf("%s: tensor %s: element %d is %g; factors are over 0", k.file.Name(), t.Name, i, x))
		}
	}
	return factors
}

const ropeFactorsName = "rope_freqs.weight"
