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

type testConfig struct {
	Name    string `yaml:"name" help:"A name."`
	Gateway struct {
		Listen       string        `yaml:"listen" default:"127.0.0.1:8080" help:"Address."`
		BodyBytesMax int           `yaml:"body_bytes_max" default:"1MiB" help:"Bytes."`
		DrainLimit   time.Duration `yaml:"drain_limit" default:"30s" help:"Time."`
		Compat       bool          `yaml:"compat" help:"Whether."`
		Share        float64       `yaml:"share" default:"0.5" help:"Share | part."`
		Limits       struct {
			Waiting int64 `yaml:"waiting_max" help:"Requests; 0 means no limit."`
		} `yaml:"limits"`
		private int
	} `yaml:"gateway"`
	Log struct {
		Level string `yaml:"level" default:"info" oneof:"debug info" help:"Level."`
	} `yaml:"log"`
}

func load(t *testing.T, file string, environ []string, args ...string) (testConfig, *Schema, error) {
	t.Helper()
	var c testConfig
	s := Of(&c)
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	given := s.Flags(set, map[string]string{"listen": "gateway.listen"})
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c, s, s.Load(Source{FileName: "f.yaml", File: []byte(file), Environ: environ, Flags: given})
}

func TestPrecedence(t *testing.T) {
	var c testConfig
	s := Of(&c)
	set := flag.NewFlagSet("", flag.ContinueOnError)
	given := s.Flags(set, map[string]string{"listen": "gateway.listen"})
	set.Parse([]string{"--listen", ":1", "--gateway.compat"})
	err := s.Load(Source{
		FileName: "f.yaml",
		File:     []byte("gateway:\n  listen: :3\n  body_bytes_max: 64KiB\n  drain_limit: 2m\n  limits:\n    waiting_max: 7\n"),
		Environ:  []string{"FOREBAY_GATEWAY_LISTEN=:2", "FOREBAY_GATEWAY_DRAIN_LIMIT=5s", "FOREBAY_NAME=", "HOME=/x", "FOREBAY_PORT_8080_TCP=1"},
		Flags:    given,
	})
	if err != nil {
		t.Fatal(err)
	}
	var want testConfig
	want.Gateway.Listen, want.Gateway.BodyBytesMax, want.Gateway.DrainLimit = ":1", 64<<10, 5*time.Second
	want.Gateway.Compat, want.Gateway.Share, want.Gateway.Limits.Waiting, want.Log.Level = true, 0.5, 7, "info"
	if c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	wantYAML := `# name: ""
gateway:
  listen: ":1"  # from flag --listen
  body_bytes_max: 64KiB  # from f.yaml:3
  drain_limit: 5s  # from environment FOREBAY_GATEWAY_DRAIN_LIMIT
  compat: true  # from flag --gateway.compat
  share: 0.5
  limits:
    waiting_max: 7  # from f.yaml:6
log:
  level: info
`
	if diff := cmp.Diff(wantYAML, s.YAML()); diff != "" {
		t.Error(diff)
	}
	wantArgs := []string{"--gateway.listen=:1", "--gateway.body_bytes_max=64KiB", "--gateway.drain_limit=5s", "--gateway.compat=true", "--gateway.limits.waiting_max=7"}
	if diff := cmp.Diff(wantArgs, s.Args("gateway.")); diff != "" {
		t.Error(diff)
	}
	again, _, err := load(t, s.YAML(), nil)
	if err != nil || again != want {
		t.Errorf("printed YAML reads back as %+v, %v", again, err)
	}
}

func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		environ []string
		args    []string
		want    string
	}{
		"unknown key, near":      {file: "gateway:\n  listn: x\n", want: "f.yaml:2: gateway.listn is not a known key; did you mean gateway.listen?"},
		"unknown key, elsewhere": {file: "\nlisten: x\n", want: "f.yaml:2: listen is not a known key; did you mean gateway.listen?"},
		"unknown section":        {file: "gatewey:\n  listen: x\n", want: "f.yaml:1: gatewey is not a known key; did you mean gateway?"},
		"unknown, far":           {file: "frobnicate: 1", want: "f.yaml:1: frobnicate is not a known key"},
		"kind":                   {file: "gateway: {body_bytes_max: many}", want: `f.yaml:1: gateway.body_bytes_max: "many" is not a number of bytes such as 65536, 64KiB or 2GiB`},
		"overflow":               {file: "gateway: {body_bytes_max: 9999999999GiB}", want: `f.yaml:1: gateway.body_bytes_max: "9999999999GiB" does not fit into 64 bits`},
		"duration":               {file: "gateway:\n  drain_limit: 30", want: `f.yaml:2: gateway.drain_limit: "30" is not a duration such as 500ms, 10s or 2m`},
		"zero":                   {file: "gateway:\n  drain_limit: 0s", want: `f.yaml:2: gateway.drain_limit: "0s" is not allowed: leave it out for the default, 30s`},
		"negative":               {file: "gateway:\n  share: -1", want: "f.yaml:2: gateway.share: must not be negative"},
		"not a number":           {file: "gateway:\n  share: .nan", want: `f.yaml:2: gateway.share: ".nan" is not a number`},
		"no value":               {file: "gateway:\n  listen:\n", want: "f.yaml:2: gateway.listen has no value: give one or remove the key"},
		"list":                   {file: "name: [a, b]", want: "f.yaml:1: name must be one plain value"},
		"section is a value":     {file: "gateway: 3", want: "f.yaml:1: gateway must hold keys and values"},
		"file is a list":         {file: "- a\n", want: "f.yaml:1: the file must hold keys and values"},
		"second document":        {file: "name: a\n---\nname: b\n", want: "f.yaml:3: a second YAML document is not allowed"},
		"oneof":                  {file: "log: {level: loud}", want: `f.yaml:1: log.level: "loud" is not one of debug, info`},
		"environment":            {environ: []string{"FOREBAY_GATEWAY_COMPAT=maybe"}, want: `FOREBAY_GATEWAY_COMPAT: "maybe" is not true or false`},
		"environment name":       {environ: []string{"FOREBAY_GATEWAY_LISTN=x"}, want: "FOREBAY_GATEWAY_LISTN is not a known variable; did you mean FOREBAY_GATEWAY_LISTEN?"},
		"flag":                   {args: []string{"--listen", ""}, want: `--listen: "" is not allowed: leave it out for the default, 127.0.0.1:8080`},
		"all at once": {file: "x: 1\ny: 2\n", args: []string{"--log.level", "z"},
			want: "f.yaml:1: x is not a known key\nf.yaml:2: y is not a known key\n" + `--log.level: "z" is not one of debug, info`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(t, c.file, c.environ, c.args...)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

type validated struct {
	Low  int `yaml:"low" default:"1" help:"Low."`
	High int `yaml:"high" default:"5" help:"High."`
}

func (v *validated) Mistakes() error {
	if v.Low > v.High {
		return fmt.Errorf("low is %d, above range.high\nrange.high: %d", v.Low, v.High)
	}
	return nil
}

func TestMistakesSeeFilledStructs(t *testing.T) {
	for file, want := range map[string]string{
		"range: {low: 5}":           "<nil>",
		"range: {low: 6}":           "f:1: range.low is 6, above range.high\nrange.high: 5",
		"range: {low: 6, high: -1}": "f:1: range.high: must not be negative",
		// a mistake elsewhere hides nothing
		"x: 1\nother: {a: z}\nrange: {low: 6}": "f:1: x is not a known key\nf:2: other.a: \"z\" is not a whole number\nf:3: range.low is 6, above range.high\nrange.high: 5",
	} {
		var c struct {
			Range validated `yaml:"range"`
			Other struct {
				A int `yaml:"a" help:"A."`
			} `yaml:"other"`
		}
		if err := Of(&c).Load(Source{FileName: "f", File: []byte(file)}); fmt.Sprint(err) != want {
			t.Errorf("%s: got %v, want %s", file, err, want)
		}
	}
}

type bounded struct {
	Size  int           `yaml:"size_bytes" default:"4KiB" range:"1KiB..1MiB" help:"Size."`
	Wait  time.Duration `yaml:"wait" range:"..1s" help:"Wait; 0 means none."`
	Share float64       `yaml:"share" default:"0.5" range:"0.1.." help:"Share."`
	Form  string        `yaml:"form" default:"a" oneof:"a b" help:"Form."`
	Free  int           `yaml:"free" help:"Free."`
}

func TestRanges(t *testing.T) {
	for file, want := range map[string]string{
		"":                 "<nil>",
		"size_bytes: 1KiB": "<nil>",
		"size_bytes: 1023\nwait: 2s\nshare: 0.05": "f:1: size_bytes: 1023 is out of range; allowed is 1KiB to 1MiB\n" +
			"f:2: wait: 2s is out of range; allowed is at most 1s\nf:3: share: 0.05 is out of range; allowed is 0.1 or more",
		"size_bytes: 2MiB": "f:1: size_bytes: 2MiB is out of range; allowed is 1KiB to 1MiB",
	} {
		var c bounded
		if err := Of(&c).Load(Source{FileName: "f", File: []byte(file)}); fmt.Sprint(err) != want {
			t.Errorf("%s: got %v, want %s", file, err, want)
		}
	}
	if table := Of(new(bounded)).Table(); !strings.Contains(table, "| Size. Allowed: 1KiB to 1MiB. |") {
		t.Errorf("no range in\n%s", table)
	}
}

func TestCompleteChecksWhatNobodyLoaded(t *testing.T) {
	var c bounded
	if err := Complete("x", &c); err != nil || c.Size != 4096 {
		t.Errorf("defaults: %+v, %v", c, err)
	}
	c = bounded{Size: 1, Wait: -1, Form: "c", Free: -2}
	want := "x.size_bytes: 1 is out of range; allowed is 1KiB to 1MiB\nx.wait: -1ns must not be negative\nx.form: \"c\" is not one of a, b\nx.free: -2 must not be negative"
	if err := Complete("x", &c); fmt.Sprint(err) != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestPlace(t *testing.T) {
	_, s, err := load(t, "name: a", []string{"FOREBAY_GATEWAY_COMPAT=1"}, "--listen", ":1")
	if err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"name is taken":           "f.yaml:1: name is taken",
		"gateway.compat: no\nand": "FOREBAY_GATEWAY_COMPAT: gateway.compat: no\nand",
		"gateway.listen is odd":   "--listen: gateway.listen is odd",
		"gateway.listen: is odd":  "--listen: is odd", // the flag says what the key says
		"log.level is odd":        "log.level is odd", // the default
		"something else":          "something else",
	} {
		if got := s.Place(errors.New(words)); got.Error() != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if s.Place(nil) != nil {
		t.Error("no error became one")
	}
}

func TestInvalidYAMLNamesLine(t *testing.T) {
	for _, file := range []string{"name: a\nname: b\n", "name: a\n\t- x", "name: \"a\n", "a: b: c"} {
		_, _, err := load(t, file, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %q, want one line with the file's name", file, err)
		}
		t.Log(err)
	}
}

func TestEmptyFilesAreDefaults(t *testing.T) {
	want, _, _ := load(t, "", nil)
	for _, file := range []string{"# nothing\n", "gateway:\n  # listen: x\n", "---\n"} {
		if got, _, err := load(t, file, nil); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", file, got, err)
		}
	}
	var filled testConfig
	Fill(&filled)
	if filled != want {
		t.Errorf("Fill gives %+v, Load gives %+v", filled, want)
	}
}

func TestTable(t *testing.T) {
	_, s, _ := load(t, "", nil)
	got := s.Table()
	for _, line := range []string{"| `name` |  | A name. |", "### gateway.limits", "| `gateway.body_bytes_max` | `1MiB` | Bytes. |", `| Share \| part. |`, "| Level. One of debug, info. |"} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

func TestOfRefusesOurMistakes(t *testing.T) {
	for name, p := range map[string]any{
		"no help": &struct {
			A int `yaml:"a"`
		}{},
		"true default": &struct {
			A bool `yaml:"a" default:"true" help:"A."`
		}{},
		"method": &validating{},
		"bad default": &struct {
			A int `yaml:"a" default:"x" help:"A."`
		}{},
		"range": &struct {
			A int `yaml:"a" range:"1-5" help:"A."`
		}{},
		"default out of range": &struct {
			A int `yaml:"a" default:"7" range:"1..5" help:"A."`
		}{},
		"kind": &struct {
			A []int `yaml:"a" help:"A."`
		}{},
		"same variable": &struct {
			A string `yaml:"a_b" help:"A."`
			B struct {
				C string `yaml:"b" help:"C."`
			} `yaml:"a"`
		}{},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			Of(p)
		})
	}
}

func FuzzLoadFile(f *testing.F) {
	f.Add("gateway:\n  listen: x\n  limits: {waiting_max: 3}\n")
	f.Add("a: &x [1]\nb: *x\n? c\n: d\n!!str e: |\n  f\n")
	f.Fuzz(func(t *testing.T, file string) {
		var c testConfig
		Of(&c).Load(Source{FileName: "f", File: []byte(file)})
	})
}

type validating struct {
	A int `yaml:"a" help:"A."`
}

func (*validating) Validate() error { return nil }

// A flag that counts once may be repeated, but not with another value, nor under
// another name.
func TestFlagsThatCountOnce(t *testing.T) {
	for args, want := range map[string]string{"-a x": "", "-a x -a x": "", "-a x -b.a x": "", "-a x -a y": "given twice", "-b.a x -a y": "given twice", "-b.c x -b.c y": ""} {
		c := struct {
			B struct {
				A string `yaml:"a" once:"true" help:"A."`
				C string `yaml:"c" help:"C."`
			} `yaml:"b"`
		}{}
		s := Of(&c)
		set := flag.NewFlagSet("x", flag.ContinueOnError)
		set.SetOutput(io.Discard)
		s.Flags(set, map[string]string{"a": "b.a"})
		if err := set.Parse(strings.Fields(args)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
