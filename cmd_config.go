package main

import (
	"errors"
	"fmt"
)

// runConfigCheck reads a configuration as serve would and reports every mistake.
func runConfigCheck(c *console, args []string) error {
	s, err := c.readConfig("check", args)
	if s == nil {
		return err
	}
	trial := &front{cfg: &s.Config, console: c} // its parts check their ranges when built
	defer trial.close()
	if err := errors.Join(err, s.schema.Place(trial.build(c, nil))); err != nil {
		return err
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

// readConfig takes the file from an argument, --config or FOREBAY_CONFIG. What it
// could read comes with an error too; nil is a mistake on the command line.
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
