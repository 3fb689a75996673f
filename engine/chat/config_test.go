package chat

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadConfig(t *testing.T) {
	const two = `[{"name":"default","template":"D"},{"name":"rag","template":"R"},{"name":"tool_use","template":"T"}]`
	for _, c := range []struct {
		config, jinja string
		want          Config
	}{
		{`{"chat_template":"D","bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false}}`, "", Config{Template: "D", BOS: "<s>", EOS: "</s>"}},
		{`{"chat_template":null,"bos_token":null}`, "", Config{}},
		{`{}`, "", Config{}},
		{`{"chat_template":` + two + `}`, "", Config{Template: "D", ToolUse: "T"}},
		// A file beside it replaces all of them.
		{`{"chat_template":` + two + `,"bos_token":"<s>"}`, "J\n", Config{Template: "J\n", BOS: "<s>"}},
		{`{"chat_template":7}`, "J", Config{Template: "J"}},
		{"", "J", Config{Template: "J"}},
	} {
		got, err := ReadConfig(given(c.config), given(c.jinja))
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s, %q: %v\n%s", c.config, c.jinja, err, diff)
		}
	}
	for config, want := range map[string]string{
		`{`:                     "tokenizer_config.json",
		`[]`:                    "tokenizer_config.json",
		`{"bos_token":7}`:       "special token",
		`{"eos_token":{"a":1}}`: "special token",
		`{"chat_template":7}`:   "text or a list",
		`{"chat_template":[{"name":"rag","template":"R"}]}`: "only rag",
		`{"chat_template":[{"name":"default"}]}`:            "item 0 has no template",
		strings.Repeat(" ", configBytesMax+1):               "more than",
	} {
		if _, err := ReadConfig(given(config), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %q", config, err, want)
		}
	}
}

// given is nil for an absent file.
func given(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

func TestToolsTakeTheirOwnTemplate(t *testing.T) {
	const plain = `plain{% for m in messages %}{{ m.content }}{% endfor %}`
	const tools = `tools{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}`
	tmpl := compile(t, plain, Options{ToolUse: tools})
	const messages = `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`
	expect(t, tmpl, input(messages, "", ""), "plainab")
	expect(t, tmpl, input(messages, "null", ""), "plainab")
	expect(t, tmpl, input(messages, `[{"type":"function"}]`, ""), "tools[a][b]")
	// It is tried with tools, without which it fails.
	needs := compile(t, plain, Options{ToolUse: `{% for t in tools %}{{ t.function.name }}{% endfor %}` + tools})
	expect(t, needs, input(messages, `[{"type":"function","function":{"name":"f"}}]`, ""), "ftools[a][b]")
	if _, err := New(plain, Options{ToolUse: "{% if %}"}); err == nil || !strings.Contains(err.Error(), "tool_use") {
		t.Errorf("bad second template: got %v", err)
	}
}

func FuzzReadConfig(f *testing.F) {
	f.Add([]byte(`{"chat_template":[{"name":"default","template":"D"}],"bos_token":{"content":"<s>"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := ReadConfig(data, nil); err != nil && c != (Config{}) {
			t.Errorf("%+v beside %v", c, err)
		}
	})
}
