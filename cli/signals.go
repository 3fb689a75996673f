package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that SIGINT, SIGTERM or SIGHUP ends; its cause
// names the signal. A second one ends the process at once, after cleanUp. A
// SIGHUP that was ignored from the start, as by nohup, stays so.
//
// From here on a reader of our outputs that goes away is no reason to die.
func untilSignal(cleanUp func()) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() { // lives as long as the process
		cancel(errors.New((<-signals).String()))
		second := <-signals
		cleanUp()
		os.Exit(128 + int(second.(syscall.Signal)))
	}()
	return ctx, func() { cancel(nil) }
}
