//go:build cuda

package gpu

import (
	"fmt"
	"runtime"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// This file is the layers with states: a state of every sequence lies beside the pages, in a
// slot of its own. The last slot is that of a sequence without tokens.

// recurrent is the weights of a layer's short convolution.
type recurrent struct {
	in   []matrix // what multiplies its input, what multiplies its output, and its input
	taps cuda.Address
	out  matrix
}

func (l *loader) recurrent(from *model.DeviceRecurrent) (to recurrent) {
	if from.Out.Matrix == nil {
		return to
	}
	return recurrent{in: l.matrices(from.Before, from.Gate, from.In), taps: l.vector(from.Taps), out: l.matrix(from.Out)}
}

// stateLen is the numbers of a state over all layers.
func (p *placed) stateLen() int { return p.config.StateBytes() / 4 }

// layerState is a layer's part of the first state.
func (p *placed) layerState(layer int) cuda.Address {
	at := p.buffers.states
	for i := range layer {
		if p.config.Layers[i].Recurrent {
			at += cuda.Address(4 * p.config.Recurrent.LayerNumbers())
		}
	}
	return at
}

// recur is a recurrent layer's first half.
func (s *pass) recur(i int, l *layer) {
	c, b, r := s.config, &s.buffers, &s.config.Recurrent
	s.of(model.KernelQKV, i)
	s.multiply(b.qkv, 3*r.Channels, l.recurrent.in, b.normed, c.Embed, s.rows, s.rowCount())
	s.of(model.KernelAttentionDecode, i)
	if s.tiles > 0 {
		s.of(model.KernelAttentionPrefill, i)
	}
	states, blocks := s.layerState(i), cut(r.Channels, rowThreads)
	s.launch(s.kernels.convolve, cudrv.Grid{blocks, s.rows, 1}, rowThreads, 0, s.args.Reset().
		At(b.heads, b.qkv, l.recurrent.taps, states).Int(s.stateLen(), r.Channels, r.Taps).At(b.batch))
	s.launch(s.kernels.keepInputs, cudrv.Grid{blocks, s.runs, 1}, rowThreads, 0, s.args.Reset().
		At(states, b.qkv).Int(s.stateLen(), r.Channels, r.Taps).At(b.batch))
	s.of(model.KernelOutput, i)
	s.multiply(b.sum, c.Embed, []matrix{l.recurrent.out}, b.heads, r.Channels, s.rows, s.rowCount())
}

// fillStates writes which states the step's tokens have, and what is to be kept of them.
func (p *placed) fillStates(chunks []model.Chunk, s *stepShape) error {
	row := 0
	for i := range chunks {
		c := &chunks[i]
		if len(c.Tokens) == 0 {
			continue
		}
		p.put(batchRuns, s.runs, row)
		p.put(batchRunRows, s.runs, len(c.Tokens))
		s.runs++
		for _, at := range c.Checkpoints {
			if s.checkpoints == p.options.BatchTokensMax {
				return fmt.Errorf("a step has more checkpoints of states than the %d tokens that it may have", p.options.BatchTokensMax)
			}
			p.put(batchCheckpointRows, s.checkpoints, row+at.After-1)
			p.put(batchCheckpointSlots, s.checkpoints, int(at.Slot))
			s.checkpoints++
		}
		for j := range c.Tokens {
			p.put(batchFirsts, row+j, row)
			p.put(batchStates, row+j, int(c.State))
		}
		row += len(c.Tokens)
	}
	return nil
}

// CopyState implements model.Placed.
func (p *placed) CopyState(dst, src int32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.device.Bind(); err != nil {
		return err
	}
	size := p.config.StateBytes()
	at := func(slot int32) cuda.Address { return p.buffers.states + cuda.Address(int(slot)*size) }
	return p.device.MoveLater(at(dst), at(src), size)
}

// ClearState implements model.Placed.
func (p *placed) ClearState(slot int32) error { return p.CopyState(slot, int32(p.options.States)) }

// clearStates makes all states those of sequences without tokens.
func (p *placed) clearStates() error {
	if p.stateLen() == 0 {
		return nil
	}
	if err := p.device.Put(p.buffers.states+cuda.Address(p.options.States*p.config.StateBytes()), make([]byte, p.config.StateBytes())); err != nil {
		return err
	}
	for slot := range p.options.States {
		if err := p.ClearState(int32(slot)); err != nil {
			return err
		}
	}
	return nil
}
