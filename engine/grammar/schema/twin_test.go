package schema

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/grammar"
)

// errCycle ends the judging of a schema that refers to itself with nothing in
// between, in a place that the compiler finds to hold for no instance.
var (
	errCycle = errors.New("cycle")
	depth    int
)

// valid judges an instance by a schema, keyword by keyword as the standard
// words them. It shares nothing with the compiler but the decoder.
func valid(root, s, x *value) bool {
	if depth++; depth > 500 {
		panic(errCycle)
	}
	defer func() { depth-- }()
	if s.kind != kindObject {
		return s.kind == kindTrue
	}
	for _, m := range s.members {
		if !validKeyword(root, s, m.key, m.value, x) {
			return false
		}
	}
	return true
}

func validKeyword(root, s *value, key string, k, x *value) bool {
	holds := func(s *value) bool { return valid(root, s, x) }
	switch key {
	case "$ref":
		return holds(follow(root, k.text[1:]))
	case "type":
		if k.kind == kindArray {
			for _, t := range k.items {
				if isType(t.text, x) {
					return true
				}
			}
			return false
		}
		return isType(k.text, x)
	case "enum":
		for _, e := range k.items {
			if equal(e, x) {
				return true
			}
		}
		return false
	case "const":
		return equal(k, x)
	case "allOf", "anyOf", "oneOf":
		n := 0
		for _, b := range k.items {
			if holds(b) {
				n++
			}
		}
		return key == "allOf" && n == len(k.items) || key == "anyOf" && n > 0 || key == "oneOf" && n == 1
	case "not":
		return !holds(k)
	case "if":
		branch := s.get("else")
		if holds(k) {
			branch = s.get("then")
		}
		return branch == nil || holds(branch)
	}
	switch x.kind {
	case kindNumber:
		return validNumber(key, k, x)
	case kindString:
		n := utf8.RuneCountInString(x.text)
		switch key {
		case "minLength":
			return n >= atoi(k)
		case "maxLength":
			return n <= atoi(k)
		case "pattern":
			return regexp.MustCompile(k.text).MatchString(x.text)
		}
	case kindArray:
		return validArray(root, s, key, k, x)
	case kindObject:
		return validObject(root, s, key, k, x)
	}
	return true
}

func atoi(v *value) (n int) {
	fmt.Sscan(v.text, &n)
	return n
}

func isType(t string, x *value) bool {
	switch x.kind {
	case kindNull:
		return t == "null"
	case kindTrue, kindFalse:
		return t == "boolean"
	case kindNumber:
		return t == "number" || t == "integer" && rational(x.text).IsInt()
	case kindString:
		return t == "string"
	case kindArray:
		return t == "array"
	}
	return t == "object"
}

func equal(a, b *value) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case kindNumber:
		return rational(a.text).Cmp(rational(b.text)) == 0
	case kindString:
		return a.text == b.text
	case kindArray:
		for i := range a.items {
			if len(a.items) != len(b.items) || !equal(a.items[i], b.items[i]) {
				return false
			}
		}
		return len(a.items) == len(b.items)
	case kindObject:
		for _, m := range a.members {
			if b.get(m.key) == nil || !equal(m.value, b.get(m.key)) {
				return false
			}
		}
		return len(a.members) == len(b.members)
	}
	return true
}

func validNumber(key string, k, x *value) bool {
	n := rational(x.text)
	switch key {
	case "minimum":
		return n.Cmp(rational(k.text)) >= 0
	case "maximum":
		return n.Cmp(rational(k.text)) <= 0
	case "exclusiveMinimum":
		return n.Cmp(rational(k.text)) > 0
	case "exclusiveMaximum":
		return n.Cmp(rational(k.text)) < 0
	case "multipleOf":
		return n.Quo(n, rational(k.text)).IsInt()
	}
	return true
}

func validArray(root, s *value, key string, k, x *value) bool {
	all := func(list []*value, s *value) bool {
		for _, i := range list {
			if !valid(root, s, i) {
				return false
			}
		}
		return true
	}
	switch key {
	case "minItems":
		return len(x.items) >= atoi(k)
	case "maxItems":
		return len(x.items) <= atoi(k)
	case "prefixItems":
		for i := range min(len(x.items), len(k.items)) {
			if !valid(root, k.items[i], x.items[i]) {
				return false
			}
		}
	case "items":
		before := 0
		if p := s.get("prefixItems"); p != nil {
			before = min(len(p.items), len(x.items))
		}
		return all(x.items[before:], k)
	case "uniqueItems":
		for i := range x.items {
			for j := range i {
				if equal(x.items[i], x.items[j]) {
					return false
				}
			}
		}
	case "contains":
		n, least, most := 0, 1, len(x.items)
		if m := s.get("minContains"); m != nil {
			least = atoi(m)
		}
		if m := s.get("maxContains"); m != nil {
			most = atoi(m)
		}
		for _, i := range x.items {
			if valid(root, k, i) {
				n++
			}
		}
		return n >= least && n <= most
	}
	return true
}

func validObject(root, s *value, key string, k, x *value) bool {
	switch key {
	case "minProperties":
		return len(x.members) >= atoi(k)
	case "maxProperties":
		return len(x.members) <= atoi(k)
	case "required":
		for _, n := range k.items {
			if x.get(n.text) == nil {
				return false
			}
		}
	case "dependentRequired":
		for _, d := range k.members {
			if x.get(d.key) != nil && !validObject(root, s, "required", d.value, x) {
				return false
			}
		}
	case "dependentSchemas":
		for _, d := range k.members {
			if x.get(d.key) != nil && !valid(root, d.value, x) {
				return false
			}
		}
	}
	for _, m := range x.members {
		listed := s.get("properties").get(m.key)
		matched := listed != nil
		if p := s.get("patternProperties"); p != nil {
			for _, p := range p.members {
				if regexp.MustCompile(p.key).MatchString(m.key) {
					matched = true
					if key == "patternProperties" && !valid(root, p.value, m.value) {
						return false
					}
				}
			}
		}
		name := &value{kind: kindString, text: m.key}
		if key == "properties" && listed != nil && !valid(root, listed, m.value) ||
			key == "additionalProperties" && !matched && !valid(root, k, m.value) ||
			key == "propertyNames" && !valid(root, k, name) {
			return false
		}
	}
	return true
}

// randomSchema writes a schema of a small world in which its parts often meet.
func randomSchema(r *rand.Rand, depth int) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	sub := func() string { return randomSchema(r, depth-1) }
	number := func() string { return pick("0", "1", "2", "3", "-1", "1.5", "0.25", "-2") }
	if depth <= 0 {
		return pick("true", "false", "{}", `{"type":"integer"}`, `{"type":"string"}`, `{"type":"null"}`, `{"const":`+randomInstance(r, 1)+`}`,
			`{"minimum":`+number()+`}`, `{"pattern":"a"}`, `{"maxLength":1}`, `{"type":["number","boolean"]}`, `{"$ref":"#/$defs/x"}`)
	}
	key := func() string { return pick("a", "b", "c", "ab") }
	var k []string
	used := map[string]bool{}
	add := func(name, value string) {
		if !used[name] {
			k = append(k, `"`+name+`":`+value)
			used[name] = true
		}
	}
	for range 1 + r.IntN(3) {
		switch r.IntN(32) {
		case 0, 1:
			add("type", pick(`"object"`, `"array"`, `"string"`, `"number"`, `"integer"`, `["object","null"]`, `"boolean"`))
		case 2, 3, 4:
			add("properties", `{"a":`+sub()+`,"`+pick("b", "c", "ab")+`":`+sub()+`}`)
		case 5, 6:
			add("required", `["`+key()+`"]`)
		case 7, 8:
			add("additionalProperties", sub())
		case 9:
			add("patternProperties", `{"`+pick("a", "^b", "c$", "^.$")+`":`+sub()+`}`)
		case 10:
			add("propertyNames", pick(`{"maxLength":1}`, `{"pattern":"^[ab]"}`, `{"enum":["a","c"]}`))
		case 11:
			add(pick("minProperties", "maxProperties"), pick("0", "1", "2"))
		case 12, 13:
			add("items", sub())
		case 14:
			add("prefixItems", `[`+sub()+`,`+sub()+`]`)
		case 15:
			add(pick("minItems", "maxItems"), pick("0", "1", "2"))
		case 16:
			add("contains", sub())
		case 17:
			add(pick("minContains", "maxContains"), pick("0", "1", "2"))
		case 18, 19:
			add("enum", `[`+randomInstance(r, 1)+`,`+randomInstance(r, 2)+`]`)
		case 20:
			add(pick("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), number())
		case 21:
			add("multipleOf", pick("1", "2", "3", "0.5", "0.25"))
		case 22:
			add(pick("minLength", "maxLength"), pick("0", "1", "2"))
		case 23:
			add("pattern", pick(`"a"`, `"^a"`, `"b$"`, `"^(ab)*$"`, `"^[^a]*$"`))
		case 24, 25:
			add("anyOf", `[`+sub()+`,`+sub()+`]`)
		case 26, 27:
			add("oneOf", `[`+sub()+`,`+sub()+`]`)
		case 28:
			add("allOf", `[`+sub()+`,`+sub()+`]`)
		case 29:
			add("not", sub())
		case 30:
			add("if", sub())
			add(pick("then", "else"), sub())
		case 31:
			switch r.IntN(3) {
			case 0:
				add("dependentRequired", `{"`+key()+`":["`+key()+`"]}`)
			case 1:
				add("dependentSchemas", `{"`+key()+`":`+sub()+`}`)
			default:
				add("uniqueItems", "true")
			}
		}
	}
	return `{` + strings.Join(k, ",") + `}`
}

func randomInstance(r *rand.Rand, depth int) string {
	n := 9
	if depth <= 0 {
		n = 7
	}
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	switch r.IntN(n) {
	case 0:
		return pick("null", "true", "false")
	case 1, 2, 3:
		return pick("0", "1", "2", "3", "-1", "1.5", "0.25", "-2", "6", "-1.5", "-0.25", "4", "10")
	case 4, 5, 6:
		return pick(`""`, `"a"`, `"b"`, `"ab"`, `"ba"`, `"abab"`, `"\""`, `"é"`, `"\n"`)
	case 7:
		var list []string
		for range r.IntN(4) {
			list = append(list, randomInstance(r, depth-1))
		}
		return `[` + strings.Join(list, ",") + `]`
	}
	var list []string
	for _, k := range []string{"a", "b", "c", "ab", "d"} {
		if r.IntN(5) < 2 {
			list = append(list, `"`+k+`":`+randomInstance(r, depth-1))
		}
	}
	return `{` + strings.Join(list, ",") + `}`
}

// A random schema is refused, or its grammar has exactly the instances that
// are valid, in some order of their keys.
func TestRandomSchemas(t *testing.T) {
	refused, held, taken := 0, 0, 0
	for seed := range uint64(1000) {
		checkRandomSchema(t, seed, &refused, &held, &taken)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of 1000 refused; %d instances, %d of them valid", refused, held, taken)
	if refused > 300 || taken < held/5 {
		t.Error("the schemas say too little")
	}
}

func checkRandomSchema(t *testing.T, seed uint64, refused, held, taken *int) {
	r := rand.New(rand.NewPCG(seed, 1))
	text := randomSchema(r, 3)
	if text[0] == '{' {
		text = strings.TrimSuffix(text, "}")
		if text != "{" {
			text += ","
		}
		text += `"$defs":{"x":` + randomSchema(r, 2) + `}}`
	}
	g, _, err := Grammar(grammar.NewBuilder(grammar.DefaultLimits()), text, Options{})
	if err != nil {
		if refusal := (*Refusal)(nil); !errors.As(err, &refusal) || !standsAt(text, refusal) {
			t.Errorf("seed %d: %s: %v", seed, text, err)
		}
		*refused++
		return
	}
	l := DefaultLimits()
	s, refusal := decode(text, &l)
	if refusal != nil {
		t.Fatal(refusal)
	}
	defer func() {
		depth = 0
		if p := recover(); p != nil && p != errCycle {
			panic(p)
		}
	}()
	a := g.NewAutomaton()
	for range 40 {
		instance := randomInstance(r, 3)
		x, refusal := decode(instance, &l)
		if refusal != nil {
			t.Fatal(refusal)
		}
		*held++
		want := valid(s, s, x)
		if want {
			*taken++
		}
		if got := acceptsInSomeOrder(t, a, instance, text); got != want {
			t.Errorf("seed %d: %s\ninstance %s: accepted %v, valid %v", seed, text, instance, got, want)
			return
		}
	}
}
