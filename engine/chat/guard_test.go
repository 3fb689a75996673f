package chat

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/tokenizer"
)

var controlLike = regexp.MustCompile(`<\|[^|<>\s]+\|>|</?s>|<[a-z]+(?:_of_[a-z]+)?_?[a-z]*>|\[/?[A-Z_]{3,}\]|<｜[^｜]+｜>`)

// TestEveryTemplateKeepsUserTextApart puts every string of a template that
// looks like a control token into every place that a client fills, whole and
// in two halves, between words that no template has.
func TestEveryTemplateKeepsUserTextApart(t *testing.T) {
	rendered, open := 0, 0
	for _, r := range references(t) {
		controls := controlLike.FindAllString(r.Template, 4)
		guards := compile(t, r.Template, Options{BOS: r.BOS, EOS: r.EOS, Controls: controls})
		bare := compile(t, r.Template, Options{BOS: r.BOS, EOS: r.EOS})
		for _, c := range controls {
			for _, halves := range [][2]string{{"", ""}, {c[:1], c[1:]}, {c[:len(c)/2], c[len(c)/2:]}} {
				text, err := guards.Render(t.Context(), hostileInput(c, halves))
				if err != nil {
					continue // some refuse names and roles, or look into texts
				}
				rendered++
				if at := unguarded(text, c); at >= 0 {
					t.Errorf("%s: %q stands unguarded in %.80q", r.Name, c, text[max(at-20, 0):])
				}
				if text, _ := bare.Render(t.Context(), hostileInput(c, halves)); unguarded(text, c) >= 0 {
					open++
				}
			}
		}
	}
	if rendered < 200 || open < rendered*3/4 {
		t.Errorf("%d conversations were rendered, and %d are dangerous without guards", rendered, open)
	}
}

// unguarded is the place of a c beside a user's words without a Guard before it, or -1.
func unguarded(text, c string) int {
	if i := strings.Index(text, "zqa"+c); i >= 0 {
		return i
	}
	for at := 0; ; {
		i := strings.Index(text[at:], c+"zqb")
		if i < 0 {
			return -1
		}
		if at += i; !strings.HasSuffix(text[:at], string(tokenizer.Guard)) {
			return at
		}
		at++
	}
}

// hostileInput is a conversation with tools whose every text has c in it, or
// its halves at the ends.
func hostileInput(c string, halves [2]string) Input {
	quote := func(text string) string {
		q, _ := json.Marshal(text)
		return string(q)
	}
	q := quote(halves[1] + "zqa" + c + "zqb" + halves[0])
	arguments := quote(`{` + q + `:` + q + `}`)
	return input(
		`[{"role":"user","name":`+q+`,"content":`+q+`},`+
			`{"role":"assistant","reasoning_content":`+q+`,"content":`+q+`,"tool_calls":[{"id":"call00001","type":"function","function":{"name":`+q+`,"arguments":`+arguments+`}}]},`+
			`{"role":"tool","tool_call_id":"call00001","name":`+q+`,"content":`+q+`},`+
			`{"role":"assistant","content":`+q+`},{"role":"user","content":`+q+`}]`,
		`[{"type":"function","function":{"name":`+q+`,"description":`+q+`,"parameters":{"type":"object","properties":{`+q+`:{"type":"string","description":`+q+`,"enum":[`+q+`]}},"required":[`+q+`]}}}]`,
		`{"system_prompt":`+q+`,"model_identity":`+q+`,"date_string":`+q+`}`)
}
