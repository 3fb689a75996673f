package xds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// Take makes a policy hold, as a whole, or says why not and changes nothing.
type Take func([]conf.File) error

// Client follows a control plane.
type Client struct {
	// Fixed at construction.
	cfg  Config
	boot *Bootstrap
	take Take
	log  *slog.Logger
	dial dial
	// health is what the control plane is told, nil for nothing. It is set before Run.
	health  func() Health
	sending sync.Mutex // held while anything is sent

	holding  sync.Mutex // guards what is held, while it is taken too
	book     book
	accepted string        // the version that was taken last
	last     []conf.File   // what was taken last
	noted    chan struct{} // has a token when something may expire sooner

	// Owned by Run: the servers that know no changes.
	sotw map[string]bool

	first     chan struct{} // closed when a policy holds
	firstOnce sync.Once

	mu    sync.Mutex
	state State
	end   func()    // ends the stream, nil before the first
	fresh time.Time // when the control plane was last known to have what holds
}

// Where the policy that holds came from.
const (
	FromNowhere = "none" // no policy holds yet
	FromDisk    = "kept" // it was kept from an earlier run
	FromServer  = "live" // the control plane sent it, or confirmed it
)

// State is how far a client is.
type State struct {
	Source    string
	Server    string // that is connected, "" for none
	Version   string // of the policy that holds
	Files     int
	Expired   []string      // files of that version that do not hold any more
	Stale     time.Duration // since the control plane was last known to have what holds; 0 while it has
	Problem   string        // why the last response was not taken, or why no server is connected
	Refusing  bool          // the last response was not taken
	Taken     uint64
	Refused   uint64
	Connected uint64 // how often a stream was opened
}

// New makes a Client that has not done anything yet. version is the program's.
func New(cfg Config, boot *Bootstrap, version string, take Take, log *slog.Logger) (*Client, error) {
	if err := conf.Complete("xds", &cfg); err != nil {
		return nil, err
	}
	node, err := boot.node(version)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, boot: boot, take: take, log: log, first: make(chan struct{}), noted: make(chan struct{}, 1), sotw: map[string]bool{}}
	c.dial = dialer(node, cfg.BytesMax)
	c.book = book{filesMax: cfg.FilesMax, bytesMax: cfg.BytesMax}
	c.state.Source = FromNowhere
	return c, nil
}

// Warm takes the policy that an earlier run has kept, if there is one.
func (c *Client) Warm() error {
	if c.cfg.StateDir == "" {
		return nil
	}
	c.holding.Lock()
	defer c.holding.Unlock()
	at, ok, err := load(c.cfg.StateDir, c.boot.Node.ID, &c.book)
	if gone := c.book.expire(time.Now()); len(gone) > 0 {
		c.log.Warn("xds: a part of the kept policy has expired meanwhile", "files", gone)
		ok = len(c.book.files) > 0
	}
	if err == nil && ok {
		var files []conf.File
		if files, err = c.book.policy(); err == nil {
			err = c.take(files)
			c.last = files
		}
	}
	if err != nil {
		c.book.files, c.book.version, c.last = nil, "", nil
		return fmt.Errorf("xds.state_dir: the kept policy does not hold: %w", err)
	}
	if ok {
		c.holds(FromDisk, at)
		c.log.Info("xds: the kept policy holds until the control plane answers", "version", c.book.version, "files", len(c.book.files), "age", time.Since(at).Round(time.Second))
	}
	return nil
}

// First is closed once a policy holds.
func (c *Client) First() <-chan struct{} { return c.first }

// State is how far the client is at now.
func (c *Client) State(now time.Time) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	if s.Source != FromNowhere && (s.Server == "" || s.Source == FromDisk || s.Refusing) {
		s.Stale = max(0, now.Sub(c.fresh))
	}
	return s
}

// holds notes that what the book has was taken, and was the control plane's at a time.
func (c *Client) holds(source string, at time.Time) {
	c.accepted = c.book.version
	c.mu.Lock()
	c.state.Source, c.state.Version, c.state.Files = source, c.book.version, len(c.book.files)
	c.state.Problem, c.state.Refusing, c.state.Expired = "", false, nil
	c.fresh = at
	c.mu.Unlock()
	c.firstOnce.Do(func() { close(c.first) })
}

// Health is how requests went since the start.
type Health struct{ Requests, Failed uint64 }

// TellHealth makes Run tell the control plane how requests go, so that it can take back
// a policy that spoils them. Call it before Run.
func (c *Client) TellHealth(read func() Health) { c.health = read }

// tell tells how requests went, each time that it is due and something has changed,
// until ctx ends.
func (c *Client) tell(ctx context.Context, l link) {
	for last, first := (Health{}), true; ; {
		if h := c.health(); h != last || first {
			c.sending.Lock()
			err := l.report(h)
			c.sending.Unlock()
			if err != nil {
				return // the stream has ended, which who receives from it finds out
			}
			last, first = h, false
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.cfg.HealthEach):
		}
	}
}

// Run follows the control plane until ctx ends.
func (c *Client) Run(ctx context.Context) {
	var beside sync.WaitGroup
	beside.Go(func() { c.confirm(ctx) })
	beside.Go(func() { c.expireAll(ctx) })
	defer beside.Wait()
	failures := 0
	for ctx.Err() == nil {
		for i := range c.boot.Servers {
			heard, err := c.follow(ctx, &c.boot.Servers[i])
			if ctx.Err() != nil {
				return
			}
			c.lost(c.boot.Servers[i].URI, err, failures == 0 || heard)
			if heard {
				failures = 0
				break // it was there: the first is asked first again
			}
		}
		wait := backoff(failures, rand.Float64(), c.cfg.RetryMax)
		failures++
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// lost notes that no server is connected. Only the first failure in a row is logged.
func (c *Client) lost(server string, err error, say bool) {
	now := time.Now()
	c.confirmAt(now)
	c.mu.Lock()
	if c.state.Server != "" && c.state.Source == FromServer && !c.state.Refusing {
		c.fresh = now
	}
	c.state.Server = ""
	if !c.state.Refusing {
		c.state.Problem = fmt.Sprintf("%s: %s", server, reason(err))
	}
	c.mu.Unlock()
	if say {
		c.log.Warn("xds: the control plane is not connected; what holds goes on holding", "server", server, "error", reason(err))
	}
}

// follow takes what one server sends until the stream ends. heard tells whether it
// sent anything.
func (c *Client) follow(ctx context.Context, server *BootstrapServer) (heard bool, err error) {
	protocol := c.cfg.Protocol
	if c.sotw[server.URI] {
		protocol = sotwProtocol
	}
	c.holding.Lock()
	c.book.forget()
	have, accepted := c.book.versions(), c.accepted
	c.holding.Unlock()
	l, end, err := c.dial(ctx, server, protocol, have, accepted)
	if err != nil {
		return false, err
	}
	var telling sync.WaitGroup
	defer telling.Wait()
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var silent atomic.Bool
	limit := time.AfterFunc(answerLimit, func() { silent.Store(true); end() })
	defer limit.Stop()
	for {
		nonce, response, err := l.receive()
		limit.Stop()
		switch {
		case err != nil && silent.Load():
			return false, errSilent
		case unknownProtocol(err) && protocol == deltaProtocol && !heard:
			c.sotw[server.URI] = true
			c.log.Info("xds: the control plane does not send changes, and is asked for everything", "server", server.URI)
			end()
			return c.follow(ctx, server)
		case err != nil:
			return heard, err
		}
		if !heard {
			c.connected(server, end)
		}
		version, unnoted, wrong := c.hear(response)
		c.sending.Lock()
		err = l.answer(nonce, version, wrong)
		c.sending.Unlock()
		if err != nil {
			return true, err
		}
		if !heard && c.health != nil {
			telling.Go(func() { c.tell(ctx, l) })
		}
		heard = true
		if unnoted != nil && !l.whole() {
			return false, unnoted // as if it had not answered, so that pauses grow
		}
		c.settle(ctx)
	}
}

// hear notes a response, and makes it hold. unnoted says why it could not be noted, and
// wrong why it does not hold.
func (c *Client) hear(r response) (version string, unnoted, wrong error) {
	c.holding.Lock()
	defer c.holding.Unlock()
	confirms, unnoted := r(&c.book, time.Now())
	wrong = unnoted
	if wrong == nil && !confirms {
		wrong = c.use()
	}
	if wrong != nil {
		c.refuse(wrong)
	}
	select {
	case c.noted <- struct{}{}:
	default:
	}
	return c.book.version, unnoted, wrong
}

// answerLimit is how long a server may take for its first response. One that is there
// and says nothing is as one that is gone.
const answerLimit = 15 * time.Second

var errSilent = fmt.Errorf("it did not answer within %s", answerLimit)

// Again looks at a refused policy once more, since what it did not fit with has
// changed: a new stream begins with what the last one left.
func (c *Client) Again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Refusing && c.end != nil {
		c.end()
	}
}

func (c *Client) connected(server *BootstrapServer, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
	c.state.Server = server.URI
	c.state.Connected++
}

// use makes what the book has hold. The caller holds c.holding.
func (c *Client) use() error {
	files, err := c.book.policy()
	if err != nil {
		return err
	}
	switch {
	case len(files) == 0 && len(c.last) > 0:
		return errNothingLeft
	case slices.EqualFunc(files, c.last, func(a, b conf.File) bool { return a.Name == b.Name && bytes.Equal(a.Text, b.Text) }):
		c.holds(FromServer, time.Now()) // the same: a new stream, or what a refused version is taken back to
		return nil
	}
	if err := c.take(files); err != nil {
		return err
	}
	c.last = files
	c.holds(FromServer, time.Now())
	c.mu.Lock()
	c.state.Taken++
	c.mu.Unlock()
	c.log.Info("xds: a policy was taken", "version", c.book.version, "files", len(files))
	c.keep()
	return nil
}

// keep writes what holds for the next start.
func (c *Client) keep() {
	if c.cfg.StateDir == "" {
		return
	}
	if err := save(c.cfg.StateDir, c.boot.Node.ID, &c.book); err != nil {
		c.log.Error("xds: the policy is not kept for the next start", "error", err)
	}
}

// refuse notes why a response was not taken.
func (c *Client) refuse(wrong error) {
	c.mu.Lock()
	if !c.state.Refusing && c.state.Source == FromServer {
		c.fresh = time.Now()
	}
	again := c.state.Refusing && c.state.Problem == clipLines(wrong)
	c.state.Refused++
	c.state.Refusing, c.state.Problem = true, clipLines(wrong)
	c.mu.Unlock()
	if !again {
		c.log.Error("xds: a policy was refused, what held before goes on holding", "version", c.book.version, "error", wrong)
	}
}

// clipLines is an error in few lines.
func clipLines(err error) string {
	const most = 10
	lines := strings.SplitN(err.Error(), "\n", most+1)
	if len(lines) > most {
		lines[most] = "…"
	}
	return strings.Join(lines, "\n")
}

// settleTime is the least time between two policies, so that a control plane that
// changes its mind without end costs little.
const settleTime = 50 * time.Millisecond

// settle waits until the next response may be looked at.
func (c *Client) settle(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(settleTime):
	}
}

// confirmEach is how often the kept policy is confirmed, and so how far its age may
// be off after the program is killed.
const confirmEach = time.Minute

// confirm notes in the kept policy that the control plane still has it, until ctx ends.
func (c *Client) confirm(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			c.confirmAt(time.Now())
			return
		case <-time.After(confirmEach):
			c.confirmAt(time.Now())
		}
	}
}

func (c *Client) confirmAt(now time.Time) {
	if s := c.State(now); c.cfg.StateDir != "" && s.Source == FromServer && s.Stale == 0 {
		confirmKept(c.cfg.StateDir, now)
	}
}

// ErrNoPolicy ends a start that has neither a policy nor tenants of its own.
var ErrNoPolicy = errors.New("no policy came within xds.first_wait, none is kept in xds.state_dir, and the configuration lists neither tenants nor keys, so that everybody could use this gateway; start the control plane, or list tenants")
