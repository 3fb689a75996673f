package supervise

import (
	"bytes"
	"io"
	"sync"
)

// lines passes on a child's output line by line, so that the lines of two processes
// do not mix. A line over the limit is cut. A JSON line stays as it is; other lines
// get the prefix. Lines that say why the child ended are kept as the verdict. Of
// these, an error of our own program is not passed on, since the supervisor reports
// it.
type lines struct {
	out    io.Writer
	prefix string
	limit  int // bytes a line

	mu      sync.Mutex
	line    []byte // the unfinished line, at most limit bytes
	verdict string
}

const cutMark = " … (cut)"

// ownErrors begins each line of an error that our program prints.
const ownErrors = "forebay: "

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
	line := l.line
	l.line = l.line[:0]
	if words, ok := bytes.CutPrefix(line, []byte(ownErrors)); ok {
		if l.verdict != "" && len(l.verdict) < l.limit {
			l.verdict += "; "
		}
		if len(l.verdict) < l.limit {
			l.verdict += string(words)
		}
		return
	}
	for _, start := range []string{"panic: ", "fatal error: "} {
		if l.verdict == "" && bytes.HasPrefix(line, []byte(start)) {
			l.verdict = string(line)
		}
	}
	if !bytes.HasPrefix(line, []byte("{")) {
		io.WriteString(l.out, l.prefix+string(line)+"\n")
		return
	}
	l.out.Write(append(line, '\n'))
}

// end passes on an unfinished line, and returns and forgets the verdict.
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
