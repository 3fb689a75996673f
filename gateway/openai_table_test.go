package gateway

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/internal/wire"
)

const apiPage = "../docs/api.md"

// TestAPIPage holds docs/api.md to the tables of fields and errors.
func TestAPIPage(t *testing.T) {
	rewrite := flag.Lookup("rewrite").Value.String() == "true" // of package datadriven
	raw, err := os.ReadFile(apiPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for name, table := range map[string]string{"fields": fieldTable(), "refused fields": refusedTable(), "errors": errorTable()} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
		before, rest, ok := strings.Cut(page, begin)
		_, after, ended := strings.Cut(rest, end)
		if !ok || !ended {
			t.Fatalf("the page has no place for %s", name)
		}
		page = before + begin + table + end + after
	}
	if rewrite {
		if err := os.WriteFile(apiPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(raw), page); diff != "" && !rewrite {
		t.Errorf("docs/api.md differs from the code; run go test ./gateway -run TestAPIPage -rewrite:\n%s", diff)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, header := range regexp.MustCompile(`"(X-(?:Forebay|Request|Api|Should)-[A-Za-z-]+|Openai-Processing-Ms|Retry-After(?:-Ms)?)"`).FindAllStringSubmatch(string(source), -1) {
			if name := strings.ToLower(header[1]); !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/api.md does not tell of the header %s", name)
			}
		}
	}
}

func fieldTable() string {
	var b strings.Builder
	b.WriteString("| field | chat | completions | value | effect |\n|---|---|---|---|---|\n")
	mark := map[bool]string{true: "✓", false: ""}
	for _, f := range requestFields {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.name, mark[f.chat], mark[f.text], f.value, f.effect)
	}
	return b.String()
}

func refusedTable() string {
	var b strings.Builder
	b.WriteString("| field | means nothing as | instead |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(unsupportedFields)) {
		u := unsupportedFields[name]
		neutral := ""
		if len(u.neutral) > 0 {
			neutral = "`" + strings.Join(u.neutral, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, neutral, u.advice)
	}
	return b.String()
}

func errorTable() string {
	var b strings.Builder
	b.WriteString("| code | status | type | outcome |\n|---|---|---|---|\n")
	for _, f := range faults {
		if f.status != 499 {
			fmt.Fprintf(&b, "| `%s` | %d | `%s` | `%s` |\n", f.code, f.status, f.typ, f.outcome)
		}
	}
	return b.String()
}

// peerFields are what vLLM, llama.cpp's server and Ollama document, with values that
// ask for something.
var peerFields = map[string]string{
	// vLLM: chat and completions
	"best_of": `3`, "use_beam_search": `true`, "top_k": `5`, "min_p": `0.1`, "repetition_penalty": `1.1`, "length_penalty": `0.5`, "stop_token_ids": `[1]`,
	"include_stop_str_in_output": `true`, "ignore_eos": `true`, "min_tokens": `2`, "skip_special_tokens": `false`, "spaces_between_special_tokens": `false`,
	"truncate_prompt_tokens": `5`, "prompt_logprobs": `1`, "allowed_token_ids": `[1,2]`, "bad_words": `["x"]`, "echo": `true`, "add_generation_prompt": `false`,
	"continue_final_message": `true`, "add_special_tokens": `true`, "documents": `[{"text":"x"}]`, "chat_template": `"x"`, "chat_template_kwargs": `{"a":1}`,
	"mm_processor_kwargs": `{"a":1}`, "guided_json": `{}`, "guided_regex": `"a"`, "guided_choice": `["a"]`, "guided_grammar": `"start: \"a\""`, "structural_tag": `"x"`,
	"guided_decoding_backend": `"xgrammar"`, "guided_whitespace_pattern": `" "`, "structured_outputs": `{"regex":"a"}`, "priority": `1`, "request_id": `"x"`,
	"logits_processors": `["x"]`, "return_tokens_as_token_ids": `true`, "return_token_ids": `true`, "cache_salt": `"x"`, "kv_transfer_params": `{"a":1}`, "vllm_xargs": `{"a":1}`,
	"reasoning_effort": `"high"`, "include_reasoning": `false`, "thinking_token_budget": `5`, "prompt_embeds": `"x"`, "suffix": `"x"`, "logprob_token_ids": `[1]`,
	// llama.cpp's server
	"dynatemp_range": `0.5`, "dynatemp_exponent": `2`, "n_predict": `5`, "n_indent": `2`, "n_keep": `3`, "n_cmpl": `2`, "n_cache_reuse": `1`, "typical_p": `0.5`,
	"repeat_penalty": `1.1`, "repeat_last_n": `64`, "dry_multiplier": `0.8`, "dry_base": `1.75`, "dry_allowed_length": `2`, "dry_penalty_last_n": `-1`,
	"dry_sequence_breakers": `["x"]`, "xtc_probability": `0.5`, "xtc_threshold": `0.1`, "mirostat": `2`, "mirostat_tau": `5`, "mirostat_eta": `0.1`,
	"adaptive_target": `0.5`, "adaptive_decay": `0.9`, "grammar": `"root ::= \"a\""`, "json_schema": `{}`, "n_probs": `3`, "min_keep": `2`, "t_max_predict_ms": `100`,
	"id_slot": `1`, "cache_prompt": `false`, "return_tokens": `true`, "samplers": `["top_k"]`, "timings_per_token": `true`, "return_progress": `true`,
	"post_sampling_probs": `true`, "response_fields": `["content"]`, "lora": `[{"id":0,"scale":0.5}]`, "reasoning_format": `"none"`, "thinking_forced_open": `true`,
	"parse_tool_calls": `false`, "top_n_sigma": `1.5`, "grammar_lazy": `true`, "grammar_triggers": `[{"type":0}]`, "tfs_z": `0.5`, "penalize_nl": `true`, "max_output_tokens": `5`,
	// Ollama
	"images": `["x"]`, "format": `"json"`, "options": `{"num_ctx":1}`, "system": `"x"`, "template": `"x"`, "raw": `true`, "keep_alive": `"5m"`, "context": `[1]`, "think": `true`,
	"enable_thinking": `false`, "shift": `true`, "truncate": `true`,
	// OpenAI
	"prediction": `{"type":"content","content":"x"}`, "web_search_options": `{}`, "store": `true`, "metadata": `{"a":"b"}`, "modalities": `["text"]`,
}

// TestNothingThatPeersDocumentIsSilent sends each field by itself: it is read, or the
// answer names it as ignored, or it is a 400 that names it.
func TestNothingThatPeersDocumentIsSilent(t *testing.T) {
	r := simpleRig(t, hello)
	read := 0
	for name, value := range peerFields {
		for _, chat := range []bool{true, false} {
			path, body, known := "/v1/completions", textBody(`"`+name+`":`+value), knownText
			if chat {
				path, body, known = "/v1/chat/completions", chatBody(`"`+name+`":`+value), knownChat
			}
			got := r.do("POST", path, body)
			_, param := "", ""
			if got.status == 400 {
				_, param = errorOf(t, got.body)
			}
			switch {
			case got.status == 400 && param == name:
			case got.status == 200 && strings.Contains(got.header.Get(ignoredHeader), name):
			case got.status == 200 && known[name]:
				read++
			default:
				t.Errorf("%s %s: %s is silent: %d %s", path, value, name, got.status, got.body)
			}
		}
	}
	if read < 30 {
		t.Errorf("only %d fields were read", read)
	}
}

// TestOptionsOfOtherServers: what each asks for.
func TestOptionsOfOtherServers(t *testing.T) {
	for field, want := range map[string]wire.Options{
		`"min_tokens":3`:                          {MinTokens: 3},
		`"stop_token_ids":[5,6]`:                  {StopTokens: []int32{5, 6}},
		`"allowed_token_ids":[7]`:                 {AllowedTokens: []int32{7}},
		`"bad_words":["a","b c"]`:                 {BadWords: []string{"a", "b c"}},
		`"include_stop_str_in_output":true`:       {KeepStop: true},
		`"typical_p":0.5`:                         {TypicalP: 0.5},
		`"xtc_probability":0.5`:                   {XTCProbability: 0.5, XTCThreshold: 0.1},
		`"xtc_probability":1,"xtc_threshold":0.2`: {XTCProbability: 1, XTCThreshold: 0.2},
		`"xtc_probability":0,"xtc_threshold":0.2`: {},
		`"top_n_sigma":1.5`:                       {TopNSigma: 1.5},
		`"top_n_sigma":-1,"mirostat":0,"mirostat_tau":3,"dry_multiplier":0,"dry_base":2,"prompt_logprobs":false`: {},
		`"mirostat":2`: {MirostatTau: 5, MirostatEta: 0.1},
		`"mirostat":2,"mirostat_tau":3,"mirostat_eta":0.2`: {MirostatTau: 3, MirostatEta: 0.2},
		`"dry_multiplier":0.8`:                             {DRY: wire.DRY{Multiplier: 0.8, Base: 1.75, Length: 2, Breakers: []string{"\n", ":", "\"", "*"}}},
		`"dry_multiplier":0.8,"dry_base":2,"dry_allowed_length":3,"dry_penalty_last_n":9,"dry_sequence_breakers":[]`: {DRY: wire.DRY{Multiplier: 0.8, Base: 2, Length: 3, Last: 9}},
		`"dry_multiplier":0.8,"dry_penalty_last_n":0`:                                                                {},
		`"repeat_last_n":64,"repeat_penalty":1.5`:                                                                    {RepetitionPenalty: 1.5, RepeatLast: 64},
		`"repeat_last_n":0,"repeat_penalty":1.5,"presence_penalty":1`:                                                {},
		`"repeat_last_n":-1`:                   {},
		`"prompt_logprobs":0`:                  {PromptLogprobs: true},
		`"prompt_logprobs":3`:                  {PromptLogprobs: true, PromptTop: 3},
		`"repeat_penalty":1.5`:                 {RepetitionPenalty: 1.5},
		`"n_predict":9`:                        {MaxTokens: 9},
		`"max_output_tokens":9`:                {MaxTokens: 9},
		`"max_tokens":9,"n_predict":9`:         {MaxTokens: 9},
		`"n_predict":-1`:                       {},
		`"min_tokens":0,"stop_token_ids":[]`:   {},
		`"repetition_penalty":2,"typical_p":1`: {RepetitionPenalty: 2},
	} {
		c := decodeText(t, chatBody(field), true)
		plain := decodeText(t, chatBody(""), true)
		plain.options.MinTokens, plain.options.StopTokens, plain.options.AllowedTokens, plain.options.BadWords = want.MinTokens, want.StopTokens, want.AllowedTokens, want.BadWords
		plain.options.XTCProbability, plain.options.XTCThreshold = want.XTCProbability, want.XTCThreshold
		plain.options.TopNSigma, plain.options.MirostatTau, plain.options.MirostatEta = want.TopNSigma, want.MirostatTau, want.MirostatEta
		plain.options.DRY, plain.options.RepeatLast = want.DRY, want.RepeatLast
		plain.options.PromptLogprobs, plain.options.PromptTop = want.PromptLogprobs, want.PromptTop
		plain.options.KeepStop, plain.options.MaxTokens = want.KeepStop, want.MaxTokens
		if want.TypicalP != 0 {
			plain.options.TypicalP = want.TypicalP
		}
		if want.RepetitionPenalty != 0 {
			plain.options.RepetitionPenalty = want.RepetitionPenalty
		}
		if diff := cmp.Diff(plain.options, c.options); diff != "" {
			t.Errorf("%s: %s", field, diff)
		}
	}
	for field, want := range map[string]string{
		`"min_tokens":-1`: "min_tokens", `"min_tokens":9,"max_tokens":8`: "min_tokens", `"stop_token_ids":[-1]`: "stop_token_ids", `"stop_token_ids":7`: "stop_token_ids",
		`"allowed_token_ids":["a"]`: "allowed_token_ids", `"bad_words":[1]`: "bad_words", `"bad_words":[""]`: "bad_words", `"bad_words":"x"`: "bad_words", `"typical_p":0`: "typical_p", `"typical_p":2`: "typical_p", `"xtc_probability":2`: "xtc_probability", `"xtc_probability":1,"xtc_threshold":-1`: "xtc_threshold",
		`"mirostat":1`: "mirostat", `"mirostat":2,"mirostat_tau":0`: "mirostat_tau", `"mirostat":2,"mirostat_eta":2`: "mirostat_eta", `"top_n_sigma":-2`: "top_n_sigma",
		`"repeat_last_n":-2`: "repeat_last_n", `"dry_multiplier":-1`: "dry_multiplier", `"dry_multiplier":1,"dry_base":0`: "dry_base", `"dry_multiplier":1,"dry_base":0.5`: "dry_base",
		`"dry_multiplier":1,"dry_allowed_length":-1`: "dry_allowed_length", `"dry_penalty_last_n":"x"`: "dry_penalty_last_n", `"dry_multiplier":1,"dry_sequence_breakers":[""]`: "dry_sequence_breakers",
		`"prompt_logprobs":true`: "prompt_logprobs", `"prompt_logprobs":21`: "prompt_logprobs", `"prompt_logprobs":-1`: "prompt_logprobs", `"prompt_logprobs":1,"stream":true`: "prompt_logprobs",
		`"repeat_penalty":0`: "repeat_penalty", `"repeat_penalty":1.5,"repetition_penalty":1.6`: "repeat_penalty", `"n_predict":0`: "n_predict", `"n_predict":5,"max_tokens":6`: "n_predict",
		`"max_output_tokens":5,"n_predict":6`: "max_output_tokens", `"allowed_token_ids":[` + strings.Repeat("1,", 1024) + `1]`: "allowed_token_ids",
		`"continue_final_message":true`: "continue_final_message", `"add_generation_prompt":7`: "add_generation_prompt", `"echo":true`: "echo", `"response_format":{"type":"json_object"},"stop_token_ids":[1]`: "stop_token_ids",
	} {
		if _, err := decodeCall([]byte(chatBody(field)), true, limits(), &wire.Model{}); err == nil || err.Param != want {
			t.Errorf("%.60s: %v, want param %s", field, err, want)
		}
	}
}

// TestEndings: where the prompt of a chat ends.
func TestEndings(t *testing.T) {
	body := func(more string) string {
		return `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],` + more + `}`
	}
	c := decodeText(t, body(`"continue_final_message":true,"add_generation_prompt":false`), true)
	if r := c.prompts[0]; !r.Continue || r.TemplateOptions != nil {
		t.Errorf("%+v", r)
	}
	c = decodeText(t, body(`"add_generation_prompt":false,"chat_template_kwargs":{"a":[1]}`), true)
	if r := c.prompts[0]; r.Continue || string(r.TemplateOptions) != `{"add_generation_prompt":false,"a":[1]}` {
		t.Errorf("%+v %s", r, r.TemplateOptions)
	}
	for _, more := range []string{`"continue_final_message":true,"add_generation_prompt":true`, `"continue_final_message":true,"response_format":{"type":"json_object"}`} {
		if _, err := decodeCall([]byte(body(more)), true, limits(), &wire.Model{}); err == nil {
			t.Errorf("%s is taken", more)
		}
	}
}
