// Package zmtptest is a ZeroMQ publisher for tests: a PUB socket, and a ROUTER socket
// that gives batches again, as servers publish the events of their caches. Its ports
// stay open until Close, so nobody else can take them.
package zmtptest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
)

// Publisher publishes numbered payloads.
type Publisher struct {
	events, replay net.Listener
	live           sync.WaitGroup

	mu      sync.Mutex
	conns   []net.Conn
	hearers map[net.Conn]bool
	number  uint64
	kept    []numbered

	// Topic is the first frame of what is given again; nil leaves it out.
	Topic []byte
	// KeptMax bounds what is given again.
	KeptMax int
	// Late is published while the next request for what is given again is answered, so
	// that it is not in the answer, and nobody hears it.
	Late [][]byte
}

type numbered struct {
	number  uint64
	payload []byte
}

// Greeting is a peer's greeting, and Ready its command, with the socket's kind.
func Greeting() []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	return g
}

// Ready is the command that a socket of the kind is ready.
func Ready(kind string) []byte {
	body := append([]byte("\x05READY\x0bSocket-Type\x00\x00\x00"), byte(len(kind)))
	return Frame(4, append(body, kind...))
}

// Frame is a frame with the flags more (1) or command (4).
func Frame(flags byte, body []byte) []byte {
	if len(body) < 256 {
		return append([]byte{flags, byte(len(body))}, body...)
	}
	return append(binary.BigEndian.AppendUint64([]byte{flags | 2}, uint64(len(body))), body...)
}

// New listens on two free ports of this machine.
func New() (*Publisher, error) {
	p := &Publisher{hearers: map[net.Conn]bool{}, KeptMax: 1 << 20}
	var err error
	if p.events, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if p.replay, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		p.events.Close()
		return nil, err
	}
	p.live.Go(func() { p.accept(p.events, "PUB", p.hear) })
	p.live.Go(func() { p.accept(p.replay, "ROUTER", p.again) })
	return p, nil
}

// Events and Replay are the addresses.
func (p *Publisher) Events() string { return "tcp://" + p.events.Addr().String() }
func (p *Publisher) Replay() string { return "tcp://" + p.replay.Addr().String() }

// Hearers is how many subscribers there are.
func (p *Publisher) Hearers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.hearers)
}

// Close ends all connections.
func (p *Publisher) Close() {
	p.events.Close()
	p.replay.Close()
	p.Cut()
	p.live.Wait()
}

// Cut ends the connections and goes on to listen.
func (p *Publisher) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Publisher) cut() {
	clear(p.hearers)
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *Publisher) accept(l net.Listener, kind string, serve func(net.Conn, *bufio.Reader)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns = append(p.conns, c)
		p.mu.Unlock()
		p.live.Go(func() {
			defer c.Close()
			in := bufio.NewReader(c)
			if _, err := io.CopyN(io.Discard, in, 64); err != nil {
				return
			}
			c.Write(append(Greeting(), Ready(kind)...))
			if _, _, err := readFrame(in); err == nil {
				serve(c, in)
			}
		})
	}
}

func readFrame(in *bufio.Reader) (flags byte, body []byte, err error) {
	var head [2]byte
	if _, err = io.ReadFull(in, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, head[1])
	_, err = io.ReadFull(in, body)
	return head[0], body, err
}

// hear waits for the subscription, and keeps the connection until it ends.
func (p *Publisher) hear(c net.Conn, in *bufio.Reader) {
	if _, body, err := readFrame(in); err != nil || len(body) == 0 || body[0] != 1 {
		return
	}
	p.mu.Lock()
	p.hearers[c] = true
	p.mu.Unlock()
	io.Copy(io.Discard, in)
	p.mu.Lock()
	delete(p.hearers, c)
	p.mu.Unlock()
}

// again answers a request for batches: an empty frame and a number.
func (p *Publisher) again(c net.Conn, in *bufio.Reader) {
	for {
		if _, empty, err := readFrame(in); err != nil || len(empty) > 0 {
			return
		}
		_, from, err := readFrame(in)
		if err != nil || len(from) != 8 {
			return
		}
		p.mu.Lock()
		kept := slices.Clone(p.kept)
		late := p.Late
		p.Late = nil
		p.mu.Unlock()
		for _, payload := range late {
			p.Lose(payload)
		}
		var out []byte
		send := func(number uint64, payload []byte) {
			out = append(out, Frame(1, nil)...)
			if p.Topic != nil {
				out = append(out, Frame(1, p.Topic)...)
			}
			out = append(append(out, Frame(1, binary.BigEndian.AppendUint64(nil, number))...), Frame(0, payload)...)
		}
		for _, k := range kept {
			if k.number >= binary.BigEndian.Uint64(from) {
				send(k.number, k.payload)
			}
		}
		send(^uint64(0), nil)
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// Restart is another publisher in the place of this one, that has published these before
// anybody could hear it.
func (p *Publisher) Restart(payloads ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number, p.kept = 0, nil
	for _, b := range payloads {
		p.kept = append(p.kept, numbered{p.number, b})
		p.number++
	}
	p.cut()
}

// Publish sends the next payload to all who hear; Lose only keeps it.
func (p *Publisher) Publish(payload []byte) { p.publish(payload, true) }
func (p *Publisher) Lose(payload []byte)    { p.publish(payload, false) }

func (p *Publisher) publish(payload []byte, sent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, numbered{p.number, payload})
	p.kept = p.kept[max(0, len(p.kept)-p.KeptMax):]
	out := append(Frame(1, nil), Frame(1, binary.BigEndian.AppendUint64(nil, p.number))...)
	out = append(out, Frame(0, payload)...)
	p.number++
	if sent {
		for c := range p.hearers {
			c.Write(out)
		}
	}
}
