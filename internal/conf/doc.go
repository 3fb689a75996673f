// Package conf turns one struct of documented structs into configuration: its
// tags give the defaults, the YAML keys, the environment variables, the flags
// and the reference page.
//
// A field has these tags:
//
//   - yaml: its key, with the unit at the end. A field without it is not
//     configuration;
//   - default: the default as text;
//   - help: one sentence with the unit;
//   - oneof: the texts that are allowed, separated by spaces;
//   - once: true where two flags that differ are a mistake;
//   - range: the bounds of a number, as "1..128", "1.." or "..1s";
//   - secret: "true" where the value is shown as … and never passed on to another
//     process.
//
// Its type is string, bool, int, int64, float64, time.Duration, a nested struct,
// []string or []struct. Whole numbers whose key ends in _bytes or _bytes_max are
// also read and printed as 64KiB, 8MiB, 2GiB.
//
// The first key of a list's struct is the name of the element; each element must
// have one, and all names differ. A list replaces the whole list of a weaker
// source. As a variable or flag it is one text, as YAML writes it on one line:
//
//	--admission.tenants '[{name: a, keys: [k]}, {name: b}]'
//
// The key gateway.body_bytes_max gives the variable
// FOREBAY_GATEWAY_BODY_BYTES_MAX and the flag --gateway.body_bytes_max. A flag is
// stronger than the environment, the environment than the file, and the file than
// the default.
//
//	var c Config
//	s := conf.Of(&c)
//	given := s.Flags(flagSet, map[string]string{"listen": "gateway.listen"})
//	flagSet.Parse(args)
//	err := s.Load(conf.Source{FileName: name, File: text, Environ: os.Environ(), Flags: given})
//
// Zero means default. So an explicit zero (0, "" or 0s) is an error in a field with
// another default. A field whose zero has a meaning of its own has no default and
// says so in its help. A bool never defaults to true, since nobody could turn it
// off. An environment variable that is set but empty counts as not set. No number
// may be negative.
//
// Goal: all mistakes are reported at once, each with its place, the key and what is
// allowed. What no tag can say, a struct checks in a method Mistakes() error, which
// is called once the struct is filled; its error names the key.
//
// Not a goal: to know any particular struct. The packages own their Config, and the
// commands compose them.
//
// Ownership: a Schema points into the struct that it was made of. One goroutine
// uses both until the struct is loaded.
package conf
