package hf

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/safetensors"
)

// This file has encoders: models that see a text whole, for embeddings and for ranking. A head for
// sequence classification with one output makes a ranker of one.

var (
	bertNames   = names{eps: "layer_norm_eps"}
	modernNames = names{eps: "norm_eps"}
)

var encoderFamilies = map[string]*family{
	"bert":        bert([]string{"BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"}, sizes{embed: 768, ff: 3072, layers: 12, heads: 12, context: 512, eps: 1e-12}),
	"roberta":     bert([]string{"RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification"}, sizes{embed: 768, ff: 3072, layers: 12, heads: 12, context: 512, eps: 1e-12}),
	"xlm-roberta": bert([]string{"XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"}, sizes{embed: 768, ff: 3072, layers: 12, heads: 12, context: 512, eps: 1e-12}),
	"nomic_bert": {arch: "nomic-bert", classes: []string{"NomicBertModel", "NomicBertForMaskedLM", "NomicBertForPreTraining"}, names: &bertNames, centred: true, theta: 1e3,
		all: (*builder).nomicBERT, read: readNomicBERT, sizes: sizes{embed: 768, ff: 3072, layers: 12, heads: 12, context: 2048, eps: 1e-12}},
	"modernbert": {arch: "modern-bert", classes: []string{"ModernBertModel", "ModernBertForMaskedLM"}, names: &modernNames, centred: true, activations: []string{"gelu"},
		all: (*builder).modernBERT, read: readModernBERT, set: setModernBERT, ropes: ropeKeys{read: (*description).readModernRopes},
		sizes: sizes{embed: 768, ff: 1152, layers: 22, heads: 12, context: 8192, eps: 1e-5}},
}

func bert(classes []string, s sizes) *family {
	return &family{arch: "bert", classes: classes, names: &bertNames, centred: true, activations: []string{"gelu"}, all: (*builder).bert,
		read: readBERT, ropes: ropeKeys{read: func(*description, *config) {}}, sizes: s}
}

// harmlessInEncoders are keys that encoders have of training and of other tasks.
var harmlessInEncoders = []string{
	"attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout", "classifier_activation", "classifier_bias", "classifier_pooling", "classifier_dropout_prob",
	"type_vocab_size", "sentence_transformers", "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
	"cls_token_id", "mask_token_id", "sparse_prediction", "sparse_pred_ignore_index", "embedding_dropout", "mlp_dropout", "deterministic_flash_attn", "initializer_cutoff_factor",
	"reference_compile", "repad_logits_with_grad", "decoder_bias", "layer_norm_eps", "output_past", "model_max_length",
}

// readBERT reads BERT and RoBERTa, which is built as it is.
func readBERT(d *description, c *config) {
	c.oneOf("position_embedding_type", "absolute")
	c.only("is_decoder", false)
	c.ignore(harmlessInEncoders...)
	d.readRanker(c)
	if c.text("model_type", "") != "bert" {
		d.firstPosition = c.count("pad_token_id", 1) + 1 // positions before it are padding
		if d.context -= d.firstPosition; d.context < 1 {
			c.fail("max_position_embeddings", "is %d, and the first position is %d", d.context+d.firstPosition, d.firstPosition)
			d.context = 1
		}
	}
}

// readRanker finds whether the model has a head for sequence classification.
func (d *description) readRanker(c *config) {
	for _, class := range c.texts("architectures") {
		if !strings.HasSuffix(class, "ForSequenceClassification") {
			continue
		}
		d.pooling.kind = poolRank
		labels := value[map[string]any](c, "id2label", "an object of labels", nil)
		if n := int(c.number("num_labels", float64(len(labels)))); n != 1 {
			c.fail("id2label", "names %d outputs; a head that ranks has one", n)
		}
	}
}

// separator is the id of the token that ends the first of two texts, where the tokenizer's files name it.
func separator(tokenizer, config []byte) (id uint32, ok bool) {
	var names struct {
		Separator any `json:"sep_token"`
	}
	var tokens struct {
		Added []struct {
			ID      uint32
			Content string
		} `json:"added_tokens"`
	}
	_ = json.Unmarshal(config, &names) // whoever reads them as a tokenizer reports errors
	_ = json.Unmarshal(tokenizer, &tokens)
	text, is := names.Separator.(string)
	if !is {
		text = "[SEP]"
	}
	for _, t := range tokens.Added {
		if t.Content == text {
			return t.ID, true
		}
	}
	return 0, false
}

// encoderRoot finds the prefix of an encoder's tensors, and passes over those of other tasks.
func (b *builder) encoderRoot(embedding string, roots ...string) {
	for _, root := range roots {
		if _, ok := b.weights.Tensor(root + embedding); ok {
			b.root = root
			break
		}
	}
	if b.passed = []string{b.root + "embeddings.position_ids"}; b.pooling.kind != poolRank {
		b.passed = append(b.passed, b.root+"pooler.", "cls.", "lm_head.", "head.", "decoder.")
	}
	if m := b.matrix(b.root+embedding, b.vocab, b.embed); m != nil {
		b.vocab = m.Shape[0]
		b.whole("token_embd.weight", m, asIs)
	}
}

// bert adds the tensors of BERT and RoBERTa, which differ in the head alone.
func (b *builder) bert() {
	b.encoderRoot("embeddings.word_embeddings.weight", "bert.", "roberta.", "")
	in := b.root + "embeddings."
	if t := b.take(in+"position_embeddings.weight", b.firstPosition+b.context, b.embed); t != nil {
		t = &safetensors.Tensor{Type: t.Type, Shape: []int{b.context, b.embed}, Data: t.Data[b.firstPosition*len(t.Data)/t.Shape[0]:]}
		b.floats("position_embd.weight", t, b.embed, b.context)
	}
	if t := b.take(in+"token_type_embeddings.weight", 0, b.embed); t != nil {
		b.floats("token_types.weight", t, b.embed, t.Shape[0])
	}
	b.bothOf("token_embd_norm", in+"LayerNorm")
	for i := range b.layers {
		to, from := fmt.Sprintf("blk.%d.", i), fmt.Sprintf("%sencoder.layer.%d.", b.root, i)
		for _, n := range [][2]string{{"attn_q", "self.query"}, {"attn_k", "self.key"}, {"attn_v", "self.value"}, {"attn_output", "output.dense"}} {
			b.linear(to+n[0], from+"attention."+n[1], b.embed, b.embed, true, asIs)
		}
		b.bothOf(to+"attn_output_norm", from+"attention.output.LayerNorm")
		b.linear(to+"ffn_up", from+"intermediate.dense", b.ff, b.embed, true, asIs)
		b.linear(to+"ffn_down", from+"output.dense", b.embed, b.ff, true, asIs)
		b.bothOf(to+"layer_output_norm", from+"output.LayerNorm")
		if b.err != nil {
			return
		}
	}
	if b.pooling.kind == poolRank {
		hidden, output := b.root+"pooler.dense", "classifier"
		if b.firstPosition > 0 { // RoBERTa
			hidden, output = "classifier.dense", "classifier.out_proj"
		}
		b.linear("cls", hidden, b.embed, b.embed, true, asIs)
		b.linear("cls.output", output, 1, b.embed, true, asIs)
	}
}

// bothOf adds the weight and the bias of a norm.
func (b *builder) bothOf(to, from string) {
	b.vector(to+".weight", from+".weight", b.embed, asIs)
	b.vector(to+".bias", from+".bias", b.embed, asIs)
}

// readModernBERT refuses biases, which no reader of GGUF knows.
func readModernBERT(d *description, c *config) {
	for _, key := range []string{"norm_bias", "mlp_bias", "attention_bias"} {
		c.only(key, false)
	}
	c.ignore(harmlessInEncoders...)
	d.window, d.windowPeriod = c.size("local_attention", 128), c.size("global_attn_every_n_layers", 3)
	for i, kind := range c.texts("layer_types") {
		if whole := i%d.windowPeriod == 0; i < d.layers && (kind == fullAttention) != whole {
			c.fail("layer_types", "has %.60q in layer %d; supported is that every %dth layer, from the first on, sees the whole text", kind, i, d.windowPeriod)
			break
		}
	}
}

// readModernRopes reads the two ropes, of layers that see the whole text and of the others.
func (d *description) readModernRopes(c *config) {
	d.rope = rope{kind: "default", theta: c.number("global_rope_theta", 160000), dims: d.headDim}
	d.localRope = rope{kind: "default", theta: c.number("local_rope_theta", 10000), dims: d.headDim}
	p := c.object("rope_parameters")
	if p == nil {
		return
	}
	for key, to := range map[string]*rope{fullAttention: &d.rope, slidingAttention: &d.localRope} {
		if each := p.object(key); each != nil {
			each.oneOf("rope_type", "default")
			to.theta = each.number("rope_theta", to.theta)
			each.checkAllRead()
		}
	}
	p.checkAllRead()
}

func setModernBERT(d *description, to *gguf.Draft) {
	to.Set("modern-bert.rope.freq_base_swa", float32(d.localRope.theta))
	to.Set("modern-bert.attention.sliding_window", uint32(d.window))
	to.Set("modern-bert.attention.sliding_window_pattern", uint32(d.windowPeriod))
}

// modernBERT adds the tensors of ModernBERT. The first layer has no norm before attention.
func (b *builder) modernBERT() {
	b.encoderRoot("embeddings.tok_embeddings.weight", "model.", "")
	b.vector("token_embd_norm.weight", b.root+"embeddings.norm.weight", b.embed, asIs)
	b.vector("output_norm.weight", b.root+"final_norm.weight", b.embed, asIs)
	for i := range b.layers {
		to, from := fmt.Sprintf("blk.%d.", i), fmt.Sprintf("%slayers.%d.", b.root, i)
		if i > 0 {
			b.vector(to+"attn_norm.weight", from+"attn_norm.weight", b.embed, asIs)
		}
		b.linear(to+"attn_qkv", from+"attn.Wqkv", 3*b.embed, b.embed, false, asIs)
		b.linear(to+"attn_output", from+"attn.Wo", b.embed, b.embed, false, asIs)
		b.vector(to+"ffn_norm.weight", from+"mlp_norm.weight", b.embed, asIs)
		b.linear(to+"ffn_up", from+"mlp.Wi", 2*b.ff, b.embed, false, asIs)
		b.linear(to+"ffn_down", from+"mlp.Wo", b.embed, b.ff, false, asIs)
		if b.err != nil {
			return
		}
	}
}
