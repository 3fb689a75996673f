// Package conf turns one struct of documented structs into configuration: its
// tags give the defaults, the YAML keys, the environment variables, the flags
// and the reference page.
//
// A field carries the tags yaml (its key, unit last), default (as text) and
// help (one sentence with the unit); oneof lists the texts that it may hold,
// with spaces between; range bounds a number, "1..128", "1.." or "..1s"; what
// has secret:"true" is shown as … and never given to another process. Fields
// without a yaml tag are not configuration. Kinds are string, bool, int, int64,
// float64, time.Duration, nested struct, []string and []struct. Whole numbers
// whose key ends in _bytes or _bytes_max also read and print as 64KiB, 8MiB, 2GiB.
//
// The first key of a list's struct is its name, which each must have and no two
// may share. A list replaces that of a weaker source whole; as variable and flag
// it is one text, as YAML writes it on one line:
//
//	--admission.tenants '[{name: a, keys: [k]}, {name: b}]'
//
// From the key gateway.body_bytes_max follow the variable
// FOREBAY_GATEWAY_BODY_BYTES_MAX and the flag --gateway.body_bytes_max. A flag
// wins over the environment, that over the file, that over the default.
//
//	var c Config
//	s := conf.Of(&c)
//	given := s.Flags(flagSet, map[string]string{"listen": "gateway.listen"})
//	flagSet.Parse(args)
//	err := s.Load(conf.Source{FileName: name, File: text, Environ: os.Environ(), Flags: given})
//
// Zero means default. So an explicit zero (0, "" or 0s) in a field whose
// default is something else is an error, never silently the default; a field
// whose zero has a meaning of its own has no default and says so in its help; a
// bool never defaults to true, since nobody could turn it off. An environment
// variable that is set but empty counts as not set. Nothing may be negative.
//
// Goal: every mistake is reported at once, each with its place, the key and
// what is allowed. A struct with a method Validate() error is asked by it, once
// it is filled, for what no tag can say; its error names the key. Non-goal:
// knowing any struct of ours. The packages own their Config; main composes them.
package conf
