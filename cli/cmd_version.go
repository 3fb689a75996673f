package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is reported by /version and in the hello between the processes.
// Releases set it with -ldflags "-X github.com/forebay-io/forebay/cli.version=…".
var version = "0.1.0-dev"

func runVersion(c *console, args []string) error {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value
			}
		}
	}
	_, err := fmt.Fprintf(c.out, "forebay %s%s %s %s/%s\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
