package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/forebay-io/forebay/engine/hub"
)

// Intervals between two reports of a download.
const (
	pullBarInterval  = 200 * time.Millisecond
	pullLineInterval = 5 * time.Second
)

// ticker limits how often progress is reported.
type ticker struct {
	interval time.Duration
	last     time.Time
}

func newTicker(interval time.Duration) *ticker { return &ticker{interval: interval} }

func (t *ticker) due(anyway bool) bool {
	now := time.Now()
	if !anyway && now.Sub(t.last) < t.interval {
		return false
	}
	t.last = now
	return true
}

// pullLine shows the progress of a download: on a terminal one line that changes,
// elsewhere a new line every pullLineInterval.
type pullLine struct {
	to    io.Writer
	width int // of the terminal; 0 elsewhere
	every *ticker

	began time.Time
	first int64 // bytes that were on disk when it began
}

func newPullLine(to io.Writer) *pullLine {
	l := &pullLine{to: to, every: newTicker(pullLineInterval)}
	if width, ok := terminal(to); ok {
		l.width, l.every = width, newTicker(pullBarInterval)
	}
	return l
}

func (l *pullLine) show(p hub.Progress) {
	if l.began.IsZero() {
		l.began, l.first = time.Now(), p.Done
	}
	if !l.every.due(p.Finished) {
		return
	}
	text := pullText(p, p.Done-l.first, time.Since(l.began))
	switch {
	case l.width == 0:
		fmt.Fprintln(l.to, text)
	case p.Finished:
		fmt.Fprintf(l.to, "\r\x1b[K%s\n", cutLine(text, l.width-1))
	default:
		fmt.Fprintf(l.to, "\r\x1b[K%s", cutLine(text, l.width-1))
	}
}

// pullText describes the progress of a download; came bytes arrived in took.
func pullText(p hub.Progress, came int64, took time.Duration) string {
	share := 100.0
	if p.Total > 0 {
		share = 100 * float64(p.Done) / float64(p.Total)
	}
	text := fmt.Sprintf("%5.1f %%  %s of %s", share, hub.Bytes(p.Done), hub.Bytes(p.Total))
	if rate := float64(came) / took.Seconds(); came > 0 && took > 0 {
		text += fmt.Sprintf("  %s/s", hub.Bytes(int64(rate)))
		if left := p.Total - p.Done; left > 0 && !p.Finished {
			text += "  " + time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second).String() + " left"
		}
	}
	if p.Of > 1 {
		text += fmt.Sprintf("  [%d/%d]", p.Index, p.Of)
	}
	return text + "  " + p.File
}
