package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// ServerConfig configures Serve.
type ServerConfig struct {
	Version string `yaml:"-"` // of this binary, told to the gateway

	ConnectionsMax    int           `yaml:"connections_max" default:"16" help:"Gateways that may be connected at once."`
	SequencesMax      int           `yaml:"sequences_max" default:"1024" help:"Live generations of one connection; more are refused as overloaded."`
	PreparesMax       int           `yaml:"prepares_max" default:"1024" help:"Prompts of one connection that are prepared or wait for it; more are refused as overloaded."`
	FrameBytesMax     int           `yaml:"frame_bytes_max" default:"33554432" help:"Largest frame in either direction, in bytes."`
	OutgoingBytesMax  int           `yaml:"outgoing_bytes_max" default:"67108864" help:"Bytes of prepared prompts that may wait to be written before the connection is cut."`
	HelloTimeout      time.Duration `yaml:"hello_timeout" default:"2s" help:"Longest time for a new connection to say hello, as a duration."`
	WriteTimeout      time.Duration `yaml:"write_timeout" default:"5s" help:"Longest time for one write before a gateway that does not read is cut, as a duration."`
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval" default:"100ms" help:"Longest time between two state reports, as a duration of at most 1s."`
}

// Validate says what is out of range in a filled ServerConfig.
func (c *ServerConfig) Validate() error {
	switch {
	case min(c.ConnectionsMax, c.SequencesMax, c.PreparesMax, c.OutgoingBytesMax) < 1:
		return errors.New("engine_socket.connections_max, sequences_max, prepares_max and outgoing_bytes_max must be at least 1")
	case c.FrameBytesMax < frameBytesLeast:
		return fmt.Errorf("engine_socket.frame_bytes_max must be at least %d, not %d", frameBytesLeast, c.FrameBytesMax)
	case min(c.HelloTimeout, c.WriteTimeout) < 0:
		return errors.New("engine_socket.hello_timeout and write_timeout must be positive")
	case c.HeartbeatInterval < 0 || c.HeartbeatInterval > time.Second:
		return fmt.Errorf("engine_socket.heartbeat_interval must be in (0s,1s], not %v", c.HeartbeatInterval)
	}
	return nil
}

// Serve offers engine to every connection that ln accepts, until ctx ends
// or accepting fails for good. It closes ln and every connection, cancels
// their work, and waits for it.
func Serve(ctx context.Context, ln net.Listener, engine Engine, cfg ServerConfig) error {
	defer ln.Close()
	conf.Fill(&cfg)
	if err := cfg.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var live sync.WaitGroup
	defer live.Wait()
	defer cancel()
	undo := context.AfterFunc(ctx, func() { ln.Close() })
	defer undo()
	places := make(chan struct{}, cfg.ConnectionsMax)
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("engine server: %w", err)
		}
		if err != nil { // out of descriptors or memory, which passes
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		select {
		case places <- struct{}{}:
			live.Go(func() {
				serveConnection(ctx, conn, engine, &cfg)
				<-places
			})
		default:
			refuse(conn, Errorf(Overloaded, "the engine has its %d connections already: raise connections_max", cfg.ConnectionsMax))
		}
	}
}

// refuse says why and closes. A fresh socket's buffer takes so small a
// frame at once; the deadline is for those that are not fresh.
func refuse(conn net.Conn, err *Error) {
	conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	conn.Write(appendRefuseFrame(nil, err))
	conn.Close()
}
