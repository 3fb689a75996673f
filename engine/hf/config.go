package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// sizeMax bounds every size in a config.json, so that products of two fit in an int.
const sizeMax = 1 << 24

// config reads an object of config.json and records which keys were read. err
// keeps the first failure; nested objects share it.
type config struct {
	where  string // of its keys, for errors
	values map[string]json.RawMessage
	read   map[string]bool
	err    *error
}

func parseConfig(path string, data []byte) (*config, error) {
	var err error
	c := &config{where: path + ": ", read: map[string]bool{}, err: &err}
	if err := json.Unmarshal(quoteInfinity(data), &c.values); err != nil || c.values == nil {
		return nil, fmt.Errorf("%s: is not a JSON object: %w", path, err)
	}
	return c, nil
}

// infinity is what Python writes for a number that JSON does not have.
const infinity = "Infinity"

// quoteInfinity makes a text of each Infinity that is none.
func quoteInfinity(data []byte) []byte {
	if !bytes.Contains(data, []byte(infinity)) {
		return data
	}
	var out []byte
	for inText, i := false, 0; i < len(data); i++ {
		switch {
		case inText && data[i] == '\\' && i+1 < len(data):
			out = append(out, data[i])
			i++
		case data[i] == '"':
			inText = !inText
		case !inText && bytes.HasPrefix(data[i:], []byte(infinity)):
			out = append(out, `"`+infinity+`"`...)
			i += len(infinity) - 1
			continue
		}
		out = append(out, data[i])
	}
	return out
}

func (c *config) fail(key, format string, args ...any) {
	if *c.err == nil {
		*c.err = fmt.Errorf("%s%s: %s", c.where, key, fmt.Sprintf(format, args...))
	}
}

// isNull reports whether the key is present and null, which often differs from
// absent.
func (c *config) isNull(key string) bool {
	return bytes.Equal(c.values[key], []byte("null"))
}

// has reports whether the key has a value, and marks it as read.
func (c *config) has(key string) bool {
	c.read[key] = true
	return c.values[key] != nil && !c.isNull(key)
}

// value reads key as a T, and returns absent if it is not there.
func value[T any](c *config, key, want string, absent T) T {
	if !c.has(key) {
		return absent
	}
	var v T
	if err := json.Unmarshal(c.values[key], &v); err != nil {
		c.fail(key, "is %s, not %s", short(c.values[key]), want)
		return absent
	}
	return v
}

// short formats a value for an error.
func short(raw json.RawMessage) string {
	if len(raw) > 60 {
		return string(bytes.ToValidUTF8(raw[:60], nil)) + "…"
	}
	return string(raw)
}

func (c *config) text(key, absent string) string { return value(c, key, "a text", absent) }
func (c *config) flag(key string, absent bool) bool {
	return value(c, key, "true or false", absent)
}
func (c *config) texts(key string) []string { return value[[]string](c, key, "a list of texts", nil) }

// number reads a finite number.
func (c *config) number(key string, absent float64) float64 {
	return value(c, key, "a number", absent)
}

// size reads an integer from 1 to sizeMax, which may be written as 8.0.
func (c *config) size(key string, absent int) int {
	x := c.number(key, float64(absent))
	if x != math.Trunc(x) || x < 1 || x > sizeMax {
		c.fail(key, "is %v; allowed are whole numbers from 1 to %d", x, sizeMax)
		return 1
	}
	return int(x)
}

// object reads an object in c; nil if it is absent, null or empty.
func (c *config) object(key string) *config {
	values := value[map[string]json.RawMessage](c, key, "an object", nil)
	if len(values) == 0 {
		return nil
	}
	return &config{where: c.where + key + ".", values: values, read: map[string]bool{}, err: c.err}
}

// only refuses any value except want. An absent key counts as want.
func (c *config) only(key string, want bool) {
	if c.flag(key, want) != want {
		c.fail(key, "is %v; only %v is supported", !want, want)
	}
}

// oneOf refuses texts that are not in allowed. An absent key counts as the first.
func (c *config) oneOf(key string, allowed ...string) {
	if v := c.text(key, allowed[0]); !slices.Contains(allowed, v) {
		c.fail(key, "is %.60q; supported: %q", v, allowed)
	}
}

// ignore marks keys as harmless.
func (c *config) ignore(keys ...string) {
	for _, key := range keys {
		c.read[key] = true
	}
}

// checkAllRead refuses keys that were not read, unless they are null.
func (c *config) checkAllRead() {
	for _, key := range slices.Sorted(maps.Keys(c.values)) {
		if !c.read[key] && !c.isNull(key) {
			c.fail(key, "(%s) is not understood, and could change what the model computes", short(c.values[key]))
		}
	}
}

// harmless lists the keys of config.json that do not change what a model computes
// for given tokens. They concern training, generation, classes or other programs.
var harmless = []string{
	"model_type", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "auto_map", "tokenizer_class",
	"_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "cache_implementation", "use_cache",
	"pretraining_tp", "transformers.js_config", "is_llama_config", "unsloth_fixed", "unsloth_version", "_commit_hash",
	"initializer_range", "attention_dropout", "hidden_dropout", "residual_dropout", "embd_pdrop", "resid_pdrop", "attn_pdrop",
	"output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "gradient_checkpointing",
	"bos_token_id", "eos_token_id", "eod_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "decoder_start_token_id",
	"output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate",
	"torchscript", "use_bfloat16", "pruned_heads", "chunk_size_feed_forward", "is_decoder",
	"cross_attention_hidden_size", "tie_encoder_decoder", "tf_legacy_loss", "task_specific_params", "finetuning_task",
	"id2label", "label2id", "num_labels", "problem_type", "prefix", "max_length", "min_length", "do_sample",
	"early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p",
	"typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
	"bad_words_ids", "num_return_sequences", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
	"exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
}
