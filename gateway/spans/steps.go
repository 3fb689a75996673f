package spans

// stepsSent remembers the last steps whose traces were handed in, so that a step
// that many requests waited for is one span and not one for each.
type stepsSent struct {
	sent map[stepKey]bool
	ring [stepsKept]stepKey // of sent, the oldest at next
	next int
}

type stepKey struct{ run, number uint64 }

// stepsKept bounds what is remembered: more than any two requests that are kept
// together show.
const stepsKept = 8192

// trees are those of the steps that r shows.
func (s *stepsSent) trees(r *Request) []Tree {
	steps := r.steps()
	trees := make([]Tree, 0, len(steps)+1)
	if s.sent == nil {
		s.sent = map[stepKey]bool{}
	}
	for i := range steps {
		key := stepKey{r.Engine.Run, steps[i].Number}
		if s.sent[key] {
			trees = append(trees, memberTree(r, i))
			continue
		}
		delete(s.sent, s.ring[s.next])
		s.sent[key], s.ring[s.next] = true, key
		s.next = (s.next + 1) % stepsKept
		trees = append(trees, stepTree(r, i))
	}
	return trees
}

// forget makes the next requests send their steps again, after some were lost.
func (s *stepsSent) forget() { *s = stepsSent{} }

// stepTree is the trace of the i-th step of r: the step, its kernel classes and
// r as the first of those who were in it and are kept.
func stepTree(r *Request, i int) Tree {
	s := &r.Engine.Steps[i]
	self := stepLink(r.Engine.Run, s.Number)
	root := Span{Name: "engine.step", ID: self.SpanID, Begin: s.Begin, End: max(s.Begin, s.End), Links: []Link{backLink(r, i)},
		Attributes: facts{Int("forebay.step.number", s.Number)}.text("forebay.model", r.Model).text("forebay.kernels", r.Engine.Kernels).
			int("forebay.batch.rows", s.Rows).int("forebay.batch.decode", s.DecodeTokens).int("forebay.batch.prefill_tokens", s.PrefillTokens).
			int64("forebay.kv.used_bytes", s.KVUsed).milliseconds("forebay.step.host_ms", s.HostTime)}
	t := Tree{TraceID: self.TraceID, Flags: r.Flags, Spans: []Span{root}}
	// Of kernels only totals are known, so they are laid end to end: where one
	// stands within the step says nothing, its length does.
	at := root.Begin
	for n, k := range s.Kernels[:min(len(s.Kernels), kernelsMax)] {
		end := min(at+max(0, k.Total), root.End)
		t.Spans = append(t.Spans, Span{Name: k.Class, ID: childID(self.SpanID, roleKernel+uint64(n)), Parent: self.SpanID, Begin: at, End: end,
			Attributes: facts{String("forebay.kernel.class", k.Class), Int("forebay.kernel.count", k.Count),
				Float("forebay.kernel.total_ms", float64(k.Total)/millisecondNS), Float("forebay.kernel.max_ms", float64(k.Max)/millisecondNS)}.
				text("forebay.kernel.device", k.Device).int64("forebay.kernel.bytes", k.Bytes).int64("forebay.kernel.flops", k.FLOPs)})
		at = end
	}
	return t
}

// memberTree joins r to a step whose trace was sent before, for another request.
func memberTree(r *Request, i int) Tree {
	s := &r.Engine.Steps[i]
	self := stepLink(r.Engine.Run, s.Number)
	return Tree{TraceID: self.TraceID, Flags: r.Flags, Spans: []Span{{
		Name: "member", ID: childID(r.SpanID, roleMember+uint64(i)), Parent: self.SpanID, Begin: s.Begin, End: max(s.Begin, s.End),
		Links: []Link{backLink(r, i)}, Attributes: facts{}.text("forebay.request.id", r.ID),
	}}}
}

// backLink points from a step to the request's view of it.
func backLink(r *Request, i int) Link {
	s := &r.Engine.Steps[i]
	return Link{TraceID: r.TraceID, SpanID: childID(r.SpanID, roleStep+uint64(i)), Attributes: facts{Float("forebay.step.share", s.Share)}.
		text("forebay.request.id", r.ID).text("forebay.class", r.Class).int("forebay.step.own_tokens", s.OwnTokens)}
}
