package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/forebay-io/forebay/internal/conf"
)

// newFlagSet returns the flag set of a command; usage is its name and arguments.
func newFlagSet(usage string) *flag.FlagSet {
	set := flag.NewFlagSet(usage, flag.ContinueOnError)
	set.SetOutput(io.Discard) // exitStatus prints mistakes, parse the help
	set.Usage = func() {}
	return set
}

// parse parses flags before, between and after the other arguments, and returns
// the other arguments.
func (c *console) parse(set *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(c.out, "Usage: forebay %s\n\n", set.Name())
			set.SetOutput(c.out)
			set.PrintDefaults()
			return nil, err
		} else if err != nil {
			return nil, flagError(set, err)
		}
		if set.NArg() == 0 {
			return rest, nil
		}
		rest, args = append(rest, set.Arg(0)), set.Args()[1:]
	}
}

// flagError adds the nearest known flag to the error about an unknown one.
func flagError(set *flag.FlagSet, err error) error {
	given, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return usageError(err.Error())
	}
	var names []string
	near := ""
	set.VisitAll(func(f *flag.Flag) {
		names = append(names, f.Name)
		if strings.HasSuffix(f.Name, "."+given) {
			near = f.Name
		}
	})
	if name := conf.Nearest(given, names, min(3, len(given)/3)); name != "" {
		near = name
	}
	if near == "" {
		return usageError(fmt.Sprintf("there is no flag --%s; -h lists them", given))
	}
	return usageError(fmt.Sprintf("there is no flag --%s; did you mean --%s?", given, near))
}
