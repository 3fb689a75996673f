package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Kind is the kind of this end's socket.
type Kind string

const (
	Sub    Kind = "SUB"
	Dealer Kind = "DEALER"
)

// peers are the kinds of sockets that a kind can talk to.
var peers = map[Kind][]string{Sub: {"PUB", "XPUB"}, Dealer: {"ROUTER", "DEALER", "REP"}}

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

const (
	greetingBytes = 64
	framesMost    = 16      // of a message
	commandMost   = 8 << 10 // bytes of a command, such as READY
)

// Conn is a connection whose handshake is done.
type Conn struct {
	conn   net.Conn
	in     *bufio.Reader
	most   int      // bytes of a message
	buf    []byte   // of the message that was read last
	ends   []int    // of its frames in buf
	frames [][]byte // the same as slices
}

// Dial connects to network ("tcp" or "unix") and address, and shakes hands until ctx
// ends. A message of more than messageBytesMax ends the connection.
func Dial(ctx context.Context, network, address string, kind Kind, messageBytesMax int) (*Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	// Whoever ends ctx ends the handshake too.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	c, err := open(conn, kind, messageBytesMax)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// open shakes hands over conn.
func open(conn net.Conn, kind Kind, messageBytesMax int) (*Conn, error) {
	c := &Conn{conn: conn, in: bufio.NewReaderSize(conn, 16<<10), most: messageBytesMax}
	var ours, theirs [greetingBytes]byte
	ours[0], ours[9], ours[10] = 0xff, 0x7f, 3
	copy(ours[12:], "NULL")
	if _, err := conn.Write(ours[:]); err != nil {
		return nil, err
	}
	// An old peer stops after its signature and version, so these are read first.
	if _, err := io.ReadFull(c.in, theirs[:11]); err != nil {
		return nil, fmt.Errorf("its greeting does not come: %w", err)
	}
	switch {
	case theirs[0] != 0xff || theirs[9]&1 != 1:
		return nil, errors.New("it does not speak ZeroMQ")
	case theirs[10] < 3:
		return nil, errors.New("it speaks ZMTP of a version before 3")
	}
	if _, err := io.ReadFull(c.in, theirs[11:]); err != nil {
		return nil, fmt.Errorf("its greeting breaks off: %w", err)
	}
	if mechanism := bytes.TrimRight(theirs[12:32], "\x00"); string(mechanism) != "NULL" {
		return nil, fmt.Errorf("it asks for the mechanism %.20q; only NULL is understood", mechanism)
	}
	ready := append([]byte("\x05READY\x0bSocket-Type\x00\x00\x00"), byte(len(kind)))
	ready = append(ready, kind...)
	if _, err := conn.Write(append([]byte{flagCommand, byte(len(ready))}, ready...)); err != nil {
		return nil, err
	}
	flags, size, err := c.head()
	if err != nil {
		return nil, fmt.Errorf("it does not become ready: %w", err)
	}
	if flags&flagCommand == 0 || size > commandMost {
		return nil, errors.New("it sends a message before it is ready")
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return nil, fmt.Errorf("it does not become ready: %w", err)
	}
	return c, isReady(body, kind)
}

// isReady reads the command by which the peer says that it is ready.
func isReady(body []byte, kind Kind) error {
	rest, ok := bytes.CutPrefix(body, []byte("\x05READY"))
	if !ok {
		if why, is := bytes.CutPrefix(body, []byte("\x05ERROR")); is && len(why) > 0 {
			return fmt.Errorf("it refuses: %.80q", why[1:])
		}
		return errors.New("its first command is not READY")
	}
	for len(rest) > 0 {
		name, after, ok := cut(rest[1:], int(rest[0]))
		if !ok || len(after) < 4 {
			return errors.New("its READY breaks off")
		}
		n := binary.BigEndian.Uint32(after)
		if n > commandMost {
			return errors.New("its READY breaks off")
		}
		value, after, ok := cut(after[4:], int(n))
		if !ok {
			return errors.New("its READY breaks off")
		}
		if bytes.EqualFold(name, []byte("Socket-Type")) {
			for _, peer := range peers[kind] {
				if peer == string(value) {
					return nil
				}
			}
			return fmt.Errorf("its socket is a %.10q, which does not fit a %s", value, kind)
		}
		rest = after
	}
	return errors.New("it does not say what its socket is")
}

// cut splits b after n bytes.
func cut(b []byte, n int) (head, rest []byte, ok bool) {
	if n > len(b) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// head reads the flags and the size of the next frame.
func (c *Conn) head() (flags byte, size uint64, err error) {
	if flags, err = c.in.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, 0, fmt.Errorf("a frame with the flags %#x", flags)
	}
	var raw [8]byte
	if flags&flagLong == 0 {
		b, err := c.in.ReadByte()
		return flags, uint64(b), err
	}
	_, err = io.ReadFull(c.in, raw[:])
	return flags, binary.BigEndian.Uint64(raw[:]), err
}

// Receive returns the frames of the next message, which are valid until the next call.
func (c *Conn) Receive() ([][]byte, error) {
	c.buf, c.ends = c.buf[:0], c.ends[:0]
	for {
		flags, size, err := c.head()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if len(c.ends) > 0 {
				return nil, errors.New("a command inside a message")
			}
			if err := c.command(size); err != nil {
				return nil, err
			}
			continue
		}
		if size > uint64(c.most-len(c.buf)) {
			return nil, fmt.Errorf("a message of more than %d bytes", c.most)
		}
		if len(c.ends) == framesMost {
			return nil, fmt.Errorf("a message of more than %d frames", framesMost)
		}
		start := len(c.buf)
		c.buf = append(c.buf, make([]byte, size)...)
		if _, err := io.ReadFull(c.in, c.buf[start:]); err != nil {
			return nil, err
		}
		c.ends = append(c.ends, len(c.buf))
		if flags&flagMore != 0 {
			continue
		}
		c.frames = c.frames[:0]
		start = 0
		for _, end := range c.ends {
			c.frames = append(c.frames, c.buf[start:end:end])
			start = end
		}
		return c.frames, nil
	}
}

// command answers a PING and skips all else.
func (c *Conn) command(size uint64) error {
	if size > commandMost {
		return fmt.Errorf("a command of %d bytes", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return err
	}
	ping, ok := bytes.CutPrefix(body, []byte("\x04PING"))
	if !ok {
		return nil
	}
	if len(ping) < 2 || len(ping) > 2+16 { // a time to live, and what is given back
		return errors.New("a PING that is not one")
	}
	pong := append([]byte("\x04PONG"), ping[2:]...)
	_, err := c.conn.Write(append([]byte{flagCommand, byte(len(pong))}, pong...))
	return err
}

// Subscribe asks a publisher for the messages whose first frame begins with topic.
func (c *Conn) Subscribe(topic string) error { return c.Send(append([]byte{1}, topic...)) }

// Send sends a message of these frames, of at most 255 bytes each.
func (c *Conn) Send(frames ...[]byte) error {
	var out []byte
	for i, frame := range frames {
		if len(frame) > 255 {
			return errors.New("a frame of more than 255 bytes")
		}
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		out = append(append(out, flags, byte(len(frame))), frame...)
	}
	_, err := c.conn.Write(out)
	return err
}

// Wait waits until something comes, at most until then, and tells whether it did. What came
// is left for Receive.
func (c *Conn) Wait(until time.Time) (bool, error) {
	c.conn.SetReadDeadline(until)
	defer c.conn.SetReadDeadline(time.Time{})
	_, err := c.in.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// SetReadDeadline bounds the wait for messages; the zero time removes the bound.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// Close ends the connection, and a Receive that waits.
func (c *Conn) Close() error { return c.conn.Close() }
