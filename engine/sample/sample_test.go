package sample

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// one samples once with fresh state.
func one(o wire.Options, logits ...float32) (int32, bool) {
	return New(kernels.Best(), &o, 0, len(logits)).Sample(slices.Clone(logits))
}

func TestTinyAndBrokenTemperaturesChooseUnmaskedTokens(t *testing.T) {
	row := []float32{-80, 80, -inf, 79.5, 80}
	for _, temperature := range []float32{0, 1e-30, 1e-8, 1e-5, 1e-4, 1e-3} {
		for seed := range uint64(50) {
			o := wire.Options{Temperature: temperature, Seed: seed}
			id, ok := one(o, row[:4]...)
			if !ok || id != 1 {
				t.Errorf("temperature %g, seed %d: token %d, %v; want 1", temperature, seed, id, ok)
			}
		}
	}
	for _, o := range []wire.Options{{Temperature: nan}, {Temperature: inf}, {Temperature: inf, TopP: nan}, {Temperature: 1, TopK: 2, MinP: nan}, {Temperature: 1, MinP: 2}} {
		if id, ok := one(o, -inf, 1, 2, 3, -inf); !ok || id == 0 || id == 4 {
			t.Errorf("%+v: token %d, %v; want one that is not masked", o, id, ok)
		}
	}
	for _, n := range []int{1, 7, 1000} { // all equal, and a share that rounds away
		if _, ok := one(wire.Options{Temperature: 1, TopP: 1e-30, MinP: 1}, make([]float32, n)...); !ok {
			t.Errorf("%d equal logits: no token", n)
		}
	}
	for _, temperature := range []float32{1e-4, 1, 2, 1e30, math.MaxFloat32} {
		o := wire.Options{Temperature: temperature, TopP: 0.9, MinP: 0.1}
		if id, ok := one(o, row...); !ok || id == 2 {
			t.Errorf("temperature %g: token %d, %v; want one that is not masked", temperature, id, ok)
		}
	}
	if id, _ := one(wire.Options{}, 1, 3, 3, 3); id != 1 {
		t.Errorf("greedy among equals takes %d, want the lowest, 1", id)
	}
}

func TestRowWithANumberThatIsNotFiniteGivesNoToken(t *testing.T) {
	for _, bad := range []float32{nan, inf} {
		for _, at := range []int{0, 2, 4} {
			for _, o := range []wire.Options{{}, {Temperature: 1}, {Temperature: 1, TopK: 2, TopP: 0.5, RepetitionPenalty: 1.5}} {
				row := []float32{1, 2, 3, 4, 5}
				row[at] = bad
				s := New(kernels.Best(), &o, 0, 5)
				s.Prompt([]int32{0, 2, 4})
				if id, ok := s.Sample(row); ok {
					t.Errorf("%v at %d: token %d, want none", bad, at, id)
				}
			}
		}
	}
	for _, row := range [][]float32{{nan, nan}, {-inf, -inf}, {}} {
		if id, ok := one(wire.Options{Temperature: 1}, row...); ok {
			t.Errorf("%v: token %d, want none", row, id)
		}
	}
	if id, ok := one(wire.Options{LogitBias: []wire.LogitBias{{Token: 0, Bias: math.MaxFloat32}}}, math.MaxFloat32, 1); ok {
		t.Errorf("overflowing bias: token %d, want none", id)
	}
	o := wire.Options{}
	if id, ok := New(kernels.Best(), &o, 0, 2).Sample([]float32{1, 2, nan}); !ok || id != 1 {
		t.Errorf("NaN beyond the vocabulary: token %d, %v; want 1", id, ok)
	}
}

func TestMaskedTokensAreNeverChosen(t *testing.T) {
	row := []float32{-inf, 5, -inf, 4, -inf}
	for _, o := range []wire.Options{
		{},
		{Temperature: 1},
		{Temperature: 100, TopK: 4},
		{Temperature: 100, TopP: 0.999},
		{Temperature: 100, MinP: 1e-9},
		{Temperature: 1, RepetitionPenalty: 0.5, PresencePenalty: -2, FrequencyPenalty: -2},
		{LogitBias: []wire.LogitBias{{Token: 0, Bias: 100}}},
	} {
		s := New(kernels.Best(), &o, 0, len(row))
		s.Prompt([]int32{0, 2, 4})
		s.Accept(0)
		for range 200 {
			if id, ok := s.Sample(slices.Clone(row)); !ok || (id != 1 && id != 3) {
				t.Fatalf("%+v: token %d, %v; want 1 or 3", o, id, ok)
			}
		}
	}
}

func TestPenaltiesAndBiases(t *testing.T) {
	bias := func(id int32, b float32) wire.LogitBias { return wire.LogitBias{Token: id, Bias: b} }
	for _, tc := range []struct {
		name    string
		options wire.Options
		want    [4]float32 // of tokens 6, 7, 8, 9
	}{
		{"none", wire.Options{RepetitionPenalty: 1}, [4]float32{1, 1, -1, 1}},
		{"repetition once for each of prompt and output", wire.Options{RepetitionPenalty: 2}, [4]float32{1, 0.5, -2, 0.5}},
		{"presence once for each of the output", wire.Options{PresencePenalty: 0.25}, [4]float32{1, 0.75, -1, 0.75}},
		{"frequency for each time in the output", wire.Options{FrequencyPenalty: 0.25}, [4]float32{1, 0.5, -1, 0.75}},
		{"negative penalties", wire.Options{PresencePenalty: -1, FrequencyPenalty: -0.5}, [4]float32{1, 3, -1, 2.5}},
		{"bias, twice", wire.Options{LogitBias: []wire.LogitBias{bias(6, 2), bias(6, 1), bias(-1, 9), bias(99, 9)}}, [4]float32{4, 1, -1, 1}},
		{
			"all in order",
			wire.Options{RepetitionPenalty: 2, PresencePenalty: 0.25, FrequencyPenalty: 0.5, LogitBias: []wire.LogitBias{bias(7, 3)}},
			[4]float32{1, 0.5 - 1.25 + 3, -2, 0.5 - 0.75},
		},
	} {
		s := New(kernels.Best(), &tc.options, 0, 10)
		s.Prompt([]int32{7, 7, 8, 7, 7, 7}) // 7 five times, 8 once
		for _, id := range []int32{7, 9, 7} {
			s.Accept(id)
		}
		row := []float32{0, 0, 0, 0, 0, 0, 1, 1, -1, 1}
		s.adjust(row)
		if [4]float32(row[6:]) != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, row[6:], tc.want)
		}
	}
}

// TestSeededChoiceIgnoresNeighbours gives a seeded choice neighbours that come and go.
func TestSeededChoiceIgnoresNeighbours(t *testing.T) {
	options := wire.Options{Temperature: 0.8, Seed: 42, TopP: 0.95, FrequencyPenalty: 0.1}
	run := func(choice int, neighbour func(step int, row []float32)) (ids []int32) {
		s := New(kernels.Best(), &options, choice, 1000)
		rows := rand.New(rand.NewPCG(7, 7))
		for step := range 100 {
			row := make([]float32, 1000)
			for i := range row {
				row[i] = float32(rows.NormFloat64()) * 3
			}
			neighbour(step, row)
			id, ok := s.Sample(row)
			if !ok {
				t.Fatal("no token")
			}
			s.Accept(id)
			ids = append(ids, id)
		}
		return ids
	}
	other := New(kernels.Best(), &wire.Options{Temperature: 1, TopK: 500}, 0, 1000)
	alone := run(0, func(int, []float32) {})
	beside := run(0, func(_ int, row []float32) { other.Sample(slices.Clone(row)) })
	leaving := run(0, func(step int, row []float32) {
		if step < 50 {
			other.Sample(slices.Clone(row))
		}
	})
	if !slices.Equal(alone, beside) || !slices.Equal(alone, leaving) {
		t.Errorf("neighbours change the tokens:\nalone   %v\nbeside  %v\nleaving %v", alone, beside, leaving)
	}
	if second := run(1, func(int, []float32) {}); slices.Equal(alone, second) {
		t.Error("two choices of one seed draw the same tokens")
	}
}

// TestStreamIsPinned holds that a seed means the same tokens in every build.
func TestStreamIsPinned(t *testing.T) {
	if got := mix(0); got != 0xe220a8397b1dcdaf { // splitmix64's first output for seed 0
		t.Errorf("mix(0) is %#x", got)
	}
	o := wire.Options{Temperature: 1, Seed: 42}
	s := New(kernels.Best(), &o, 1, 1000)
	var got []int32
	for range 8 {
		id, _ := s.Sample(make([]float32, 1000))
		got = append(got, id)
	}
	if want := []int32{693, 344, 698, 842, 930, 134, 915, 375}; !slices.Equal(got, want) {
		t.Errorf("seed 42, choice 1 draws %v, want %v", got, want)
	}
}

// probabilities is the distribution that o asks for, the obvious way.
func probabilities(o wire.Options, logits []float32) []float64 {
	p, order := make([]float64, len(logits)), make([]int, len(logits))
	sum := 0.0
	normalise := func() {
		for i := range p {
			p[i] /= sum
		}
		sum = 0
		for _, x := range p {
			sum += x
		}
	}
	for i, l := range logits {
		order[i] = i
		p[i] = math.Exp(float64(l) / float64(o.Temperature))
		sum += p[i]
	}
	normalise()
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	drop := func(list []int) {
		for _, i := range list {
			sum -= p[i]
			p[i] = 0
		}
		normalise()
	}
	if o.TopK > 0 && o.TopK < len(order) {
		drop(order[o.TopK:])
	}
	if o.TopP > 0 && o.TopP < 1 {
		reached := 0.0
		for n, i := range order {
			if reached += p[i]; reached >= float64(o.TopP) {
				drop(order[n+1:])
				break
			}
		}
	}
	for n, i := range order {
		if p[i] < float64(o.MinP)*p[order[0]] {
			drop(order[n:])
			break
		}
	}
	return p
}

// TestDistribution compares draws with the expected distribution by
// chi-square. The seed is fixed, so the outcome is too.
func TestDistribution(t *testing.T) {
	logits := []float32{1, 2.5, -1, 0, 2.5, 3, -4, 0.5, 1.5, 2, -20, 1}
	checkDistribution(t, logits)
	apart := slices.Repeat([]float32{-inf}, 12*170) // in four parts that have a peak each
	for i, l := range logits {
		apart[170*i+i] = l
	}
	checkDistribution(t, apart)
}

func checkDistribution(t *testing.T, logits []float32) {
	t.Helper()
	for _, o := range []wire.Options{
		{Temperature: 1},
		{Temperature: 0.5},
		{Temperature: 2.5},
		{Temperature: 1, TopK: 1},
		{Temperature: 1, TopK: 2}, // cuts between equals
		{Temperature: 1, TopK: 5},
		{Temperature: 1, TopK: 100},
		{Temperature: 1, TopP: 0.1},
		{Temperature: 1, TopP: 0.8},
		{Temperature: 1, TopP: 0.999},
		{Temperature: 1, MinP: 0.2},
		{Temperature: 1, MinP: 1},
		{Temperature: 1.5, TopK: 8, TopP: 0.9, MinP: 0.15},
		{Temperature: 0.7, TopP: 0.95, MinP: 0.05},
		{Temperature: 1, TopP: 0.99, MinP: 0.3}, // min-p cuts what top-p leaves
	} {
		const draws = 50_000
		s := New(kernels.Best(), &o, 3, len(logits))
		counts := make([]float64, len(logits))
		row := make([]float32, len(logits))
		for range draws {
			copy(row, logits)
			id, _ := s.Sample(row)
			counts[id]++
		}
		chi, freedom := 0.0, -1.0
		for i, p := range probabilities(o, logits) {
			if p == 0 && counts[i] > 0 {
				t.Errorf("%+v: token %d drawn %v times, has no chance", o, i, counts[i])
			}
			if p*draws >= 5 {
				d := counts[i] - p*draws
				chi += d * d / (p * draws)
				freedom++
			}
		}
		// Wilson and Hilferty's bound, at one in a thousand.
		if freedom > 0 {
			k := 2 / (9 * freedom)
			if limit := freedom * math.Pow(1-k+3.09*math.Sqrt(k), 3); chi > limit {
				t.Errorf("%+v: chi-square %.1f with %v degrees of freedom, limit %.1f", o, chi, freedom, limit)
			}
		}
	}
}

func TestExp(t *testing.T) {
	if exp(0) != 1 {
		t.Errorf("e^0 is %v; the likeliest must weigh exactly 1", exp(0))
	}
	for x := 0.0; x > -87; x -= 0.0037 {
		if got, want := exp(x), math.Exp(x); math.Abs(got/want-1) > 1e-8 {
			t.Fatalf("e^%g is %g, want %g", x, got, want)
		}
	}
	for _, x := range []float64{-104, -1e9, math.Inf(-1)} {
		if exp(x) != 0 {
			t.Errorf("e^%g is %g, want 0", x, exp(x))
		}
	}
}

func TestSampleAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	logits := make([]float32, 20_000)
	for i := range logits {
		logits[i] = float32(r.NormFloat64()) * 4
	}
	row := make([]float32, len(logits))
	for _, o := range []wire.Options{{}, {Temperature: 1}, {Temperature: 1, TopK: 40, TopP: 0.9, MinP: 0.01, FrequencyPenalty: 1}, {Temperature: 1, TypicalP: 0.9, TopP: 0.9, MinP: 0.1}} {
		s := New(kernels.Best(), &o, 0, len(logits))
		next := func() {
			copy(row, logits)
			id, _ := s.Sample(row)
			s.Accept(id % 4)
		}
		for range 10 {
			next()
		}
		if n := testing.AllocsPerRun(200, next); n != 0 {
			t.Errorf("%+v: %v allocations a token", o, n)
		}
	}
}

func FuzzSample(f *testing.F) {
	f.Add(uint64(1), float32(0.7), float32(0.9), float32(0.1), float32(1.1), 3, []byte("\x00\x00\x80\x3f\x00\x00\x80\xff\x00\x00\x00\x40"))
	f.Fuzz(func(t *testing.T, seed uint64, temperature, topP, minP, penalty float32, topK int, data []byte) {
		o := wire.Options{Seed: seed, Temperature: temperature, TopP: topP, MinP: minP, TypicalP: penalty, TopK: topK, RepetitionPenalty: penalty, PresencePenalty: penalty}
		var row []float32
		for ; len(data) >= 4; data = data[4:] {
			row = append(row, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
		masked := slices.Clone(row)
		s := New(kernels.Best(), &o, 0, len(row))
		s.Prompt([]int32{0, 1, 5})
		s.Accept(1)
		id, ok := s.Sample(row)
		if ok && (id < 0 || int(id) >= len(masked) || !(masked[id] <= math.MaxFloat32) || masked[id] == -inf) {
			t.Fatalf("token %d of %v with %+v", id, masked, o)
		}
	})
}

func BenchmarkSample(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 3))
	logits := make([]float32, 150_000)
	for i := range logits {
		logits[i] = float32(r.NormFloat64()) * 3
	}
	row := make([]float32, len(logits))
	for name, o := range map[string]wire.Options{
		"greedy": {}, "temperature": {Temperature: 1}, "top-k": {Temperature: 1, TopK: 40},
		"top-p": {Temperature: 1, TopP: 0.95}, "min-p": {Temperature: 1, MinP: 0.05},
	} {
		b.Run(name, func(b *testing.B) {
			s := New(kernels.Best(), &o, 0, len(row))
			for b.Loop() {
				copy(row, logits)
				s.Sample(row)
			}
		})
	}
}
