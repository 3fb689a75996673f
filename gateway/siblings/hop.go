package siblings

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

const (
	// windowEvents is how many events of a hop wait for a slow client; then the
	// sibling's engine waits.
	windowEvents = 64
	// lineMax bounds one event, in bytes of base64.
	lineMax = 4 << 20
	// errorBytesMax is how much of a refusal is read.
	errorBytesMax = 4096
	// cancelLimit is how long a sibling has to say what it computed of a canceled hop.
	cancelLimit = 2 * time.Second
)

// hop is one request at a sibling. It implements wire.Control.
type hop struct {
	g       *Group
	to      string
	address string
	parcel  *Parcel
	stream  *wire.Stream
	room    chan struct{} // receives when the reader has taken events
	stop    chan struct{} // closed when only the End is wanted
	once    sync.Once     // of closing stop
	done    chan struct{} // closed when the hop has ended
	end     context.CancelFunc
}

// Send gives a request to the sibling that was chosen. The stream tells what comes of
// it, as an engine's does; an error of kind Unavailable before the first token says
// that the hop failed, and that nothing was given to the client.
func (g *Group) Send(to *Candidate, p *Parcel, notify chan<- struct{}) *wire.Stream {
	g.mu.Lock()
	peer := g.peers[to.Name]
	if g.stopped || peer == nil || peer.report == nil {
		g.mu.Unlock()
		return wire.FailedStream(notify, wire.Errorf(wire.Unavailable, "the sibling %s has gone", to.Name))
	}
	n := len(p.Generation.Prompt.Tokens)
	peer.begin(time.Now(), to.Work)
	g.counts.Hops++
	g.counts.CachedThere += uint64(to.Cached)
	g.counts.Elsewhere += uint64(n)
	h := &hop{g: g, to: to.Name, address: peer.report.Address, parcel: p, room: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	h.stream = wire.NewStream(windowEvents, notify, h)
	ctx, cancel := context.WithCancel(g.quit)
	h.end = cancel
	g.tasks.Go(func() {
		defer cancel()
		defer close(h.done)
		h.run(ctx)
	})
	g.mu.Unlock()
	return h.stream
}

// run makes the hop, and puts the End event on every path.
func (h *hop) run(ctx context.Context) {
	failure := h.exchange(ctx)
	h.g.mu.Lock()
	if p := h.g.peers[h.to]; p != nil {
		p.running--
		if failure != nil && failure.fatal {
			p.failed++
			p.avoid = time.Now().Add(h.g.cfg.AvoidFor)
		}
	}
	switch {
	case failure == nil:
		h.g.counts.Answered++
	case failure.fatal:
		h.g.counts.Failed++
	default:
		h.g.counts.Refused++
	}
	h.g.mu.Unlock()
	if failure != nil {
		h.put(wire.Event{End: &wire.End{Err: failure.err}})
	}
}

// failed is a hop that ended without an End event.
type failed struct {
	err   *wire.Error
	fatal bool // the sibling is to be avoided for some time
}

func broken(fatal bool, format string, args ...any) *failed {
	return &failed{wire.Errorf(wire.Unavailable, format, args...), fatal}
}

// exchange sends the parcel and reads events until the End, which it puts too.
func (h *hop) exchange(ctx context.Context) *failed {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(h.g.cfg.SilenceLimit, cancel)
	defer silence.Stop()
	resp, err := h.post(ctx, HopPath, h.parcel.Append(nil))
	if err != nil {
		return broken(true, "the sibling %s cannot be reached: %v", h.to, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, errorBytesMax))
		// What is full may be less full soon; a secret that differs will still differ.
		fatal := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusNotFound || resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable
		return broken(fatal, "the sibling %s refused: status %d, %s", h.to, resp.StatusCode, bytes.TrimSpace(text))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4096), lineMax)
	for lines.Scan() {
		silence.Reset(h.g.cfg.SilenceLimit)
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok { // a comment: it is alive
			continue
		}
		e, failure := h.decode(data)
		if failure != nil {
			return failure
		}
		silence.Stop()
		if !h.put(e) && !h.awaitRoom(ctx, e) {
			break
		}
		if e.End != nil {
			silence.Reset(h.g.cfg.SilenceLimit)
			io.Copy(io.Discard, io.LimitReader(resp.Body, errorBytesMax)) // the connection serves the next hop
			return nil
		}
		silence.Reset(h.g.cfg.SilenceLimit)
	}
	return broken(true, "the sibling %s, which computed this answer, was lost", h.to)
}

func (h *hop) decode(data []byte) (e wire.Event, f *failed) {
	text := make([]byte, base64.StdEncoding.DecodedLen(len(data)))
	n, err := base64.StdEncoding.Decode(text, data)
	if err == nil {
		var fault *wire.Error
		if e, fault = wire.ReadEvent(text[:n]); fault == nil {
			return e, nil
		}
		err = fault
	}
	return e, broken(true, "the sibling %s sent what is no event: %v", h.to, err)
}

// awaitRoom puts e once the reader, who has no room, has taken some; meanwhile the
// sibling waits in turn. An event that is not wanted any more is dropped. It is false
// when the hop has ended.
func (h *hop) awaitRoom(ctx context.Context, e wire.Event) bool {
	for {
		select {
		case <-h.room:
		case <-h.stop:
			return true
		case <-ctx.Done():
			return false
		}
		if h.put(e) {
			return true
		}
	}
}

func (h *hop) put(e wire.Event) bool {
	ok := h.stream.Put(e)
	h.stream.Wake()
	return ok
}

// post sends a signed body to the sibling.
func (h *hop) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.g.scheme+"://"+h.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Set(FormatHeader, Format)
	r.Header.Set(SignatureHeader, sign(h.g.fleet.Secret(), path, h.to, body, time.Now()))
	if t := &h.parcel.Generation.Trace; t.TraceID != [16]byte{} {
		r.Header.Set("Traceparent", fmt.Sprintf("00-%s-%s-%02x", hex.EncodeToString(t.TraceID[:]), hex.EncodeToString(t.SpanID[:]), t.Flags))
		if t.State != "" {
			r.Header.Set("Tracestate", t.State)
		}
	}
	if h.parcel.PublicID != "" {
		r.Header.Set("X-Request-Id", h.parcel.PublicID)
	}
	return h.g.client.Do(r)
}

// Pause and Resume do nothing: a hop is paused by not reading it.
func (h *hop) Pause()  {}
func (h *hop) Resume() {}

// Taken implements wire.Control.
func (h *hop) Taken() {
	select {
	case h.room <- struct{}{}:
	default:
	}
}

// Cancel asks the sibling to stop, which it answers in the stream by what it has
// computed. If it does not, the hop ends without.
func (h *hop) Cancel() {
	h.once.Do(func() {
		close(h.stop)
		h.g.mu.Lock()
		defer h.g.mu.Unlock()
		if !h.g.stopped { // else Close ends the hop
			h.g.tasks.Go(h.cancel)
		}
	})
}

func (h *hop) cancel() {
	defer h.end()
	ctx, cancel := context.WithTimeout(h.g.quit, cancelLimit)
	defer cancel()
	p, g := *h.parcel, *h.parcel.Generation
	g.Prompt = &wire.Prompt{Tokens: g.Prompt.Tokens[:1]} // only its name counts
	p.Generation = &g
	resp, err := h.post(ctx, CancelPath, p.Append(nil))
	if err != nil {
		return
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		select {
		case <-h.done:
		case <-ctx.Done():
		}
	}
}
