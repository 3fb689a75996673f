package model

import (
	"fmt"
	"math"

	"github.com/forebay-io/forebay/kernels"
)

// recurrent are the weights of a layer's recurrent part.
type recurrent struct {
	in     linear // Channels: the convolution's input
	before linear // Channels: multiplies it, in a short convolution
	gate   linear // multiplies the output
	beta   linear // of a delta net: how much of a value is new; a number for each head
	alpha  linear // of each head: how long its step is
	// betaAlpha holds both of a delta net, group by group: the betas of its heads, then
	// their alphas.
	betaAlpha linear

	taps     []float32 // [Taps][Channels], the oldest token's first
	tapsBias []float32 // Channels, or nil
	decay    []float32 // Heads: a step's logarithm of decay, for a length of 1
	stepBias []float32 // Heads
	skip     []float32 // Heads: how much of the input is added to the output; or nil
	norm     []float32 // of the output; nil means none
	out      linear
}

// recurrent takes the weights of a recurrent layer.
func (l *loader) recurrent(to *recurrent, prefix string) {
	c, r := l.config, &l.config.Recurrent
	inner := r.width()
	switch r.Kind {
	case ShortConvolution:
		l.matrix(prefix+"shortconv.in_proj.weight", c.Embed, part{&to.before.Matrix, inner}, part{&to.gate.Matrix, inner}, part{&to.in.Matrix, inner})
		to.taps = l.taps(prefix + "shortconv.conv.weight")
		l.linear(&to.out, prefix+"shortconv.out_proj", inner, c.Embed)
		return
	case StateSpace:
		l.matrix(prefix+"ssm_in.weight", c.Embed, part{&to.gate.Matrix, inner}, part{&to.in.Matrix, r.Channels}, part{&to.alpha.Matrix, r.Heads})
		to.decay = l.numbers(prefix+"ssm_a", 1, r.Heads)
		to.skip = l.numbers(prefix+"ssm_d", 1, r.Heads)
		if !r.Unnormed {
			to.norm = l.numbers(prefix+"ssm_norm.weight", inner/r.Groups, r.Groups)
		}
	case DeltaNet:
		l.matrix(prefix+"attn_qkv.weight", c.Embed, part{&to.in.Matrix, r.Channels})
		l.matrix(prefix+"attn_gate.weight", c.Embed, part{&to.gate.Matrix, inner})
		if l.has(prefix + "ssm_ba.weight") {
			l.matrix(prefix+"ssm_ba.weight", c.Embed, part{&to.betaAlpha.Matrix, 2 * r.Heads})
		} else {
			l.matrix(prefix+"ssm_beta.weight", c.Embed, part{&to.beta.Matrix, r.Heads})
			l.matrix(prefix+"ssm_alpha.weight", c.Embed, part{&to.alpha.Matrix, r.Heads})
		}
		to.decay = l.vector(prefix+"ssm_a", r.Heads)
		to.norm = l.vector(prefix+"ssm_norm.weight", r.ValueDim)
	}
	to.taps = l.taps(prefix + "ssm_conv1d.weight")
	if name := prefix + "ssm_conv1d.bias"; l.has(name) {
		to.tapsBias = l.vector(name, r.Channels)
	}
	to.stepBias = l.vector(prefix+"ssm_dt.bias", r.Heads)
	l.linear(&to.out, prefix+"ssm_out", inner, c.Embed)
}

// taps takes a convolution's weights, which files have channel by channel.
func (l *loader) taps(name string) []float32 {
	r := &l.config.Recurrent
	x := l.numbers(name, r.Taps, r.Channels)
	if x == nil {
		return nil
	}
	byTap := make([]float32, len(x))
	for c := range r.Channels {
		for tap := range r.Taps {
			byTap[tap*r.Channels+c] = x[c*r.Taps+tap]
		}
	}
	return byTap
}

// recurrentScratch holds the activations of a recurrent layer, one row for each token.
type recurrentScratch struct {
	in, before, mixed []float32 // Channels; mixed is the convolution's output
	gate, read        []float32 // width; read is what is read from the state
	alpha, beta       []float32 // Heads; beta may have both
	decays, steps     []float32 // Heads: of the step
	ones, zeros       []float32
	columns           []float32 // 2·ValueDim for each worker
}

func newRecurrentScratch(r *Recurrent, n, workers int, rows func(n, width int) []float32) (s recurrentScratch) {
	if r.Kind == Stateless {
		return s
	}
	s = recurrentScratch{
		in: rows(n, r.Channels), gate: rows(n, r.width()), read: rows(n, r.width()), ones: rows(1, r.Channels),
		alpha: rows(n, r.Heads), beta: rows(n, 2*r.Heads), decays: rows(n, r.Heads), steps: rows(n, r.Heads),
		zeros: rows(1, max(r.KeyDim, r.ValueDim)), columns: rows(workers, 2*r.ValueDim),
	}
	if r.Kind == ShortConvolution {
		s.before, s.mixed = rows(n, r.Channels), s.read
	} else {
		s.mixed = rows(n, r.Channels)
	}
	for i := range s.ones {
		s.ones[i] = 1
	}
	return s
}

// recur is the recurrent part of the layer: its input is normed, its output sum.
func (p *pass) recur() {
	p.do(KernelQKV, p.phases.projectRecurrent)
	p.run(p.phases.convolve)
	if p.m.config.Recurrent.Kind != ShortConvolution {
		p.run(p.phases.stepSizes)
		p.run(p.phases.scan)
	}
	p.run(p.phases.finishRecurrent)
	p.timer.lapAttention(p.layer, p.batch.keys)
	if p.layer == p.m.lastStore && p.m.config.Layers[p.layer].KVHeads == 0 {
		p.dropRows()
	}
	if p.rows > 0 {
		p.do(KernelOutput, p.phases.projectRecurrentOut)
	}
}

func (p *pass) projectRecurrent(int) {
	l, s := &p.m.weights.layers[p.layer].recurrent, &p.scratch.recurrent
	n := tiles(&l.in) + tiles(&l.before) + tiles(&l.gate) + tiles(&l.beta) + tiles(&l.alpha) + tiles(&l.betaAlpha)
	for lo, hi := range p.portions(kernels.RowTile * n) {
		lo, hi = p.multiplyPart(s.in, &l.in, lo, hi)
		lo, hi = p.multiplyPart(s.before, &l.before, lo, hi)
		lo, hi = p.multiplyPart(s.gate, &l.gate, lo, hi)
		lo, hi = p.multiplyPart(s.beta, &l.beta, lo, hi)
		lo, hi = p.multiplyPart(s.alpha, &l.alpha, lo, hi)
		p.multiplyPart(s.beta, &l.betaAlpha, lo, hi)
	}
}

// channelBlock is how many channels of a sequence one worker convolves at a time.
const channelBlock = 256

// convolve mixes each channel of the sequences' new tokens with those before, and moves
// the convolutions' part of the states on.
func (p *pass) convolve(int) {
	r := &p.m.config.Recurrent
	blocks := (r.Channels + channelBlock - 1) / channelBlock
	for item := int(p.taken.Add(1)) - 1; item < blocks*len(p.batch.runs); item = int(p.taken.Add(1)) - 1 {
		lo := item % blocks * channelBlock
		p.convolveRun(&p.batch.runs[item/blocks], lo, min(lo+channelBlock, r.Channels))
	}
}

func (p *pass) convolveRun(run *run, lo, hi int) {
	r, l, s := &p.m.config.Recurrent, &p.m.weights.layers[p.layer].recurrent, &p.scratch.recurrent
	before := p.m.state(run.state, p.layer)
	for i := run.row; i < run.row+run.rows && s.before != nil; i++ {
		x, by := row(s.in, i, r.Channels)[lo:hi], row(s.before, i, r.Channels)[lo:hi]
		for c := range x {
			x[c] *= by[c]
		}
	}
	for i := range run.rows {
		mixed := row(s.mixed, run.row+i, r.Channels)[lo:hi]
		clear(mixed)
		if l.tapsBias != nil {
			copy(mixed, l.tapsBias[lo:hi])
		}
		for tap := range r.Taps {
			x, weights := p.convolved(run, before, i+tap-r.Taps+1)[lo:hi], row(l.taps, tap, r.Channels)[lo:hi]
			p.m.set.MulAdd(mixed, x, weights)
		}
		if r.Kind != ShortConvolution {
			p.m.set.SiLUMul(mixed, mixed, s.ones[lo:hi])
		}
	}
	for _, c := range run.checkpoints {
		p.keepInputs(run, p.m.state(c.Slot, p.layer), before, c.After, lo, hi)
	}
	p.keepInputs(run, before, before, run.rows, lo, hi)
}

// convolved is the input of the convolution at a row of the run, or before it, from the
// state.
func (p *pass) convolved(run *run, before []float32, i int) []float32 {
	r := &p.m.config.Recurrent
	if i < 0 {
		return row(before, i+r.Taps-1, r.Channels)
	}
	return row(p.scratch.recurrent.in, run.row+i, r.Channels)
}

// keepInputs writes to a state what the convolution needs after the run's first rows. The
// state may be the one before: each input moves towards the front.
func (p *pass) keepInputs(run *run, to, before []float32, rows, lo, hi int) {
	r := &p.m.config.Recurrent
	for j := range r.Taps - 1 {
		copy(row(to, j, r.Channels)[lo:hi], p.convolved(run, before, rows-r.Taps+1+j)[lo:hi])
	}
}

// stepSizes computes how much of each head's state a token leaves, and how much it adds;
// and norms the keys and queries of delta nets.
func (p *pass) stepSizes(worker int) {
	r, l, s := &p.m.config.Recurrent, &p.m.weights.layers[p.layer].recurrent, &p.scratch.recurrent
	for i, hi := p.share(worker); i < hi; i++ {
		decays, steps := row(s.decays, i, r.Heads), row(s.steps, i, r.Heads)
		for h := range r.Heads {
			beta, alpha := p.stepInputs(l, i, h)
			step := softplus(float64(alpha) + float64(l.stepBias[h]))
			decays[h] = float32(math.Exp(step * float64(l.decay[h])))
			if steps[h] = float32(step); r.Kind == DeltaNet {
				steps[h] = float32(1 / (1 + math.Exp(-float64(beta))))
			}
		}
		if r.Kind == DeltaNet {
			mixed := row(s.mixed, i, r.Channels)
			for g := range r.Groups {
				unit(row(mixed, g, r.KeyDim), float64(headScale(r.KeyDim)))
				unit(row(mixed, r.Groups+g, r.KeyDim), 1)
			}
		}
	}
}

// stepInputs gives a head's beta and alpha of row i.
func (p *pass) stepInputs(l *recurrent, i, h int) (beta, alpha float32) {
	r, s := &p.m.config.Recurrent, &p.scratch.recurrent
	switch {
	case r.Kind == StateSpace:
		return 0, row(s.alpha, i, r.Heads)[h] * p.m.config.Multipliers.StateStep
	case l.betaAlpha.Matrix == nil:
		return row(s.beta, i, r.Heads)[h], row(s.alpha, i, r.Heads)[h]
	}
	share := r.Heads / r.Groups
	both := row(row(s.beta, i, 2*r.Heads), h/share, 2*share)
	return both[h%share], both[share+h%share]
}

func softplus(x float64) float64 {
	if x > 30 { // where 1+exp(x) loses the 1
		return x
	}
	return math.Log1p(math.Exp(x))
}

// unit gives x the length scale. The sum of squares has a floor inside the root.
func unit(x []float32, scale float64) {
	sum := 1e-6
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	by := scale / math.Sqrt(sum)
	for i, v := range x {
		x[i] = float32(float64(v) * by)
	}
}

// scan advances the matrices of the sequences over their new tokens, one after another,
// whether they are of a prompt or not: so no bit depends on how tokens come in.
func (p *pass) scan(worker int) {
	r := &p.m.config.Recurrent
	for item := int(p.taken.Add(1)) - 1; item < r.Heads*len(p.batch.runs); item = int(p.taken.Add(1)) - 1 {
		p.scanHead(worker, &p.batch.runs[item/r.Heads], item%r.Heads)
	}
}

func (p *pass) scanHead(worker int, run *run, h int) {
	r := &p.m.config.Recurrent
	at := (r.Taps-1)*r.Channels + h*r.matrixLen()
	matrix := p.m.state(run.state, p.layer)[at : at+r.matrixLen()]
	next := 0 // checkpoint
	for i := range run.rows {
		if r.Kind == DeltaNet {
			p.delta(worker, matrix, run.row+i, h)
		} else {
			p.space(worker, matrix, run.row+i, h)
		}
		for ; next < len(run.checkpoints) && run.checkpoints[next].After == i+1; next++ {
			copy(p.m.state(run.checkpoints[next].Slot, p.layer)[at:], matrix)
		}
	}
}

// space is a step of Mamba 2 (Dao and Gu, Transformers are SSMs, 2024): the state decays,
// and the token adds its input times its key. Channels are inputs, keys, queries.
func (p *pass) space(worker int, matrix []float32, i, h int) {
	r, s := &p.m.config.Recurrent, &p.scratch.recurrent
	mixed, out := row(s.mixed, i, r.Channels), row(row(s.read, i, r.width()), h, r.ValueDim)
	x, keys := row(mixed, h, r.ValueDim), mixed[r.width():]
	k, q := row(keys, r.group(h), r.KeyDim), row(keys[r.Groups*r.KeyDim:], r.group(h), r.KeyDim)
	added, at := row(s.columns, worker, 2*r.ValueDim)[:r.ValueDim], i*r.Heads+h
	for j, v := range x {
		added[j] = v * s.steps[at]
	}
	p.m.set.Fold(matrix, s.decays[at], k, added, q, out)
	skip := p.m.weights.layers[p.layer].recurrent.skip[h]
	for j, v := range x {
		out[j] += float32(skip * v)
	}
}

// delta is a step of the gated delta net (Yang et al., 2024): the state decays, and what
// it says for the token's key moves towards the token's value. Channels are queries, keys,
// values.
func (p *pass) delta(worker int, matrix []float32, i, h int) {
	r, s := &p.m.config.Recurrent, &p.scratch.recurrent
	mixed, out := row(s.mixed, i, r.Channels), row(row(s.read, i, r.width()), h, r.ValueDim)
	q, k := row(mixed, r.group(h), r.KeyDim), row(mixed, r.Groups+r.group(h), r.KeyDim)
	v := row(mixed[2*r.Groups*r.KeyDim:], h, r.ValueDim)
	columns, at := row(s.columns, worker, 2*r.ValueDim), i*r.Heads+h
	said, added := columns[:r.ValueDim], columns[r.ValueDim:]
	p.m.set.Fold(matrix, s.decays[at], s.zeros[:r.KeyDim], s.zeros[:r.ValueDim], k, said)
	for j := range added {
		added[j] = s.steps[at] * (v[j] - said[j])
	}
	p.m.set.Fold(matrix, 1, k, added, q, out)
}

// finishRecurrent gates and norms what was read from the state, and rounds it.
func (p *pass) finishRecurrent(worker int) {
	r, l, s := &p.m.config.Recurrent, &p.m.weights.layers[p.layer].recurrent, &p.scratch.recurrent
	heads := p.scratch.heads.of(r.width())
	for i, hi := p.share(worker); i < hi; i++ {
		read, gate, out := row(s.read, i, r.width()), row(s.gate, i, r.width()), heads.row(i)
		switch r.Kind {
		case ShortConvolution:
			for j, v := range read {
				out[j] = v * gate[j]
			}
		case StateSpace:
			scale(gate, p.m.config.Multipliers.StateGate)
			p.m.set.SiLUMul(out, gate, read)
			for g := range l.norm[:min(len(l.norm), r.Groups)] {
				part := row(out, g, r.width()/r.Groups)
				p.m.set.RMSNorm(part, part, row(l.norm, g, r.width()/r.Groups), p.m.config.NormEps)
			}
			scale(out, p.m.config.Multipliers.State)
		case DeltaNet:
			p.normHeads(read, l.norm)
			p.m.set.SiLUMul(out, gate, read)
		}
		heads.round(i, 0, heads.width)
	}
}

func (p *pass) projectRecurrentOut(int) {
	heads := p.scratch.heads.of(p.m.config.Recurrent.width())
	p.multiplySum(&p.m.weights.layers[p.layer].recurrent.out, &heads)
}

// reserveStates sets up the memory of states.
func (m *Model) reserveStates() (err error) {
	m.stateAt = make([]int, len(m.config.Layers))
	n := 0
	for i := range m.stateAt {
		if m.stateAt[i] = n; m.config.Layers[i].Recurrent {
			n += m.config.Recurrent.LayerNumbers()
		}
	}
	if m.stateLen = n; n > 0 && m.options.States > math.MaxInt/8/n {
		return fmt.Errorf("%d states of %d numbers are more than memory can hold", m.options.States, n)
	}
	m.states, err = m.memory.float32s(n * m.options.States)
	return err
}

// state is a layer's part of the state in a slot.
func (m *Model) state(slot int32, layer int) []float32 {
	at := int(slot)*m.stateLen + m.stateAt[layer]
	return m.states[at : at+m.config.Recurrent.LayerNumbers()]
}

// CopyState copies the state in slot src to slot dst.
func (m *Model) CopyState(dst, src int32) {
	if m.placed != nil {
		if err := m.placed.CopyState(dst, src); err != nil {
			panic(&DeviceFault{err})
		}
		return
	}
	copy(row(m.states, int(dst), m.stateLen), row(m.states, int(src), m.stateLen))
}

// ClearState makes the state in a slot that of a sequence without tokens.
func (m *Model) ClearState(slot int32) {
	if m.placed != nil {
		if err := m.placed.ClearState(slot); err != nil {
			panic(&DeviceFault{err})
		}
		return
	}
	clear(row(m.states, int(slot), m.stateLen))
}
