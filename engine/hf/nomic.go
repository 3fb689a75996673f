package hf

import "fmt"

// This file has nomic-embed: BERT with a rope in place of positions, and a gate.

// harmlessInNomic are keys of the makers' own configuration that are of training, of speed, or of what they do
// not use.
var harmlessInNomic = []string{
	"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "reorder_and_upcast_attn", "use_flash_attn", "use_xentropy",
	"dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "pad_vocab_size_multiple", "last_layer_subset", "parallel_block_tied_norm", "rotary_emb_scale_base",
}

// readNomicBERT reads transformers' keys, and the makers' own, which are older.
func readNomicBERT(d *description, c *config) {
	for key, to := range map[string]*int{"n_embd": &d.embed, "n_head": &d.heads, "n_inner": &d.ff, "n_layer": &d.layers, "n_positions": &d.context} {
		*to = c.size(key, *to)
	}
	d.layers = min(d.layers, layersMax)
	if d.kvHeads = d.heads; !c.has("head_dim") {
		d.headDim = max(1, d.embed/d.heads)
	}
	if d.heads > sizeMax/d.headDim || d.heads*d.headDim != d.embed || d.headDim%2 != 0 {
		c.fail("num_attention_heads", "is %d heads of %d; needed are even ones of %d numbers in all", d.heads, d.headDim, d.embed)
		d.heads, d.kvHeads, d.headDim = 1, 1, 2
	}
	if d.eps = c.number("layer_norm_epsilon", d.eps); !(d.eps > 0 && d.eps < 1) {
		c.fail("layer_norm_epsilon", "is %v; allowed are numbers over 0 and under 1", d.eps)
	}
	d.theta = c.positive("rotary_emb_base", d.theta)
	if trained := c.size("max_trained_positions", d.context); c.has("rotary_scaling_factor") { // beyond, the rope would change with the text's length
		d.context = min(d.context, trained)
	}
	if part := c.number("rotary_emb_fraction", 1); part != 1 {
		c.fail("rotary_emb_fraction", "is %v; only 1 is supported", part)
	}
	for _, key := range []string{"rotary_emb_interleaved", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm", "parallel_block", "use_rms_norm", "causal", "scale_attn_by_inverse_layer_idx"} {
		c.only(key, false)
	}
	c.only("scale_attn_weights", true)
	c.oneOf("activation_function", "swiglu")
	c.ignore(harmlessInEncoders...)
	c.ignore(harmlessInNomic...)
}

// nomicBERT adds the tensors of nomic-embed.
func (b *builder) nomicBERT() {
	b.encoderRoot("embeddings.word_embeddings.weight", "bert.", "")
	if t := b.take(b.root+"embeddings.token_type_embeddings.weight", 0, b.embed); t != nil {
		b.floats("token_types.weight", t, b.embed, t.Shape[0])
	}
	b.bothOf("token_embd_norm", b.root+"emb_ln")
	for i := range b.layers {
		to, from := fmt.Sprintf("blk.%d.", i), fmt.Sprintf("%sencoder.layers.%d.", b.root, i)
		b.linear(to+"attn_qkv", from+"attn.Wqkv", 3*b.embed, b.embed, false, asIs)
		b.linear(to+"attn_output", from+"attn.out_proj", b.embed, b.embed, false, asIs)
		b.bothOf(to+"attn_output_norm", from+"norm1")
		b.linear(to+"ffn_up", from+"mlp.fc11", b.ff, b.embed, false, asIs)
		b.linear(to+"ffn_gate", from+"mlp.fc12", b.ff, b.embed, false, asIs)
		b.linear(to+"ffn_down", from+"mlp.fc2", b.embed, b.ff, false, asIs)
		b.bothOf(to+"layer_output_norm", from+"norm2")
		if b.err != nil {
			return
		}
	}
}
