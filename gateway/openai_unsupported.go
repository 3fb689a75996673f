package gateway

import (
	"slices"
	"strings"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file decides about members of a request that this server does not support.
// One that would change the answer is refused: an answer that silently lacks what was
// asked for is worse than none. All others are ignored, and named in the header
// x-forebay-ignored.

// unsupported is a member that other servers document and that changes the answer.
type unsupported struct {
	neutral []string // values, as JSON, that ask for nothing; null, "" and [] always do
	advice  string   // what to send instead, or ""
}

const (
	noGrammar  = "use response_format, structured_outputs or grammar"
	noSampler  = "use temperature, top_p, top_k, min_p and the penalties"
	noTemplate = "use chat_template_kwargs for the options of the model's own template"

	ofChat  = "it belongs to /v1/chat/completions"
	ofTexts = "it belongs to /v1/completions"
)

// unsupportedFields are of both routes, but for those that a route knows. Sources: the request references of vLLM,
// llama.cpp's server and Ollama, and OpenAI's API.
var unsupportedFields = map[string]unsupported{
	"structural_tag": {nil, noGrammar}, "guided_whitespace_pattern": {nil, "structured_outputs with disable_any_whitespace allows no white space"},
	"grammar_lazy": {[]string{"false"}, "a grammar holds the whole answer"}, "grammar_triggers": {nil, "a grammar holds the whole answer"},

	"tfs_z": {[]string{"1", "1.0"}, noSampler}, "top_a": {[]string{"0", "0.0"}, noSampler},
	"dynatemp_range": {[]string{"0", "0.0"}, noSampler}, "min_keep": {[]string{"0"}, noSampler}, "samplers": {nil, noSampler},
	"use_beam_search": {[]string{"false"}, noSampler}, "length_penalty": {[]string{"1", "1.0"}, noSampler},

	"options": {[]string{"{}"}, "send each option as a field of its own, such as temperature"},
	"images":  {nil, "this server takes text alone"}, "context": {nil, "send the whole conversation in messages"}, "raw": {[]string{"false"}, "use /v1/completions"},
	"t_max_predict_ms": {[]string{"0", "-1"}, "use max_tokens, or the header x-forebay-deadline-ms"}, "n_indent": {[]string{"0"}, "use a grammar"},
	"logits_processors": {nil, noSampler}, "post_sampling_probs": {[]string{"false"}, "log-probabilities are the model's own"},

	"n_probs":             {[]string{"0"}, "use logprobs"},
	"skip_special_tokens": {[]string{"true"}, ""}, "spaces_between_special_tokens": {[]string{"true"}, ""}, "return_tokens_as_token_ids": {[]string{"false"}, ""},
	"truncate_prompt_tokens": {[]string{"-1"}, "shorten the prompt"}, "prompt_embeds": {nil, "send the prompt as text or token ids"},

	"chat_template": {nil, noTemplate}, "documents": {nil, noTemplate},
	"template": {nil, noTemplate}, "system": {nil, "send a message of the role system"},
	"web_search_options": {nil, ""}, "lora": {nil, "name the model in model"},
	"previous_response_id": {nil, "send the whole conversation in messages"},

	// Known on one of the routes, and sent to the other.
	"messages": {nil, ofChat}, "tools": {nil, ofChat}, "functions": {nil, ofChat},
	"tool_choice": {[]string{`"none"`, `"auto"`}, ofChat}, "function_call": {[]string{`"none"`, `"auto"`}, ofChat},
	"chat_template_kwargs": {[]string{"{}"}, ofChat}, "max_completion_tokens": {nil, "use max_tokens"}, "top_logprobs": {[]string{"0"}, "give their number in logprobs"},
	"prompt": {nil, ofTexts}, "suffix": {nil, ofTexts}, "echo": {[]string{"false"}, ofTexts}, "best_of": {[]string{"1"}, ofTexts},
	"continue_final_message": {[]string{"false"}, ofChat},
}

// refuseUnsupported refuses the members that would change the answer.
func (f *fields) refuseUnsupported() {
	for name, value := range f.raw {
		u, listed := unsupportedFields[name]
		if raw := strings.TrimSpace(string(value)); !listed || f.known[name] || raw == "null" || raw == `""` || raw == "[]" || slices.Contains(u.neutral, raw) {
			continue
		}
		why := name + " is not supported"
		if u.advice != "" {
			why += ": " + u.advice
		}
		f.fail(name, "%s", why)
		return
	}
}

// The most names of ignored members that are kept, and the most bytes of one.
const (
	ignoredMost      = 16
	ignoredNameBytes = 128
)

// ignore keeps the name of a member that means nothing to this server. Names that
// cannot stand in a header are kept as "?".
func (f *fields) ignore(name []byte) {
	f.ignored = addIgnored(f.ignored, string(name))
}

func addIgnored(all []string, name string) []string {
	if len(name) > ignoredNameBytes || len(name) == 0 || strings.IndexFunc(name, notPlain) >= 0 {
		name = "?"
	}
	if len(all) == ignoredMost || slices.Contains(all, name) {
		return all
	}
	return append(all, name)
}

// withoutEffect adds the words of the schema that are not enforced, given by their
// JSON pointers, to what is ignored.
func (c *call) withoutEffect(pointers []string) []string {
	for _, at := range pointers {
		c.ignored = addIgnored(c.ignored, c.options.Grammar.Param+at)
	}
	return c.ignored
}

func notPlain(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' || r == '/' || r == '$')
}

// errIgnored refuses a request with unknown members, where the configuration says so.
func errIgnored(names []string) error {
	return wire.InvalidParam(names[0], "%s is not known here; this server refuses unknown fields (gateway.unknown_fields)", strings.Join(names, ", "))
}
