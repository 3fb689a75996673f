package cli

import (
	"fmt"

	"github.com/forebay-io/forebay/gateway/identity"
)

// runConfigCheck reads a configuration as serve would and reports every mistake.
func runConfigCheck(c *console, args []string) error {
	s, err := c.readConfig("check", args)
	if err != nil {
		return err
	}
	if _, err := c.bootstrap(s.XDS); err != nil {
		return s.schema.Place(err)
	}
	if err := identity.Check(s.Identity, s.Admission); err != nil {
		return s.schema.Place(err)
	}
	_, err = fmt.Fprintln(c.out, "the configuration is valid")
	return err
}

func runConfigPrint(c *console, args []string) error {
	s, err := c.readConfig("print", args)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.out, s.schema.YAML())
	return err
}

// readConfig takes the file from an argument, --config or FOREBAY_CONFIG.
func (c *console) readConfig(verb string, args []string) (*settings, error) {
	set := newFlagSet("config " + verb + " [FILE] [flags]")
	s := c.settings(set)
	files, err := c.parse(set, args)
	if err != nil {
		return nil, err
	}
	if len(files) > 1 {
		return nil, usageError("config " + verb + " takes one file")
	}
	if len(files) == 1 {
		*s.path = files[0]
	}
	return s, c.load(s)
}
