package gateway

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// pump is an engine that gives one token whenever the last one was taken.
type pump struct {
	stream *wire.Stream
	left   int
	tokens int
}

func (p *pump) Pause()  {}
func (p *pump) Resume() {}
func (p *pump) Cancel() {}

func (p *pump) Taken() {
	p.tokens++
	e := wire.Event{Text: " token", TokenCount: p.tokens}
	if p.left--; p.left < 0 {
		e = wire.Event{End: &wire.End{}}
	}
	p.stream.Put(e)
	p.stream.Wake()
}

// TestLastEventsLeaveWithTheEnd: what comes together with the end of an answer leaves
// in one write with it.
func TestLastEventsLeaveWithTheEnd(t *testing.T) {
	r, quiet := playing(t)
	s := wire.NewStream(8, r.x.notify, &pump{stream: wire.NewStream(8, nil, nil)})
	r.streams = []*wire.Stream{s}
	s.Put(wire.Event{Text: "all", TokenCount: 1})
	s.Put(wire.Event{TokenCount: 1, Finish: wire.FinishStop})
	s.Put(wire.Event{End: &wire.End{}})
	s.Wake()
	usage, err := r.relay()
	if err == nil {
		err = r.reply.finish(usage)
	}
	if err != nil || quiet.writes != 1 {
		t.Errorf("%d writes, %v", quiet.writes, err)
	}
	if r.x.record.FirstWrite == 0 {
		t.Error("the first write is not in the record")
	}
}

// relayed plays tokens of one streamed choice through relay, with the
// connection and the engine left out.
func relayed(t testing.TB, tokens int) *quietConn {
	t.Helper()
	r, quiet := playing(t)
	p := &pump{left: tokens}
	p.stream = wire.NewStream(8, r.x.notify, p)
	r.streams = []*wire.Stream{p.stream}
	p.Taken()
	if _, err := r.relay(); err != nil {
		t.Fatal(err)
	}
	return quiet
}

// playing is a run of one streamed choice, whose stream is still to be set.
func playing(t testing.TB) (*run, *quietConn) {
	t.Helper()
	fake := wiretest.NewFake(wiretest.Script{})
	t.Cleanup(func() { fake.Close() })
	policy, err := admission.NewPolicy(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{engine: fake, cut: make(chan struct{})}
	if err := conf.Complete("gateway", &g.cfg); err != nil {
		t.Fatal(err)
	}
	quiet := &quietConn{}
	request := httpd.NewRequest(quiet)
	x := &exchange{g: g, engine: g.engine, caller: &identity.Caller{Policy: policy}, http: request, out: request.Output(time.Second), ctx: context.Background(), notify: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	t.Cleanup(func() { x.timer.Stop() })
	c := &call{chat: true, stream: true, options: wire.Options{N: 1}}
	r := &run{x: x, call: c, ticket: freeTicket{}, reply: newReply(x, c, []*wire.Prompt{{}}), usage: make([]wire.Usage, 1), live: 1, tokens: make([]int, 1), tokenAt: make([]int64, 1)}
	return r, quiet
}

// freeTicket is a ticket that no controller gave.
type freeTicket struct{ admission.Ticket }

func (freeTicket) Progress(int) {}

// TestTokensAllocateNothing guards the whole path of a token, from the
// engine's stream to the write.
func TestTokensAllocateNothing(t *testing.T) {
	few := testing.AllocsPerRun(5, func() { relayed(t, 100) })
	many := testing.AllocsPerRun(5, func() { relayed(t, 2100) })
	if perToken := (many - few) / 2000; perToken > 0.01 {
		t.Errorf("%v allocations a token", perToken)
	}
	if quiet := relayed(t, 100); quiet.writes != 100 {
		t.Errorf("%d writes for 100 steps of one token", quiet.writes)
	}
}

func BenchmarkToken(b *testing.B) {
	b.ReportAllocs()
	relayed(b, b.N)
}

// BenchmarkRequest is a whole request over TCP to a fake engine: the fake's
// own cost is in it.
func BenchmarkRequest(b *testing.B) {
	for name, fields := range map[string]string{"plain": "", "stream": `"stream":true`} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, rigConfig{fake: scripted(wiretest.Script{Pieces: []string{"x"}})})
			c, err := net.Dial("tcp", r.addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			br := bufio.NewReader(c)
			request := rawPost("/v1/chat/completions", chatBody(fields))
			b.ReportAllocs()
			for b.Loop() {
				io.WriteString(c, request)
				if err := skipResponse(br); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefusal is a request over TCP that is refused, on arrival and before its
// prompt is prepared. Preparing costs the fake nearly nothing; over the socket to an
// engine it is most of the work.
func BenchmarkRefusal(b *testing.B) {
	for _, early := range []bool{false, true} {
		b.Run(map[bool]string{false: "prepared", true: "unprepared"}[early], func(b *testing.B) {
			r := newRig(b, rigConfig{fake: scripted(wiretest.Script{})})
			refused := refuser{r.gw.admission, &admission.Refusal{Reason: admission.Late}}
			if r.gw.admission = refused; early {
				r.gw.admission = foreseer{refused, new([]admission.Demand)}
			}
			c, err := net.Dial("tcp", r.addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			br := bufio.NewReader(c)
			request := rawPost("/v1/chat/completions", chatBody(""))
			b.ReportAllocs()
			for b.Loop() {
				io.WriteString(c, request)
				if err := skipResponse(br); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// skipResponse reads to the end of one response.
func skipResponse(br *bufio.Reader) error {
	length, chunked := 0, false
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return err
		}
		if string(line) == "\r\n" {
			break
		}
		chunked = chunked || strings.HasPrefix(string(line), "Transfer-Encoding")
		if n, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(n)))
		}
	}
	if !chunked {
		_, err := br.Discard(length)
		return err
	}
	for {
		line, err := br.ReadSlice('\n')
		if err != nil || string(line) == "0\r\n" {
			_, _ = br.Discard(2)
			return err
		}
	}
}
