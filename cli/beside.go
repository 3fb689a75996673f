package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forebay-io/forebay/internal/supervise"
	"github.com/forebay-io/forebay/upstream"
)

// serveBeside runs the gateway before other servers and before an engine of our own,
// which is a whole Forebay in a child process: one upstream more, on a socket that only
// this user may open.
func (c *console) serveBeside(s *settings) error {
	dir, err := makeRunDir(c.runDirParent())
	if err != nil {
		return err
	}
	defer dir.remove()
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program to start the engine: %w", err)
	}
	socket := filepath.Join(dir.path, ownSocketName)
	s.Upstream.Servers = append(s.Upstream.Servers, upstream.Server{Name: upstream.NameOwn, URL: "unix:" + socket, Weight: 1, Use: s.Upstream.OwnEngine, Model: s.Upstream.OwnModelID(), KVEvents: "off"})
	ctx, stop := untilSignal(dir.remove, s.hangUp)
	defer stop()
	child := supervise.New(s.Supervise, supervise.Child{
		Path: func() string { return thisProgram(exe) }, Name: "forebay", Args: s.besideArgs(socket), Env: c.engineEnviron(s.schema),
		Output: c.err, Prefix: "own: ", Log: c.logger(s.Log, "gateway"),
	})
	front, err := openFront(c, s, nil)
	if err != nil {
		return s.schema.Place(err)
	}
	defer front.close()
	childCtx, stopChild := context.WithCancel(context.Background()) // which the gateway's last streams need
	ended := make(chan error, 1)
	go func() { ended <- child.Run(childCtx) }()
	err = front.run(ctx)
	stopChild()
	return errors.Join(err, <-ended)
}

// besideArgs returns the arguments of the Forebay that runs our own engine beside other
// servers. It answers this gateway alone, which has the keys, budgets and records.
func (s *settings) besideArgs(socket string) []string {
	args := []string{
		"serve", "--lifeline", "--listen=off", "--admin=off", "--listen_socket=" + socket, "--drain_limit=" + s.DrainLimit.String(),
		"--telemetry.access_log_off", "--capture.off", "--engine.model=" + s.Engine.Model, "--engine.model_id=" + s.Upstream.OwnModelID(),
	}
	return append(args, s.sectionArgs("engine.", "engine_socket.", "supervise.", "log.")...)
}
