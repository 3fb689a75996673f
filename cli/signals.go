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
// Where reload is not nil, SIGHUP calls it instead. Only where the terminal of the
// process went away, which sends SIGHUP too, it ends the context as before.
//
// It also ignores SIGPIPE: the process lives on when a reader of its output goes away.
func untilSignal(cleanUp, reload func()) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	terminal := hasTerminal()
	next := func() os.Signal { // the next signal that is meant to end the process
		for {
			s := <-signals
			if s != syscall.SIGHUP || reload == nil || terminal && !hasTerminal() {
				return s
			}
			reload()
		}
	}
	go func() { // lives as long as the process
		cancel(errors.New(next().String()))
		second := next()
		cleanUp()
		os.Exit(128 + int(second.(syscall.Signal)))
	}()
	return ctx, func() { cancel(nil) }
}

// hasTerminal reports whether the process has a terminal that can still be opened.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
