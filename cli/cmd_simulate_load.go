package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// loadClient loads a server. A net/http.Client would take several times as much
// processor time, which the server then lacks.
type loadClient struct {
	address, model string
	chat           bool // the model can chat
	vocab          int

	mu       sync.Mutex
	idle     []*loadConnection
	arrivals []int64 // when requests were sent, on wire's clock, ascending
}

type loadConnection struct {
	net.Conn
	in *bufio.Reader
}

const (
	// loadRunningMax is how many requests the client has under way; more are not sent.
	loadRunningMax = 2000
	// loadWords are the words of a short prompt, loadTokens the tokens of its answer.
	loadWords, loadTokens = 40, 30
	loadPatience          = 2 * time.Minute // for one answer
)

var loadVocabulary = []string{"river", "engine", "forest", "table", "water", "light", "number", "story", "market", "garden", "window", "paper"}

// loadRequest is a request of a prompt of random tokens, or of random words if it has
// no tokens.
type loadRequest struct {
	tokens, output int
	class          string // "" is the default
	seed           uint64
}

// loadAnswer has the instants, on wire's clock, of a request's sending and of the first
// token of its answer, which is 0 if it was refused.
type loadAnswer struct{ sent, first int64 }

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 4)) }

// body is the request in JSON.
func (l *loadClient) body(r *loadRequest) []byte {
	rnd := newRand(r.seed)
	b := fmt.Appendf(nil, `{"model":%q,"stream":true,"max_tokens":%d,"ignore_eos":true,"temperature":0.8,"seed":%d,`, l.model, r.output, rnd.IntN(1<<30))
	if r.tokens > 0 {
		b = append(b, `"prompt":[`...)
		for i := range r.tokens {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Append(b, rnd.IntN(l.vocab))
		}
		return append(b, "]}"...)
	}
	var text []byte
	for range loadWords {
		text = fmt.Append(text, loadVocabulary[rnd.IntN(len(loadVocabulary))], " ")
	}
	if l.chat {
		return fmt.Appendf(b, `"messages":[{"role":"user","content":%q}]}`, text)
	}
	return fmt.Appendf(b, `"prompt":%q}`, text)
}

// ask sends a request and reads its answer.
func (l *loadClient) ask(ctx context.Context, r *loadRequest) (a loadAnswer, err error) {
	body := l.body(r)
	path := "completions"
	if l.chat && r.tokens == 0 {
		path = "chat/completions"
	}
	head := fmt.Appendf(nil, "POST /v1/%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, l.address, len(body))
	if r.class != "" {
		head = fmt.Appendf(head, "X-Forebay-Class: %s\r\n", r.class)
	}
	connection, err := l.connect(ctx)
	if err != nil {
		return a, err
	}
	a.sent = l.arrives()
	first, reusable, err := connection.exchange(append(append(head, "\r\n"...), body...))
	l.mu.Lock()
	defer l.mu.Unlock()
	if reusable && err == nil {
		l.idle = append(l.idle, connection)
	} else {
		connection.Close()
	}
	a.first = first
	return a, err
}

// arrives notes that a request is sent now.
func (l *loadClient) arrives() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := wire.Monotonic()
	l.arrivals = append(l.arrivals, now)
	return now
}

func (l *loadClient) connect(ctx context.Context) (*loadConnection, error) {
	l.mu.Lock()
	if n := len(l.idle); n > 0 {
		defer l.mu.Unlock()
		connection := l.idle[n-1]
		l.idle = l.idle[:n-1]
		return connection, connection.SetDeadline(time.Now().Add(loadPatience))
	}
	l.mu.Unlock()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", l.address)
	if err != nil {
		return nil, err
	}
	return &loadConnection{conn, bufio.NewReader(conn)}, conn.SetDeadline(time.Now().Add(loadPatience))
}

func (l *loadClient) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, connection := range l.idle {
		connection.Close()
	}
}

// exchange sends one request and reads its answer. An answer that is refused for too
// much load is none, and no error.
func (c *loadConnection) exchange(request []byte) (first int64, reusable bool, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, false, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, false, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		_, err := io.Copy(io.Discard, response.Body)
		return 0, !response.Close, err
	default:
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return 0, false, fmt.Errorf("the server answered %s: %s", response.Status, bytes.TrimSpace(text))
	}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if line := lines.Bytes(); first == 0 && hasText(line) {
			first = wire.Monotonic()
		}
	}
	return first, !response.Close, lines.Err()
}

// hasText tells that an event has a piece of the answer.
func hasText(line []byte) bool {
	for _, key := range []string{`"content":"`, `"text":"`} {
		if _, rest, found := bytes.Cut(line, []byte(key)); found && !bytes.HasPrefix(rest, []byte(`"`)) {
			return true
		}
	}
	return false
}

// lone asks one short request.
func (l *loadClient) lone(ctx context.Context) (loadAnswer, error) {
	return l.ask(ctx, &loadRequest{output: loadTokens, seed: uint64(wire.Monotonic())})
}

// closedLoop has n clients ask short requests for a while, each waiting for its
// answers, and returns how many were answered in a second.
func (l *loadClient) closedLoop(ctx context.Context, n int, length time.Duration, steps *stepSamples) (rate float64, err error) {
	began := time.Now()
	answered := make(chan error)
	for range n {
		go func() { answered <- l.again(ctx) }()
	}
	count := 0
	for running := n; running > 0; {
		if e := <-answered; e != nil && err == nil {
			err = e
		} else if e == nil {
			count++
		}
		if steps.read(l); time.Since(began) < length && err == nil {
			go func() { answered <- l.again(ctx) }()
		} else {
			running--
		}
	}
	return float64(count) / time.Since(began).Seconds(), err
}

func (l *loadClient) again(ctx context.Context) error {
	_, err := l.lone(ctx)
	return err
}

// openLoop sends short requests at a rate, whatever becomes of those before, and
// waits until all have ended. It returns their answers.
func (l *loadClient) openLoop(ctx context.Context, rate float64, length time.Duration, steps *stepSamples) (answers []loadAnswer, err error) {
	rnd := newRand(uint64(rate))
	type ending struct {
		loadAnswer
		err error
	}
	ended := make(chan ending, loadRunningMax)
	running, at, read := 0, time.Duration(0), time.Now()
	take := func(e ending) {
		running--
		answers = append(answers, e.loadAnswer)
		if err == nil {
			err = e.err
		}
	}
	for began := time.Now(); at < length && err == nil; at += time.Duration(rnd.ExpFloat64() / rate * 1e9) {
		time.Sleep(at - time.Since(began))
		for len(ended) > 0 {
			take(<-ended)
		}
		if running < loadRunningMax {
			running++
			go func() {
				a, err := l.lone(ctx)
				ended <- ending{a, err}
			}()
		}
		if time.Since(read) > 100*time.Millisecond {
			steps.read(l)
			read = time.Now()
		}
	}
	for running > 0 {
		take(<-ended)
	}
	steps.read(l)
	return answers, err
}
