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

	ConnectionsMax    int           `yaml:"connections_max" default:"16" range:"1.." help:"Gateways that may be connected at once."`
	SequencesMax      int           `yaml:"sequences_max" default:"1024" range:"1.." help:"Live generations of one connection; more are refused as overloaded."`
	PreparesMax       int           `yaml:"prepares_max" default:"1024" range:"1.." help:"Prompts of one connection that are prepared or wait for it; more are refused as overloaded."`
	FrameBytesMax     int           `yaml:"frame_bytes_max" default:"33554432" range:"64KiB.." help:"Largest frame in either direction, in bytes."`
	OutgoingBytesMax  int           `yaml:"outgoing_bytes_max" default:"67108864" range:"1.." help:"Bytes of prepared prompts that may wait to be written before the connection is cut."`
	HelloTimeout      time.Duration `yaml:"hello_timeout" default:"2s" range:"1ms.." help:"Longest time for a new connection to say hello."`
	WriteTimeout      time.Duration `yaml:"write_timeout" default:"5s" range:"1ms.." help:"Longest time for one write before a gateway that does not read is cut."`
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval" default:"100ms" range:"1ms..1s" help:"Longest time between two state reports."`
}

// Serve offers engine to every connection that ln accepts, until ctx ends or
// accepting fails for good. Then it closes ln and every connection, cancels
// their work, and waits until that has ended.
func Serve(ctx context.Context, ln net.Listener, engine Engine, cfg ServerConfig) error {
	defer ln.Close()
	if err := conf.Complete("engine_socket", &cfg); err != nil {
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
		if err != nil { // no descriptors or memory at the moment
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
			refuse(conn, Errorf(Overloaded, "the engine already has its %d connections: raise connections_max", cfg.ConnectionsMax))
		}
	}
}

// refuse says why and closes. A new socket's buffer has room for so small a
// frame; the deadline is for sockets that have been written to.
func refuse(conn net.Conn, err *Error) {
	conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	conn.Write(appendRefuseFrame(nil, err))
	conn.Close()
}
