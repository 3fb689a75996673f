package wire

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// Config configures a Client.
type Config struct {
	Path    string `yaml:"path" help:"Path of the engine's Unix socket, at most 107 bytes."`
	Version string `yaml:"-"` // of this binary, told to the engine

	WindowEvents     int           `yaml:"window_events" default:"256" range:"1.." help:"Events of one generation that may wait for their reader before the generation parks."`
	FrameBytesMax    int           `yaml:"frame_bytes_max" default:"33554432" range:"64KiB.." help:"Largest frame in either direction, in bytes."`
	OutgoingBytesMax int           `yaml:"outgoing_bytes_max" default:"67108864" range:"1.." help:"Bytes that may wait to be written to the engine before requests are refused as overloaded."`
	DialTimeout      time.Duration `yaml:"dial_timeout" default:"2s" range:"1ms.." help:"Longest time to connect and say hello."`
	WriteTimeout     time.Duration `yaml:"write_timeout" default:"10s" range:"1ms.." help:"Longest time for one write before the engine counts as gone."`
	SilenceMax       time.Duration `yaml:"silence_max" default:"10s" range:"1ms.." help:"Longest silence before the engine counts as gone."`
	ReconnectMin     time.Duration `yaml:"reconnect_min" default:"20ms" range:"1ms.." help:"First wait before connecting again; it doubles until a connection lasts."`
	ReconnectMax     time.Duration `yaml:"reconnect_max" default:"1s" range:"1ms.." help:"Longest wait before connecting again."`

	// OnState, where set, is called with every new State, in order, the first
	// from NewClient. It must not block and must not call Close.
	OnState func(*State) `yaml:"-"`
}

// frameBytesLeast has room for the state of any step and for a hello. The range
// tags of FrameBytesMax say the same.
const frameBytesLeast = 64 << 10

// Client is an Engine at the other end of a Unix socket. It connects by itself, and
// connects again after each end of a connection, until Close.
type Client struct {
	cfg   Config
	dial  func(context.Context) (net.Conn, error)
	stop  context.CancelFunc
	done  chan struct{}
	state atomic.Pointer[State]
	steps *StepLog

	mu      sync.Mutex
	session *session      // nil while there is no connection
	why     *Error        // why there is none
	ready   chan struct{} // closed while State().Err is nil
	isReady bool
}

// NewClient starts to connect and returns at once.
func NewClient(cfg Config) (*Client, error) {
	if err := conf.Complete("socket", &cfg); err != nil {
		return nil, err
	}
	if err := checkPath(cfg.Path); err != nil {
		return nil, fmt.Errorf("engine socket: %w", err)
	}
	return newClient(cfg, func(ctx context.Context) (net.Conn, error) { return dialPath(ctx, cfg.Path) }), nil
}

func newClient(cfg Config, dial func(context.Context) (net.Conn, error)) *Client {
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{cfg: cfg, dial: dial, stop: stop, done: make(chan struct{}), ready: make(chan struct{}), steps: NewStepLog(StepLogSteps)}
	c.down(Errorf(Unavailable, "the engine is starting: not connected yet"))
	go c.run(ctx)
	return c
}

// Close ends the connection and every live stream, and waits for the client's
// goroutines.
func (c *Client) Close() error {
	c.stop()
	<-c.done
	return nil
}

// State implements Engine.
func (c *Client) State() *State { return c.state.Load() }

// WaitReady waits until the engine can serve. Where ctx or the client ends first,
// the error says why the engine cannot serve.
func (c *Client) WaitReady(ctx context.Context) error {
	for {
		c.mu.Lock()
		ready, isReady := c.ready, c.isReady
		c.mu.Unlock()
		if isReady {
			return nil
		}
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			if err := c.State().Err; err != nil {
				return err
			}
		case <-c.done:
			return c.State().Err
		}
	}
}

// Prepare implements Engine.
func (c *Client) Prepare(ctx context.Context, r *Request) (*Prompt, error) {
	s, err := c.current()
	if err != nil {
		return nil, err
	}
	return s.prepare(ctx, r)
}

// TraceLaunches implements LaunchTracer.
func (c *Client) TraceLaunches(ctx context.Context, steps int, limit time.Duration) (*LaunchTrace, error) {
	s, err := c.current()
	if err != nil {
		return nil, err
	}
	return s.traceLaunches(ctx, steps, limit)
}

// Generate implements Engine.
func (c *Client) Generate(g *Generation) *Stream {
	s, err := c.current()
	if err != nil {
		return FailedStream(g.Notify, err)
	}
	return s.generate(g)
}

func (c *Client) current() (*session, *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil, c.why
	}
	return c.session, nil
}

// run connects, serves the connection, and repeats this until ctx ends.
func (c *Client) run(ctx context.Context) {
	defer close(c.done)
	backoff := c.cfg.ReconnectMin
	for ctx.Err() == nil {
		began := time.Now()
		s, err := c.connect(ctx)
		if err == nil {
			s.serve(ctx)
		} else {
			c.down(unavailable("the engine is not reachable", err))
		}
		if err == nil && time.Since(began) >= c.cfg.ReconnectMax { // a shorter connection does not count as a success
			backoff = c.cfg.ReconnectMin
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, c.cfg.ReconnectMax)
	}
	c.down(Errorf(Unavailable, "the engine client is closed"))
}

// connect dials and exchanges hellos. When it returns, the session is current.
func (c *Client) connect(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	undo := context.AfterFunc(ctx, func() { conn.Close() })
	reader := newFrameReader(patient{conn, c.cfg.SilenceMax}, c.cfg.FrameBytesMax)
	sent := Monotonic()
	// An engine that refuses at once may have closed already. Its reason can
	// still be read and says more than the error of this write.
	conn.Write(appendJSONFrame(nil, frameHello, &hello{Protocol: protocolVersion, Version: c.cfg.Version, ClockNs: sent}))
	h, err := readHello(reader)
	if err == nil {
		err = asError(checkClock(sent, h.ClockNs, Monotonic()))
	}
	if err == nil && h.State == nil {
		err = Errorf(Protocol, "the engine's hello has no state")
	}
	if err == nil && !h.State.Cost.Valid() {
		err = Errorf(Protocol, "the cost in the engine's hello, %+v, is negative or not finite", h.State.Cost)
	}
	if !undo() {
		err = Errorf(Unavailable, "it accepts connections but said no hello within %v: it may be loading its model", c.cfg.DialTimeout)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	s := newSession(c, conn, reader, h.State.Model)
	c.mu.Lock()
	c.session = s
	c.mu.Unlock()
	c.publish(h.State)
	return s, nil
}

// asError makes a nil error of a nil *Error.
func asError(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

// unavailable is the error for callers after a connection that failed with err.
func unavailable(what string, err error) *Error {
	e := *lost(err)
	if e.Kind == Protocol {
		what += ": protocol error"
	}
	e.Kind, e.Message = Unavailable, what+": "+e.Message
	return &e
}

// down makes why, with a time to try again, the answer to all calls until the next
// connection.
func (c *Client) down(why *Error) {
	if why.RetryAfter == 0 {
		why.RetryAfter = time.Second
	}
	s := &State{Err: why, At: Monotonic()}
	if last := c.state.Load(); last != nil {
		s.Model = last.Model
	}
	c.mu.Lock()
	c.session, c.why = nil, why
	c.mu.Unlock()
	c.publish(s)
}

// publish makes s the State. Only NewClient and the goroutine of run call it.
func (c *Client) publish(s *State) {
	s.Steps = c.steps
	c.state.Store(s)
	c.mu.Lock()
	if isReady := s.Err == nil; isReady != c.isReady {
		c.isReady = isReady
		if isReady {
			close(c.ready)
		} else {
			c.ready = make(chan struct{})
		}
	}
	c.mu.Unlock()
	if c.cfg.OnState != nil {
		c.cfg.OnState(s)
	}
}
