package capture

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// fine is a request that nobody will ask about.
func fine() *telemetry.Record {
	now := wire.Monotonic()
	r := &telemetry.Record{ID: "fine", Class: "interactive", Tenant: "t", Outcome: telemetry.OK, Route: "completions", Serial: 1, Prompts: 1, Choices: 1, CompletionTokens: 10,
		Arrived: now - 5e7, Decoded: now - 49e6, Identified: now - 49e6, Prepared: now - 48e6, Reserved: now - 48e6, Admitted: now - 48e6, Dispatched: now - 48e6,
		FirstToken: now - 4e7, FirstWrite: now - 4e7, LastToken: now - 1e6, Finished: now, FirstTokenGoal: 2 * time.Second, TokenGoal: 100 * time.Millisecond}
	r.Engine.Received, r.Engine.Scheduled, r.Engine.FirstToken, r.Engine.Finished = now-48e6, now-47e6, now-41e6, now-1e6
	return r
}

func TestDecide(t *testing.T) {
	usual := tails{time.Second, 500 * time.Millisecond}
	for name, c := range map[string]struct {
		change func(*telemetry.Record)
		number uint64
		want   reasons
	}{
		"a fine one":            {func(*telemetry.Record) {}, 7, 0},
		"one in so many":        {func(*telemetry.Record) {}, 1000, reasonBaseline},
		"late first token":      {func(r *telemetry.Record) { r.FirstTokenGoal = time.Millisecond }, 7, reasonSlowFirstToken},
		"slow tokens":           {func(r *telemetry.Record) { r.TokenGoal = time.Millisecond }, 7, reasonSlowToken},
		"long wait":             {func(r *telemetry.Record) { r.Admitted += 3 * second }, 7, reasonSlowQueue},
		"an error":              {func(r *telemetry.Record) { r.Outcome = telemetry.EngineError }, 7, reasonFailed},
		"refused":               {func(r *telemetry.Record) { r.Outcome = telemetry.RateLimited; r.Dispatched = 0 }, 1000, reasonRefused},
		"wrong":                 {func(r *telemetry.Record) { r.Outcome = telemetry.Invalid; r.Dispatched = 0 }, 7, 0},
		"its client left":       {func(r *telemetry.Record) { r.Outcome = telemetry.ClientGone }, 7, reasonClientLeft},
		"left before its body":  {func(r *telemetry.Record) { *r = telemetry.Record{Outcome: telemetry.ClientGone} }, 7, 0},
		"preempted":             {func(r *telemetry.Record) { r.Engine.Preempted = 1 }, 7, reasonPreempted},
		"a sampled caller":      {func(r *telemetry.Record) { r.Trace.Flags, r.ParentSpan = 1, [8]byte{1} }, 7, reasonSampled},
		"a caller not sampled":  {func(r *telemetry.Record) { r.ParentSpan = [8]byte{1} }, 7, 0},
		"forced":                {func(r *telemetry.Record) { r.Forced = true }, 7, reasonForced},
		"slower than usual":     {func(r *telemetry.Record) { r.Arrived -= second }, 7, reasonUnusual},
		"late in its own class": {func(r *telemetry.Record) { r.Arrived -= 3 * second }, 7, reasonSlowFirstToken | reasonUnusual},
	} {
		r := fine()
		c.change(r)
		r.Broken = r.Missed(r.Finished)
		if got := decide(r, usual, c.number, 1000); got != c.want {
			t.Errorf("%s is kept for %v, want %v", name, got.names(), c.want.names())
		}
	}
}

func TestUsualIsOneInAThousand(t *testing.T) {
	var d digest
	for i := range int64(20_000) {
		tail := d.add((i%1000 + 1) * 1e6)
		if i < digestLeast && tail != 0 {
			t.Fatalf("after %d it says %v", i, tail)
		}
	}
	if tail := time.Duration(d.tail); tail < 960*time.Millisecond || tail > 1150*time.Millisecond {
		t.Errorf("of 1 to 1000 ms one in a thousand is over %v", tail)
	}
	for range 3 * digestHalf {
		d.add(1e6)
	}
	if tail := time.Duration(d.tail); tail > 5*time.Millisecond {
		t.Errorf("it still remembers %v", tail)
	}
	for ns := int64(1); ns < 1e15; ns = ns*5/4 + 1 {
		b := bucketOf(ns)
		if end := bucketEnd(b); b < digestBuckets-1 && (end <= ns || float64(end) > 1.3*float64(ns)+2000) {
			t.Fatalf("%d ns is in bucket %d, which ends at %d", ns, b, end)
		}
	}
}

// TestATenantDoesNotHideTheOthers fails a thousand requests of one tenant and
// then one of another.
func TestATenantDoesNotHideTheOthers(t *testing.T) {
	s := newStore(t, Config{})
	for range 1000 {
		r := failed(1)
		r.Dispatched = 0
		s.Offer(r)
	}
	if !s.Offer(failed(2)) {
		t.Error("the other tenant's was dropped")
	}
	stats := s.Stats()
	if kept := stats.Kept[reasonFailed.first()]; kept != 11 {
		t.Errorf("%d were kept, want 10 of the one and 1 of the other", kept)
	}
	if stats.Dropped[dropRepeat] != 990 {
		t.Errorf("dropped %v, want 990 repeats", stats.Dropped)
	}
	for i := 10; i < 60; i++ {
		s.Offer(failed(i))
	}
	if stats = s.Stats(); stats.Kept[reasonFailed.first()] != 20 || stats.Dropped[dropClass]+stats.Dropped[dropRepeat] != 990+41 {
		t.Errorf("kept %v and dropped %v of a class with a burst of 20", stats.Kept, stats.Dropped)
	}
}

// TestRevokedRequestsAreNotHidden: of an overload's refusals on arrival only some
// are kept, of those after it all.
func TestRevokedRequestsAreNotHidden(t *testing.T) {
	s := newStore(t, Config{})
	offer := func(r *telemetry.Record, id string) bool {
		r.ID, r.Broken = id, r.Missed(r.Finished)
		return s.Offer(r)
	}
	for i := range 100 {
		offer(refused(telemetry.Late, "late"), fmt.Sprint("late", i))
	}
	if offer(refused(telemetry.Late, "late"), "late") {
		t.Error("a hundred and first refusal on arrival is kept")
	}
	revoked := with(refused(telemetry.Revoked, "revoked"), func(r *telemetry.Record) { r.Accepted = r.Reserved })
	if !offer(revoked, "revoked") {
		t.Fatalf("a revoked request is dropped: %+v", s.Stats())
	}
	if v := s.Find("revoked"); v == nil || !v.Brief || !strings.Contains(v.Sentence, "It was admitted, and refused") {
		t.Errorf("%+v", v)
	}
}

// TestEverySlowRequestIsKept: whatever the quota says, one that missed its
// goal has a view that sums, with its steps or without.
func TestEverySlowRequestIsKept(t *testing.T) {
	s := newStore(t, Config{KeptMax: 512})
	const slow = 400
	for i := range slow {
		r, _ := slowRecord()
		r.ID, r.Broken = fmt.Sprint("slow", i), telemetry.FirstTokenGoal
		if i%50 == 0 {
			s.flush() // or else too many wait at once
		}
		if !s.Offer(r) {
			t.Fatalf("%d was dropped: %+v", i, s.Stats())
		}
	}
	for i := range slow {
		v := s.Find(fmt.Sprint("slow", i))
		if v == nil {
			t.Fatalf("%d is not found", i)
		}
		checkSums(t, v)
		if v.Sentence == "" || v.Cause != "others_prefill" {
			t.Errorf("%q: %s", v.Cause, v.Sentence)
		}
	}
	if stats := s.Stats(); stats.Brief < slow-20 || stats.Brief > slow-10 { // the quota refills meanwhile
		t.Errorf("%d are brief", stats.Brief)
	}
}

func TestOfferOfAFineRequestAllocatesNothing(t *testing.T) {
	s := newStore(t, Config{BaselineEvery: 1e9})
	r := fine()
	s.Offer(r)
	if n := testing.AllocsPerRun(1000, func() {
		if s.Offer(r) {
			t.Fatal("it was kept")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	s := newStore(t, Config{StepsKept: 1024})
	log := wire.NewStepLog(16)
	_, steps := slowRecord()
	state, step := &wire.State{Steps: log}, steps[0]
	if n := testing.AllocsPerRun(5000, func() {
		step.Step++
		log.Add(&step)
		s.Heard(state)
	}); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

func TestHungRequestsAreKeptWhileTheyRun(t *testing.T) {
	s := newStore(t, Config{CheckInterval: 10 * time.Millisecond})
	r := fine()
	r.ID, r.Arrived, r.FirstToken, r.FirstWrite, r.LastToken, r.Finished, r.Engine = "hung", r.Arrived-5*second, 0, 0, 0, 0, wire.Timings{}
	young := *fine()
	young.ID, young.FirstToken, young.LastToken, young.FirstWrite, young.Finished, young.Engine = "young", 0, 0, 0, 0, wire.Timings{}
	var mu sync.Mutex
	running := []telemetry.Record{*r, young}
	s.Watch(func() []telemetry.Record {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(running)
	})
	for until := time.Now().Add(5 * time.Second); s.Stats().Kept[reasonHung.first()] == 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	list := s.List()
	if len(list) != 1 || list[0].ID != "hung" || !list[0].Running || !slices.Contains(list[0].Reasons, "hung") {
		t.Fatalf("kept are %+v", list)
	}
	checkSums(t, list[0])
	if v := s.Find("young"); v == nil || !v.Running || !strings.HasPrefix(v.Sentence, "It still runs") {
		t.Errorf("the other one is %+v", v)
	} else {
		checkSums(t, v)
	}
	mu.Lock()
	running = nil
	mu.Unlock()
	r.Finished, r.Outcome = wire.Monotonic(), telemetry.ClientGone
	r.Broken = r.Missed(r.Finished)
	s.Offer(r)
	if v := s.Find("hung"); v == nil || v.Running || v.Outcome != "client_gone" || len(s.List()) != 1 {
		t.Errorf("after its end it is %+v", v)
	}
}

// TestWhatHasEndedDoesNotHang: a request ends between the watchdog's look and its
// verdict.
func TestWhatHasEndedDoesNotHang(t *testing.T) {
	s := newStore(t, Config{CheckInterval: time.Hour})
	r := fine()
	r.Arrived, r.FirstToken, r.FirstWrite, r.LastToken, r.Finished = r.Arrived-5*second, 0, 0, 0, 0
	looks := 0
	s.Watch(func() []telemetry.Record {
		if looks++; looks > 1 {
			return nil
		}
		return []telemetry.Record{*r}
	})
	s.check()
	if list := s.List(); looks != 2 || len(list) > 0 {
		t.Errorf("after %d looks these are kept: %+v", looks, list)
	}
}

func TestOffKeepsNothing(t *testing.T) {
	s, err := New(Config{Off: true}, nil, nil)
	if err != nil || s != nil {
		t.Fatalf("%v, %v", s, err)
	}
	s.Heard(&wire.State{})
	s.Started(fine())
	s.Watch(nil)
	if s.Offer(failed(1)) || s.Find("request-1") != nil || s.List() != nil || s.Trees("x", spans.Names141) != nil || s.Has("request-1") || s.Stats() != (Stats{}) {
		t.Error("it kept something")
	}
	s.Close()
}

func BenchmarkOffer(b *testing.B) {
	s := newStore(b, Config{BaselineEvery: 1e9})
	r := fine()
	b.ReportAllocs()
	for b.Loop() {
		s.Offer(r)
	}
}

func BenchmarkStep(b *testing.B) {
	s := newStore(b, Config{})
	log := wire.NewStepLog(16)
	_, steps := slowRecord()
	step := steps[0]
	for i := range 16 {
		step.Members = append(step.Members, wire.StepMember{Serial: uint64(i), Tokens: 1, Decode: true})
	}
	state := &wire.State{Steps: log}
	b.ReportAllocs()
	for b.Loop() {
		step.Step++
		log.Add(&step)
		s.Heard(state)
	}
}
