package model

import (
	"math"

	"github.com/forebay-io/forebay/kernels"
)

// Some models give each layer a part of its own of every token's embedding. It is made
// at the beginning of the pass from the embedding and from a table, and gates what the
// end of the layer adds to the residual stream.

// perLayer is the end of a layer.
func (p *pass) perLayer() {
	l := &p.m.weights.layers[p.layer]
	p.xScale = 1
	input := p.phases.perLayerInput
	if p.m.config.AltUp.Streams > 0 {
		input = p.phases.correctStreams
	}
	p.do(KernelMLP, input, p.phases.perLayerGate, p.phases.perLayerOut)
	p.wait(&l.postPerLayer, l.outputScale)
}

// perLayerProject computes the parts of all layers from the embeddings.
func (p *pass) perLayerProject(int) {
	w := &p.m.weights.perLayer.project
	for lo, hi := range p.portions(w.Rows) {
		p.multiply(p.scratch.perLayer, w, p.scratch.normed.from(0), p.rows, lo, hi)
	}
}

// perLayerEmbed norms the parts, and adds the table's.
func (p *pass) perLayerEmbed(worker int) {
	w, c := &p.m.weights.perLayer, &p.m.config
	width := c.PerLayer * len(c.Layers)
	table, rowBytes := row(p.scratch.perLayerRows, worker, width), w.rows.Type.Bytes(width)
	project, embed := float32(1/math.Sqrt(float64(c.Embed))), float32(math.Sqrt(float64(c.PerLayer)))
	for i, hi := p.share(worker); i < hi; i++ {
		at := int(p.batch.tokens[i]) * rowBytes
		if at >= len(w.rows.Data) {
			at = 0
		}
		kernels.Dequantize(table, w.rows.Type, w.rows.Data[at:at+rowBytes])
		parts := row(p.scratch.perLayer, i, width)
		scale(parts, project)
		p.normHeads(parts, w.norm)
		for j, v := range table {
			parts[j] = (parts[j] + v*embed) * (math.Sqrt2 / 2)
		}
	}
}

// perLayerInput makes the rows of the residual stream the input of the layer's gate.
func (p *pass) perLayerInput(worker int) {
	for i, hi := p.share(worker); i < hi; i++ {
		p.addSum(i)
		p.norm(i, &noNorm)
	}
}

// perLayerGate computes the gate, by which the layer's part is multiplied.
func (p *pass) perLayerGate(int) {
	c, w := &p.m.config, &p.m.weights.layers[p.layer].perLayerGate
	gate, all := p.scratch.gate.of(c.PerLayer), c.PerLayer*len(c.Layers)
	for lo, hi := range p.portions(w.Rows) {
		p.multiply(gate.numbers, w, p.scratch.normed.from(0), p.rows, lo, hi)
		for i := range p.rows {
			part := row(row(p.scratch.perLayer, i, all), p.layer, c.PerLayer)
			p.activate(gate.row(i)[lo:hi], part[lo:hi])
			gate.round(i, lo, hi)
		}
	}
}

func (p *pass) perLayerOut(int) {
	gate := p.scratch.gate.of(p.m.config.PerLayer)
	p.multiplySum(&p.m.weights.layers[p.layer].perLayerOut, &gate)
}
