package conf

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type person struct {
	Name   string        `yaml:"name" help:"Name."`
	Keys   []string      `yaml:"keys" secret:"true" help:"Keys."`
	Rooms  []string      `yaml:"rooms" help:"Rooms."`
	Weight float64       `yaml:"weight" range:"0.1..10" default:"1" help:"Weight."`
	Wait   time.Duration `yaml:"wait" help:"Wait."`
	Limits struct {
		Bytes int `yaml:"held_bytes" range:"1.." help:"Bytes."`
		Count int `yaml:"count" help:"Count."`
	} `yaml:"limits"`
	Kind string `yaml:"kind" oneof:"day night" help:"Kind."`
}

func (p *person) Mistakes() error {
	if p.Wait > time.Hour {
		return fmt.Errorf("wait: %v is too long for %s", p.Wait, p.Name)
	}
	return nil
}

type house struct {
	Door struct {
		Code   string   `yaml:"code" secret:"true" help:"Code."`
		People []person `yaml:"people" help:"People, each with the keys below."`
		Tags   []string `yaml:"tags" help:"Tags."`
		Last   int      `yaml:"last" help:"Last."`
	} `yaml:"door"`
}

func loadHouse(file string, environ []string, args ...string) (house, *Schema, error) {
	var h house
	s := Of(&h)
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	given := s.Flags(set, nil)
	if err := set.Parse(args); err != nil {
		return h, s, err
	}
	return h, s, s.Load(Source{FileName: "f.yaml", File: []byte(file), Environ: environ, Flags: given})
}

const houseFile = `door:
  code: "1234"
  people:
    - name: ann
      keys: [k1, "k 2"]
      limits:
        held_bytes: 2MiB
    - name: bob
      weight: 2.5
      rooms:
        - hall
        - "a, b"
      kind: night
  tags: [x]
`

func TestListsAreReadAndPrinted(t *testing.T) {
	h, s, err := loadHouse(houseFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	ann := person{Name: "ann", Keys: []string{"k1", "k 2"}, Weight: 1}
	ann.Limits.Bytes = 2 << 20
	bob := person{Name: "bob", Rooms: []string{"hall", "a, b"}, Weight: 2.5, Kind: "night"}
	if diff := cmp.Diff([]person{ann, bob}, h.Door.People); diff != "" {
		t.Error(diff)
	}
	want := `door:
  code: "…"  # from f.yaml:2
  people:  # from f.yaml:3
    - name: ann  # from f.yaml:4
      keys: ["…", "…"]  # from f.yaml:5
      # rooms: []
      weight: 1
      # wait: 0s
      limits:
        held_bytes: 2MiB  # from f.yaml:7
        # count: 0
      # kind: ""
    - name: bob  # from f.yaml:8
      # keys: []
      rooms: [hall, "a, b"]  # from f.yaml:10
      weight: 2.5  # from f.yaml:9
      # wait: 0s
      limits:
        # held_bytes: 0
        # count: 0
      kind: night  # from f.yaml:13
  tags: [x]  # from f.yaml:14
  # last: 0
`
	if diff := cmp.Diff(want, s.YAML()); diff != "" {
		t.Error(diff)
	}
	if args := s.Args("door."); len(args) != 1 || args[0] != "--door.tags=[x]" {
		t.Errorf("arguments: %q, which must hold no secret", args)
	}
	for _, line := range []string{"Each element of `door.people` holds:", "| `limits.held_bytes` |  | Bytes. Allowed: 1 or more. |", "| `weight` | `1` | Weight. Allowed: 0.1 to 10. |"} {
		if !strings.Contains(s.Table(), line) {
			t.Errorf("no %q in\n%s", line, s.Table())
		}
	}
	again, _, err := loadHouse(s.YAML(), nil)
	if err != nil || len(again.Door.People) != 2 || again.Door.People[1].Weight != 2.5 {
		t.Errorf("what is printed reads back as %+v, %v", again, err)
	}
}

// TestAListOnOneLine: flag and variable hold the whole list, which replaces the
// file's, and the text made from a list reads back as the same list.
func TestAListOnOneLine(t *testing.T) {
	want, s, err := loadHouse(houseFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := s.byKey["door.people"].text()
	const flat = `[{name: ann, keys: [k1, "k 2"], limits: {held_bytes: 2MiB}}, {name: bob, rooms: [hall, "a, b"], weight: 2.5, kind: night}]`
	if text != flat {
		t.Errorf("text is %s", text)
	}
	other := "door: {people: [{name: zoe}, {name: yan}, {name: xia}]}"
	byFlag, _, err := loadHouse(other, []string{"FOREBAY_DOOR_PEOPLE=[{name: eve}]"}, "--door.people", text)
	if diff := cmp.Diff(want.Door.People, byFlag.Door.People); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	byVariable, schema, err := loadHouse(other, []string{"FOREBAY_DOOR_PEOPLE=[{name: eve}]", "FOREBAY_DOOR_TAGS=[a, b]"})
	if err != nil || len(byVariable.Door.People) != 1 || byVariable.Door.People[0].Name != "eve" || len(byVariable.Door.Tags) != 2 {
		t.Errorf("%+v, %v", byVariable, err)
	}
	if yaml := schema.YAML(); !strings.Contains(yaml, "people:  # from environment FOREBAY_DOOR_PEOPLE\n    - name: eve") {
		t.Errorf("printed as\n%s", yaml)
	}
}

func TestListMistakes(t *testing.T) {
	for name, c := range map[string]struct{ file, flag, want string }{
		"unknown key":   {file: "door:\n  people:\n    - name: a\n      wieght: 2\n", want: "f.yaml:4: door.people[0].wieght is not a known key; did you mean door.people[0].weight?"},
		"bad value":     {file: "door:\n  people:\n    - name: a\n    - name: b\n      limits: {count: x}\n", want: `f.yaml:5: door.people[1].limits.count: "x" is not a whole number`},
		"range":         {file: "door:\n  people:\n    - {name: a, weight: 11}\n", want: "f.yaml:3: door.people[0].weight: 11 is out of range; allowed is 0.1 to 10"},
		"zero":          {file: "door:\n  people:\n    - {name: a, weight: 0}\n", want: `f.yaml:3: door.people[0].weight: "0" is not allowed: leave it out for the default, 1`},
		"one of":        {file: "door:\n  people:\n    - {name: a, kind: noon}\n", want: `f.yaml:3: door.people[0].kind: "noon" is not one of day, night`},
		"no name":       {file: "door:\n  people:\n    - name: a\n    - weight: 2\n", want: "f.yaml:4: door.people[1] has no name"},
		"nothing":       {file: "door:\n  people:\n    -\n", want: "f.yaml:3: door.people[0] has no name"},
		"same name":     {file: "door:\n  people:\n    - name: a\n    - name: b\n    - name: a\n", want: `f.yaml:5: door.people[2] has the name "a", as [0] has`},
		"no list":       {file: "door:\n  people: a\n", want: "f.yaml:2: door.people must be a list, such as [{name: a}, {name: b}]"},
		"no struct":     {file: "door:\n  people: [a]\n", want: "f.yaml:2: door.people[0] must hold keys and values\nf.yaml:2: door.people[0] has no name"},
		"texts":         {file: "door:\n  tags: x\n", want: "f.yaml:2: door.tags must be a list, such as [a, b]"},
		"deep":          {file: "door:\n  tags: [[x], '']\n", want: "f.yaml:2: door.tags[0] must be a text that is not empty; put it in quotes if it holds a colon\nf.yaml:2: door.tags[1] must be a text that is not empty; put it in quotes if it holds a colon"},
		"no value":      {file: "door:\n  people:\n", want: "f.yaml:2: door.people has no value: give one or remove the key"},
		"validate":      {file: "door:\n  people:\n    - name: a\n    - name: b\n      wait: 2h\n", want: "f.yaml:5: door.people[1].wait: 2h0m0s is too long for b"},
		"by flag":       {flag: "[{name: a, wait: 3}, {nam: b}]", want: "--door.people: [0].wait: \"3\" is not a duration such as 500ms, 10s or 2m\n--door.people: [1].nam is not a known key; did you mean [1].name?\n--door.people: [1] has no name"},
		"flag text":     {flag: "a", want: "--door.people: must be a list, such as [{name: a}, {name: b}]"},
		"flag empty":    {flag: " ", want: "--door.people: must be a list, such as [{name: a}, {name: b}]"},
		"flag validate": {flag: "[{name: a, wait: 9h}]", want: "--door.people: [0].wait: 9h0m0s is too long for a"},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			if c.flag != "" {
				args = []string{"--door.people", c.flag}
			}
			if _, _, err := loadHouse(c.file, nil, args...); fmt.Sprint(err) != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	if _, _, err := loadHouse("", nil, "--door.people", "[{name: a"); err == nil || !strings.HasPrefix(err.Error(), "--door.people is not a list such as") || strings.Contains(err.Error(), "\n") {
		t.Errorf("an unfinished list: %v", err)
	}
}

// TestPlaceOfAnElement: the error of a check of a whole list names its elements.
func TestPlaceOfAnElement(t *testing.T) {
	_, s, err := loadHouse(houseFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"door.people[1].rooms: no hall":       "f.yaml:10: door.people[1].rooms: no hall",
		"door.people[1].wait: default":        "f.yaml:8: door.people[1].wait: default",
		"door.people[0]: odd":                 "f.yaml:4: door.people[0]: odd",
		"door.people[0].limits.held_bytes: x": "f.yaml:7: door.people[0].limits.held_bytes: x",
		"door.people[9].rooms: none":          "f.yaml:3: door.people[9].rooms: none",
		"door.people[x: none":                 "f.yaml:3: door.people[x: none",
		"nobody[0].rooms: none":               "nobody[0].rooms: none",
	} {
		if got := s.Place(errors.New(words)); got.Error() != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSecretsStayOutOfMistakes(t *testing.T) {
	for _, file := range []string{
		"door: {people: [{name: a, keys: hush}]}", "door: {people: [{name: a, keys: [{b: hush}]}]}", "door: {people: [{name: a, keys: [hush], wait: 2h}]}", "door: {code: [hush]}",
	} {
		if _, _, err := loadHouse(file, nil); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestCompleteChecksLists(t *testing.T) {
	var h house
	h.Door.People = []person{{Name: "a", Weight: 20}, {Name: "a", Kind: "noon"}, {Wait: 2 * time.Hour}}
	const want = "x.door.people[0].weight: 20 is out of range; allowed is 0.1 to 10\nx.door.people[1].kind: \"noon\" is not one of day, night\n" +
		"wait: 2h0m0s is too long for \nx.door.people[1] has the name \"a\", as [0] has\nx.door.people[2] has no name"
	if err := Complete("x", &h); fmt.Sprint(err) != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if h.Door.People[1].Weight != 1 {
		t.Error("the default of an element is missing")
	}
}

func FuzzLoadList(f *testing.F) {
	f.Add(houseFile, "[{name: a, keys: [k]}]")
	f.Add("door: {people: [{}, [], &x a, *x]}", "[")
	f.Fuzz(func(t *testing.T, file, text string) {
		if _, s, err := loadHouse(file, []string{"FOREBAY_DOOR_PEOPLE=" + text}); err == nil {
			again, _, err := loadHouse("", nil, "--door.people="+s.byKey["door.people"].text())
			if err != nil || len(again.Door.People) != s.byKey["door.people"].value.Len() {
				t.Errorf("%q, %q reads back with %v", file, text, err)
			}
		}
	})
}
