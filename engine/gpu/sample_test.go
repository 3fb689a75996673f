//go:build cuda

package gpu

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/sample"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// sampleLab is a device with logits of the test's own.
type sampleLab struct {
	*testing.T
	*placed
	rows  [][]float32
	vocab int // the rest of a row is padding
}

func newSampleLab(t *testing.T, rows [][]float32, vocab int) *sampleLab {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	p := newPlaced(openDevice(t), &model.Config{Vocab: len(rows[0])}, &model.Options{BatchTokensMax: len(rows)})
	l := &loader{device: p.device}
	if l.err = p.device.Bind(); l.err != nil {
		t.Fatal(l.err)
	}
	p.planSampling(func(to *cuda.Address, bytes int) { *to = l.alloc(bytes) })
	p.buffers.logits = l.vector(slices.Concat(rows...))
	p.held = l.held
	if l.err == nil {
		l.err = p.prepareSampling()
	}
	if l.err != nil {
		t.Fatal(l.err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &sampleLab{t, p, rows, vocab}
}

// choice is one that both sample.
type choice struct {
	options wire.Options
	prompt  []int32
	mask    []uint64
}

func (c *choice) sampler(vocab int) *sample.Sampler {
	s := sample.New(kernels.Best(), &c.options, 0, vocab)
	s.Prompt(c.prompt)
	for _, id := range c.prompt {
		s.Accept(id)
	}
	return s
}

// host samples row as the engine does on the CPU.
func (l *sampleLab) host(c *choice, row int) (id int32, ok bool, logprob wire.TokenLogprob) {
	logits := slices.Clone(l.rows[row][:l.vocab])
	for i := range logits {
		if c.mask != nil && c.mask[i/64]>>(i%64)&1 == 0 {
			logits[i] = float32(math.Inf(-1))
		}
	}
	id, ok = c.sampler(l.vocab).Sample(logits)
	return id, ok, sample.TopLogprobs(kernels.Best(), l.rows[row][:l.vocab], id, 5)
}

// compare samples all choices at once, each in a row of its own, and compares with the host.
func (l *sampleLab) compare(choices []choice, seed uint64) {
	l.Helper()
	draws, samplers := make([]model.DeviceDraw, len(choices)), make([]*sample.Sampler, len(choices))
	for i := range choices {
		c := &choices[i]
		c.options.Seed = seed
		samplers[i] = c.sampler(l.vocab)
		draws[i] = model.DeviceDraw{Row: i, Mask: c.mask, Tops: 5}
		samplers[i].Plan(&draws[i].Draw)
	}
	if err := l.Sample(draws, l.vocab); err != nil {
		l.Fatal(err)
	}
	for i := range choices {
		d, c := &draws[i], &choices[i]
		want, ok, logprob := l.host(c, i)
		if d.Found == model.FoundTooMuch {
			row, err := l.Row(i)
			if err != nil || !slices.Equal(row, l.rows[i]) {
				l.Fatalf("row %d: %v, or other numbers", i, err)
			}
			l.Errorf("row %d: too much for the device", i)
			continue
		}
		if (d.Found == model.Found) != ok {
			l.Errorf("row %d: found %v, the host %v", i, d.Found, ok)
		}
		if !ok || d.Found != model.Found {
			continue
		}
		if got := samplers[i].Finish(&d.Draw, &d.Rest); got != want {
			l.Errorf("row %d: token %d, the host's is %d", i, got, want)
			continue
		}
		l.checkLogprob(&d.Rest, &logprob)
	}
}

func (l *sampleLab) checkLogprob(rest *sample.Rest, want *wire.TokenLogprob) {
	l.Helper()
	got, ok := rest.Logprob(want.ID, 5)
	if _, listed := rest.Logprob(-1, 5); !ok || listed {
		l.Fatalf("the logit of token %d is not known, or that of no token is", want.ID)
	}
	near := func(a, b float32) bool { return math.Abs(float64(a)-float64(b)) < 1e-5*(1+math.Abs(float64(b))) }
	if !near(got.Logprob, want.Logprob) || len(got.Top) != len(want.Top) {
		l.Fatalf("log-probability %+v, the host's %+v", got, want)
	}
	for i := range got.Top {
		if got.Top[i].ID != want.Top[i].ID || !near(got.Top[i].Logprob, want.Top[i].Logprob) {
			l.Fatalf("log-probability %d: %+v, the host's %+v", i, got.Top[i], want.Top[i])
		}
	}
}

// TestSampleIsTheHosts: with the same logits, options and seed the device and the host's
// sampler give the same token, in every order in which a GPU may run threads.
func TestSampleIsTheHosts(t *testing.T) {
	const vocab, padded = 1337, 1344
	r := rand.New(rand.NewPCG(21, 0))
	mask := make([]uint64, (vocab+63)/64)
	for i := range mask {
		mask[i] = r.Uint64()
	}
	bias := []wire.LogitBias{{Token: 3, Bias: 4}, {Token: 1300, Bias: -100}, {Token: 700, Bias: 2.5}, {Token: 5000, Bias: 1}, {Token: -1, Bias: 1}}
	prompt := []int32{3, 3, 700, 9, 1336, 1300}
	choices := []choice{
		{},
		{options: wire.Options{Temperature: 1}},
		{options: wire.Options{Temperature: 0.3, LogitBias: bias}, mask: mask},
		{options: wire.Options{Temperature: 1, TopK: 2}},
		{options: wire.Options{Temperature: 0.8, TopK: 50, TopP: 0.9, MinP: 0.02}, mask: mask},
		{options: wire.Options{Temperature: 0.7, TopP: 0.95}},
		{options: wire.Options{Temperature: 1, TopP: 0.1, MinP: 0.5}},
		{options: wire.Options{Temperature: 1, MinP: 0.03}},
		{options: wire.Options{Temperature: 1, RepetitionPenalty: 1.3, PresencePenalty: 0.5, FrequencyPenalty: 0.25, LogitBias: bias}, prompt: prompt},
		{options: wire.Options{RepetitionPenalty: 0.7, FrequencyPenalty: -0.25}, prompt: prompt, mask: mask},
		{options: wire.Options{Temperature: 1e30, TopK: 400}},
	}
	rows := make([][]float32, len(choices))
	for i := range rows {
		rows[i] = make([]float32, padded)
		for k := range rows[i] {
			rows[i][k] = float32(r.NormFloat64()) * 4
		}
		for k := vocab; k < padded; k++ {
			rows[i][k] = 1000 // padding is no token
		}
		rows[i][i*100], rows[i][i*100+90] = 14, 14 // equal likeliest ones
	}
	l := newSampleLab(t, rows, vocab)
	for seed, order := range []string{"forward", "reverse", "random"} {
		t.Setenv("FOREBAY_EMU_ORDER", order)
		for again := range uint64(3) {
			l.compare(choices, uint64(seed)*100+again)
		}
	}
}

// TestSampleOfOddRows: numbers that are not finite, masks that leave nothing, and more candidates
// than the device lists.
func TestSampleOfOddRows(t *testing.T) {
	const vocab = 700
	inf := float32(math.Inf(1))
	row := func(change func(x []float32)) []float32 {
		x := make([]float32, vocab)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		change(x)
		return x
	}
	masked := make([]uint64, (vocab+63)/64) // leaves token 650
	masked[10] = 1 << 10
	for _, c := range []struct {
		name   string
		change func(x []float32)
		choice choice
		want   model.DeviceFound
		id     int32
	}{
		{"NaN", func(x []float32) { x[600] = float32(math.NaN()) }, choice{}, model.FoundNaN, 0},
		{"+Inf", func(x []float32) { x[3] = inf }, choice{options: wire.Options{Temperature: 1, TopK: 3}}, model.FoundNaN, 0},
		{"NaN that the mask drops", func(x []float32) { x[3] = float32(math.NaN()) }, choice{mask: masked}, model.Found, 650},
		{"no token is left", func([]float32) {}, choice{mask: make([]uint64, len(masked))}, model.FoundNone, 0},
		{"one token is left", func([]float32) {}, choice{options: wire.Options{Temperature: 2, TopP: 0.5}, mask: masked}, model.Found, 650},
		{"a bias that overflows", func(x []float32) { x[0] = math.MaxFloat32 }, choice{options: wire.Options{LogitBias: []wire.LogitBias{{Token: 0, Bias: math.MaxFloat32}}}}, model.FoundNaN, 0},
		{"too many candidates", func(x []float32) { clear(x) }, choice{options: wire.Options{Temperature: 1, TopP: 0.99}}, model.FoundTooMuch, 0},
		{"too many penalties", func([]float32) {}, choice{options: wire.Options{RepetitionPenalty: 2}, prompt: inOrder(changesMax + 1)}, model.FoundTooMuch, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newSampleLab(t, [][]float32{row(c.change)}, vocab)
			draws := []model.DeviceDraw{{Mask: c.choice.mask, Tops: -1}}
			s := c.choice.sampler(vocab)
			s.Plan(&draws[0].Draw)
			if err := l.Sample(draws, vocab); err != nil {
				t.Fatal(err)
			}
			if draws[0].Found != c.want {
				t.Fatalf("found %v, want %v", draws[0].Found, c.want)
			}
			if c.want != model.Found {
				return
			}
			if got := s.Finish(&draws[0].Draw, &draws[0].Rest); got != c.id {
				t.Errorf("token %d, want %d", got, c.id)
			}
		})
	}
}

// TestSampleAllocatesNothing: nor does it take memory of the device.
func TestSampleAllocatesNothing(t *testing.T) {
	rows := [][]float32{make([]float32, 600), make([]float32, 600)}
	rows[0][5], rows[1][500] = 30, 30
	l := newSampleLab(t, rows, 600)
	c := choice{options: wire.Options{Temperature: 1, TopP: 0.9, LogitBias: []wire.LogitBias{{Token: 1, Bias: 1}}}}
	s, draws := c.sampler(600), make([]model.DeviceDraw, 2)
	next := func() {
		for i := range draws {
			draws[i].Row, draws[i].Tops = i, -1
			s.Plan(&draws[i].Draw)
		}
		if err := l.Sample(draws, 600); err != nil {
			t.Fatal(err)
		}
		if id := s.Finish(&draws[1].Draw, &draws[1].Rest); id != 500 {
			t.Fatalf("token %d", id)
		}
	}
	next()
	if n := testing.AllocsPerRun(5, next); n > 0 {
		t.Errorf("sampling allocates %v times", n)
	}
}

// TestSizesAreTheKernels: the numbers here are those of sample.cu.
func TestSizesAreTheKernels(t *testing.T) {
	if unsafe.Sizeof(sample.Candidate{}) != 8 {
		t.Error("a candidate is not eight bytes")
	}
	p := &placed{config: &model.Config{Vocab: 1 << 20}, options: model.Options{BatchTokensMax: 3}}
	for vocab, want := range map[int]int{32000: 3, partTokens * partsMax: 3, partTokens*partsMax + 1: 0} {
		if got := p.DrawsMax(vocab); got != want {
			t.Errorf("%d tokens: %d draws, want %d", vocab, got, want)
		}
	}
}
