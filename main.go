// Forebay is an LLM inference sidecar: a gateway that speaks the OpenAI API on
// localhost, and an engine that runs a model on this machine.
//
// The commands are in cli. Only this package reads the arguments and
// the environment, the switches of the kernels excepted.
package main

import (
	"os"

	"github.com/forebay-io/forebay/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
