package spans

// sentTraces remembers the last shared traces that were sent, so that a step of
// many requests is one span and not one for each of them.
type sentTraces struct {
	sent map[[16]byte]bool
	ring [sentTracesMax][16]byte // the keys of sent, the oldest at next
	next int
}

// sentTracesMax is more than the steps of any two requests that are kept together.
const sentTracesMax = 8192

// choose replaces the spans of a shared trace by its Member where the trace was
// sent before.
func (s *sentTraces) choose(t *Tree) {
	if t.Member == nil {
		return
	}
	if s.sent[t.TraceID] {
		t.Spans = []Span{*t.Member}
		return
	}
	if s.sent == nil {
		s.sent = map[[16]byte]bool{}
	}
	delete(s.sent, s.ring[s.next])
	s.sent[t.TraceID], s.ring[s.next] = true, t.TraceID
	s.next = (s.next + 1) % sentTracesMax
}

// forget makes the next requests send their shared traces again, after some were lost.
func (s *sentTraces) forget() { *s = sentTraces{} }
