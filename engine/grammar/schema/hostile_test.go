package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/grammar"
)

// hostile are schemas that cost much where work is not bounded.
func hostile() map[string]string {
	nest := func(n int, open, middle, end string) string {
		return strings.Repeat(open, n) + middle + strings.Repeat(end, n)
	}
	var props, names, enum, chain, objects, patterns, wide []string
	for i := range 10_000 {
		props = append(props, fmt.Sprintf(`"p%d":{"type":"string"}`, i))
		names = append(names, fmt.Sprintf(`"p%d"`, i))
	}
	for i := range 60_000 {
		enum = append(enum, fmt.Sprintf(`"value-%08d"`, i))
	}
	for i := range 3000 {
		chain = append(chain, fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d","minLength":%d}`, i, i+1, i%3))
	}
	for i := range 60 {
		objects = append(objects, fmt.Sprintf(`{"type":"object","properties":{"k%d":{"type":"string"},"k%d":{"type":"integer"}},"required":["k%d"]}`, i, i+1, i))
		patterns = append(patterns, fmt.Sprintf(`"a.*%d.*b":{"minLength":%d}`, i, i))
	}
	for i := range 400 {
		wide = append(wide, fmt.Sprintf(`{"anyOf":[{"minLength":%d},{"pattern":"x%d"},{"required":["r%d"]}]}`, i, i, i))
	}
	list := func(l []string) string { return strings.Join(l, ",") }
	return map[string]string{
		"nested properties":  nest(100_000, `{"properties":{"a":`, `{}`, `}}`),
		"nested arrays":      nest(100_000, `[`, ``, `]`),
		"nested deep":        nest(10_000, `{"properties":{"a":`, `{}`, `}}`),
		"nested allowed":     nest(31, `{"properties":{"a":`, `{}`, `}}`),
		"nested oneOf":       nest(15, `{"oneOf":[{"type":"string"},{"minLength":3},`, `{}`, `]}`),
		"nested anyOf":       nest(15, `{"anyOf":[{"required":["a"]},{"required":["b"]},`, `{}`, `]}`),
		"nested not":         nest(60, `{"not":`, `{"required":["a"],"properties":{"a":{"pattern":"b"}}}`, `}`),
		"cycle":              `{"$ref":"#"}`,
		"cycle of two":       `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"cycle in allOf":     `{"allOf":[{"$ref":"#"},{"type":"string"}]}`,
		"cycle in not":       `{"not":{"$ref":"#"}}`,
		"cycle that grows":   `{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"x":{"allOf":[{"$ref":"#/$defs/a"},{"properties":{"y":{"$ref":"#/$defs/a"}}}]}},"required":["x"]}}}`,
		"endless value":      `{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`,
		"10,000 properties":  `{"properties":{` + list(props) + `}}`,
		"5,000 optional":     `{"properties":{` + list(props[:5000]) + `},"additionalProperties":false}`,
		"5,000 required":     `{"properties":{` + list(props[:5000]) + `},"required":[` + list(names[:5000]) + `]}`,
		"5,000 counted":      `{"properties":{` + list(props[:5000]) + `},"minProperties":2500}`,
		"enum of 1 MB":       `{"enum":[` + list(enum) + `]}`,
		"enum of 10,000":     `{"enum":[` + list(enum[:10_000]) + `]}`,
		"chain of $ref":      `{"$ref":"#/$defs/d0","$defs":{` + list(chain) + `,"d3000":{}}}`,
		"60 open objects":    `{"oneOf":[` + list(objects) + `]}`,
		"anyOf of allOf":     `{"allOf":[` + list(wide[:40]) + `]}`,
		"anyOf of 400":       `{"anyOf":[` + list(wide) + `]}`,
		"60 patterns":        `{"patternProperties":{` + list(patterns) + `}}`,
		"pattern of repeats": `{"type":"string","pattern":"^(a|a)*{1000}$"}`,
		"pattern of counts":  `{"type":"string","pattern":"^((a{1,1000}){1,1000}){1,1000}$","minLength":100000}`,
		"two patterns":       `{"allOf":[{"pattern":"^(.*a.{20}|b)*$"},{"pattern":"^(.*b.{21}|a)*$"},{"not":{"pattern":"(c.{19}d)"}}]}`,
		"bounds of digits":   `{"minimum":-1e399,"maximum":1.` + strings.Repeat("1", 300) + `}`,
		"exponent":           `{"minimum":1e999999999}`,
		"multiples":          `{"allOf":[{"multipleOf":9973},{"multipleOf":9967},{"multipleOf":9949},{"not":{"multipleOf":9941}}],"minimum":1,"maximum":5}`,
		"many items":         `{"type":"array","minItems":999999999,"items":{"type":"array","maxItems":999999999}}`,
		"contains":           `{"contains":{"type":"string"},"minContains":100000,"maxContains":1000000}`,
		"pointer of ~":       `{"$ref":"#/` + strings.Repeat("~0", 100_000) + `"}`,
	}
}

func TestHostile(t *testing.T) {
	for name, text := range hostile() {
		start := time.Now()
		g, _, err := Grammar(grammar.NewBuilder(grammar.DefaultLimits()), text, Options{})
		took := time.Since(start)
		outcome := "compiled"
		if r := (*Refusal)(nil); errors.As(err, &r) {
			outcome = fmt.Sprintf("refused: %.100s", r.Error())
			if !standsAt(text, r) && len(text) <= DefaultLimits().Bytes {
				t.Errorf("%s: refused for %q at %.100q, where it is not: %s", name, r.Keyword, r.Pointer, r.Reason)
			}
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, err := g.NewAutomaton().Accepts(`{"p0":"x"}`); err != nil {
			outcome = err.Error()
		}
		t.Logf("%-20s %8.1f ms %s", name, float64(took)/1e6, outcome)
	}
}

func FuzzSchema(f *testing.F) {
	for _, text := range hostile() {
		if len(text) < 10_000 {
			f.Add(text, `{"a":[1,"b"]}`)
		}
	}
	f.Add(`{"properties":{"a":{"type":"integer","minimum":3}},"required":["a"]}`, `{"a":4}`)
	f.Fuzz(func(t *testing.T, text, instance string) {
		g, _, err := Grammar(grammar.NewBuilder(grammar.DefaultLimits()), text, Options{Limits: Limits{Work: 50_000}})
		if err != nil {
			if r := (*Refusal)(nil); !errors.As(err, &r) {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		if _, err := g.NewAutomaton().Accepts(instance); err != nil {
			if l := (*grammar.LimitError)(nil); !errors.As(err, &l) {
				t.Fatal(err)
			}
		}
	})
}
