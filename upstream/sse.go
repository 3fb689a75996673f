package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// eventReader reads a stream of server-sent events, as WHATWG HTML section 9.2 has
// them: lines end with CR, LF or both, a blank line ends an event, and lines that
// begin with a colon say nothing. It splits bytes and never characters, so a
// character that is cut between two packets stays whole.
type eventReader struct {
	from    *bufio.Reader
	max     int // bytes of an event
	afterCR bool
	data    []byte
	line    []byte
}

func newEventReader(r io.Reader, bytesMax int) *eventReader {
	return &eventReader{from: bufio.NewReaderSize(r, 16<<10), max: bytesMax}
}

var errEventLong = errors.New("an event is longer than upstream.event_bytes_max")

// next returns the data of the next event that has some, and whether its type is
// error. The data is valid until the following call. At the end of the stream it
// returns what an event without its blank line holds, and then io.EOF. A stream that
// broke gives its error, and nothing of the event that it broke in.
func (e *eventReader) next() (data []byte, failure bool, err error) {
	e.data = e.data[:0]
	any := false
	for {
		line, err := e.readLine()
		if err == io.EOF && len(line) == 0 && any {
			return e.data, failure, nil
		}
		if err != nil && !(err == io.EOF && len(line) > 0) {
			return nil, false, err
		}
		if len(line) == 0 {
			if any {
				return e.data, failure, nil
			}
			failure = false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if any {
				e.data = append(e.data, '\n')
			}
			if len(e.data)+len(value) > e.max {
				return nil, false, errEventLong
			}
			e.data, any = append(e.data, value...), true
		case "event":
			failure = string(value) == "error"
		}
	}
}

// readLine returns the next line without its end. The last line may come without
// one, together with io.EOF.
func (e *eventReader) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		c, err := e.from.ReadByte()
		if err != nil {
			return e.line, err
		}
		wasCR := e.afterCR
		e.afterCR = c == '\r'
		switch {
		case c == '\n' && wasCR: // the end of a line that CR has ended already
		case c == '\n' || c == '\r':
			return e.line, nil
		case len(e.line) >= e.max:
			return nil, errEventLong
		default:
			e.line = append(e.line, c)
		}
	}
}
