package capture

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// TestUsualOfAClassAndSize: a request is compared with those like it, and the groups
// that are known are bounded.
func TestUsualOfAClassAndSize(t *testing.T) {
	s := newStore(t, Config{UsualGroupsMax: 3, StepsKept: 1024})
	took := func(d time.Duration, prompt int, class string) *telemetry.Record {
		r := fine()
		r.Class, r.PromptTokens = class, prompt
		r.Arrived = r.Finished - int64(d)
		return r
	}
	for i := range 100 {
		s.Offer(took(time.Duration(90+i%20)*time.Millisecond, 30, "interactive"))
		s.Offer(took(time.Duration(9000+i%20)*time.Millisecond, 3000, "interactive"))
	}
	v := s.build(took(400*time.Millisecond, 28, "interactive"), reasonForced, false, wire.Monotonic()).view
	u := v.Usual
	if u == nil || u.Requests != 100 || u.WallMS < 95 || u.WallMS > 125 || u.Ratio < 3.2 || u.Ratio > 4.3 || !strings.HasPrefix(v.Sentence, "It missed no goal, but took longer than is usual for its class and size, 1") {
		t.Errorf("usual is %+v: %q", u, v.Sentence)
	}
	if v := s.build(took(100*time.Millisecond, 28, "interactive"), reasonForced, false, wire.Monotonic()).view; !strings.HasPrefix(v.Sentence, "It took about as long as is usual for its class and size, 1") {
		t.Errorf("a usual one: %q", v.Sentence)
	}
	if v := s.build(took(9*time.Second, 3000, "interactive"), reasonForced, false, wire.Monotonic()).view; v.Usual == nil || v.Usual.Ratio > 1.2 {
		t.Errorf("a large one: %+v", v.Usual)
	}
	if v := s.build(took(time.Second, 30, "batch"), reasonForced, false, wire.Monotonic()).view; v.Usual != nil || !strings.HasPrefix(v.Sentence, "It missed no goal; ") {
		t.Errorf("of another class: %+v, %q", v.Usual, v.Sentence)
	}
	for i := range 1000 {
		s.Offer(took(time.Second, 30, fmt.Sprint("class", i)))
	}
	if n := len(s.usuals.groups); n != 3 {
		t.Errorf("%d groups are known", n)
	}
}

// TestARequestThatWasNotKeptIsExplained by its record and the steps that are there.
func TestARequestThatWasNotKeptIsExplained(t *testing.T) {
	s := newStore(t, Config{StepsKept: 1024, BaselineEvery: 1e9})
	r, steps := slowRecord()
	r.Broken = r.Missed(r.Finished)
	told(s, r, steps)
	v := s.Explain(r)
	if v == nil || !v.Unkept || len(v.Reasons) != 0 || len(v.Steps) != len(steps) || v.Cause != "others_prefill" || !strings.Contains(v.Sentence, "another request's prompt") {
		t.Fatalf("explained is %+v", v)
	}
	checkSums(t, v)
	if s.Find(r.ID) != nil || s.Explain(&telemetry.Record{}) != nil || (*Store)(nil).Explain(r) != nil {
		t.Error("it was kept, or explained without an end or a store")
	}
}
