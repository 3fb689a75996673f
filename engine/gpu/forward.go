//go:build cuda

package gpu

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/internal/nvtx"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/cuda"
)

const (
	rowThreads     = 256
	placeThreads   = 64
	expertThreads  = 128
	expertRows     = 2 // rows of weights of a warp in the product with experts
	warpSize       = 32
	activationMost = 7 // the limit of gpt-oss's activation
)

// product is a variant of the matrix product: a block computes weights rows of weights with up
// to tokens rows of numbers.
type product struct {
	tokens, weights, threads, shared int
	kernel                           *cuda.Kernel
}

// The variants in matmul.cu. All of a type give the same bits.
var (
	floatProducts = []product{{tokens: 1, weights: 16, threads: 128}, {tokens: 4, weights: 8, threads: 128}, {tokens: 8, weights: 8, threads: 128}}
	tileProducts  = []product{
		{tokens: 8, weights: 16, threads: tileWarps * warpSize, shared: tileWarps * 16 * 8 * 4},
		{tokens: 32, weights: 32, threads: tileWarps * warpSize, shared: tileWarps * 32 * 32 * 4},
	}
)

const tileWarps = 8 // MATMUL_WARPS of matmul.cu

// kernelSet is the kernels that a model's passes launch.
type kernelSet struct {
	embed, addNorm, normPart, place, activate, scaleCap *cuda.Kernel
	route, group, gather, shareInputs                   *cuda.Kernel // of experts
	attend, attendSplits, attendMerge                   *cuda.Kernel
	attendPrompt                                        *cuda.Kernel
	convolve, keepInputs                                *cuda.Kernel // of states
	products                                            map[kernels.Type][]product
	experts                                             map[kernels.Type][]product
}

// findKernels loads the kernels that the model needs.
func (p *placed) findKernels(w *model.DeviceWeights) (failure error) {
	find := func(shared int, format string, args ...any) *cuda.Kernel {
		if failure != nil {
			return nil
		}
		var k *cuda.Kernel
		k, failure = p.device.Kernel(fmt.Sprintf(format, args...), shared)
		return k
	}
	s, c, kv := &p.kernels, p.config, p.options.KVType
	s.embed = find(0, "embed_%s", cuda.TypeName(w.Embedding.Type))
	s.addNorm, s.normPart, s.place = find(0, "add_norm"), find(0, "norm_part"), find(0, "place_%s", kv)
	s.activate, s.scaleCap = find(0, "activate"), find(0, "scale_cap")
	rowShared, promptShared := 0, 0
	for i := range c.Layers {
		dim := c.Layers[i].HeadDim
		rowShared, promptShared = max(rowShared, cuda.AttendShared(dim)), max(promptShared, cuda.PromptShared(dim))
	}
	s.attend, s.attendSplits = find(rowShared, "attend_%s", kv), find(rowShared, "attend_splits_%s", kv)
	s.attendPrompt = find(promptShared, "attend_prompt_%s", kv)
	s.attendMerge = find(0, "attend_merge")
	s.products, s.experts = map[kernels.Type][]product{}, map[kernels.Type][]product{}
	w.Each(func(m *kernels.Matrix) {
		if _, ok := s.products[m.Type]; ok {
			return
		}
		all := slices.Clone(tileProducts)
		if m.Type == kernels.F32 {
			all = slices.Clone(floatProducts)
		}
		for i := range all {
			all[i].kernel = find(all[i].shared, "matmul_%s_%d", cuda.TypeName(m.Type), all[i].tokens)
		}
		s.products[m.Type] = all
		if c.Experts > 0 {
			s.experts[m.Type] = expertProducts(m.Type, find)
		}
	})
	if c.Experts > 0 {
		s.route, s.group, s.gather, s.shareInputs = find(0, "route"), find(0, "group_experts"), find(0, "gather_experts"), find(0, "share_inputs")
	}
	if c.Recurrent.Kind != model.Stateless {
		s.convolve, s.keepInputs = find(0, "convolve"), find(0, "keep_inputs")
	}
	return failure
}

// Forward implements model.Placed.
func (p *placed) Forward(chunks []model.Chunk, times model.DeviceTimes) (logits []float32, laps []model.DeviceLap, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.device.Bind(); err != nil {
		return nil, nil, err
	}
	batch, step, err := p.fill(chunks)
	if err != nil {
		return nil, nil, err
	}
	if nvtx.On() {
		nvtx.Push(fmt.Sprintf("step of %d tokens, %d with logits", step.rows, step.wanted))
		defer nvtx.Pop()
	}
	p.owner.checkedSteps = max(0, p.owner.checkedSteps-1)
	timed := times == model.TimeEach || times == model.TimeSome && p.owner.options.TimingEvery > 0 && p.steps%p.owner.options.TimingEvery == 0
	if times != model.TimeNone {
		p.steps++
	}
	logits, err = p.computeBatch(chunks, batch, step, timed)
	if err == nil && timed {
		laps, err = p.times.read()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("a step of %d tokens: %w", step.rows, err)
	}
	return logits, laps, nil
}

// computeBatch computes a batch, and waits for it and for the logits that do not stay.
func (p *placed) computeBatch(chunks []model.Chunk, batch []byte, step stepShape, timed bool) ([]float32, error) {
	if err := p.device.PutLater(p.buffers.batch, batch); err != nil {
		return nil, err
	}
	if err := p.compute(step, timed); err != nil {
		return nil, err
	}
	leave := 0
	for i := range chunks {
		if !chunks[i].Stay {
			leave += chunks[i].Logits
		}
	}
	if err := p.roomFor(4 * leave * p.config.Vocab); err != nil {
		return nil, err
	}
	from, to := 0, 0
	for i := 0; i < len(chunks); {
		n, stay := 0, chunks[i].Stay
		for ; i < len(chunks) && chunks[i].Stay == stay; i++ {
			n += 4 * chunks[i].Logits * p.config.Vocab
		}
		if n > 0 && !stay {
			if err := p.device.GetLater(p.results[to:to+n], p.buffers.logits+cuda.Address(from)); err != nil {
				return nil, err
			}
			to += n
		}
		from += n
	}
	return numbers(p.results, leave*p.config.Vocab), p.device.Wait()
}

// roomFor makes the pinned memory of results large enough, twice as large as needed, so that
// steady steps find it so.
func (p *placed) roomFor(bytes int) (err error) {
	if bytes <= len(p.results) {
		return nil
	}
	if p.results != nil {
		if err := cudrv.Unpin(p.results); err != nil {
			return err
		}
		p.results = nil
	}
	p.results, err = cudrv.Pin(min(2*bytes, 4*p.options.BatchTokensMax*p.config.Vocab))
	return err
}

// graphRowsMax is the most rows of a step that is a graph: those of decoding.
const graphRowsMax = 64

// bucket is for how many rows the graph is that serves so many.
func bucket(rows int) int {
	for n := 1; ; n *= 2 {
		if rows <= n {
			return n
		}
		if n >= 8 && rows <= n+n/2 {
			return n + n/2
		}
	}
}

// compute puts the step's launches into the stream: as a graph where its tokens are those of
// decoding.
func (p *placed) compute(step stepShape, timed bool) error {
	as := step
	as.rows = bucket(step.rows)
	as.wanted, as.alone, as.runs = as.rows, as.rows, as.rows
	as.splits = p.splitsOf(as.rows, step.context)
	if timed || p.checked() || !step.decoding() || as.rows > p.options.BatchTokensMax {
		step.splits = p.splitsOf(step.alone, step.context)
		return p.launchAll(step, timed)
	}
	shape := graphShape{as.rows, as.splits}
	g := p.graphs[shape]
	if g == nil {
		var err error
		if g, err = p.device.Capture(func() error { return p.launchAll(as, false) }); err != nil {
			return fmt.Errorf("make the graph for %d rows: %w", shape.rows, err)
		}
		p.graphs[shape] = g
	}
	return p.device.Run(g)
}

// graphShape is what a graph is made for.
type graphShape struct{ rows, splits int }

// splitBlocksMax is up to how many rows and KV heads splits get blocks of their own. With more
// the GPU has work for all its processors without that.
const splitBlocksMax = 512

// splitsOf is how many splits the longest context of rows that are alone has, rounded up to a
// power of two; 1 where a block takes all of a row's.
func (p *placed) splitsOf(rows, context int) int {
	if rows > p.splitRows() {
		return 1
	}
	n := 1
	for n*cuda.SplitTokens < context {
		n *= 2
	}
	return min(n, p.splitsMax())
}

// splitRows is the most rows that are alone whose splits have blocks of their own.
func (p *placed) splitRows() int {
	heads := 1
	for i := range p.config.Layers {
		heads = max(heads, p.config.Layers[i].KVHeads)
	}
	return min(splitBlocksMax/heads, p.options.BatchTokensMax)
}

// splitsMax is how many splits the longest context has.
func (p *placed) splitsMax() int { return cut(p.options.ContextTokens, cuda.SplitTokens) }

// pass launches the kernels of a step. The grids are for its shape; blocks of rows that the
// batch does not have leave.
type pass struct {
	*placed
	stepShape
	timed  bool
	class  model.KernelClass // of the kernels that are launched now
	layer  int
	ranged bool // a profiler has a range of them
	err    error
}

func (p *placed) launchAll(step stepShape, timed bool) error {
	s := &pass{placed: p, stepShape: step, timed: timed}
	if timed {
		s.err = p.times.begin(p.device)
	}
	s.run()
	s.endRange()
	return s.err
}

func (s *pass) launch(k *cuda.Kernel, grid cudrv.Grid, threads, shared int, a *cuda.Args) {
	if s.err == nil {
		s.err = s.device.Launch(k, grid, threads, shared, a)
	}
	if s.err == nil && s.timed {
		s.err = s.times.lap(s.device, s.class, s.layer)
	}
	if s.err == nil && s.checked() {
		if err := s.device.Wait(); err != nil {
			s.err = &model.KernelError{Kernel: k.Name, Where: s.where(), Err: err}
		}
	}
}

// checked says whether every kernel of this step is waited for.
func (p *placed) checked() bool { return p.owner.options.Checked || p.owner.checkedSteps > 0 }

func (s *pass) where() string {
	if s.layer < 0 {
		return fmt.Sprintf(" of %s", s.class)
	}
	return fmt.Sprintf(" of %s in layer %d", s.class, s.layer)
}

// of says what the next launches are.
func (s *pass) of(class model.KernelClass, layer int) {
	s.class, s.layer = class, layer
	if nvtx.On() {
		s.endRange()
		nvtx.Push(s.where()[len(" of "):])
		s.ranged = true
	}
}

func (s *pass) endRange() {
	if s.ranged {
		nvtx.Pop()
	}
	s.ranged = false
}

func (s *pass) run() {
	c, b := s.config, &s.buffers
	s.of(model.KernelEmbed, -1)
	s.launch(s.kernels.embed, cudrv.Grid{s.rows, 1, 1}, rowThreads/2, 0, s.args.Reset().
		At(b.x, s.weights.embedding.data).Int(c.Vocab, c.Embed).Float(c.EmbeddingScale).At(b.batch))
	var sum, post cuda.Address
	for i := range s.weights.layers {
		l := &s.weights.layers[i]
		s.of(model.KernelNormRope, i)
		s.addNorm(sum, post, l.attentionNorm, 0, s.rows, s.rowCount())
		if c.Layers[i].Recurrent {
			s.recur(i, l)
		} else {
			s.attention(i, l)
		}
		s.of(model.KernelNormRope, i)
		if c.Parallel { // the norm before attention is still there
			s.addSum(b.sum, l.postAttention)
		} else {
			s.addNorm(b.sum, l.postAttention, l.ffNorm, 0, s.rows, s.rowCount())
		}
		s.feedForward(i, l)
		sum, post = b.sum, l.postFF
	}
	if s.wanted == 0 {
		return
	}
	s.of(model.KernelNormRope, -1)
	s.addNorm(sum, post, s.weights.outputNorm, s.picks(), s.wanted, s.wantedCount())
	s.of(model.KernelLogits, -1)
	s.multiply(b.logits, c.Vocab, []matrix{s.weights.output}, b.normed, c.Embed, s.wanted, s.wantedCount())
	if c.LogitScale != 1 || c.LogitSoftCap > 0 {
		s.launch(s.kernels.scaleCap, cudrv.Grid{cut(c.Vocab, rowThreads), s.wanted, 1}, rowThreads, 0, s.args.Reset().
			At(b.logits).Int(c.Vocab).Float(c.LogitScale, c.LogitSoftCap).At(s.wantedCount()))
	}
}

// addNorm adds sum to x and writes the norm to normed; rows of pick where it is given.
func (s *pass) addNorm(sum, post cuda.Address, n norm, pick cuda.Address, rows int, count cuda.Address) {
	s.addNormTo(s.buffers.normed, sum, post, n, pick, rows, count)
}

// addSum adds sum to x, and norms nothing.
func (s *pass) addSum(sum, post cuda.Address) {
	s.addNormTo(0, sum, post, norm{}, 0, s.rows, s.rowCount())
}

func (s *pass) addNormTo(out, sum, post cuda.Address, n norm, pick cuda.Address, rows int, count cuda.Address) {
	c, centred := s.config, 0
	if c.CentredNorms {
		centred = 1
	}
	s.launch(s.kernels.addNorm, cudrv.Grid{rows, 1, 1}, rowThreads, 4*rowThreads/warpSize, s.args.Reset().
		At(s.buffers.x, sum, post, n.weight, n.bias, out).Int(c.Embed, centred).Float(c.NormEps, c.ResidualScale).At(pick, count))
}

// normPart norms the first width numbers of each row of x.
func (s *pass) normPart(x cuda.Address, stride, width int, weight cuda.Address) {
	s.launch(s.kernels.normPart, cudrv.Grid{s.rows, 1, 1}, rowThreads, 4*rowThreads/warpSize, s.args.Reset().
		At(x).Int(stride, width).At(weight).Float(s.config.NormEps).At(s.rowCount()))
}

func (s *pass) feedForward(i int, l *layer) {
	c, b := s.config, &s.buffers
	s.of(model.KernelMLP, i)
	if len(l.experts.down) > 0 {
		s.mixture(l)
		return
	}
	ff := c.Layers[i].FF
	s.multiply(b.gateUp, 2*ff, l.gateUp, b.normed, c.Embed, s.rows, s.rowCount())
	s.activate(ff, 1)
	s.multiply(b.sum, c.Embed, []matrix{l.down}, b.gate, ff, s.rows, s.rowCount())
}

func (s *pass) activate(ff, perToken int) {
	s.launch(s.kernels.activate, cudrv.Grid{cut(ff, rowThreads), s.rows * perToken, 1}, rowThreads, 0, s.args.Reset().
		At(s.buffers.gate, s.buffers.gateUp).Int(ff, int(s.config.Activation)).Float(activationMost).Int(perToken).At(s.rowCount()))
}

// multiply computes dst = w·x for all matrices of w, side by side in rows of stride.
func (s *pass) multiply(dst cuda.Address, stride int, w []matrix, x cuda.Address, cols, rows int, count cuda.Address) {
	for i := range w {
		m := &w[i]
		all := s.kernels.products[m.kind]
		v := &all[len(all)-1]
		for j := range all {
			if rows <= all[j].tokens {
				v = &all[j]
				break
			}
		}
		s.launch(v.kernel, cudrv.Grid{cut(m.rows, v.weights), cut(rows, v.tokens), 1}, v.threads, v.shared, s.args.Reset().
			At(dst+cuda.Address(4*m.first)).Int(stride).At(m.data, m.bias).Int(m.rows, m.cols).At(x).Int(cols).At(count))
	}
}

// cut is how many parts of size cover n.
func cut(n, size int) int { return (n + size - 1) / size }
