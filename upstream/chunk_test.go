package upstream

import (
	"encoding/json"
	"reflect"
	"testing"
)

// byTheBook is a chunk as encoding/json reads it.
func byTheBook(data []byte) (*chunk, bool) {
	var raw struct {
		Error  json.RawMessage
		Object string
		Usage  *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
			Made *struct {
				Reasoning *int `json:"reasoning_tokens"`
			} `json:"completion_tokens_details"`
		}
		Timings *timings
		Choices []struct {
			Index    int
			Text     *string
			Delta    json.RawMessage
			Message  json.RawMessage
			Logprobs json.RawMessage
			Finish   *string `json:"finish_reason"`
		}
	}
	if json.Unmarshal(data, &raw) != nil {
		return nil, false
	}
	c := &chunk{Error: raw.Error, Object: raw.Object, Timings: raw.Timings}
	if u := raw.Usage; u != nil {
		c.Usage = &usage{u.Prompt, u.Completion, u.Details, u.Made}
	}
	for _, from := range raw.Choices {
		to := chunkChoice{Index: from.Index, Delta: from.Delta, Message: from.Message, Logprobs: from.Logprobs}
		if from.Text != nil {
			to.Text = *from.Text
		}
		if from.Finish != nil {
			to.Finish = *from.Finish
		}
		c.Choices = append(c.Choices, to)
	}
	return c, true
}

// TestChunks: an event is read as encoding/json reads it, and what it refuses is refused.
func TestChunks(t *testing.T) {
	for _, text := range []string{
		`{}`, ` { } `, `null`, `[]`, `7`, `"x"`, ``, `{`, `{"choices":[}`, `{"choices":[1]}`, `{"choices":[[]]}`, `{"choices":{}}`, `{"choices":"x"}`, `{"choices":null}`, `{"choices":[]}`, `{"choices":[null]}`, `{"choices":[{},{}]}`, `{"choices":[{}]} x`,
		`{"id":"a","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"H\"i\\"},"logprobs":null,"finish_reason":null}]}`,
		"{\n \"choices\" : [ { \"index\" : 12 , \"delta\" : { \"content\" : \"a\\u00e9\\n\" } , \"finish_reason\" : \"stop\" } , {\"index\":1} ] , \"usage\" : null }",
		`{"choices":[{"index":0,"text":"\ud83d\ude00 ]}, é","logprobs":{"content":[{"token":"]}"}]}}]}`,
		`{"choices":[{"index":"0"}]}`, `{"choices":[{"index":1.5}]}`, `{"choices":[{"index":-1}]}`, `{"choices":[{"index":null,"text":null,"delta":null,"message":null,"finish_reason":null}]}`, `{"choices":[{"index":1e2}]}`,
		`{"choices":[{"text":7}]}`, `{"choices":[{"finish_reason":{}}]}`, `{"choices":[{"message":{"content":"whole"},"finish_reason":"length"}]}`,
		`{"object":7}`, `{"object":null}`, `{"object":"error","message":"x"}`, `{"error":null}`, `{"error":{"message":"x"}}`, `{"error":"x"}`,
		`{"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}}`, `{"usage":{"prompt_tokens":"3"}}`, `{"usage":[]}`, `{"usage":null}`, `{"usage":{"prompt_tokens":null,"completion_tokens":1.5}}`, `{"usage":{"prompt_tokens":12345678901,"completion_tokens":-1,"completion_tokens_details":{"reasoning_tokens":7}}}`, `{"usage":{"prompt_tokens":1e99}}`, `{"usage":{"prompt_tokens_details":7}}`,
		`{"us\u0061ge":{"prompt_tokens":3}}`,
		`{"timings":{"cache_n":1,"prompt_n":2,"prompt_ms":1.5,"predicted_n":3}}`, `{"timings":7}`,
		`{"choices":[{"index":0}],"choices":[{"index":1}]}`,
	} {
		want, ok := byTheBook([]byte(text))
		got, err := parseChunk([]byte(text), false)
		switch {
		case !ok || want.Object == "error" || given(want.Error):
			if err == nil {
				t.Errorf("%s is taken as %+v", text, got)
			}
		case err != nil || !reflect.DeepEqual(got, want):
			t.Errorf("%s is %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// BenchmarkChunk reads what a server sends of a token.
func BenchmarkChunk(b *testing.B) {
	data := []byte(`{"id":"chatcmpl-b0a1d8c6f8e94b3f9c1f2a3b4c5d6e7f","object":"chat.completion.chunk","created":1764000000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":900,"total_tokens":933,"completion_tokens":33}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseChunk(data, false); err != nil {
			b.Fatal(err)
		}
	}
}
