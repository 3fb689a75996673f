package model

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

func loadError(t *testing.T, b *gguftest.Builder, o Options) string {
	t.Helper()
	f, err := gguf.Parse("tiny", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(f, kernels.Best(), newTeam(t, 1), o)
	if err == nil {
		m.Close()
		return ""
	}
	return err.Error()
}

// metadata is the keys of a tiny model with changes: nil removes a key.
func metadata(changes map[string]any) *gguftest.Builder {
	keys := map[string]any{
		"general.architecture": "llama", "llama.context_length": uint32(128), "llama.embedding_length": uint32(32),
		"llama.block_count": uint32(1), "llama.feed_forward_length": uint32(64), "llama.attention.head_count": uint32(4),
		"llama.attention.head_count_kv": uint32(2), "llama.attention.layer_norm_rms_epsilon": float32(1e-5),
	}
	b := &gguftest.Builder{}
	for key, v := range changes {
		keys[key] = v
	}
	for key, v := range keys {
		if v != nil {
			b.Set(key, v)
		}
	}
	return b
}

// tensors adds a tiny model's tensors with changed shapes; nil leaves one out.
func tensors(b *gguftest.Builder, changes map[string][]int) *gguftest.Builder {
	shapes := map[string][]int{
		"token_embd.weight": {32, 50}, "output_norm.weight": {32},
		"blk.0.attn_norm.weight": {32}, "blk.0.attn_q.weight": {32, 32}, "blk.0.attn_k.weight": {32, 16}, "blk.0.attn_v.weight": {32, 16},
		"blk.0.attn_output.weight": {32, 32}, "blk.0.ffn_norm.weight": {32}, "blk.0.ffn_gate.weight": {32, 64},
		"blk.0.ffn_up.weight": {32, 64}, "blk.0.ffn_down.weight": {64, 32},
	}
	for name, dims := range changes {
		shapes[name] = dims
	}
	for name, dims := range shapes {
		if dims == nil {
			continue
		}
		n := 1
		for _, d := range dims {
			n *= d
		}
		b.Tensor(name, kernels.F32, dims, gguftest.Encode(kernels.F32, make([]float32, n)))
	}
	return b
}

func TestKeysThatAreNotUnderstoodAreRefused(t *testing.T) {
	for want, changes := range map[string]map[string]any{
		"":                                                                  {"llama.vocab_size": uint32(50), "llama.expert_count": uint32(0), "llama.rope.scaling.type": "none", "llama.attention.sliding_window": uint32(0), "tokenizer.x": uint8(1)},
		`architecture "" is not supported`:                                  {"general.architecture": nil},
		`architecture "llama9" is not support`:                              {"general.architecture": "llama9"},
		"key general.architecture: has type":                                {"general.architecture": uint32(1)},
		"key llama.context_length: is missing":                              {"llama.context_length": nil},
		"key llama.block_count: is 0; allowed":                              {"llama.block_count": uint32(0)},
		"key llama.block_count: is 4294967295":                              {"llama.block_count": uint32(math.MaxUint32)},
		"key llama.feed_forward_length: is -1":                              {"llama.feed_forward_length": int32(-1)},
		"key llama.embedding_length: is \"a\"":                              {"llama.embedding_length": "a"},
		"key llama.block_count: is 65536, but the file has only 11 tensors": {"llama.block_count": uint32(65536)},
		"key llama.attention.head_count: is 64, which does not divide the width of 32":       {"llama.attention.head_count": uint32(64)},
		"key llama.attention.head_count: is 5, which does not divide the width of 32":        {"llama.attention.head_count": uint32(5), "llama.attention.head_count_kv": uint32(1)},
		"key llama.attention.head_count: is 4096; allowed are up to 16777216 numbers in all": {"llama.attention.head_count": uint32(4096), "llama.attention.key_length": uint32(1 << 15)},
		"key llama.attention.key_length: is 16777216; allowed are up to 65536":               {"llama.attention.key_length": uint32(1 << 24)},
		"key llama.attention.head_count_kv: has a layer of -2; allowed":                      {"llama.attention.head_count_kv": []int32{-2}},
		"key llama.attention.head_count_kv: is 3, which does not divide the 4 heads":         {"llama.attention.head_count_kv": uint32(3)},
		"key llama.feed_forward_length: has 2 values for 1 layers":                           {"llama.feed_forward_length": []int32{64, 96}},
		"key llama.attention.value_length: is 4; only values as long as the keys (8)":        {"llama.attention.value_length": uint32(4)},
		"key llama.rope.dimension_count: is 10; allowed are even numbers to":                 {"llama.rope.dimension_count": uint32(10)},
		"key llama.rope.dimension_count: is 7;":                                              {"llama.rope.dimension_count": uint32(7)},
		"key llama.attention.layer_norm_rms_epsilon: is missing":                             {"llama.attention.layer_norm_rms_epsilon": nil},
		"key llama.attention.layer_norm_rms_epsilon: is NaN":                                 {"llama.attention.layer_norm_rms_epsilon": float32(math.NaN())},
		"key llama.rope.freq_base: is +Inf":                                                  {"llama.rope.freq_base": float32(math.Inf(1))},
		"key llama.rope.freq_base: has type string, not f32":                                 {"llama.rope.freq_base": "10000"},
		`key llama.rope.scaling.type: is "dynamic"; supported: none, linear, yarn, longrope`: {"llama.rope.scaling.type": "dynamic"},
		`key llama.rope.scaling.type: is "longrope", which is not supported in architecture`: {"llama.rope.scaling.type": "longrope"},
		"key llama.rope.scaling.factor: is -1; allowed":                                      {"llama.rope.scaling.factor": float32(-1)},
		"key llama.rope.scaling.yarn_attn_factor: is NaN; allowed":                           {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_attn_factor": float32(math.NaN())},
		"key llama.attention.clamp_kqv: is 8; only 0 is supported":                           {"llama.attention.clamp_kqv": float32(8)},
		"key llama.rope.scaling.yarn_beta_fast: and slow are 0 and 1":                        {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_beta_fast": float32(0)},
		"key llama.rope.scaling.yarn_log_multiplier: is -1; allowed are numbers from":        {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_log_multiplier": float64(-1)},
		"key llama.expert_used_count: is missing":                                            {"llama.expert_count": uint32(8)},
		"key llama.expert_used_count: is 9 of 8 experts":                                     {"llama.expert_count": uint32(8), "llama.expert_used_count": uint32(9)},
		"key llama.expert_used_count: is 2: there are no experts to use":                     {"llama.expert_used_count": uint32(2)},
		"key llama.expert_count: is 70000; allowed are up to 4096":                           {"llama.expert_count": uint32(70000), "llama.expert_used_count": uint32(2)},
		"key llama.attention.causal: is false; only true is supported":                       {"llama.attention.causal": false},
		"key llama.expert_gating_func: is 2; only softmax (0, 1 and 3) is":                   {"llama.expert_gating_func": uint32(2)},
		"key llama.attention.scale: is -1; allowed are numbers over 0":                       {"llama.attention.scale": float32(-1)},
		"key llama.logit_scale: (0.5) is not understood, and could change what the model":    {"llama.logit_scale": float32(0.5)},
		"key split.count: is 3: models split over files are not supported; merge them first": {"split.count": uint16(3)},
		"has 50 rows; the 51 tokens of the tokenizer need one each":                          {"tokenizer.ggml.tokens": make([]string, 51)},
	} {
		got := loadError(t, tensors(metadata(changes), nil), Options{})
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("error %q, want %q", got, want)
		}
	}
	perLayer := map[string]any{"llama.attention.head_count_kv": []int32{2}, "llama.feed_forward_length": []uint32{64}}
	if got := loadError(t, tensors(metadata(perLayer), nil), Options{}); got != "" {
		t.Errorf("equal numbers per layer: %s", got)
	}
}

func TestTensorsOfAnotherShapeAreRefused(t *testing.T) {
	for want, changes := range map[string]map[string][]int{
		"tensor blk.0.attn_k.weight: is missing; the model needs it with the shape [32 16]":     {"blk.0.attn_k.weight": nil},
		"tensor token_embd.weight is missing or not a matrix":                                   {"token_embd.weight": nil},
		"tensor blk.0.ffn_down.weight: has the shape [32 64]; the model's keys ask for [64 32]": {"blk.0.ffn_down.weight": {32, 64}},
		"tensor blk.0.ffn_norm.weight: has the shape [32 1]; the model's keys ask for [32]":     {"blk.0.ffn_norm.weight": {32, 1}},
		"tensor output.weight: has the shape [32 51]; the model's keys ask for [32 50]":         {"output.weight": {32, 51}},
		"tensor blk.0.attn_q_norm.weight: is not understood in architecture llama":              {"blk.0.attn_q_norm.weight": {8}},
		"tensor blk.0.attn_q.bias: has the shape [31]; the model's keys ask for [32]":           {"blk.0.attn_q.bias": {31}},
		"tensor blk.1.attn_q.weight: is not understood":                                         {"blk.1.attn_q.weight": {32, 32}},
		"tensor rope_freqs.weight is F32 [8]; needed is F32 or F16 [4]":                         {"rope_freqs.weight": {8}},
		"tensor rope_freqs.weight: element 0 is 0; factors are over 0":                          {"rope_freqs.weight": {4}},
	} {
		if got := loadError(t, tensors(metadata(nil), changes), Options{}); !strings.Contains(got, want) {
			t.Errorf("error %q, want %q", got, want)
		}
	}
}

func TestOptionsThatDoNotFitTheModelAreRefused(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{ContextTokens: 129}, "a context of 129 tokens is asked for; the model was trained for 128"},
		{Options{ContextTokens: -1}, "option ContextTokens is -1; allowed are 1 to 128"},
		{Options{PageTokens: -1}, "option PageTokens is -1; allowed are 1 to 65536"},
		{Options{BatchTokensMax: 65537}, "option BatchTokensMax is 65537; allowed are 1 to 65536"},
		{Options{Pages: -1}, "option Pages is -1; allowed are 1 to 2147483647"},
		{Options{Pages: math.MaxInt32 + 1}, "option Pages is 2147483648;"},
		{Options{Pages: math.MaxInt32, PageTokens: optionMax}, "reserve"},
	} {
		got := loadError(t, tensors(metadata(nil), nil), c.options)
		if !strings.Contains(got, c.want) || got == "" {
			t.Errorf("%+v: error %q, want %q", c.options, got, c.want)
		}
	}
}

// TestWindowHidesWhatIsBeforeIt changes one token before the last: the last
// one's logits change if, and only if, it lies within the window.
func TestWindowHidesWhatIsBeforeIt(t *testing.T) {
	const window, n = 21, 50
	b := gguftest.TinyBuilder(gguftest.Tiny{Layers: 1}).Set("llama.attention.sliding_window", uint32(window))
	f, err := gguf.Parse("window", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range kernels.Sets() {
		m := load(t, f, set, newTeam(t, 2), Options{})
		tokens := randomTokens(rand.New(rand.NewPCG(1, 2)), n, m.Config().Vocab)
		want := runAlone(m, tokens).rows[n-1]
		for _, back := range []int{1, window - 1, window, n - 1} { // positions before the last
			changed := slices.Clone(tokens)
			changed[n-1-back] ^= 1
			same := nmse(runAlone(m, changed).rows[n-1], want) == 0
			if same != (back >= window) {
				t.Errorf("%s: a token %d back, window %d: logits are the same: %v", set.Name, back, window, same)
			}
		}
	}
}

func TestForwardAllocatesNothing(t *testing.T) {
	m := load(t, parseTiny(t, odd), kernels.Best(), newTeam(t, 2), Options{})
	pages := firstPages(m.Options().Pages)
	chunks := []Chunk{
		{Tokens: randomTokens(rand.New(rand.NewPCG(1, 2)), 30, odd.Vocab), Pages: pages[:4]},
		{Tokens: []int32{1}, Pages: pages[4:5], Logits: 1},
	}
	if n := testing.AllocsPerRun(20, func() { m.Forward(chunks) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func TestForwardWithoutLogitsReturnsNone(t *testing.T) {
	m := load(t, parseTiny(t, odd), kernels.Best(), newTeam(t, 1), Options{})
	if got := m.Forward(nil); len(got) != 0 {
		t.Errorf("%d logits of no chunks", len(got))
	}
	if got := m.Forward([]Chunk{{Tokens: []int32{1, 2}, Pages: []int32{0}}, {Pages: nil}}); len(got) != 0 {
		t.Errorf("%d logits, none asked for", len(got))
	}
}

func TestMistakenSpansPanicBeforeWork(t *testing.T) {
	m := load(t, parseTiny(t, odd), kernels.Best(), newTeam(t, 1), Options{ContextTokens: 64, BatchTokensMax: 8})
	for name, s := range map[string]Chunk{
		"token outside":      {Tokens: []int32{int32(odd.Vocab)}, Pages: []int32{0}},
		"negative token":     {Tokens: []int32{-1}, Pages: []int32{0}},
		"page outside":       {Tokens: []int32{1}, Pages: []int32{4}},
		"pages too few":      {Tokens: []int32{1}, Start: 16, Pages: []int32{0}},
		"start below zero":   {Tokens: []int32{1}, Start: -1, Pages: []int32{0}},
		"beyond the context": {Tokens: []int32{1}, Start: 64, Pages: []int32{0, 1, 2, 3, 3}},
		"batch too large":    {Tokens: make([]int32, 9), Pages: []int32{0}},
		"too many logits":    {Tokens: []int32{1}, Pages: []int32{0}, Logits: 2},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "model: ") {
					t.Errorf("%s: panic %q", name, text)
				}
			}()
			m.Forward([]Chunk{s})
		}()
	}
}

// residentBytes is the process's resident memory: all of it, or of mapped files.
func residentBytes(t *testing.T, ofFiles bool) int {
	field := 1
	if ofFiles {
		field = 2
	}
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc/self/statm here")
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[field])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func TestPoolIsResidentOnlyWhereItIsWritten(t *testing.T) {
	before := residentBytes(t, false)
	m := load(t, parseTiny(t, odd), kernels.Best(), newTeam(t, 1), Options{Pages: 1 << 20})
	m.Forward([]Chunk{{Tokens: []int32{1, 2, 3}, Pages: []int32{1 << 19}, Logits: 1}})
	reserved := m.PageBytes() * m.Options().Pages
	if want := 2 * 2 * 4 * 2 * 16 * 10; m.PageBytes() != want {
		t.Errorf("a page of %d bytes, want %d", m.PageBytes(), want)
	}
	if grown := residentBytes(t, false) - before; grown > reserved/16 {
		t.Errorf("resident memory grew by %d bytes for one page of a pool of %d", grown, reserved)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestPagesOfEveryType: sizes count what is stored, scales among it, and the pools are
// as large; a type that is none is refused.
func TestPagesOfEveryType(t *testing.T) {
	f := parseTiny(t, odd)
	for kv, block := range map[kernels.KVType]int{kernels.KVF32: 640, kernels.KVF16: 320, kernels.KVInt8: 16*(10+4) + 32} { // whole lines of 64
		m := load(t, f, kernels.Best(), newTeam(t, 1), Options{Pages: 7, KVType: kv})
		if want := 2 * 2 * 2 * block; m.PageBytes() != want {
			t.Errorf("%v: a page of %d bytes, want %d", kv, m.PageBytes(), want)
		}
		if got, want := len(m.pools[0].keys), 7*2*block+kernels.KVSlack; got != want {
			t.Errorf("%v: a pool of %d bytes, want %d", kv, got, want)
		}
	}
	if _, err := Load(f, kernels.Best(), newTeam(t, 1), Options{KVType: 9}); err == nil || !strings.Contains(err.Error(), "option KVType is 9") {
		t.Errorf("type 9: %v", err)
	}
	if _, err := Load(f, kernels.Best(), newTeam(t, 1), Options{KVType: kernels.KVFP8}); err == nil || !strings.Contains(err.Error(), "fp8 are kept on a GPU alone") {
		t.Errorf("fp8 on the CPU: %v", err)
	}
}

func TestWeightsAreResidentOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.gguf")
	shape := gguftest.Tiny{Layers: 1, Embed: 1024, FF: 4096, Type: kernels.Q8_0}
	if err := os.WriteFile(path, gguftest.TinyModel(shape), 0o600); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	before := residentBytes(t, true)
	m := load(t, f, kernels.Best(), newTeam(t, 2), Options{})
	if grown := residentBytes(t, true) - before; grown > f.SizeBytes()/4 {
		t.Errorf("%d bytes of the file of %d stay resident beside the packed weights", grown, f.SizeBytes())
	}
	tensor, _ := f.Tensor("blk.0.ffn_down.weight")
	if again := kernels.Best().Pack(tensor.Type, tensor.Dims[1], tensor.Dims[0], tensor.Data); !bytes.Equal(again.Data, m.weights.layers[0].dense.down.Data) {
		t.Error("a tensor whose memory was given back reads differently")
	}
}

func TestConfigAndSizesDescribeTheModel(t *testing.T) {
	f := parseTiny(t, odd)
	m := load(t, f, kernels.Best(), newTeam(t, 2), Options{})
	c := m.Config()
	if c.Architecture != "llama" || c.Name != "tiny" || c.Heads != 6 || c.KVHeads != 2 || c.HeadDim != 10 || c.Vocab != 277 || c.Tied {
		t.Errorf("config %+v", c)
	}
	if m.Parameters() != f.Parameters() || m.WeightBytes() < 4*(m.Parameters()-40*277) {
		t.Errorf("%d parameters, %d bytes of weights", m.Parameters(), m.WeightBytes())
	}
}

func TestRopePairingsAgreeOnReorderedHeads(t *testing.T) {
	c := Rope{Dims: 6, Speeds: speeds(100, 6), Magnitude: 1}
	neighbours := newRope(&c, 1)
	c.Pairing = PairHalves
	halves := newRope(&c, 1)
	angles, apart := make([]float32, 6), make([]float32, 6)
	neighbours.angles(angles, 5)
	halves.angles(apart, 5)
	const dim = 8 // the last two dimensions of each head stay
	a, b := make([]float32, 2*dim), make([]float32, 2*dim)
	order := []int{0, 2, 4, 1, 3, 5, 6, 7} // halves' index i is neighbours' order[i]
	for i := range a {
		a[i] = float32(i + 1)
	}
	for i := range b {
		b[i] = a[i/dim*dim+order[i%dim]]
	}
	kernels.Best().Rotate(a, angles, dim, true)
	kernels.Best().Rotate(b, apart, dim, false)
	for i := range b {
		if b[i] != a[i/dim*dim+order[i%dim]] {
			t.Fatalf("halves give %v, neighbours %v", b, a)
		}
	}
	if sin, cos := math.Sincos(5); a[0] != 1*float32(cos)-2*float32(sin) || a[1] != 1*float32(sin)+2*float32(cos) || a[6] != 7 {
		t.Errorf("rotated to %v", a)
	}
}

// TestRopeAnglesHoldFarOut compares with values computed to 60 digits: an angle
// in float32 is off by a hundredth there.
func TestRopeAnglesHoldFarOut(t *testing.T) {
	r := newRope(&Rope{Dims: 6, Speeds: speeds(100, 6), Magnitude: 1}, 1)
	angles := make([]float32, 6)
	r.angles(angles, 1_000_003)
	if math.Abs(float64(angles[2])-0.999670690301674) > 1e-7 || math.Abs(float64(angles[3])+0.025661468231079) > 1e-7 {
		t.Errorf("cos %v, sin %v", angles[2], angles[3])
	}
}

// TestMutatedFilesAreComputedOrRefused turns bytes of a file's metadata and
// directory: whatever still loads must run.
func TestMutatedFilesAreComputedOrRefused(t *testing.T) {
	b := tensors(metadata(map[string]any{"llama.rope.freq_base": float32(10000), "llama.attention.key_length": uint32(8)}), nil)
	whole := b.Bytes()
	team := newTeam(t, 1)
	rng := rand.New(rand.NewPCG(5, 5))
	loaded := 0
	for range 2000 {
		data := append([]byte(nil), whole...)
		for range 1 + rng.IntN(2) {
			data[rng.IntN(1100)] = byte(rng.IntN(256) >> rng.IntN(8))
		}
		f, err := gguf.Parse("mutated", data)
		if err != nil {
			continue
		}
		if c, err := ReadConfig(f); err == nil && c.PageBytes(kernels.KVInt8, 1<<16) < 1 {
			t.Fatalf("a page of %d bytes: %+v", c.PageBytes(kernels.KVInt8, 1<<16), c)
		}
		m, err := Load(f, kernels.Best(), team, Options{ContextTokens: 16, Pages: 1})
		if err != nil {
			continue
		}
		loaded++
		m.Forward([]Chunk{{Tokens: []int32{0, 0}, Pages: []int32{0}, Logits: 1}})
		m.Close()
	}
	if loaded == 0 || loaded == 2000 {
		t.Errorf("%d of 2000 mutated files load; the test sees nothing", loaded)
	}
}
