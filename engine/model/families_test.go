package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// families are small shapes of what differs between architectures.
var families = map[string]map[string]any{
	"gemma2":   {"attention.sliding_window": uint32(9), "attn_logit_softcapping": float32(3), "final_logit_softcapping": float32(4)},
	"gemma3":   {"attention.sliding_window": uint32(9), "attention.sliding_window_pattern": []bool{true, false, true}},
	"qwen2":    {},
	"qwen3moe": {"expert_count": uint32(5), "expert_used_count": uint32(2), "expert_feed_forward_length": uint32(48)},
	"gpt-oss": {"expert_count": uint32(5), "expert_used_count": uint32(3), "attention.sliding_window": uint32(9), "rope.scaling.type": "yarn",
		"rope.scaling.factor": float32(8), "rope.scaling.original_context_length": uint32(100)},
	"phi3":    {"attention.sliding_window": uint32(11)},
	"granite": {"embedding_scale": float32(3), "residual_scale": float32(0.3), "logit_scale": float32(4), "attention.scale": float32(0.2)},
	"smollm3": {},
}

// familyFile is a random model of an architecture: 3 layers, width 32, 50 tokens.
func familyFile(t testing.TB, arch string, typ kernels.Type) *gguf.File {
	t.Helper()
	const embed, ff, heads, kvHeads, dim = 32, 64, 4, 2, 16
	b := &gguftest.Builder{}
	b.Set("general.architecture", arch)
	for key, v := range map[string]any{"context_length": uint32(128), "embedding_length": uint32(embed), "block_count": uint32(3),
		"feed_forward_length": uint32(ff), "attention.head_count": uint32(heads), "attention.head_count_kv": uint32(kvHeads),
		"attention.layer_norm_rms_epsilon": float32(1e-5), "attention.key_length": uint32(dim), "attention.value_length": uint32(dim)} {
		b.Set(arch+"."+key, v)
	}
	for key, v := range families[arch] {
		b.Set(arch+"."+key, v)
	}
	r := rand.New(rand.NewPCG(4, 4))
	add := func(name string, t kernels.Type, dims ...int) {
		n := 1
		for _, d := range dims {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64()) / 4
		}
		b.Tensor(name, t, dims, gguftest.Encode(t, x))
	}
	matrix := func(name string, dims ...int) { add(name+".weight", typ, dims...) }
	vector := func(name string, dims ...int) { add(name, kernels.F32, dims...) }
	matrix("token_embd", embed, 50)
	vector("output_norm.weight", embed)
	experts, moe := families[arch]["expert_count"].(uint32)
	for layer := range 3 {
		p := fmt.Sprintf("blk.%d.", layer)
		vector(p+"attn_norm.weight", embed)
		if arch == "phi3" {
			matrix(p+"attn_qkv", embed, (heads+2*kvHeads)*dim)
			matrix(p+"ffn_up", embed, 2*ff)
			matrix(p+"ffn_down", ff, embed)
		} else {
			matrix(p+"attn_q", embed, heads*dim)
			matrix(p+"attn_k", embed, kvHeads*dim)
			matrix(p+"attn_v", embed, kvHeads*dim)
		}
		matrix(p+"attn_output", heads*dim, embed)
		if arch == "qwen2" || arch == "gpt-oss" {
			vector(p+"attn_q.bias", heads*dim)
			vector(p+"attn_k.bias", kvHeads*dim)
			vector(p+"attn_v.bias", kvHeads*dim)
		}
		if arch == "gemma3" || arch == "qwen3moe" {
			vector(p+"attn_q_norm.weight", dim)
			vector(p+"attn_k_norm.weight", dim)
		}
		switch arch {
		case "gemma2", "gemma3":
			vector(p+"post_attention_norm.weight", embed)
			vector(p+"post_ffw_norm.weight", embed)
			vector(p+"ffn_norm.weight", embed)
		case "gpt-oss":
			vector(p+"post_attention_norm.weight", embed)
			vector(p+"attn_sinks.weight", heads)
		default:
			vector(p+"ffn_norm.weight", embed)
		}
		switch {
		case moe:
			width := ff
			if arch == "qwen3moe" {
				width = 48
			}
			n := int(experts)
			vector(p+"ffn_gate_inp.weight", embed, n)
			matrix(p+"ffn_gate_exps", embed, width, n)
			matrix(p+"ffn_up_exps", embed, width, n)
			add(p+"ffn_down_exps.weight", kernels.F16, width, embed, n)
			if arch == "gpt-oss" {
				vector(p+"ffn_gate_inp.bias", n)
				vector(p+"ffn_gate_exps.bias", width, n)
				vector(p+"ffn_up_exps.bias", width, n)
				vector(p+"ffn_down_exps.bias", embed, n)
			}
		case arch != "phi3":
			matrix(p+"ffn_gate", embed, ff)
			matrix(p+"ffn_up", embed, ff)
			matrix(p+"ffn_down", ff, embed)
		}
	}
	f, err := gguf.Parse(arch, b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFamiliesAreBitInvariantOverSchedules: experts meet other tokens in every
// batch, windows and norms other rows; none may change a bit.
func TestFamiliesAreBitInvariantOverSchedules(t *testing.T) {
	for arch := range families {
		t.Run(arch, func(t *testing.T) {
			f := familyFile(t, arch, kernels.Q8_0)
			for _, set := range kernels.Sets() {
				rng := rand.New(rand.NewPCG(8, 8))
				for round := range 4 {
					alone := load(t, f, set, newTeam(t, 1), Options{})
					together := load(t, f, set, newTeam(t, 1+rng.IntN(4)),
						Options{PageTokens: 1 + rng.IntN(20), Pages: 400, BatchTokensMax: 20 + rng.IntN(60)})
					var sequences [][]int32
					for range 1 + rng.IntN(4) {
						sequences = append(sequences, randomTokens(rng, 1+rng.IntN(60), 50))
					}
					for i, got := range runTogether(together, rng, sequences) {
						wantSameBits(t, fmt.Sprintf("%s, round %d, sequence %d", set.Name, round, i), got.rows, runAlone(alone, sequences[i]).rows)
					}
				}
			}
		})
	}
}

// TestFamiliesDifferByTheirKeys: without each key that changes the maths, the
// logits are others, so that the key is obeyed.
func TestFamiliesDifferByTheirKeys(t *testing.T) {
	team := newTeam(t, 1)
	tokens := randomTokens(rand.New(rand.NewPCG(3, 3)), 40, 50)
	logits := func(arch string) []float32 {
		m := load(t, familyFile(t, arch, kernels.F32), kernels.Best(), team, Options{})
		return runAlone(m, tokens).rows[39]
	}
	for arch, keys := range families {
		whole := logits(arch)
		for key, v := range keys {
			if key == "expert_count" || key == "expert_feed_forward_length" || key == "rope.scaling.type" {
				continue // the tensors ask for it, or it has company
			}
			families[arch] = withKey(keys, key, other(v))
			if nmse(logits(arch), whole) < 1e-9 {
				t.Errorf("%s: another %s gives the same logits", arch, key)
			}
			families[arch] = keys
		}
	}
}

func withKey(keys map[string]any, key string, v any) map[string]any {
	changed := map[string]any{key: v}
	for k, old := range keys {
		if k != key {
			changed[k] = old
		}
	}
	return changed
}

func other(v any) any {
	switch v := v.(type) {
	case uint32:
		return v + 2
	case float32:
		return 2 * v
	case []bool:
		return []bool{false, true, true}
	}
	return v
}

// TestOtherLayoutsAreTheSameModel: rows of several matrices in one tensor, and one
// tensor for each expert, as other converters write them.
func TestOtherLayoutsAreTheSameModel(t *testing.T) {
	team := newTeam(t, 1)
	tokens := randomTokens(rand.New(rand.NewPCG(3, 3)), 20, 50)
	logits := func(f *gguf.File) [][]float32 {
		return runAlone(load(t, f, kernels.Best(), team, Options{}), tokens).rows
	}
	for arch, change := range map[string]func(d *gguf.Draft, f *gguf.File, prefix string) (gone []string){
		"qwen2": func(d *gguf.Draft, f *gguf.File, p string) []string {
			joinRows(t, d, f, p+"attn_qkv.weight", p+"attn_q.weight", p+"attn_k.weight", p+"attn_v.weight")
			joinRows(t, d, f, p+"attn_qkv.bias", p+"attn_q.bias", p+"attn_k.bias", p+"attn_v.bias")
			return []string{"attn_q.", "attn_k.", "attn_v."}
		},
		"qwen3moe": func(d *gguf.Draft, f *gguf.File, p string) []string {
			gate, _ := f.Tensor(p + "ffn_gate_exps.weight")
			up, _ := f.Tensor(p + "ffn_up_exps.weight")
			var data []byte
			for e := range 5 {
				n := len(gate.Data) / 5
				data = append(append(data, gate.Data[e*n:(e+1)*n]...), up.Data[e*n:(e+1)*n]...)
			}
			d.Add(gguf.Tensor{Name: p + "ffn_gate_up_exps.weight", Type: gate.Type, Dims: []int{gate.Dims[0], 2 * gate.Dims[1], 5}, Data: data})
			down, _ := f.Tensor(p + "ffn_down_exps.weight")
			for e := range 5 {
				n := len(down.Data) / 5
				d.Add(gguf.Tensor{Name: fmt.Sprintf("%sffn_down.%d.weight", p, e), Type: down.Type, Dims: down.Dims[:2], Data: down.Data[e*n : (e+1)*n]})
			}
			return []string{"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}
		},
		"gpt-oss": func(d *gguf.Draft, f *gguf.File, p string) []string {
			for _, kind := range []string{"gate", "up", "down"} {
				for _, part := range []string{"weight", "bias"} {
					all, _ := f.Tensor(p + "ffn_" + kind + "_exps." + part)
					for e := range 5 {
						n := len(all.Data) / 5
						d.Add(gguf.Tensor{Name: fmt.Sprintf("%sffn_%s.%d.%s", p, kind, e, part), Type: all.Type, Dims: all.Dims[:len(all.Dims)-1], Data: all.Data[e*n : (e+1)*n]})
					}
				}
			}
			return []string{"_exps."}
		},
	} {
		f := familyFile(t, arch, kernels.Q8_0)
		d := gguf.NewDraft(arch + " in another layout")
		d.Copy(f)
		var gone []string
		for layer := range 3 {
			gone = change(d, f, fmt.Sprintf("blk.%d.", layer))
		}
		for _, tensor := range f.Tensors {
			if !slices.ContainsFunc(gone, func(part string) bool { return strings.Contains(tensor.Name, part) }) {
				d.Add(tensor)
			}
		}
		other, err := d.File("", false)
		if err != nil {
			t.Fatal(err)
		}
		wantSameBits(t, arch, logits(other), logits(f))
		config, err := ReadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := config.WeightReadBytes(other), config.WeightReadBytes(f); a != b {
			t.Errorf("%s: a token reads %d bytes of the other layout, %d of the usual", arch, a, b)
		}
	}
}

// joinRows adds one tensor of the rows of several.
func joinRows(t *testing.T, d *gguf.Draft, f *gguf.File, name string, from ...string) {
	t.Helper()
	var joined gguf.Tensor
	for _, part := range from {
		tensor, ok := f.Tensor(part)
		if !ok {
			t.Fatalf("no tensor %s", part)
		}
		last := len(tensor.Dims) - 1
		if joined.Dims == nil {
			joined = gguf.Tensor{Name: name, Type: tensor.Type, Dims: slices.Clone(tensor.Dims)}
			joined.Dims[last] = 0
		}
		joined.Dims[last] += tensor.Dims[last]
		joined.Data = append(joined.Data, tensor.Data...)
	}
	d.Add(joined)
}

// TestGraniteKeys: what its dense models share with hybrids says nothing, and
// finetuned says whether there is rope.
func TestGraniteKeys(t *testing.T) {
	read := func(change func(*gguf.Draft)) (Config, error) {
		f := familyFile(t, "granite", kernels.F32)
		d := gguf.NewDraft("granite")
		d.Copy(f)
		change(d)
		for _, tensor := range f.Tensors {
			d.Add(tensor)
		}
		changed, err := d.File("", false)
		if err != nil {
			t.Fatal(err)
		}
		return ReadConfig(changed)
	}
	c, err := read(func(d *gguf.Draft) {
		d.Set("granite.ssm.conv_kernel", uint32(4))
		d.Set("granite.expert_shared_feed_forward_length", uint32(64))
		d.Set("granite.rope.scaling.finetuned", true)
	})
	if err != nil || c.Layers[0].Rope != 0 {
		t.Errorf("granite 4: %v", err)
	}
	if c, err = read(func(d *gguf.Draft) { d.Set("granite.rope.scaling.finetuned", false) }); err != nil || c.Layers[2].Rope != NoRope {
		t.Errorf("without rope: %v", err)
	}
	if _, err = read(func(d *gguf.Draft) { d.Set("granite.expert_shared_feed_forward_length", uint32(65)) }); err == nil {
		t.Error("another feed-forward layer is ignored")
	}
}

// TestBytesReadForAToken: windows bound what attention reads, ExpertsUsed what
// experts cost, and of an embedding that is no output one row is read.
func TestBytesReadForAToken(t *testing.T) {
	config := func(f *gguf.File) Config {
		c, err := ReadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := config(familyFile(t, "gemma3", kernels.F32))
	if got, want := c.KVReadBytes(kernels.KVF32, 20), (9+20+9)*2*4*2*16; got != want {
		t.Errorf("attention reads %d bytes, want %d", got, want)
	}
	if got, want := c.KVReadBytes(kernels.KVF16, 20), (9+20+9)*2*2*2*16; got != want {
		t.Errorf("in halves, %d bytes, want %d", got, want)
	}
	if got, want := c.KVReadBytes(kernels.KVInt8, 20), (9+20+9)*2*2*(16+4); got != want {
		t.Errorf("in bytes with scales, %d bytes, want %d", got, want)
	}
	if got, want := c.KVReadBytes(kernels.KVF32, 5), 3*5*2*4*2*16; got != want {
		t.Errorf("attention reads %d bytes of a short context, want %d", got, want)
	}
	f := familyFile(t, "qwen3moe", kernels.F32)
	c = config(f)
	const experts = 3 * (4*32*48*2 + 2*48*32) // bytes of one over 3 layers; down is F16
	if got, want := c.WeightReadBytes(f), f.SizeBytes()-headerBytes(f)-3*experts; got != want {
		t.Errorf("a mixture reads %d bytes, want %d", got, want)
	}
	f = parseTiny(t, gguftest.Tiny{Untied: true, Vocab: 300, Embed: 32})
	c = config(f)
	if got, want := c.WeightReadBytes(f), 4*(f.Parameters()-299*32); got != want {
		t.Errorf("an untied model reads %d bytes, want %d", got, want)
	}
}

// headerBytes is what a file has beside its tensors' data.
func headerBytes(f *gguf.File) int {
	n := f.SizeBytes()
	for _, use := range f.TypeUses() {
		n -= use.Bytes
	}
	return n
}

func TestAllocationsOfAMixture(t *testing.T) {
	m := load(t, familyFile(t, "gpt-oss", kernels.Q8_0), kernels.Best(), newTeam(t, 2), Options{})
	chunks := []Chunk{{Tokens: []int32{1, 2, 3}, Pages: firstPages(8), Logits: 1}}
	if n := testing.AllocsPerRun(20, func() { m.Forward(chunks) }); n != 0 {
		t.Errorf("Forward allocates %v times", n)
	}
}
