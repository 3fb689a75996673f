package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that SIGINT, SIGTERM or SIGHUP ends; its cause
// names the signal. A second signal runs cleanUp and ends the process at once.
// SIGHUP stays ignored if it was ignored at the start, as under nohup.
//
// It also ignores SIGPIPE: the process lives on when a reader of its output goes away.
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
