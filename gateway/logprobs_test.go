package gateway

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

func legacyLogprobs(all ...wire.TokenLogprob) string {
	l := &logprobList{}
	l.add(all)
	return string(l.append(nil))
}

// The legacy list names the likeliest tokens and the token itself, so up to one
// entry more than was asked for; clients look the token up in it.
func TestTopLogprobsHaveTheTokenItself(t *testing.T) {
	rival := func(id int32, text string, x float32) wire.TopLogprob {
		return wire.TopLogprob{ID: id, Bytes: []byte(text), Logprob: x}
	}
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		token wire.TokenLogprob
		want  string
	}{
		"among the likeliest":       {wire.TokenLogprob{ID: 1, Bytes: []byte("a"), Logprob: -1, Top: []wire.TopLogprob{rival(1, "a", -1), rival(2, "b", -2)}}, `{"a":-1,"b":-2}`},
		"beyond the likeliest":      {wire.TokenLogprob{ID: 3, Bytes: []byte("c"), Logprob: -9, Top: []wire.TopLogprob{rival(1, "a", -1), rival(2, "b", -2)}}, `{"a":-1,"b":-2,"c":-9}`},
		"none asked for":            {wire.TokenLogprob{ID: 3, Bytes: []byte("c"), Logprob: -9}, `{"c":-9}`},
		"a rival with its text":     {wire.TokenLogprob{ID: 3, Bytes: []byte("a"), Logprob: -9, Top: []wire.TopLogprob{rival(1, "a", -1)}}, `{"<|token:1|>":-1,"a":-9}`},
		"listed after its text":     {wire.TokenLogprob{ID: 2, Bytes: []byte("a"), Logprob: -2, Top: []wire.TopLogprob{rival(1, "a", -1), rival(2, "a", -2)}}, `{"<|token:1|>":-1,"a":-2}`},
		"two rivals of equal text":  {wire.TokenLogprob{ID: 3, Bytes: []byte("c"), Logprob: -9, Top: []wire.TopLogprob{rival(1, "a", -1), rival(2, "a", -2)}}, `{"a":-1,"<|token:2|>":-2,"c":-9}`},
		"a control token":           {wire.TokenLogprob{ID: 3, Logprob: -9, Top: []wire.TopLogprob{rival(1, "a", -1)}}, `{"a":-1,"<|token:3|>":-9}`},
		"part of a character":       {wire.TokenLogprob{ID: 3, Bytes: []byte("\xe2"), Logprob: -9}, `{"bytes:\\xe2":-9}`},
		"masked by a bias":          {wire.TokenLogprob{ID: 3, Bytes: []byte("c"), Logprob: float32(math.Inf(-1)), Top: []wire.TopLogprob{rival(1, "a", -1)}}, `{"a":-1,"c":-9999}`},
		"the first token of a text": {wire.TokenLogprob{ID: 3, Bytes: []byte("c"), Logprob: nan}, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			got := legacyLogprobs(c.token)
			if !strings.Contains(got, `"top_logprobs":[`+c.want+`]`) {
				t.Errorf("got %s, want %s", got, c.want)
			}
			var l struct {
				Tokens []string             `json:"tokens"`
				Values []*float64           `json:"token_logprobs"`
				Tops   []map[string]float64 `json:"top_logprobs"`
			}
			if err := json.Unmarshal([]byte(got), &l); err != nil {
				t.Fatal(err)
			}
			if l.Values[0] == nil {
				return
			}
			if own, ok := l.Tops[0][l.Tokens[0]]; !ok || own != *l.Values[0] {
				t.Errorf("the token %q has %v, and %v in the list %v", l.Tokens[0], *l.Values[0], own, l.Tops[0])
			}
		})
	}
}

// So it is in every kind of answer: echoed, streamed, and with none asked for.
func TestEveryPositionHasItsToken(t *testing.T) {
	r := simpleRig(t, hello)
	for _, extra := range []string{`"logprobs":0`, `"logprobs":2`, `"logprobs":0,"echo":true`, `"logprobs":1,"echo":true,"max_tokens":0`} {
		for _, stream := range []bool{false, true} {
			body := r.do("POST", "/v1/completions", textBody(fmt.Sprintf(`%s,"stream":%v`, extra, stream))).body
			parts := []string{body}
			if stream {
				parts = events(body)
				parts = parts[:len(parts)-1] // [DONE]
			}
			positions := 0
			for _, part := range parts {
				var answer struct {
					Choices []struct {
						Logprobs *struct {
							Tokens []string             `json:"tokens"`
							Values []*float64           `json:"token_logprobs"`
							Tops   []map[string]float64 `json:"top_logprobs"`
						} `json:"logprobs"`
					} `json:"choices"`
				}
				if err := json.Unmarshal([]byte(part), &answer); err != nil {
					t.Fatal(err)
				}
				if answer.Choices[0].Logprobs == nil {
					continue
				}
				l := answer.Choices[0].Logprobs
				for i, token := range l.Tokens {
					positions++
					own, ok := l.Tops[i][token]
					if l.Values[i] == nil && l.Tops[i] == nil {
						continue // the first token of the prompt
					}
					if !ok || own != *l.Values[i] {
						t.Errorf("%s, stream %v: %q is not in %v", extra, stream, token, l.Tops[i])
					}
				}
			}
			if positions < 2 {
				t.Errorf("%s, stream %v: %d positions", extra, stream, positions)
			}
		}
	}
}

// A chat answer lists the likeliest tokens alone, at most as many as were asked
// for, and has the token's own log-probability beside them.
func TestChatListsTheLikeliest(t *testing.T) {
	l := &logprobList{chat: true}
	l.add([]wire.TokenLogprob{{ID: 3, Bytes: []byte("c"), Logprob: -9, Top: []wire.TopLogprob{{ID: 1, Bytes: []byte("a"), Logprob: -1}}}, {ID: 4, Bytes: []byte("d"), Logprob: -2}})
	want := `{"content":[{"token":"c","logprob":-9,"bytes":[99],"top_logprobs":[{"token":"a","logprob":-1,"bytes":[97]}]},` +
		`{"token":"d","logprob":-2,"bytes":[100],"top_logprobs":[]}],"refusal":null}`
	if got := string(l.append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Offsets are characters of the text as the client reads it.
func TestOffsetsOfBrokenText(t *testing.T) {
	var all []wire.TokenLogprob
	for _, piece := range []string{"a", "\xe2\x9c", "b", "\x80", "\xf0\x9f", "\xa6\x9c", "\xff\xff", "c"} {
		all = append(all, wire.TokenLogprob{Bytes: []byte(piece)})
	}
	// The text: a, U+FFFD, b, U+FFFD, the lizard, U+FFFD twice, c.
	if got, want := legacyLogprobs(all...), `"text_offset":[0,1,2,3,4,4,5,7]`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPromptLogprobsAsVLLM: of a chat beside its choices, of completions in each of them.
func TestPromptLogprobsAsVLLM(t *testing.T) {
	r := simpleRig(t, hello)
	type ranked = map[string]struct {
		Logprob float64 `json:"logprob"`
		Rank    int     `json:"rank"`
		Text    string  `json:"decoded_token"`
	}
	var answer struct {
		Scored  []ranked `json:"prompt_logprobs"`
		Choices []struct {
			Scored []ranked `json:"prompt_logprobs"`
			Text   string   `json:"text"`
		} `json:"choices"`
	}
	check := func(body string, all []ranked, prompt string) {
		t.Helper()
		if len(all) != len(prompt) || all[0] != nil {
			t.Fatalf("%d positions of %d: %s", len(all), len(prompt), body)
		}
		for i, position := range all[1:] {
			own, ok := position[fmt.Sprint(prompt[i+1])]
			if !ok || own.Text != prompt[i+1:i+2] || own.Logprob >= 0 || own.Rank == 0 || len(position) > 3 {
				t.Errorf("position %d: %v", i+1, position)
			}
		}
	}
	got := r.do("POST", "/v1/completions", `{"model":"fake","prompt":["abc","de"],"n":2,"prompt_logprobs":2,"max_tokens":3}`)
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || len(answer.Choices) != 4 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for i, c := range answer.Choices {
		check(got.body, c.Scored, []string{"abc", "de"}[i/2])
		if c.Text == "" || strings.HasPrefix(c.Text, "abc") {
			t.Errorf("the text is %q: the prompt is not echoed", c.Text)
		}
	}
	got = r.do("POST", "/v1/chat/completions", chatBody(`"prompt_logprobs":0`))
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || len(answer.Scored) < 2 || len(answer.Scored[1]) != 1 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := r.do("POST", "/v1/chat/completions", chatBody("")); strings.Contains(got.body, "prompt_logprobs") {
		t.Errorf("not asked for: %s", got.body)
	}
}
