package zmtp

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/upstream/zmtp/zmtptest"
)

// script is a peer that sends these bytes and keeps what it gets.
func script(t *testing.T, text []byte) (address string, got chan []byte) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got = make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Write(text)
		c.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(c)
		got <- all
		c.Close()
	}()
	return l.Addr().String(), got
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// TestHandshake: peers that are none, or of another kind, are refused in words.
func TestHandshake(t *testing.T) {
	old := zmtptest.Greeting()
	old[10] = 1
	curve := zmtptest.Greeting()
	copy(curve[12:], "CURVE")
	for name, c := range map[string]struct {
		sent []byte
		want string
	}{
		"a publisher":                  {join(zmtptest.Greeting(), zmtptest.Ready("PUB")), ""},
		"nothing":                      {nil, "greeting"},
		"a web server":                 {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 64)), "not speak"},
		"an old one, that goes silent": {old[:11], "version"},
		"secured":                      {curve, "CURVE"},
		"a socket of another kind":     {join(zmtptest.Greeting(), zmtptest.Ready("PULL")), "PULL"},
		"a refusal":                    {join(zmtptest.Greeting(), zmtptest.Frame(4, []byte("\x05ERROR\x04away"))), "away"},
		"a message first":              {join(zmtptest.Greeting(), zmtptest.Frame(0, []byte("x"))), "before it is ready"},
		"a READY without end":          {join(zmtptest.Greeting(), zmtptest.Frame(4, []byte("\x05READY\x0bSocket-Type\xff\xff\xff\xff"))), "breaks off"},
		"a READY cut in a name":        {join(zmtptest.Greeting(), zmtptest.Frame(4, []byte("\x05READY\xff"))), "breaks off"},
		"a READY of gigabytes":         {join(zmtptest.Greeting(), []byte{6, 1, 1, 1, 1, 1, 1, 1, 1}), "before it is ready"},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := script(t, c.sent)
			conn, err := Dial(t.Context(), "tcp", address, Sub, 100)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				conn.Close()
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestMessages: frames join to messages within the limits, and pings are answered.
func TestMessages(t *testing.T) {
	hello := join(zmtptest.Greeting(), zmtptest.Ready("PUB"))
	for name, c := range map[string]struct {
		sent []byte
		want []string // of each message, frames with | between; the last is the error's text
	}{
		"two":                    {join(zmtptest.Frame(1, []byte("a")), zmtptest.Frame(0, []byte("b")), zmtptest.Frame(0, nil)), []string{"a|b", "", "EOF"}},
		"of the limit":           {join(zmtptest.Frame(1, make([]byte, 99)), zmtptest.Frame(0, []byte("b"))), []string{strings.Repeat("\x00", 99) + "|b", "EOF"}},
		"over it":                {join(zmtptest.Frame(1, make([]byte, 99)), zmtptest.Frame(0, []byte("bc"))), []string{"more than 100 bytes"}},
		"of all memory":          {[]byte{2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []string{"more than 100 bytes"}},
		"of too many frames":     {bytes.Repeat(zmtptest.Frame(1, nil), framesMost+1), []string{"frames"}},
		"with unknown flags":     {[]byte{8, 0}, []string{"flags"}},
		"cut":                    {[]byte{0, 5, 'a'}, []string{"EOF"}},
		"a command inside":       {join(zmtptest.Frame(1, nil), zmtptest.Frame(4, []byte("\x04PING\x00\x01"))), []string{"inside"}},
		"after another and pong": {join(zmtptest.Frame(4, []byte("\x05OTHER")), zmtptest.Frame(4, []byte("\x04PING\x00\x01hi")), zmtptest.Frame(0, []byte("a"))), []string{"a", "EOF"}},
		"a long PING":            {zmtptest.Frame(4, append([]byte("\x04PING\x00\x01"), make([]byte, 17)...)), []string{"PING"}},
	} {
		t.Run(name, func(t *testing.T) {
			address, got := script(t, join(hello, c.sent))
			conn, err := Dial(t.Context(), "tcp", address, Sub, 100)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Subscribe("x"); err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				frames, err := conn.Receive()
				if i == len(c.want)-1 {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%v, want %s", err, want)
					}
				} else if text := string(bytes.Join(frames, []byte("|"))); err != nil || text != want {
					t.Errorf("%q, %v, want %q", text, err, want)
				}
			}
			conn.Close()
			sent := <-got
			if !bytes.Contains(sent, []byte{0, 2, 1, 'x'}) {
				t.Errorf("no subscription in %q", sent)
			}
			if strings.Contains(name, "pong") && !bytes.HasSuffix(sent, []byte("\x04\x07\x04PONGhi")) {
				t.Errorf("no PONG in %q", sent)
			}
		})
	}
}

// TestDialEnds: a peer that says nothing holds nobody longer than its context.
func TestDialEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, "tcp", l.Addr().String(), Sub, 100); err == nil {
		t.Error("connected to nobody")
	}
}

// FuzzReceive: whatever a peer sends, no message is over the limits.
func FuzzReceive(f *testing.F) {
	f.Add(join(zmtptest.Ready("PUB"), zmtptest.Frame(1, []byte("a")), zmtptest.Frame(0, make([]byte, 300))))
	f.Add(join(zmtptest.Ready("XPUB"), zmtptest.Frame(4, []byte("\x04PING\x00\x01hi")), zmtptest.Frame(0, []byte("b"))))
	f.Add([]byte{4, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := open(&from{Reader: bytes.NewReader(slices.Concat(zmtptest.Greeting(), text))}, Sub, 1000)
		for err == nil {
			var frames [][]byte
			if frames, err = c.Receive(); err == nil && (len(frames) > framesMost || len(bytes.Join(frames, nil)) > 1000) {
				t.Fatalf("%d frames of %d bytes", len(frames), len(bytes.Join(frames, nil)))
			}
		}
	})
}

// from is a connection that reads and forgets what is written.
type from struct {
	io.Reader
	net.Conn
}

func (f *from) Read(b []byte) (int, error)  { return f.Reader.Read(b) }
func (f *from) Write(b []byte) (int, error) { return len(b), nil }

// TestWait: what comes while it waits is left whole for Receive, and a wait in vain
// takes nothing of what comes later.
func TestWait(t *testing.T) {
	p, err := zmtptest.New()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := Dial(t.Context(), "tcp", strings.TrimPrefix(p.Events(), "tcp://"), Sub, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Subscribe(""); err != nil {
		t.Fatal(err)
	}
	if some, err := c.Wait(time.Now().Add(time.Millisecond)); some || err != nil {
		t.Fatalf("before anything was sent: %v, %v", some, err)
	}
	for p.Hearers() == 0 {
		time.Sleep(time.Millisecond)
	}
	p.Publish([]byte("hello"))
	if some, err := c.Wait(time.Now().Add(time.Minute)); !some || err != nil {
		t.Fatalf("after it: %v, %v", some, err)
	}
	if frames, err := c.Receive(); err != nil || len(frames) != 3 || string(frames[2]) != "hello" {
		t.Errorf("%q, %v", frames, err)
	}
	p.Cut()
	if some, err := c.Wait(time.Now().Add(time.Minute)); some || err == nil {
		t.Errorf("after the end: %v, %v", some, err)
	}
}
