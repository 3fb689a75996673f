package wire

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStepLogKeepsTheLastSteps(t *testing.T) {
	l := NewStepLog(4)
	heard, want := uint64(0), []uint64(nil)
	var got []uint64
	each := func(r *StepRecord) bool {
		if len(r.Members) != int(r.Step%3) || r.Step%3 > 0 && r.Members[0].Serial != r.Step {
			t.Errorf("record %+v", *r)
		}
		got = append(got, r.Step)
		return len(got)%3 != 0
	}
	r := StepRecord{}
	for step := uint64(1); step <= 20; step++ {
		r.Step, r.Members = step, r.Members[:0]
		for range step % 3 {
			r.Members = append(r.Members, StepMember{Serial: step})
		}
		l.Add(&r)
		switch {
		case step <= 10: // heard as they come
			heard = l.After(heard, each)
			want = append(want, step)
		case step == 20: // and the last four of ten late
			heard = l.After(heard, each) // stops at every third that was heard
			heard = l.After(heard, each)
			want = append(want, 17, 18, 19, 20)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || heard != 20 || l.Added() != 20 {
		t.Errorf("heard %d of %d (-want +got):\n%s", heard, l.Added(), diff)
	}
	if n := l.After(99, func(*StepRecord) bool { return false }); n != 17 {
		t.Errorf("a reader of another log goes on at %d", n)
	}
	if n := (*StepLog)(nil).After(7, each); n != 7 {
		t.Errorf("no log at all: %d", n)
	}
}

// TestStepRecordsCrossOnce: each record comes once and in order, whether frames
// come at every step, after many, or too late for the log.
func TestStepRecordsCrossOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, e *changingEngine, _ *Generation) {
		log, total := NewStepLog(StepLogSteps), *e.state.Load()
		total.Steps = log
		first := c.State().Steps.Added()
		heard, last, lost := first, uint64(0), 0
		hear := func(r *StepRecord) bool {
			if r.Step <= last || len(r.Members) != int(r.Step%5) {
				t.Errorf("step %d with %d members after step %d", r.Step, len(r.Members), last)
			}
			lost += int(r.Step - last - 1)
			last = r.Step
			return true
		}
		for _, steps := range []int{1, 2, stepRecordsMax, 3*stepRecordsMax + 1, 0, StepLogSteps + 5, 1} {
			for range steps {
				total.Step++
				log.Add(&StepRecord{Step: total.Step, Members: make([]StepMember, total.Step%5)})
				s := total
				e.state.Store(&s)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			heard = c.State().Steps.After(heard, hear)
			if last != total.Step {
				t.Errorf("heard up to step %d of %d", last, total.Step)
			}
		}
		if lost != 5 {
			t.Errorf("%d steps were lost by the numbers; want the 5 that the log had no room for", lost)
		}
	})
}

func TestHostileRecords(t *testing.T) {
	state := func(rest ...byte) []byte { return append(appendState(appendBool(nil, true), &State{}), rest...) }
	record := func(r StepRecord) []byte { return appendRecord(state(1), &r) }
	huge := binary.AppendUvarint(nil, 1<<62)
	for name, c := range map[string]struct {
		payload []byte
		want    string
	}{
		"many records":     {state(append(huge, 0, 0)...), "a list of"},
		"too many records": {append(state(0x81, 2), make([]byte, 1<<16)...), "over the limit of 256"},
		"too many members": {record(StepRecord{Members: make([]StepMember, StepListMax+1)}), "257 entries"},
		"too many left":    {record(StepRecord{LeftOut: make([]StepLeftOut, StepListMax+1)}), "257 entries"},
		"strange reason":   {record(StepRecord{LeftOut: []StepLeftOut{{Why: PartCount}}}), "unknown reason 13"},
		"no reason":        {record(StepRecord{LeftOut: []StepLeftOut{{Why: PartOwn}}}), "unknown reason 0"},
		"too many lost":    {record(StepRecord{Lost: make([]LostTime, LostTimesMax+1)}), "9 lost stretches"},
		"lost too much":    {record(StepRecord{Lost: []LostTime{{Begin: 5, End: 9, By: [LostCauseCount]time.Duration{3, 2}}}}), "more than the 4 ns"},
		"ends too late":    {append(state(1, 1), append(binary.AppendVarint(nil, 1<<62), append(binary.AppendUvarint(nil, 1<<63-1), make([]byte, 20)...)...)...), "ends too late"},
		"endless":          {append(state(1, 1, 0), append(binary.AppendUvarint(nil, 1<<63), make([]byte, 20)...)...), "too long"},
	} {
		err := new(stepFrame).decode(c.payload, 9)
		if err == nil || err.Kind != Protocol || !strings.Contains(err.Message, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	many := appendSize([]byte{1, 0, 0, 0}, LaunchTraceMax+1)
	d := &decoder{rest: append(many, make([]byte, 5*(LaunchTraceMax+1))...)}
	if d.traceReply(); d.err == nil || !strings.Contains(d.err.Message, "over the limit") {
		t.Errorf("a trace of too many launches: %v", d.err)
	}
}

// traceEngine answers a launch trace when the test says so.
type traceEngine struct {
	stillEngine
	limits chan time.Duration
}

func (e traceEngine) TraceLaunches(ctx context.Context, steps int, limit time.Duration) (*LaunchTrace, error) {
	e.limits <- limit
	if steps == 1 {
		<-ctx.Done()
		e.limits <- 0
	}
	return &LaunchTrace{Steps: steps, Launches: []Launch{{Step: 3, Layer: -1, Begin: 5, End: 7}}}, nil
}

func TestCaptureCrosses(t *testing.T) {
	engine := traceEngine{stillEngine{state: new(State)}, make(chan time.Duration, 2)}
	client, _ := socketPair(t, engine)
	got, err := client.TraceLaunches(t.Context(), 7, time.Second)
	if want := (&LaunchTrace{Steps: 7, Launches: []Launch{{Step: 3, Layer: -1, Begin: 5, End: 7}}}); err != nil || !cmp.Equal(got, want) || <-engine.limits != time.Second {
		t.Errorf("got %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-engine.limits; cancel() }()
	if _, err := client.TraceLaunches(ctx, 1, time.Minute); err == nil || AsError(err).Kind != Canceled {
		t.Errorf("an abandoned capture: %v", err)
	}
	if <-engine.limits != 0 {
		t.Error("the engine did not hear of it")
	}
	other, _ := socketPair(t, stillEngine{state: new(State)})
	if _, err := other.TraceLaunches(t.Context(), 7, time.Second); err == nil || AsError(err).Kind != Invalid {
		t.Errorf("an engine that cannot: %v", err)
	}
}
