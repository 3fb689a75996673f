//go:build cuda

package gpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/sample"
	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// Sampling on the device, as sample.cu has it.
const (
	partTokens    = 512                                         // PART
	partThreads   = 128                                         // PART_THREADS
	pickThreads   = 512                                         // PICK_THREADS
	partsMax      = 512                                         // PARTS_MAX
	weightBins    = 48                                          // BINS
	weightOne     = 44                                          // ONE
	candidatesMax = 512                                         // CANDIDATES_MAX
	topsMax       = 128                                         // TOPS_MAX
	drawBytes     = 72                                          // of struct Draw
	changeBytes   = 16                                          // of struct Change
	restBytes     = 48                                          // of struct Rest
	listBytes     = 8*(topsMax+candidatesMax) + 4*candidatesMax // of struct Lists

	drawsMax   = 64
	changesMax = 8192 // penalties and biases of all draws together
)

// sampling is the memory in which draws are found.
type sampling struct {
	draws, changes, masks             cuda.Address // what is asked for
	work, peaks, rowPeaks             cuda.Address
	sums, rowSums, bins, rests, lists cuda.Address
	adjust, weigh, pick               *cuda.Kernel
	in, out, row                      []byte // pinned: draws, changes and masks; rests and lists; a row of logits
}

// drawsMax is how many draws there is room for.
func (p *placed) drawsMax() int { return min(drawsMax, p.options.BatchTokensMax) }

func (p *placed) maskWords() int { return cut(p.config.Vocab, 64) }

// DrawsMax implements model.Placed.
func (p *placed) DrawsMax(vocab int) int {
	if cut(vocab, partTokens) > partsMax {
		return 0
	}
	return p.drawsMax()
}

// planSampling lists the sizes of the memory in which draws are found.
func (p *placed) planSampling(visit func(to *cuda.Address, bytes int)) {
	s, n, parts := &p.sampling, p.drawsMax(), cut(p.config.Vocab, partTokens)
	for _, one := range []struct {
		to    *cuda.Address
		bytes int
	}{
		{&s.draws, drawBytes * n}, {&s.changes, changeBytes * changesMax}, {&s.masks, 8 * n * p.maskWords()},
		{&s.work, 4 * n * p.config.Vocab}, {&s.peaks, 4 * n * parts}, {&s.rowPeaks, 4 * n * parts},
		{&s.sums, 8 * n * parts}, {&s.rowSums, 8 * n * parts}, {&s.bins, 8 * n * weightBins},
		{&s.rests, restBytes * n}, {&s.lists, listBytes * n},
	} {
		visit(one.to, one.bytes)
	}
}

// prepareSampling takes the pinned memory and the kernels.
func (p *placed) prepareSampling() (err error) {
	s, n := &p.sampling, p.drawsMax()
	if s.in, err = cudrv.Pin(drawBytes*n + changeBytes*changesMax + 8*n*p.maskWords()); err != nil {
		return err
	}
	if s.out, err = cudrv.Pin((restBytes + listBytes) * n); err != nil {
		return err
	}
	if s.row, err = cudrv.Pin(4 * p.config.Vocab); err != nil {
		return err
	}
	for _, k := range []struct {
		to   **cuda.Kernel
		name string
	}{{&s.adjust, "sample_adjust"}, {&s.weigh, "sample_weigh"}, {&s.pick, "sample_pick"}} {
		if *k.to, err = p.device.Kernel(k.name, 0); err != nil {
			return err
		}
	}
	return nil
}

// Sample implements model.Placed.
func (p *placed) Sample(draws []model.DeviceDraw, vocab int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.device.Bind(); err != nil {
		return err
	}
	if err := p.findDraws(draws, vocab); err != nil {
		return fmt.Errorf("sample %d tokens: %w", len(draws), err)
	}
	return nil
}

func (p *placed) findDraws(draws []model.DeviceDraw, vocab int) error {
	s, n := &p.sampling, len(draws)
	changes, masks, listed := s.fill(draws, p.maskWords())
	at := drawBytes * p.drawsMax()
	for _, part := range []struct {
		to   cuda.Address
		from []byte
	}{
		{s.draws, s.in[:drawBytes*n]}, {s.changes, s.in[at:][:changeBytes*changes]},
		{s.masks, s.in[at+changeBytes*changesMax:][:8*p.maskWords()*masks]},
	} {
		if len(part.from) > 0 {
			if err := p.device.PutLater(part.to, part.from); err != nil {
				return err
			}
		}
	}
	if err := p.launchSampling(n, vocab); err != nil {
		return err
	}
	rests, lists := s.out[:restBytes*n], s.out[restBytes*p.drawsMax():][:listBytes*n]
	if err := p.device.GetLater(rests, s.rests); err != nil {
		return err
	}
	if listed {
		if err := p.device.GetLater(lists, s.lists); err != nil {
			return err
		}
	}
	if err := p.device.Wait(); err != nil {
		return err
	}
	for i := range draws {
		readRest(&draws[i], rests[restBytes*i:], lists[listBytes*i:])
	}
	return nil
}

func (p *placed) launchSampling(n, vocab int) error {
	s, c, parts := &p.sampling, p.config, cut(vocab, partTokens)
	grid, logits := cudrv.Grid{parts, n, 1}, p.buffers.logits
	if err := p.launchOne(s.adjust, grid, partThreads, 4*(partTokens+warpSize), p.args.Reset().
		At(s.work, s.peaks, s.rowPeaks, s.rowSums, s.bins, logits).Int(c.Vocab, vocab).At(s.draws, s.changes, s.masks)); err != nil {
		return err
	}
	if err := p.launchOne(s.weigh, grid, partThreads, 8*(weightBins+2)+4*warpSize, p.args.Reset().
		At(s.work, s.sums, s.rowSums, s.bins, s.peaks, s.rowPeaks, logits).Int(c.Vocab, vocab).At(s.draws)); err != nil {
		return err
	}
	return p.launchOne(s.pick, cudrv.Grid{n, 1, 1}, pickThreads, 12*pickThreads+4*warpSize+4, p.args.Reset().
		At(s.rests, s.lists, s.work, s.sums, s.rowSums, s.bins, s.peaks, s.rowPeaks, logits).Int(c.Vocab, vocab).At(s.draws))
}

// launchOne launches a kernel of sampling, and where kernels are checked waits for it.
func (p *placed) launchOne(k *cuda.Kernel, grid cudrv.Grid, threads, shared int, a *cuda.Args) error {
	err := p.device.Launch(k, grid, threads, shared, a)
	if err != nil || !p.checked() {
		return err
	}
	if err := p.device.Wait(); err != nil {
		return &model.KernelError{Kernel: k.Name, Err: err}
	}
	return nil
}

// fill writes draws as sample.cu has them. It gives how many changes and masks there are, and
// whether any draw is to leave lists.
func (s *sampling) fill(draws []model.DeviceDraw, maskWords int) (changes, masks int, listed bool) {
	most := len(s.out) / (restBytes + listBytes)
	changed := s.in[drawBytes*most:]
	masked := changed[changeBytes*changesMax:]
	for i := range draws {
		d := &draws[i]
		d.Found = model.Found
		seen, biases := len(d.Seen), len(d.Bias)
		if changes+seen+biases > changesMax {
			d.Found, seen, biases = model.FoundTooMuch, 0, 0
		}
		w := words{at: s.in[drawBytes*i:]}
		w.int(d.Row, drawKind(d), d.TopK)
		w.float(d.Scale, d.TopP, d.MinP)
		if d.Mask == nil {
			w.int(-1)
		} else {
			w.int(masks * maskWords)
			for j, word := range d.Mask[:min(len(d.Mask), maskWords)] { // a tokenizer may know more tokens
				binary.LittleEndian.PutUint64(masked[8*(masks*maskWords+j):], word)
			}
			masks++
		}
		w.int(changes, seen, changes+seen, biases)
		w.float(d.Repetition, d.Presence, d.Frequency)
		w.int(d.Tops, 0)
		w.int(int(uint32(d.Share)), int(d.Share>>32))
		for _, t := range d.Seen[:seen] {
			c := words{at: changed[changeBytes*changes:]}
			c.int(int(t.ID), t.Generated)
			changes++
		}
		for _, b := range d.Bias[:biases] {
			c := words{at: changed[changeBytes*changes:]}
			c.int(int(b.Token), 0)
			c.float(b.Bias)
			changes++
		}
		listed = listed || d.Filtered || d.Tops > 0
	}
	return changes, masks, listed
}

// drawKind is the kind of struct Draw.
func drawKind(d *model.DeviceDraw) int {
	switch {
	case d.Greedy:
		return 0
	case d.Filtered:
		return 2
	}
	return 1
}

// words writes numbers of four bytes one after another.
type words struct{ at []byte }

func (w *words) int(all ...int) {
	for _, n := range all {
		binary.LittleEndian.PutUint32(w.at, uint32(n))
		w.at = w.at[4:]
	}
}

func (w *words) float(all ...float32) {
	for _, x := range all {
		binary.LittleEndian.PutUint32(w.at, math.Float32bits(x))
		w.at = w.at[4:]
	}
}

// readRest takes what the device says of a draw.
func readRest(d *model.DeviceDraw, rest, lists []byte) {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(rest[4*i:]) }
	number := func(i int) float32 { return math.Float32frombits(word(i)) }
	sum := func(at int) float64 { return math.Ldexp(float64(binary.LittleEndian.Uint64(rest[at:])), -weightOne) }
	list := func(at, n int) []sample.Candidate {
		if n == 0 {
			return nil
		}
		return unsafe.Slice((*sample.Candidate)(unsafe.Pointer(&lists[at])), n)
	}
	status, candidates, tops := word(0), int(word(2)), int(word(3))
	switch {
	case d.Found == model.FoundTooMuch: // not all of its changes were given
		return
	case status == 1:
		d.Found = model.FoundNaN
	case status == 2:
		d.Found = model.FoundNone
	case candidates > candidatesMax || tops > topsMax:
		d.Found = model.FoundTooMuch
		return
	}
	d.Rest = sample.Rest{
		ID: int32(word(1)), Top: number(4), RowTop: number(5), RowLogit: number(6), RowFinite: word(7) != 0, Sum: sum(32), RowSum: sum(40),
		Tops: list(0, tops), Candidates: list(8*topsMax, candidates),
	}
	if candidates > 0 {
		d.Rest.Logits = numbers(lists[8*(topsMax+candidatesMax):], candidates)
	}
}

// Row implements model.Placed.
func (p *placed) Row(row int) ([]float32, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.device.Bind(); err != nil {
		return nil, err
	}
	n := p.config.Vocab
	err := p.device.Get(p.sampling.row, p.buffers.logits+cuda.Address(4*n*row))
	return numbers(p.sampling.row, n), err
}
