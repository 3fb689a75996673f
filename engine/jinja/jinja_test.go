package jinja

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

var roomy = Limits{Steps: 1 << 20, Bytes: 1 << 24, Out: 1 << 20}

func render(t testing.TB, source string, vars map[string]any) (string, error) {
	t.Helper()
	tmpl, err := Parse(source)
	if err != nil {
		t.Fatalf("%.80q: %v", source, err)
	}
	return tmpl.Render(t.Context(), vars, roomy)
}

// variables parses anew for each render, since a template may change them.
func variables(t testing.TB, data json.RawMessage) map[string]any {
	t.Helper()
	v, err := ParseJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]any{}
	for _, key := range v.(*Dict).Keys() {
		vars[key.(string)], _ = v.(*Dict).Get(key)
	}
	return vars
}

// TestReference compares with what Jinja2 3.1.6 printed, in its immutable
// sandbox with trim_blocks, lstrip_blocks, loop controls and transformers' tojson.
func TestReference(t *testing.T) {
	t.Run("reference", func(t *testing.T) { compareReference(t, "testdata/reference.json") })
	t.Run("language", func(t *testing.T) { compareReference(t, "testdata/language.json") })
	t.Run("groups", func(t *testing.T) { compareReference(t, "testdata/groups.json") })
}

func compareReference(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		Vars  json.RawMessage
		Cases []struct{ Template, Text string }
	}
	if err := json.Unmarshal(data, &reference); err != nil {
		t.Fatal(err)
	}
	for _, c := range reference.Cases {
		got, err := render(t, c.Template, variables(t, reference.Vars))
		if err != nil || got != c.Text {
			t.Errorf("%q:\n got %q, %v\nwant %q", c.Template, got, err, c.Text)
		}
	}
}

func TestErrorsUsePythonsWords(t *testing.T) {
	for source, want := range map[string]string{
		"\n{{ 'a' + 1 }}":                            `template line 2: can only concatenate str (not "int") to str`,
		"{{ x.y }}":                                  "'x' is undefined",
		"{{ none|length }}":                          "object of type 'NoneType' has no len()",
		"{% for x in none %}{% endfor %}":            "'NoneType' object is not iterable",
		"{{ 'a'|items }}":                            "Can only get item pairs from a mapping.",
		"{{ 1|nofilter }}":                           "No filter named 'nofilter' found.",
		"{{ 1 is notest }}":                          "No test named 'notest' found.",
		"{{ 1 < 'a' }}":                              "'<' not supported between instances of 'int' and 'str'",
		"{{ 'a'.nomethod() }}":                       "has no attribute 'nomethod'",
		"{{ 1 // 0 }}":                               "division by zero",
		"{{ range|tojson }}":                         "is not JSON serializable",
		"{% set x.y = 1 %}":                          "cannot assign attribute on non-namespace object",
		"{% macro m(a) %}{% endmacro %}{{ m(1,2) }}": "takes not more than 1 argument(s)",
		"{% macro m(a) %}{% endmacro %}{{ m(z=2) }}": "takes no keyword argument 'z'",
	} {
		if _, err := render(t, source, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", source, err, want)
		}
	}
}

// What a template is given it may not change, by whatever path it reaches it. What it
// has made itself it may, which the reference refuses too.
func TestInputStaysAsItIs(t *testing.T) {
	const vars = `{"messages":[{"role":"user","content":[1]}],"tools":[{"p":{"x":[1]}}]}`
	for source, what := range map[string]string{
		"{% set _ = messages.append(1) %}": "'append' of 'list'",
		"{{ messages.pop() }}":             "'pop' of 'list'",
		"{% for m in messages %}{% set _ = m.update({'a': 1}) %}{% endfor %}":         "'update' of 'dict'",
		"{{ messages[0].pop('role') }}":                                               "'pop' of 'dict'",
		"{{ (messages|attr('extend'))([]) }}":                                         "'extend' of 'list'",
		"{{ (messages[0]|attr('update'))({}) }}":                                      "'update' of 'dict'",
		"{{ messages['append'](1) }}":                                                 "'append' of 'list'",
		"{% set x = messages %}{{ x.pop() }}":                                         "'pop' of 'list'",
		"{% set x = tools[0].p.x %}{{ x.append(2) }}":                                 "'append' of 'list'",
		"{{ messages.clear() }}":                                                      "'clear' of 'list'",
		"{{ messages.insert(0, 1) }}":                                                 "'insert' of 'list'",
		"{{ messages[0].setdefault('a', 1) }}":                                        "'setdefault' of 'dict'",
		"{{ messages[0].popitem() }}":                                                 "'popitem' of 'dict'",
		"{% set l = messages|list %}{{ l[0].pop('role') }}":                           "'pop' of 'dict'",
		"{% set l = messages + [] %}{{ l[0].content.append(1) }}":                     "'append' of 'list'",
		"{% set d = dict(messages[0]) %}{{ d.content.append(1) }}":                    "'append' of 'list'",
		"{% set n = namespace(l=messages) %}{{ n.l.pop() }}":                          "'pop' of 'list'",
		"{% macro f(l) %}{{ l.pop() }}{% endmacro %}{{ f(messages) }}":                "'pop' of 'list'",
		"{% set l = messages[0].copy() %}{{ l.content.pop() }}":                       "'pop' of 'list'",
		"{{ [].sort() }}":                                                             "'sort' of 'list'",
		"{% for g in messages|groupby('role') %}{{ g.list[0].pop('a') }}{% endfor %}": "'pop' of 'dict'",
	} {
		if _, err := render(t, source, variables(t, json.RawMessage(vars))); err == nil || !strings.Contains(err.Error(), "access to attribute "+what+" object is unsafe.") {
			t.Errorf("%q: got %v, want %s", source, err, what)
		}
	}
	const own = "{% set l = messages|list %}{% set _ = l.append(2) %}{% set d = messages[0].copy() %}{% set _ = d.update({'role': 'x'}) %}" +
		"{% set j = '[1]'|from_json %}{% set _ = j.append(3) %}{{ l|length }} {{ messages|length }} {{ d.role }} {{ messages[0].role }} {{ j }}"
	for range 2 { // the second time with what the first has left
		if got, err := render(t, own, variables(t, json.RawMessage(vars))); err != nil || got != "2 1 x user [1, 3]" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestSyntaxErrorsNameTheLine(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{% include 'x' %}": `template line 2: unknown tag "include"`,
		"{{ 1":                 "tag is not closed by }}",
		"{% if x %}":           "if is not closed by endif",
		"{% endif %}":          `unknown tag "endif"`,
		"{{ 'abc }}":           "string is not closed",
		"{# x":                 "comment is not closed",
		"{{ 1 + }}":            "expected a value",
		"{{ a b }}":            "expected the end of the tag",
		"{% break %}":          "break outside of a loop",
		"{{ $ }}":              "unexpected character",
		"{{ f(**a, b) }}":      `expected ")"`,
		"{{ " + strings.Repeat("(", 10000) + strings.Repeat(")", 10000) + " }}": "nested deeper",
		"{{ " + strings.Repeat("not ", 10000) + " }}":                           "nested deeper",
		"{{ " + strings.Repeat("-", 10000) + " }}":                              "nested deeper",
		"{{ 1" + strings.Repeat("+1", 10000) + " }}":                            "operators in a row",
		"{{ a" + strings.Repeat(".b", 10000) + " }}":                            "nested deeper",
		"{{ a" + strings.Repeat("|e", 10000) + " }}":                            "nested deeper",
		strings.Repeat("{% if x %}", 10000):                                     "nested deeper",
		strings.Repeat("x", sourceBytesMax+1):                                   "at most",
	} {
		_, err := Parse(source)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, want %q", source, err, want)
		}
	}
}

// hostile are templates that would run, or fill memory, for ever.
var hostile = []string{
	"{% for i in range(100000) %}{% for j in range(10000000) %}{% endfor %}{% endfor %}",
	"{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
	"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
	"{{ 'a' * 1000000000 }}",
	"{{ [0] * 1000000000 }}",
	"{{ 'a' * 9223372036854775807 }}",
	"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
	"{% macro f(n) %}{{ f(n)|string ~ f(n) }}{% endmacro %}{{ f(1) }}",
	"{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
	"{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
	"{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
	"{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l }}",
	"{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}",
	"{% set l = [1] %}{% set _ = l.append(l) %}{{ l == l }}",
	"{% set ns = namespace(n=3) %}{% for i in range(100) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
	"{{ 10 ** 1000000000 }}",
	"{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}",
	"{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set x = s.replace('a', 'bbbb') %}{% endfor %}",
	"{{ 'x'.rjust(1000000000) }}",
	"{{ 'x'|indent(1000000000, true) }}",
	"{{ '%999999999d' % 1 }}",
	"{{ '{:999999999}'.format(1) }}",
	"{{ 'a\n'|replace('', 'x' * 100000)|replace('', 'x' * 100000) }}",
	"{{ range(99999)|map('string')|join('x' * 100000) }}",
	"{% for i in range(100000) %}{% set x = range(99999)|list|sort %}{% endfor %}",
}

func TestLimitsHold(t *testing.T) {
	for _, source := range hostile {
		tmpl, err := Parse(source)
		if err != nil {
			t.Fatalf("%q: %v", source, err)
		}
		s := &recorder{}
		text, err := tmpl.Render(s, nil, roomy)
		if err == nil {
			t.Errorf("%.90q: gave %d bytes instead of an error", source, len(text))
		}
		// The context is looked at every 1024 steps: work is counted, not timed.
		if s.looks > roomy.Steps/1024+2 {
			t.Errorf("%.90q: looked at its context %d times", source, s.looks)
		}
	}
}

// recorder is a context that counts how often it is asked.
type recorder struct{ looks int }

func (*recorder) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*recorder) Done() <-chan struct{}       { return nil }
func (*recorder) Value(any) any               { return nil }
func (r *recorder) Err() error                { r.looks++; return nil }

func TestRenderStopsWithItsContext(t *testing.T) {
	tmpl, err := Parse(hostile[2])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tmpl.Render(ctx, nil, roomy); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestParseJSONBounds(t *testing.T) {
	for _, bad := range []string{"", "{", "[1,", `{"a" 1}`, "1 2", strings.Repeat("[", 10000), strings.Repeat("9", 10000), "nul"} {
		if v, err := ParseJSON([]byte(bad)); err == nil {
			t.Errorf("%.20q: gave %v instead of an error", bad, v)
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, source := range hostile {
		f.Add(source)
	}
	f.Add("{% for m in messages %}{{ m.role ~ m['content'][1:]|trim }}{% endfor %}")
	tight := Limits{Steps: 1 << 14, Bytes: 1 << 18, Out: 1 << 16}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
		if err != nil {
			return
		}
		vars := variables(t, json.RawMessage(`{"messages":[{"role":"user","content":"x\ny"}],"n":1.5}`))
		if text, err := tmpl.Render(t.Context(), vars, tight); err == nil && len(text) > tight.Out {
			t.Errorf("%d bytes of output", len(text))
		} else if err != nil && strings.Contains(err.Error(), "runtime error") {
			t.Error(err)
		}
	})
}
