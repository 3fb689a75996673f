package wire

import (
	"slices"
	"testing"
)

// countingControl remembers what a stream's reader asked of its producer.
type countingControl struct{ calls []string }

func (c *countingControl) Pause()  { c.calls = append(c.calls, "pause") }
func (c *countingControl) Resume() { c.calls = append(c.calls, "resume") }
func (c *countingControl) Cancel() { c.calls = append(c.calls, "cancel") }
func (c *countingControl) Taken()  { c.calls = append(c.calls, "taken") }

func TestStreamIsBounded(t *testing.T) {
	s := NewStream(2, nil, &countingControl{})
	for i, want := range []bool{true, true, false} {
		if got := s.Put(Event{TokenCount: i}); got != want {
			t.Errorf("put %d: %v, want %v", i, got, want)
		}
	}
	if s.Room() != 0 || !s.Put(Event{Finish: FinishStop}) || !s.Put(Event{End: &End{}}) {
		t.Error("a full stream refuses a finish or an end")
	}
	if s.Put(Event{End: &End{}}) {
		t.Error("a second end is taken")
	}
	if got := s.takeN(nil, 1); len(got) != 1 || got[0].TokenCount != 0 || s.Waiting() != 3 {
		t.Errorf("took %+v, %d wait", got, s.Waiting())
	}
	if got := s.Take(nil); len(got) != 3 || got[0].TokenCount != 1 || got[2].End == nil {
		t.Errorf("then took %+v", got)
	}
}

func TestStreamAsksItsProducerWhileItLives(t *testing.T) {
	live, ended := new(countingControl), new(countingControl)
	s := NewStream(2, nil, live)
	s.Take(nil)
	s.Put(Event{})
	s.Take(nil)
	s.Pause()
	s.Resume()
	s.Put(Event{})
	s.Close()
	s.Close()
	s.Pause()
	if got := s.Take(nil); len(got) != 0 || s.Put(Event{}) {
		t.Errorf("after Close: %+v", got)
	}
	if want := []string{"taken", "pause", "resume", "cancel"}; !slices.Equal(live.calls, want) {
		t.Errorf("live: %v, want %v", live.calls, want)
	}
	s = NewStream(2, nil, ended)
	s.Put(Event{End: &End{}})
	s.Pause()
	s.Resume()
	s.Take(nil)
	s.Close()
	if len(ended.calls) != 0 {
		t.Errorf("ended: %v", ended.calls)
	}
}

// TestStreamCancel: after Cancel a reader gets the End alone, also one that was put
// before, and the producer is asked once.
func TestStreamCancel(t *testing.T) {
	control := new(countingControl)
	s := NewStream(2, nil, control)
	s.Put(Event{})
	s.Cancel()
	s.Cancel()
	s.Pause()
	if s.Put(Event{}) || s.Waiting() != 0 {
		t.Errorf("an event after Cancel: %d wait", s.Waiting())
	}
	if got := s.Take(nil); len(got) != 0 || !s.Put(Event{End: &End{}}) {
		t.Errorf("took %+v before the end", got)
	}
	if got := s.Take(nil); len(got) != 1 || got[0].End == nil {
		t.Errorf("took %+v", got)
	}
	s.Close()
	if want := []string{"cancel"}; !slices.Equal(control.calls, want) {
		t.Errorf("asked %v, want %v", control.calls, want)
	}
	for name, put := range map[string][]Event{"after others": {{}, {Finish: FinishStop}, {End: &End{}}}, "alone": {{End: &End{}}}} {
		ended := new(countingControl)
		s := NewStream(2, nil, ended)
		for _, e := range put {
			s.Put(e)
		}
		s.Cancel()
		if got := s.Take(nil); len(got) != 1 || got[0].End == nil || len(ended.calls) != 0 {
			t.Errorf("%s: took %+v of a stream that had ended, asked %v", name, got, ended.calls)
		}
	}
}
