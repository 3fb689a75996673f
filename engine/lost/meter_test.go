package lost

import (
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
)

const ms = time.Millisecond

// machine is a simulated machine of two processors on which an engine runs steps of
// 10 ms on both.
type machine struct {
	now     int64
	reading Reading
	meter   Meter
	lost    []wire.LostTime
	last    time.Duration // predicted of the last step
}

var load = cost.Load{DecodeRows: 1, DecodeContext: 10}

func newMachine() *machine {
	m := &machine{now: 1e9, reading: Reading{Delayed: true, Processors: 2}}
	m.meter.Restore(cost.Cost{Base: 10e6})
	m.meter.Settle(m.read())
	return m
}

func (m *machine) read() Reading {
	r := m.reading
	r.At = m.now
	return r
}

// pass lets time go by in which this process has cpu of both processors and others
// have others.
func (m *machine) pass(d, cpu, others time.Duration) {
	m.now += int64(d)
	m.reading.CPU += cpu
	m.reading.Busy += cpu + others
}

// step computes a step that takes so long and has cpu.
func (m *machine) step(took, cpu, others time.Duration) {
	gap := 100 * time.Microsecond
	m.pass(gap, gap, 0)
	s := Step{Began: m.now, Load: load, CPU: cpu, Gap: gap, GapCPU: gap}
	m.pass(took, cpu, others)
	s.Ended = m.now
	predicted, l, some := m.meter.Step(s, m.read)
	m.last = predicted
	if some {
		m.lost = append(m.lost, l)
	}
}

// sum is what was lost to each cause.
func (m *machine) sum() (by [wire.LostCauseCount]time.Duration) {
	for i := range m.lost {
		for c, d := range m.lost[i].By {
			by[c] += d
		}
	}
	return by
}

func TestCalmStepsLoseNothing(t *testing.T) {
	m := newMachine()
	for i := range 1000 {
		m.step(10*ms+time.Duration(i%7-3)*300*time.Microsecond, 16*ms, time.Duration(i%2)*ms)
	}
	if len(m.lost) != 0 {
		t.Errorf("%v was lost", m.lost)
	}
}

func TestDearerStepsLoseNothing(t *testing.T) {
	m := newMachine()
	for range 1000 { // they take twice what was thought, and have the processors for all of it
		m.reading.Waited += ms // our own threads wait for each other
		m.step(20*ms, 36*ms, 0)
	}
	if len(m.lost) != 0 || m.last < 18*ms {
		t.Errorf("%v was lost, and %v is predicted of 20 ms", m.lost, m.last)
	}
}

func TestLostTime(t *testing.T) {
	for name, c := range map[string]struct {
		run        func(*machine)
		cause      wire.LostCause
		least, all time.Duration // of the cause, and at most of everything
	}{
		"frozen in a step": {func(m *machine) { m.step(3010*ms, 17*ms, 0) }, wire.LostFrozen, 2900 * ms, 3010 * ms},
		"frozen while others work": {func(m *machine) { m.step(3010*ms, 17*ms, 2500*ms) },
			wire.LostFrozen, 2900 * ms, 3010 * ms},
		"frozen in a gap": {func(m *machine) {
			m.pass(3*time.Second, 0, 0)
			_, l, some := m.meter.Step(Step{Began: m.now, Ended: m.now + int64(10*ms), Load: load, CPU: 18 * ms, Gap: 3 * time.Second}, m.read)
			if some {
				m.lost = append(m.lost, l)
			}
		}, wire.LostFrozen, 2900 * ms, 3 * time.Second},
		"frozen with nothing to do": {func(m *machine) {
			due := m.now
			m.pass(3*time.Second, ms, 0)
			if l, some := m.meter.Late(due, m.now, ms, m.read); some {
				m.lost = append(m.lost, l)
			}
		}, wire.LostFrozen, 2900 * ms, 3 * time.Second},
		"four busy loops": {func(m *machine) {
			for range 50 {
				m.reading.Waited += 50 * ms
				m.step(36*ms, 20*ms, 52*ms)
			}
		}, wire.LostTaken, 1100 * ms, 1300 * ms},
		"a CPU limit of a fifth": {func(m *machine) {
			for range 20 {
				m.reading.Throttled += 150 * ms
				m.reading.Waited += 150 * ms
				m.step(100*ms, 20*ms, 0)
			}
		}, wire.LostThrottled, 1600 * ms, 1820 * ms},
		"another machine has the processors": {func(m *machine) {
			for range 20 {
				m.reading.Steal += 100 * ms
				m.step(60*ms, 20*ms, 0)
			}
		}, wire.LostStolen, 800 * ms, 1010 * ms},
		"the model is read from disk anew": {func(m *machine) {
			for range 10 {
				m.reading.Faults += 1000
				m.reading.Paging += 190 * ms
				m.step(210*ms, 22*ms, 0)
			}
		}, wire.LostPaging, 1700 * ms, 2010 * ms},
	} {
		m := newMachine()
		for range 30 {
			m.step(10*ms, 17*ms, 0)
		}
		began := m.now
		c.run(m)
		by := m.sum()
		all := time.Duration(0)
		for _, d := range by {
			all += d
		}
		if by[c.cause] < c.least || all > c.all {
			t.Errorf("%s: lost are %v of %v, of which %v; want %v or more", name, all, time.Duration(m.now-began), by, c.least)
		}
		end := began
		for _, l := range m.lost {
			if l.Begin < end-int64(ms) || l.End > m.now+int64(10*ms) || l.Sum() > time.Duration(l.End-l.Begin) {
				t.Errorf("%s: %v of a stretch of %v that begins %v after the one before", name, l.Sum(), time.Duration(l.End-l.Begin), time.Duration(l.Begin-end))
			}
			end = l.End
		}
		if m.last > 12*ms { // what is lost teaches nothing
			t.Errorf("%s: a step is predicted to take %v", name, m.last)
		}
	}
}

func TestAShortLateWakeIsNothing(t *testing.T) {
	m := newMachine()
	if _, some := m.meter.Late(m.now, m.now+int64(40*ms), 0, m.read); some {
		t.Error("a wake that was 40 ms late lost time")
	}
	if _, some := m.meter.Late(m.now, m.now+int64(400*ms), 350*ms, m.read); some {
		t.Error("a process that computed lost time")
	}
}
