package gateway

import (
	"encoding/json"
	"testing"

	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// The tokens of the fake are bytes: this prompt ends within a character, of which
// the engine gives the whole as the first text of the answer.
const cutPrompt = `{"model":"fake","prompt":[72,226,156,240,159,166],"echo":true`

func TestEchoJoinsACharacter(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Pieces: []string{"\U0001F99C", "!"}})
	for _, c := range []struct{ extra, want string }{
		{"}", "H\uFFFD\U0001F99C!"},
		{`,"n":2}`, "H\uFFFD\U0001F99C!"},
		{`,"stream":true}`, "H\uFFFD\U0001F99C!"},
		{`,"max_tokens":0}`, "H\uFFFD\uFFFD"}, // nothing follows
		{`,"max_tokens":0,"stream":true}`, "H\uFFFD\uFFFD"},
	} {
		resp := r.do("POST", "/v1/completions", cutPrompt+c.extra)
		parts := events(resp.body)
		if len(parts) == 0 {
			parts = []string{resp.body, "[DONE]"}
		}
		texts := map[int]string{}
		for _, part := range parts[:len(parts)-1] {
			var answer struct {
				Choices []struct {
					Index int
					Text  string
				}
			}
			if err := json.Unmarshal([]byte(part), &answer); err != nil {
				t.Fatalf("%v in %s", err, part)
			}
			for _, choice := range answer.Choices {
				texts[choice.Index] += choice.Text
			}
		}
		for i, text := range texts {
			if text != c.want {
				t.Errorf("%s: choice %d is %q, want %q", c.extra, i, text, c.want)
			}
		}
		if len(texts) == 0 {
			t.Errorf("%s: %d %s", c.extra, resp.status, resp.body)
		}
	}
}
