package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"time"
)

// logged is what the gateway's own record says of a request. Times are milliseconds
// since it arrived there; 0 means that it did not get so far. The logs of older
// versions have no promise, goal and time of acceptance.
type logged struct {
	ClientID   string  `json:"client_id"`
	Outcome    string  `json:"outcome"`
	Tenant     string  `json:"tenant"`
	Class      string  `json:"class"`
	Promise    string  `json:"promise"` // what became of its goal: kept, broken, revoked, open
	Broken     string  `json:"broken"`  // the goals that it missed
	Prompt     int     `json:"prompt_tokens"`
	Cached     int     `json:"cached_tokens"`
	Completion int     `json:"completion_tokens"`
	Prepared   float64 `json:"prepared_ms"`
	Reserved   float64 `json:"reserved_ms"`
	Accepted   float64 `json:"accepted_ms"` // not refused on arrival
	Admitted   float64 `json:"admitted_ms"`
	Dispatched float64 `json:"dispatched_ms"`
	FirstToken float64 `json:"first_token_ms"`
	FirstWrite float64 `json:"first_write_ms"`
	Total      float64 `json:"total_ms"`
	Predicted  float64 `json:"predicted_ms"` // to the first token, when it arrived
	Goal       float64 `json:"first_token_goal_ms"`
}

// accessLog reads the lines that a server appends to its access log.
type accessLog struct {
	file *os.File
	name string
	rest []byte // the begin of a line that is not complete
}

// openLog returns the log in the file with that name, or nil for none. The file is
// opened when it is first read.
func openLog(name string) *accessLog {
	if name == "" {
		return nil
	}
	return &accessLog{name: name}
}

func (l *accessLog) close() {
	if l != nil && l.file != nil {
		l.file.Close()
	}
}

// lines calls each with the new lines.
func (l *accessLog) lines(each func([]byte)) error {
	if l.file == nil {
		f, err := os.Open(l.name)
		if err != nil {
			return err
		}
		l.file = f
	}
	in := bufio.NewReaderSize(l.file, 64<<10)
	for {
		part, err := in.ReadBytes('\n')
		l.rest = append(l.rest, part...)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		each(l.rest)
		l.rest = l.rest[:0]
	}
}

// skip passes over what is there.
func (l *accessLog) skip() error {
	if l == nil {
		return nil
	}
	return l.lines(func([]byte) {})
}

const logLimit = 5 * time.Second // for lines that are still on their way

// records returns the records of the requests whose id begins with tag, by id. It
// waits for want of them, but not for ever: a server drops lines before it stalls.
func (l *accessLog) records(ctx context.Context, tag string, want int) (map[string]*logged, error) {
	all := make(map[string]*logged, want)
	if l == nil {
		return all, nil
	}
	mark := []byte(`"client_id":"` + tag)
	for until := time.Now().Add(logLimit); ; {
		err := l.lines(func(line []byte) {
			var r logged
			if bytes.Contains(line, mark) && json.Unmarshal(line, &r) == nil {
				all[r.ClientID] = &r
			}
		})
		if err != nil || len(all) >= want || time.Now().After(until) {
			return all, err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return all, err
		}
	}
}
