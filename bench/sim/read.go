package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// The limits on a trace file.
const (
	fileBytesMax  = 2 << 30 // unpacked
	lineBytesMax  = 1 << 20
	fileTokensMax = 4_000_000 // of one prompt or one answer
	fileSpanMax   = 100 * 365 * 24 * time.Hour
)

// RequestsMax is how many requests a trace may have.
const RequestsMax = 2_000_000

// Read reads a trace: lines of JSON as Mooncake publishes them (timestamp in
// milliseconds, input_length, output_length, hash_ids of blocks of 512 tokens),
// or CSV as Azure publishes it (TIMESTAMP, ContextTokens, GeneratedTokens) in
// any order of columns; both may be compressed by gzip. More columns may name tenant
// and class. Lines of JSON may say what became of the request in a real run, as
// bench/overload records it. A request without an output gives one token. Errors name the line.
func Read(r io.Reader, name string) (*Trace, error) {
	t, err := read(r)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", name, err)
	}
	t.Name = name
	return t, nil
}

func read(r io.Reader) (*Trace, error) {
	in := bufio.NewReader(r)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReader(unpacked)
	}
	limited := &io.LimitedReader{R: in, N: fileBytesMax}
	lines := &lineReader{scanner: bufio.NewScanner(limited)}
	lines.scanner.Buffer(make([]byte, 64<<10), lineBytesMax)
	t, err := readLines(lines)
	if err == nil && limited.N == 0 {
		err = fmt.Errorf("it is larger than %d MiB unpacked; cut it into parts", fileBytesMax>>20)
	}
	return t, err
}

// lineReader gives the lines that are not blank, and counts all.
type lineReader struct {
	scanner *bufio.Scanner
	number  int
}

func (l *lineReader) next() ([]byte, bool) {
	for l.scanner.Scan() {
		l.number++
		line := l.scanner.Bytes()
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, true
		}
	}
	return nil, false
}

// err is what ended the lines.
func (l *lineReader) err() error {
	err := l.scanner.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d: it is longer than %d KiB", l.number+1, lineBytesMax>>10)
	}
	return err
}

// arrival is a line's request, with its time on the file's clock.
type arrival struct {
	at      time.Duration
	request Request
}

func readLines(lines *lineReader) (*Trace, error) {
	first, ok := lines.next()
	if !ok {
		return nil, cmp.Or(lines.err(), errors.New("it is empty"))
	}
	parse := parseJSON
	if first[0] != '{' {
		columns, err := parseHeader(first)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", lines.number, err)
		}
		parse = columns.parse
		first, ok = lines.next()
	}
	var arrivals []arrival
	for line := first; ok; line, ok = lines.next() {
		a, err := parse(line)
		if err == nil {
			err = a.request.check()
		}
		if err == nil && len(arrivals) == RequestsMax {
			err = fmt.Errorf("more than %d requests; cut the file into parts", RequestsMax)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", lines.number, err)
		}
		arrivals = append(arrivals, a)
	}
	if err := lines.err(); err != nil {
		return nil, err
	}
	return inOrder(arrivals)
}

// inOrder makes a trace of arrivals that may be out of order.
func inOrder(arrivals []arrival) (*Trace, error) {
	if len(arrivals) == 0 {
		return nil, errors.New("it holds no request")
	}
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	t := &Trace{Requests: make([]Request, len(arrivals))}
	origin := arrivals[0].at
	for i, a := range arrivals {
		if a.request.At = a.at - origin; a.request.At > fileSpanMax || a.request.At < 0 {
			return nil, fmt.Errorf("its requests lie more than %d years apart", fileSpanMax/(365*24*time.Hour))
		}
		t.Requests[i] = a.request
	}
	t.spread()
	t.guessCached()
	return t, nil
}

// spread moves requests apart that have the same time because the file's clock is
// coarse: evenly up to the next time, or over the median time between two times if
// that is less.
func (t *Trace) spread() {
	var gaps []time.Duration
	for i := 1; i < len(t.Requests); i++ {
		if gap := t.Requests[i].At - t.Requests[i-1].At; gap > 0 {
			gaps = append(gaps, gap)
		}
	}
	if len(gaps) == 0 {
		return
	}
	slices.Sort(gaps)
	usual := gaps[len(gaps)/2]
	for i := 0; i < len(t.Requests); {
		n, at := 1, t.Requests[i].At
		for i+n < len(t.Requests) && t.Requests[i+n].At == at {
			n++
		}
		room := usual
		if i+n < len(t.Requests) {
			room = min(room, t.Requests[i+n].At-at)
		}
		for k := range n {
			t.Requests[i+k].At = at + room*time.Duration(k)/time.Duration(n)
		}
		i += n
	}
}

// check completes a request that was read, and checks its bounds.
func (r *Request) check() error {
	if r.Prompt < 0 || r.Prompt > fileTokensMax {
		return fmt.Errorf("a prompt of %d tokens; allowed is 0 to %d", r.Prompt, fileTokensMax)
	}
	if r.Output < 0 || r.Output > fileTokensMax {
		return fmt.Errorf("an answer of %d tokens; allowed is 0 to %d", r.Output, fileTokensMax)
	}
	r.Prompt, r.Output = max(1, r.Prompt), max(1, r.Output)
	if r.Asked == 0 {
		r.Asked = askedUnset
	}
	r.Asked = max(r.Asked, r.Output)
	r.Cached = min(r.Cached, r.Prompt-1)
	r.Blocks = r.Blocks[:min(len(r.Blocks), r.Prompt/BlockTokens)]
	if r.Tenant == "" {
		r.Tenant = "default"
	}
	switch r.Class {
	case "":
		r.Class = interactive
	case interactive, batch, offline:
	default:
		return fmt.Errorf("class %.40q; allowed are interactive, batch and offline", r.Class)
	}
	return nil
}

// seconds turns a time of the file into a duration.
func seconds(s float64) (time.Duration, error) {
	if math.IsNaN(s) || s < 0 || s > math.MaxInt64/1e9/2 {
		return 0, fmt.Errorf("a time of %g s; it must be 0 or more, and below %g", s, math.MaxInt64/1e9/2)
	}
	return time.Duration(s * 1e9), nil
}
