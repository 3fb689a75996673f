package jinja

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestBudgetsCannotBeRefilled: no argument, however odd, gives budget back
// or makes something larger than was charged for it.
func TestBudgetsCannotBeRefilled(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	for name, source := range map[string]string{
		"negative indent":    "{% for i in range(90000) %}{% set x = 'x'|indent(-9000000000000000000) %}{% for j in range(90000) %}{% set y = 1 %}{% endfor %}{% endfor %}",
		"range that wraps":   "{{ range(9223372036854775000, 9223372036854775807, 1000)|length * 'x' * 100000000 }}{% for i in range(-9223372036854775000, -9223372036854775808, -1000) %}{% endfor %}",
		"format again":       "{% set s = 'x' * 1000000 %}{% set t = ('{0}' * 100000).format(s) %}",
		"percent again":      "{% set s = 'x' * 1000000 %}{% set t = ('%s' * 10000) % (" + strings.Repeat("s,", 10000) + ") %}",
		"wide verbs":         "{% set t = ('%99999d' * 10000) % (" + strings.Repeat("1,", 10000) + ") %}",
		"wide separators":    "{% set t = range(9000)|tojson(separators=('" + long + "', ':')) %}",
		"long path":          "{% set d = {} %}{% set _ = d.update({'a': d}) %}{% for i in range(5000) %}{% set x = [d]|map(attribute='" + strings.Repeat("a.", 1000) + "a')|list %}{% endfor %}",
		"equal long strings": "{% set a = 'x' * 1000000 %}{% set b = 'x' * 1000000 %}{% for i in range(5000) %}{% set y = a == b %}{% endfor %}",
		"long arithmetic":    "{% for i in range(5000) %}{% set x = " + strings.Repeat("1 and ", 999) + "1 %}{% endfor %}",
		"endless recursion":  "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"wide formats":       "{% for i in range(5000) %}{% set t = '{:99999}{:.99999f}{:099999d}'.format(1, 1.5, 2) %}{% endfor %}",
		"wide precision":     "{{ '%.999999999f' % 1 }}{{ '{:.999999999}'.format(1.5) }}",
		"nested formats":     "{% for i in range(90000) %}{{ '{:{}}{:{}}'.format(1, 2000, 3, 2000) }}{% endfor %}",
		"many unpacked":      "{% macro m() %}{{ varargs|length }}{% endmacro %}{% for i in range(9000) %}{% set x = m(*range(90000)) %}{% endfor %}",
		"tabs":               "{{ ('\\t' * 1000000).expandtabs(1000000) }}",
		"long upper":         "{% set a = 'ΐ' * 500000 %}{% for i in range(5000) %}{% set y = a.upper() %}{% endfor %}",
		"wide columns":       "{{ []|slice(999999999)|list }}",
		"filled batches":     "{{ [1]|batch(999999999, 0)|list }}",
		"many lines":         "{% set a = '\\n' * 1000000 %}{% for i in range(5000) %}{% set y = a.splitlines() %}{% endfor %}",
		"many groups":        "{% for i in range(5000) %}{% set y = range(90000)|groupby('real') %}{% endfor %}",
		"escaped again":      "{% set ns = namespace(s='<'|e) %}{% for i in range(50) %}{% set ns.s = ns.s|string|forceescape %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"tests on long text": "{% set a = 'x' * 1000000 %}{% for i in range(5000) %}{% set y = a is lower %}{% set y = a|wordcount %}{% set z = a|int %}{% endfor %}",
	} {
		tmpl, err := Parse(source)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// The deadline is a net: without a limit some would run for hours.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		text, err := tmpl.Render(ctx, nil, Limits{Steps: 1 << 18, Bytes: 1 << 23, Out: 1 << 20})
		if err == nil || ctx.Err() != nil || strings.Contains(err.Error(), "runtime error") {
			t.Errorf("%s: gave %d bytes, %v", name, len(text), err)
		}
		cancel()
	}
}

// TestDeepTreesKeepToTheStack: a stack that grows past the runtime's limit
// ends the process, so depth in macros and in expressions is bounded together.
func TestDeepTreesKeepToTheStack(t *testing.T) {
	expression := "f()"
	for range 60 {
		expression = "(" + expression + strings.Repeat("+1", 990) + strings.Repeat(" and 1", 990) + ")"
	}
	tmpl, err := Parse("{% macro f() %}{{ " + expression + " }}{% endmacro %}{{ f() }}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(t.Context(), nil, Limits{Steps: 1 << 26, Bytes: 1 << 26, Out: 1 << 20}); err == nil || !strings.Contains(err.Error(), "depth") {
		t.Errorf("got %v, want the depth limit", err)
	}
	if _, err := Parse("{{ 1" + strings.Repeat(" if a", 10000) + " }}"); err == nil || !strings.Contains(err.Error(), "in a row") {
		t.Errorf("inline ifs: got %v", err)
	}
}

// TestContextIsLookedAtWhateverTheStepsAre: steps come in strides, which
// must not jump over the looks.
func TestContextIsLookedAtWhateverTheStepsAre(t *testing.T) {
	s := &state{ctx: &recorder{}, limits: roomy}
	s.step()
	for range 10_000 {
		s.work(256) // two steps
	}
	before := *s
	if s.charge(-1 << 40); s.bytes != before.bytes || s.steps < before.steps {
		t.Errorf("a negative charge gives back: %d bytes, %d steps", s.bytes-before.bytes, s.steps-before.steps)
	}
	if looks := s.ctx.(*recorder).looks; looks < 15 {
		t.Errorf("the context was looked at %d times in %d steps", looks, s.steps)
	}
}

// TestParsingIsLinear: each takes seconds where a template's length counts twice.
func TestParsingIsLinear(t *testing.T) {
	const half = sourceBytesMax / 2
	for name, source := range map[string]string{
		"strings in a row": "{{ " + strings.Repeat("'' 'a' ", half/8) + "}}",
		"raw, open tags":   "{% raw %}" + strings.Repeat("{%", half-20) + "{% endraw %}",
		"a long number":    "{{ " + strings.Repeat("9", sourceBytesMax-10) + " }}",
	} {
		done := make(chan error, 1)
		go func() { _, err := Parse(source); done <- err }()
		select {
		case err := <-done:
			if long := name == "a long number"; long != (err != nil) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: still parsing", name)
		}
	}
}

func TestSlicesTakeAnyStep(t *testing.T) {
	for source, want := range map[string]string{
		"{{ 'abc'[1::9223372036854775807] }}":          "b",
		"{{ 'abc'[::-9223372036854775807] }}":          "c",
		"{{ [1,2,3][2:0:-9223372036854775807] }}":      "[3]",
		"{{ range(0, 10, 9223372036854775807)|list }}": "[0]",
		"{{ range(5, 0, -2)|list }}":                   "[5, 3, 1]",
		"{{ range(3, 3)|list }}{{ range(3, 0)|list }}": "[][]",
		"{{ 'a b  c'.rsplit(none, 1) }}":               "['a b', 'c']",
	} {
		if got, err := render(t, source, nil); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", source, got, err, want)
		}
	}
	for _, bad := range []string{"1]", "{}}", `{"a":1} x`} {
		if v, err := ParseJSON([]byte(bad)); err == nil {
			t.Errorf("ParseJSON(%q) gave %v instead of an error", bad, v)
		}
	}
}

// TestManyNamesInOneScope: past some number they are found by an index.
func TestManyNamesInOneScope(t *testing.T) {
	var source, want strings.Builder
	for i := range 60 {
		fmt.Fprintf(&source, "{%% set v%d = %d %%}", i, i)
	}
	source.WriteString("{% set v50 = 'new' %}{% for v3 in ['inner'] %}{{ v3 }} {% endfor %}")
	want.WriteString("inner ")
	for i := range 60 {
		fmt.Fprintf(&source, "{{ v%d }} ", i)
		if i == 50 {
			want.WriteString("new ")
			continue
		}
		fmt.Fprintf(&want, "%d ", i)
	}
	if got, err := render(t, source.String()+"{{ v60 }}", nil); err != nil || got != want.String() {
		t.Errorf("got %q, %v", got, err)
	}
}
