package cli

import (
	"flag"
	"fmt"
	"strings"
)

// oneModel parses the arguments of a command for one model and finds its path.
func (c *console) oneModel(set *flag.FlagSet, args []string) (path string, err error) {
	rest, err := c.parse(set, args)
	if err != nil {
		return "", err
	}
	if len(rest) != 1 {
		command, _, _ := strings.Cut(set.Name(), " MODEL")
		return "", usageError(fmt.Sprintf("%s needs one model; it got %d arguments; write forebay %s", command, len(rest), set.Name()))
	}
	ctx, stop := untilInterrupted()
	defer stop()
	return c.modelPath(ctx, rest[0])
}
