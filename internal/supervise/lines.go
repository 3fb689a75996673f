package supervise

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// lines passes a child's output on, a line at a time, so that lines of two
// processes do not mix. A line over the limit is cut. JSON lines go unchanged,
// others get the prefix. It remembers the line that best says why the child
// ended: the first that starts with a known word.
type lines struct {
	out    io.Writer
	prefix string
	limit  int // bytes a line

	mu      sync.Mutex
	line    []byte // the unfinished line, at most limit bytes
	verdict string
}

const cutMark = " … (cut)"

// verdictStarts are how a child says why it ends; the words are cut off the
// first, which is the form of our own errors.
var verdictStarts = []string{"forebay: ", "panic: ", "fatal error: "}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		part, rest, whole := bytes.Cut(p, []byte("\n"))
		room := max(0, l.limit-len(l.line))
		l.line = append(l.line, part[:min(len(part), room)]...)
		if len(part) > room && !bytes.HasSuffix(l.line, []byte(cutMark)) {
			l.line = append(l.line, cutMark...)
		}
		if whole {
			l.flush()
		}
		p = rest
	}
	return n, nil // a full disk under the log must not stop the child
}

func (l *lines) flush() {
	for _, start := range verdictStarts {
		if l.verdict == "" && bytes.HasPrefix(l.line, []byte(start)) {
			l.verdict = strings.TrimPrefix(string(l.line), verdictStarts[0])
		}
	}
	if !bytes.HasPrefix(l.line, []byte("{")) {
		l.line = append([]byte(l.prefix), l.line...)
	}
	l.out.Write(append(l.line, '\n'))
	l.line = l.line[:0]
}

// end passes on an unfinished line and returns the verdict, which it forgets.
func (l *lines) end() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) > 0 {
		l.flush()
	}
	verdict := l.verdict
	l.verdict = ""
	return verdict
}
