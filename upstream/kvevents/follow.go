package kvevents

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/forebay-io/forebay/upstream/zmtp"
)

// Config says where a server publishes its events.
type Config struct {
	Events string // address of its PUB socket: tcp://HOST:PORT or ipc:///PATH
	Replay string // address of its ROUTER socket, which gives events again; "" for none

	BlocksMax       int           // blocks that are remembered
	MessageBytesMax int           // bytes of a message
	ConnectLimit    time.Duration // to connect, and between two events that are given again
	Again           time.Duration // until it is connected to once more
	Settle          time.Duration // in which a subscription has surely come; 0 is a second

	Log *slog.Logger // with the server's name
}

// Follower follows the events of one server.
type Follower struct {
	cfg Config

	mu   sync.Mutex
	view view
	live bool   // events come, and none is missing since the view began
	gaps uint64 // times that all was forgotten, or asked for again

	// For Run alone:
	next  uint64 // number of the next batch
	begun bool   // next and last are known
	last  uint64 // hash of the batch before next
	// warned says that the operator was told of what is wrong with the events.
	warned bool
}

// Report is what is known of a server's cache, for people.
type Report struct {
	Live   bool // events come
	Whole  bool // all that it holds is known
	Blocks int
	Tokens int    // of a block; 0 for not known yet
	Gaps   uint64 // times that events were missed, or that the server was started anew
	Left   uint64 // blocks that there was no room for
}

// New makes a Follower; Run follows.
func New(cfg Config) *Follower {
	f := &Follower{cfg: cfg}
	f.view.most = cfg.BlocksMax
	f.view.clear(false)
	return f
}

// Report says what is known now.
func (f *Follower) Report() Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &f.view
	return Report{f.live, f.live && v.whole, len(v.theirs), v.size, f.gaps, v.left}
}

// BlockTokens is how many tokens the server's blocks have, 0 for not known.
func (f *Follower) BlockTokens() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view.size
}

// Match is how many tokens of a prompt are held, by the one of its chains that has the
// shape of the server's blocks. With whole false there may be more.
func (f *Follower) Match(chains []Chain, salted bool) (tokens int, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &f.view
	switch {
	case !f.live:
		return 0, false
	case v.size == 0: // nothing is held, or nothing is known
		return 0, v.whole
	}
	for i := range chains {
		if c := &chains[i]; c.Shape == (Shape{v.size, salted}) {
			return v.match(c.Keys) * v.size, v.whole && (!salted || v.salts)
		}
	}
	return 0, false
}

// Run follows the events until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	told := ""
	for ctx.Err() == nil {
		err := f.listen(ctx, func() { told, f.warned = "", false })
		f.lost()
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != told {
			told = text
			f.cfg.Log.Warn("the upstream's events of its cache do not come; what it holds is guessed by what it was sent", "events", f.cfg.Events, "reason", text)
		}
		select {
		case <-ctx.Done():
		case <-time.After(f.cfg.Again):
		}
	}
}

// warn tells the operator of something once for each connection.
func (f *Follower) warn(text string, number uint64) {
	if !f.warned {
		f.warned = true
		f.cfg.Log.Warn(text, "events", f.cfg.Events, "number", number)
	}
}

// lost ends the view of a publisher that cannot be heard: it may have been started anew.
// Where events can be given again it is kept until that is known.
func (f *Follower) lost() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = false
	if f.cfg.Replay == "" {
		f.forget(false)
	}
}

// forget clears the view and what was known of the numbers. The caller holds mu.
func (f *Follower) forget(whole bool) {
	f.view.clear(whole)
	f.begun, f.next, f.last = false, 0, 0
}

// Network splits an address such as tcp://HOST:PORT or ipc:///PATH.
func Network(address string) (network, to string, err error) {
	if path, ok := strings.CutPrefix(address, "ipc://"); ok && strings.HasPrefix(path, "/") {
		return "unix", path, nil
	}
	if to, ok := strings.CutPrefix(address, "tcp://"); ok && strings.Contains(to, ":") {
		return "tcp", to, nil
	}
	return "", "", fmt.Errorf("%q is not an address such as tcp://HOST:5557 or ipc:///PATH", address)
}

// dial connects to one of the two sockets.
func (f *Follower) dial(ctx context.Context, address string, kind zmtp.Kind) (*zmtp.Conn, error) {
	network, to, err := Network(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ConnectLimit)
	defer cancel()
	return zmtp.Dial(ctx, network, to, kind, f.cfg.MessageBytesMax)
}

// listen hears the publisher until the connection ends, and returns why it did.
func (f *Follower) listen(ctx context.Context, connected func()) error {
	c, err := f.dial(ctx, f.cfg.Events, zmtp.Sub)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := c.Subscribe(""); err != nil {
		return err
	}
	// What is published from here on waits in the connection.
	if f.cfg.Replay != "" {
		if err := f.catchUp(ctx); err != nil {
			return fmt.Errorf("the events before cannot be had again (kv_replay): %w", err)
		}
	}
	connected()
	f.cfg.Log.Info("the upstream's events of its cache are followed", "events", f.cfg.Events)
	if err := f.settle(ctx, c); err != nil {
		return err
	}
	again := f.next // numbers below are those that were given again
	for {
		frames, err := c.Receive()
		if err != nil {
			return err
		}
		number, payload, err := parts(frames)
		switch {
		case err != nil:
			return err
		case f.begun && number < again:
			continue
		case f.begun && number != f.next:
			f.warn("events of the upstream's cache were missed", f.next)
			if err := f.mend(ctx); err != nil {
				return err
			}
			if again = f.next; f.begun && number < again {
				continue
			}
		}
		f.take(number, payload)
		f.mu.Lock()
		f.live = true
		f.mu.Unlock()
	}
}

// settle asks once more for what was published while the subscription was on its way. That
// is in neither the connection nor what was given again before. If something comes
// meanwhile, its number tells.
func (f *Follower) settle(ctx context.Context, c *zmtp.Conn) error {
	if f.cfg.Replay == "" {
		return nil
	}
	some, err := c.Wait(time.Now().Add(cmp.Or(f.cfg.Settle, time.Second)))
	if some || err != nil {
		return err
	}
	return f.catchUp(ctx)
}

// parts are the number and the payload of a message: its last two frames. A topic may be
// before them, and some replays have none.
func parts(frames [][]byte) (number uint64, payload []byte, err error) {
	if len(frames) < 2 || len(frames[len(frames)-2]) != 8 {
		return 0, nil, errors.New("its messages have no number: they are not events of a cache")
	}
	return binary.BigEndian.Uint64(frames[len(frames)-2]), frames[len(frames)-1], nil
}

// mend makes up for missed events: they are had again, or all is forgotten.
func (f *Follower) mend(ctx context.Context) error {
	f.mu.Lock()
	f.gaps++
	f.live = false
	if f.cfg.Replay == "" {
		f.forget(false)
	}
	f.mu.Unlock()
	if f.cfg.Replay == "" {
		return nil
	}
	return f.catchUp(ctx)
}

// take applies the batch with a number, and goes on after it.
func (f *Follower) take(number uint64, payload []byte) {
	f.mu.Lock()
	if !f.begun || f.next != number {
		// The first that is heard, or what is before it cannot be had any more.
		f.forget(number == 0)
	}
	f.begun, f.next, f.last = true, number+1, maphash.Bytes(seed, payload)
	f.mu.Unlock()
	ok := true
	err := eachEvent(payload, func(e *event) bool {
		f.mu.Lock() // for each alone: nobody waits for a large batch
		defer f.mu.Unlock()
		ok = f.view.apply(e)
		return ok
	})
	if err == nil && ok {
		return
	}
	// What it said is not known, so nothing is.
	f.mu.Lock()
	f.gaps++
	f.view.clear(false)
	f.mu.Unlock()
	f.warn("events of the upstream's cache cannot be read; what it held is forgotten", number)
}

// endOfReplay is the number of the message after the last that is given again.
const endOfReplay = ^uint64(0)

// catchUp asks for the batches that were not heard. It asks from the last that was, so that a
// publisher which was started anew is known by it. A publisher drops what is given again
// too fast for the connection, so it is asked again while more comes.
func (f *Follower) catchUp(ctx context.Context) error {
	for {
		from, before := uint64(0), f.next
		if f.next > 0 {
			from = f.next - 1
		}
		same, err := f.replay(ctx, from)
		switch {
		case err != nil && (f.next <= before || ctx.Err() != nil):
			return err
		case err != nil:
			continue
		}
		f.mu.Lock()
		if before == 0 || same {
			if !f.begun { // it has published nothing yet
				f.begun, f.view.whole = true, true
			}
			f.live = true
			f.mu.Unlock()
			return nil
		}
		f.gaps++
		f.forget(false)
		f.mu.Unlock()
	}
}

var errHole = errors.New("events are missing among those that are given again")

// replay takes in the batches from a number on. same is false where the first is not that
// which was heard before under its number.
func (f *Follower) replay(ctx context.Context, from uint64) (same bool, err error) {
	c, err := f.dial(ctx, f.cfg.Replay, zmtp.Dealer)
	if err != nil {
		return false, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return false, err
	}
	known := f.next > 0
	for {
		c.SetReadDeadline(time.Now().Add(f.cfg.ConnectLimit))
		frames, err := c.Receive()
		if err != nil {
			return same, err
		}
		number, payload, err := parts(frames)
		switch {
		case err != nil:
			return same, err
		case number == endOfReplay:
			return same, nil
		case known && !same:
			if number != from || maphash.Bytes(seed, payload) != f.last {
				return false, nil
			}
			same = true
		case f.begun && number < f.next:
		case f.next > 0 && number > f.next:
			return same, errHole
		default:
			f.take(number, payload)
		}
	}
}
