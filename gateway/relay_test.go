package gateway

import (
	"encoding/json"
	"testing"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
)

// TestRelayedRequests: a server behind the gateway gets what only it can decide about.
// What would pass by the gateway's limits, or belongs to the other route, is refused.
func TestRelayedRequests(t *testing.T) {
	var cfg Config
	conf.Fill(&cfg)
	decode := func(chat bool, members string) (*call, *wire.Error) {
		body := `{"model":"m","messages":[{"role":"user","content":"hi"}]`
		if !chat {
			body = `{"model":"m","prompt":["a","b"]`
		}
		if members != "" {
			body += "," + members
		}
		return decodeCall([]byte(body+"}"), chat, &cfg.Limits, &wire.Model{ID: "m", Relays: true})
	}
	for _, members := range []string{
		"", `"tools":[{"type":"web_search"}],"tool_choice":"required","parallel_tool_calls":false`, `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"#/nowhere"}}}`,
		`"grammar":"anything","guided_regex":"(","structured_outputs":{"choice":7}`, `"min_tokens":3,"stop_token_ids":[1],"mirostat":1,"dry_multiplier":-5,"repeat_last_n":"x","chat_template":"x","enable_thinking":true,"reasoning_effort":"odd"`,
		`"chat_template_kwargs":{"a":1}`, `"modalities":["text","audio"],"audio":{}`, `"functions":[],"function_call":"x"`, `"nobody_knows_this":1`,
	} {
		c, err := decode(true, members)
		if err != nil {
			t.Errorf("%s: %v", members, err)
			continue
		}
		if len(c.prompts) != 1 || string(c.prompts[0].Messages) != `[{"role":"user","content":"hi"}]` || !json.Valid(c.prompts[0].Body) || len(c.ignored) > 0 || c.options.Grammar != nil {
			t.Errorf("%s: %+v, ignored %v", members, c.prompts, c.ignored)
		}
	}
	if c, err := decodeCall([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]}`), true, &cfg.Limits, &wire.Model{ID: "m", Relays: true}); err != nil || c == nil {
		t.Errorf("an image: %v", err)
	}
	if c, err := decode(false, `"suffix":"x","guided_choice":["a"]`); err != nil || len(c.prompts) != 2 || *c.prompts[1].Text != "b" || c.prompts[0].Body == nil {
		t.Errorf("a completion: %+v, %v", c, err)
	}
	// NVIDIA/TensorRT-LLM#6329: values out of their range, which end a server's process, do not reach it.
	for members, chat := range map[string]bool{
		`"top_k":-5`: true, `"top_k":99999999999999999999`: true, `"top_p":7`: false, `"min_p":-1`: true, `"n":0`: true, `"repetition_penalty":-1`: false, `"logit_bias":{"5":1000}`: true,
		`"n_predict":3`: true, `"use_beam_search":true`: true, `"max_output_tokens":3`: false, `"echo":true`: false, `"prompt_logprobs":1`: true,
		`"messages":[{"role":"user","content":"x"}]`: false, `"tools":[{}]`: false, `"prompt":"x"`: true, `"temperature":3`: true, `"top_k":"x"`: true,
	} {
		if c, err := decode(chat, members); err == nil {
			t.Errorf("chat %v, %s: taken as %+v", chat, members, c)
		}
	}
}
