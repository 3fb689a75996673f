package hf

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/safetensors"
	"github.com/forebay-io/forebay/kernels"
)

// types lists the supported tensor types.
var types = map[string]kernels.Type{"F32": kernels.F32, "F16": kernels.F16, "BF16": kernels.BF16}

// fileTypes maps the type of most weights to general.file_type.
var fileTypes = map[kernels.Type]uint32{kernels.F32: 0, kernels.F16: 1, kernels.BF16: 32, kernels.MXFP4: 38}

// convert makes the File of a folder, whose vectors are pooled so. The File owns weights.
func convert(dir string, config []byte, weights *safetensors.File, p pooling) (*gguf.File, error) {
	c, err := parseConfig(filepath.Join(dir, configName), config)
	if err != nil {
		return nil, err
	}
	d := describe(c)
	if *c.err == nil {
		d.pool(c, p)
	}
	if *c.err != nil {
		return nil, *c.err
	}
	b := &builder{description: d, weights: weights, draft: gguf.NewDraft(dir), used: map[string]bool{}}
	b.draft.Set("general.architecture", d.arch)
	b.draft.Set("general.type", "model")
	if name := filepath.Base(filepath.Clean(dir)); name != "." && name != string(filepath.Separator) {
		b.draft.Set("general.name", name)
	}
	d.setKeys(b.draft)
	if b.bytes = map[kernels.Type]int{}; b.all != nil {
		b.all(b)
	} else {
		b.model()
	}
	b.checkAllUsed()
	b.denseModules()
	if rows := int(c.number("vocab_size", 0)); b.err == nil && rows != 0 && rows != b.vocab {
		b.err = fmt.Errorf("%svocab_size: is %d, but the embedding has %d rows", c.where, rows, b.vocab)
	}
	if b.err != nil {
		return nil, b.err
	}
	b.draft.Set("general.file_type", fileTypes[b.mostUsed()])
	b.draft.Set("general.quantization_version", uint32(2))
	identity := weights.Digest()
	for _, m := range d.pooling.dense {
		identity += m.weights.Digest()
	}
	return b.draft.File(identity, true, weights.Close, d.pooling.close)
}

// builder adds the tensors of a folder to a draft. err keeps the first failure.
type builder struct {
	*description
	weights *safetensors.File
	draft   *gguf.Draft
	used    map[string]bool
	root    string   // prefix of the names of the layers' tensors
	passed  []string // prefixes of tensors of an encoder's other tasks
	vocab   int
	bytes   map[kernels.Type]int // of matrices
	err     error
}

func (b *builder) fail(name, format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%s: tensor %q: %s", b.weights.Name(), name, fmt.Sprintf(format, args...))
	}
}

// roots lists the prefixes of the language model's tensors: of a text model, and
// of a vision model in the layouts before and since transformers 4.52, of a model of state
// spaces, and of a text model saved without its output.
var roots = []string{"model.", "language_model.model.", "model.language_model.", "backbone.", ""}

// model adds all tensors.
func (b *builder) model() {
	embedding := cmp.Or(b.called().embedding, "embed_tokens") + ".weight"
	b.root = roots[0]
	for _, root := range roots {
		if _, ok := b.weights.Tensor(root + embedding); ok {
			b.root = root
		}
	}
	if m := b.matrix(b.root+embedding, b.vocab, b.embed); m != nil {
		b.vocab = m.Shape[0]
		b.whole("token_embd.weight", m, asIs)
	}
	b.output(b.root + embedding)
	b.norm(b.called().lastNorm, b.root+b.called().outputNorm)
	if b.ropeFactors(); b.beside != nil {
		b.beside(b)
	}
	for i := range b.layers {
		b.layer(i, fmt.Sprintf("blk.%d.", i), fmt.Sprintf("%slayers.%d.", b.root, i))
		if b.err != nil {
			return
		}
	}
}

// ropeFactors adds the divisors of the speeds of rotation.
func (b *builder) ropeFactors() {
	add := func(name string, factors []float32) {
		b.draft.Add(gguf.Tensor{Name: name, Type: kernels.F32, Dims: []int{len(factors)}, Data: float32Bytes(factors)})
	}
	switch b.rope.kind {
	case "llama3":
		add("rope_freqs.weight", b.rope.llama3Factors())
	case longRope:
		add("rope_factors_long.weight", float32s(b.rope.long))
		add("rope_factors_short.weight", float32s(b.rope.short))
	}
}

// output adds the output matrix unless it is the embedding. If a model says that
// both are tied but has an output matrix with other numbers, that matrix is used,
// as transformers does.
func (b *builder) output(embedding string) {
	name := "lm_head.weight"
	if _, ok := b.weights.Tensor(name); !ok && b.root == roots[1] {
		name = "language_model.lm_head.weight"
	}
	head, ok := b.weights.Tensor(name)
	if b.tied {
		if !ok {
			return
		}
		if rows, _ := b.weights.Tensor(embedding); rows != nil && rows.Type == head.Type && bytes.Equal(rows.Data, head.Data) {
			b.used[name] = true
			return
		}
	}
	b.whole("output.weight", b.matrix(name, b.vocab, b.embed), asIs)
	if b.headBias {
		b.vector("output.bias", strings.TrimSuffix(name, "weight")+"bias", b.vocab, asIs)
	}
}

// layer adds a layer's tensors; to and from are the prefixes of their names.
func (b *builder) layer(i int, to, from string) {
	for _, n := range b.norms {
		b.norm(to+n.to, from+n.from)
	}
	if b.part != nil {
		b.part(b, i, to, from)
		return
	}
	switch {
	case b.recurrent != nil && b.recurrent[i]:
		b.mixer(b, to, from)
	case b.attend != nil:
		b.attend(b, to, from+"self_attn.")
	default:
		b.attention(i, to, from+"self_attn.")
	}
	if b.inLayer != nil {
		b.inLayer(b, to, from)
	}
	if b.experts > 0 && i >= b.leading && (i+1)%max(1, b.step) == 0 {
		if b.mixture(b, to, from); !b.besideDense {
			return
		}
	}
	if b.dense != nil {
		b.dense(b, to, from)
		return
	}
	n, ff := b.called(), b.layerSizes(i).ff
	if b.fused.gateUp {
		b.linear(to+"ffn_up", from+"mlp.gate_up_proj", 2*ff, b.embed, b.ffBias, asIs)
	} else {
		b.linear(to+"ffn_gate", from+n.gate, ff, b.embed, b.ffBias, asIs)
		b.linear(to+"ffn_up", from+n.up, ff, b.embed, b.ffBias, asIs)
	}
	b.linear(to+"ffn_down", from+n.down, b.embed, ff, b.ffBias, asIs)
}

// norm adds the weight of a norm, and its bias where the family has one.
func (b *builder) norm(to, from string) {
	b.vector(to+".weight", from+".weight", b.embed, b.normed())
	if b.normBias {
		b.vector(to+".bias", from+".bias", b.embed, asIs)
	}
}

func (b *builder) attention(i int, to, from string) {
	l := b.layerSizes(i)
	heads, kvHeads := b.heads*l.headDim, l.kvHeads*l.headDim
	if b.fused.qkv {
		b.linear(to+"attn_qkv", from+"qkv_proj", heads+2*kvHeads, b.embed, b.qkvBias, asIs)
	} else {
		rows := heads
		if b.gatedQ {
			rows *= 2
		}
		b.linear(to+"attn_q", from+"q_proj", rows, b.embed, b.qkvBias, b.turned(b.heads))
		if l.keys {
			b.linear(to+"attn_k", from+"k_proj", kvHeads, b.embed, b.qkvBias, b.turned(l.kvHeads))
		}
		if l.values {
			b.linear(to+"attn_v", from+"v_proj", kvHeads, b.embed, b.qkvBias, asIs)
		}
	}
	b.linear(to+"attn_output", from+b.called().out, b.embed, heads, b.outBias, asIs)
	if n := b.qkNorm; n != nil {
		q, k := l.headDim, l.headDim
		if n.all {
			q, k = heads, kvHeads
		}
		b.vector(to+"attn_q_norm.weight", from+n.q+".weight", q, b.normed())
		if l.keys {
			b.vector(to+"attn_k_norm.weight", from+n.k+".weight", k, b.normed())
		}
	}
}

// harmlessTensors matches tensors that do not change a model's numbers: among them those
// that predict tokens beyond the next one, and scales of keys and values in 8 bits.
var harmlessTensors = regexp.MustCompile(`\.rotary_emb\.inv_freq$|\.self_attn\.(masked_)?bias$|\.[kv]_proj\.[kv]_scale$|^(model\.)?mtp[._]`)

// imageTensors are the prefixes of the tensors of vision parts.
var imageTensors = regexp.MustCompile(`^(model\.)?(vision_tower|vision_model|multi_modal_projector|visual|audio_tower|embed_vision|embed_audio)\.`)

func (b *builder) checkAllUsed() {
	for i := range b.weights.Tensors {
		name := b.weights.Tensors[i].Name
		ofImages := b.images && imageTensors.MatchString(name)
		isPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if !b.used[name] && !ofImages && !slices.ContainsFunc(b.passed, isPrefix) && !b.predicts(name) && !harmlessTensors.MatchString(name) {
			b.fail(name, "is not understood: a model as config.json describes it does not have it")
		}
	}
}

// predicts reports whether a tensor belongs to a layer behind the last one, which predicts
// tokens beyond the next one.
func (b *builder) predicts(name string) bool {
	for i := range b.predictions {
		if strings.HasPrefix(name, fmt.Sprintf("%slayers.%d.", b.root, b.layers+i)) {
			return true
		}
	}
	return false
}

// mostUsed returns the type with the most bytes of matrices.
func (b *builder) mostUsed() kernels.Type {
	most := kernels.F32
	for _, t := range []kernels.Type{kernels.F16, kernels.BF16, kernels.MXFP4} {
		if b.bytes[t] > b.bytes[most] {
			most = t
		}
	}
	return most
}
