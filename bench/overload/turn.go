package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// turn is one measurement of one server: its capacity, then every factor.
type turn struct {
	*options
	server   *server
	number   int
	capacity capacity
}

// capacity is what a server serves --clients that each wait for their answers, in requests a second.
type capacity struct {
	Server string  `json:"server"`
	Run    int     `json:"run"`
	Alone  float64 `json:"per_s"`
	Beside float64 `json:"beside_per_s,omitempty"` // the backlog or the busy loops, where the scenario has them
}

// rampOf is how much of the begin of a run the rates do not count, because the
// server is idle then.
func rampOf(length time.Duration) time.Duration { return min(2*time.Second, length/5) }

// calibrate measures the capacity, or takes the one that the options give for the
// first server.
func (t *turn) calibrate(ctx context.Context, first bool) (err error) {
	s := scenarios[t.scenario]
	t.capacity = capacity{Server: t.server.name, Run: t.number}
	if first && t.given > 0 {
		t.capacity.Alone = t.given
	} else if t.capacity.Alone, err = t.closedLoop(ctx, &scenario{size: s.size}); err != nil {
		return err
	}
	if s.backlog || s.busy {
		t.capacity.Beside, err = t.closedLoop(ctx, s)
	}
	fmt.Fprintf(t.progress, "run %d, %s: capacity %.2f/s", t.number, t.server.name, t.capacity.Alone)
	if t.capacity.Beside > 0 {
		fmt.Fprintf(t.progress, ", beside %s %.2f/s", t.scenario, t.capacity.Beside)
	}
	fmt.Fprintln(t.progress)
	if err == nil && first && t.capacity.Alone == 0 {
		err = fmt.Errorf("%s served no request in %v, so it has no capacity to multiply; try a longer --capacity-seconds", t.server.name, t.calibration)
	}
	return err
}

func (t *turn) closedLoop(ctx context.Context, s *scenario) (perSecond float64, err error) {
	ramp := rampOf(t.calibration)
	l, err := t.begin(ctx, ramp, ramp+t.calibration)
	if err != nil {
		return 0, err
	}
	if s.busy {
		stop, err := startBusy(busyLoops)
		if err != nil {
			return 0, err
		}
		defer stop()
	}
	stream := uint64(t.number) << 32
	for i := range t.clients {
		l.client(closed, i, newPlanner(s, t.server.text, t.seed, stream+uint64(i)))
	}
	if s.backlog {
		l.backlog(s, t.seed, stream)
	}
	if err := l.wait(ctx); err != nil {
		return 0, err
	}
	samples, err := l.judged(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range samples {
		if s.source == closed && s.ending == served && l.counted.holds(s.sent+s.answer.end) {
			perSecond += 1 / t.calibration.Seconds()
		}
	}
	if t.record != "" && !s.backlog && !s.busy {
		err = l.write(t.record, &meta{Server: t.server.name, Scenario: t.scenario, Run: t.number, Seed: t.seed, Seconds: l.counted.until.Seconds(), Capacity: perSecond, Model: t.server.model})
	}
	return perSecond, err
}

// measure runs the load of one factor. A scenario whose load changes has a tally of
// each part.
func (t *turn) measure(ctx context.Context, at int, factor float64) ([]*tally, error) {
	s := scenarios[t.scenario]
	stream := uint64(t.number)<<32 + uint64(at+1)<<16
	plan := newPlanner(s, t.server.text, t.seed, stream).arrivals(factor*t.capacity.Alone, t.length)
	l, err := t.begin(ctx, rampOf(t.length), t.length)
	if err != nil {
		return nil, err
	}
	before := processorTime()
	if s.backlog {
		l.backlog(s, t.seed, stream)
	}
	if s.busy {
		l.busyAt(ctx, t.length/2)
	}
	if err := l.open(ctx, plan, t.drain); err != nil {
		return nil, err
	}
	used := (processorTime() - before).Seconds() / t.length.Seconds()
	samples, err := l.judged(ctx)
	if err != nil {
		return nil, err
	}
	m := &meta{Server: t.server.name, Scenario: t.scenario, Factor: factor, Run: t.number, Seed: t.seed, Seconds: t.length.Seconds(), Capacity: t.capacity.Alone, Model: t.server.model}
	if s.backlog {
		m.BatchClients, m.OfflineClients = backlogEach, backlogEach
	}
	if s.busy {
		m.BusyFrom, m.BusyLoops = (t.length / 2).Seconds(), busyLoops
	}
	if t.record != "" {
		if err := l.write(t.record, m); err != nil {
			return nil, err
		}
	}
	tallies := t.tallies(samples, l.counted, s.busy)
	for _, y := range tallies {
		y.Factor, y.ClientShare = factor, used
		fmt.Fprintln(t.progress, y.line())
	}
	return tallies, nil
}

// tallies counts a run, whose second half is apart if the machine was busy there.
func (t *turn) tallies(samples []*sample, counted span, busy bool) []*tally {
	whole := span{0, t.length}
	if !busy {
		return []*tally{t.tally("", samples, whole, counted, t.capacity.Alone)}
	}
	middle := t.length / 2
	return []*tally{
		t.tally("before", samples, span{0, middle}, span{counted.from, middle}, t.capacity.Alone),
		t.tally("busy", samples, span{middle, t.length}, span{middle, t.length}, t.capacity.Beside),
	}
}

func (t *turn) tally(part string, samples []*sample, arrived, counted span, capacity float64) *tally {
	y := count(samples, arrived, counted, capacity)
	y.Server, y.Run, y.Part = t.server.name, t.number, part
	if t.server.log == nil {
		y.Unlogged = 0
	}
	return y
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// span is a part of a run, from its start.
type span struct{ from, until time.Duration }

func (s span) holds(at time.Duration) bool { return s.from <= at && at < s.until }

// load is a run in progress.
type load struct {
	server  *server
	tag     string // the begin of its requests' ids
	began   time.Time
	counted span // the part in which rates are counted
	running sync.WaitGroup

	mu      sync.Mutex
	samples []*sample
	err     error // the first of what runs beside
}

// begin waits until the server has nothing to do, and begins a run.
func (t *turn) begin(ctx context.Context, from, until time.Duration) (*load, error) {
	if err := t.server.settle(ctx); err != nil {
		return nil, err
	}
	if err := t.server.log.skip(); err != nil {
		return nil, err
	}
	now := time.Now()
	return &load{server: t.server, tag: strconv.FormatInt(now.UnixNano(), 36) + "-", began: now, counted: span{from, until}}, nil
}

// send sends one request and keeps what became of it.
func (l *load) send(r *request, id string, limit time.Duration) *sample {
	s := &sample{request: r, id: id, sent: time.Since(l.began)}
	s.answer = l.server.client.do(r, id, window{l.began.Add(l.counted.from), l.began.Add(l.counted.until)}, l.began.Add(limit))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = append(l.samples, s)
	return s
}

// open sends the requests of a plan, each at its time. It returns when all have
// ended or the drain limit is over.
func (l *load) open(ctx context.Context, plan []request, drain time.Duration) error {
	limit := l.counted.until + drain
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range plan {
		if wait := plan[i].at - time.Since(l.began); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		l.running.Go(func() { l.send(&plan[i], l.tag+strconv.Itoa(i), limit) })
	}
	return l.wait(ctx)
}

// refusedPause is how long a client of a closed loop waits after it was refused.
const refusedPause = 50 * time.Millisecond

// client runs a client that sends requests one after the other until the end of the
// run, which cuts its last one.
func (l *load) client(from source, number int, p *planner) {
	l.running.Go(func() {
		prefix := l.tag + from.String() + strconv.Itoa(number) + "-"
		for i := 0; time.Since(l.began) < l.counted.until; i++ {
			r := p.next(from)
			if s := l.send(&r, prefix+strconv.Itoa(i), l.counted.until); s.answer.status != 200 {
				time.Sleep(refusedPause)
			}
		}
	})
}

func (l *load) backlog(s *scenario, seed, stream uint64) {
	for i := range backlogEach {
		for _, from := range []source{batch, offline} {
			l.client(from, i, newPlanner(s, l.server.text, seed, stream+uint64(from)<<8+uint64(i)))
		}
	}
}

// busyAt runs busy loops from then to the end of the run.
func (l *load) busyAt(ctx context.Context, at time.Duration) {
	l.running.Go(func() {
		err := pause(ctx, at-time.Since(l.began))
		if err != nil {
			return
		}
		stop, err := startBusy(busyLoops)
		if err == nil {
			pause(ctx, l.counted.until-time.Since(l.began))
			err = stop()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.err = err
	})
}

// wait waits for the end of all that the load has begun. Not so when it was
// interrupted: then its requests end with the program.
func (l *load) wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return l.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// judged adds what the log says to the samples, and judges them.
func (l *load) judged(ctx context.Context) ([]*sample, error) {
	records, err := l.server.log.records(ctx, l.tag, len(l.samples))
	if err != nil {
		return nil, err
	}
	for _, s := range l.samples {
		s.log = records[s.id]
		s.judge()
	}
	return l.samples, nil
}
