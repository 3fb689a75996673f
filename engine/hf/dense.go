package hf

import (
	"errors"
	"fmt"

	"github.com/forebay-io/forebay/engine/safetensors"
)

// denseModule is a matrix behind the pooling, sentence-transformers' Dense, with weights in a file of its own.
type denseModule struct {
	in, out int
	bias    bool
	weights *safetensors.File
}

// denseMost is how many there may be; their names are those of GGUF, whose first number is 2.
const denseMost = 2

func denseName(i int) string { return fmt.Sprintf("dense_%d", i+2) }

// readDense reads a Dense module.
func readDense(dir string) (denseModule, error) {
	c, err := readModule(dir)
	if err != nil {
		return denseModule{}, err
	}
	m := denseModule{in: c.size("in_features", 0), out: c.size("out_features", 0), bias: c.flag("bias", true)}
	if kind := c.text("activation_function", ""); kind != "torch.nn.modules.linear.Identity" {
		c.fail("activation_function", "is %.60q; only torch.nn.modules.linear.Identity is supported", kind)
	}
	c.checkAllRead()
	if *c.err == nil {
		m.weights, *c.err = openWeights(dir)
	}
	return m, *c.err
}

// close closes the modules' files.
func (p *pooling) close() error {
	var errs []error
	for _, m := range p.dense {
		errs = append(errs, m.weights.Close())
	}
	return errors.Join(errs...)
}

// denseModules adds the tensors of the modules behind the pooling.
func (b *builder) denseModules() {
	width := b.embed
	for i, m := range b.pooling.dense {
		if m.in != width && b.err == nil {
			b.err = fmt.Errorf("%s: in_features: is %d; %d numbers come in", m.weights.Name(), m.in, width)
		}
		of := *b // with weights of its own
		of.weights, of.used, of.passed, of.images = m.weights, map[string]bool{}, nil, false
		of.linear(denseName(i), "linear", m.out, m.in, m.bias, asIs)
		of.checkAllUsed()
		if width = m.out; b.err == nil {
			b.err = of.err
		}
	}
}
