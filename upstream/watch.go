package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// metricsBytesMax bounds a page of metrics.
const metricsBytesMax = 4 << 20

// watch reads the server's metrics, often while it works, where it has some that are
// known.
func (r *replica) watch() {
	e := r.engine
	var last *model
	off := false
	for r.ctx.Err() == nil {
		m, busy := r.watched()
		if m != last {
			last, off = m, false
		}
		wait := e.cfg.CheckInterval
		if m != nil && m.dialect.running != nil && !off && !e.cfg.MetricsOff {
			if busy {
				wait = e.cfg.MetricsInterval
			}
			running, waiting, err := r.server.metrics(r.ctx, m.dialect)
			switch {
			case err == nil:
				r.measured(running, waiting)
			case errors.Is(err, errNoMetrics):
				off = true
				e.log.Info("the upstream's metrics are not read", "upstream", r.name, "reason", err)
			}
		}
		select {
		case <-r.ctx.Done():
		case <-time.After(wait):
		}
	}
}

// watched is the server as it was found, nil where it was not, and whether it has work.
func (r *replica) watched() (m *model, busy bool) {
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	if !r.health.found {
		return nil, false
	}
	return r.model, r.ledger.live > 0
}

// measured takes in what the server says of its load.
func (r *replica) measured(running, waiting int) {
	now := time.Duration(wire.Monotonic())
	e := r.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	r.ledger.window.Metrics(running, waiting, now)
	if alone := r.ledger.window.View(now).Alone; alone == r.shared {
		r.shared = !alone
		if r.shared {
			e.log.Warn("others use the upstream too: order and goals hold only for what comes through here", "upstream", r.name)
		} else {
			e.log.Info("nobody else uses the upstream now", "upstream", r.name)
		}
	}
	e.publish()
}

var errNoMetrics = errors.New("it has no metrics page with known names")

// metrics reads how many requests the server computes, and how many wait there.
func (s *server) metrics(ctx context.Context, d *dialect) (running, waiting int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConnectLimit)
	defer cancel()
	r, err := s.request(ctx, "GET", "/metrics", nil)
	if err != nil {
		return 0, 0, err
	}
	answer, _, err := s.client.do(r)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("%w: /metrics has status %d", errNoMetrics, answer.StatusCode)
	}
	return readMetrics(io.LimitReader(answer.Body, metricsBytesMax), d)
}

const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:"

// readMetrics reads a page in Prometheus' text format. Values of several labels are
// summed.
func readMetrics(page io.Reader, d *dialect) (running, waiting int, err error) {
	sums := map[string]float64{}
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		line := lines.Text()
		rest := strings.TrimLeft(line, nameCharacters)
		name := line[:len(line)-len(rest)]
		if i := strings.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		fields := strings.Fields(rest)
		if name == "" || len(fields) == 0 {
			continue
		}
		if x, err := strconv.ParseFloat(fields[0], 64); err == nil && x >= 0 && x < 1<<30 {
			sums[name] += x
		}
	}
	if err := lines.Err(); err != nil {
		return 0, 0, err
	}
	n, ok := firstOf(sums, d.running)
	w, also := firstOf(sums, d.waiting)
	if !ok || !also {
		return 0, 0, errNoMetrics
	}
	return int(n), int(w), nil
}

// firstOf is the value of the first name that is there.
func firstOf(sums map[string]float64, names []string) (float64, bool) {
	for _, name := range names {
		if x, ok := sums[name]; ok {
			return x, true
		}
	}
	return 0, false
}
