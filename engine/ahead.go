package engine

import "sync"

// ahead finds masks while the forward pass runs: a mask depends on the answer so far,
// not on the logits. It helps where a core is free meanwhile, as beside a GPU. What it
// has not begun when the pass is over the loop finds itself, so the loop never waits for
// a goroutine that no core was free for.
//
// Its goroutine begins with the first mask and ends with the loop. A matcher is used by
// the loop, or by the goroutine while finding is its sequence, never by both.
type ahead struct {
	mu      sync.Mutex
	done    sync.Cond   // finding has become nil
	list    []*sequence // those whose masks nobody has begun
	finding *sequence   // nil for none
	wake    chan struct{}
	ended   chan struct{} // nil before the goroutine begins
}

// begin lists the sequences that will sample after this pass and whose masks take more
// than to be remembered.
func (a *ahead) begin(rows []row) {
	a.mu.Lock()
	for _, r := range rows {
		if r.seq.matcher == nil || r.logits == 0 || r.count < r.seq.pending() {
			continue
		}
		if r.seq.gen.forked || len(r.seq.gen.choices) == 1 {
			a.add(r.seq)
			continue
		}
		for _, s := range r.seq.gen.choices { // they part here
			a.add(s)
		}
	}
	some := len(a.list) > 0
	a.mu.Unlock()
	if !some {
		return
	}
	if a.ended == nil {
		a.done.L = &a.mu
		a.wake, a.ended = make(chan struct{}, 1), make(chan struct{})
		go a.run(a.wake, a.ended)
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *ahead) add(s *sequence) {
	if s != a.finding && !s.masked && !s.matcher.Remembered() {
		a.list = append(a.list, s)
	}
}

// stop takes back what has not begun.
func (a *ahead) stop() {
	a.mu.Lock()
	clear(a.list)
	a.list = a.list[:0]
	a.mu.Unlock()
}

// wait is until s's mask is nobody's work. It says whether it was found.
func (a *ahead) wait(s *sequence) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.finding == s {
		a.done.Wait()
	}
	return s.masked
}

// end ends the goroutine.
func (a *ahead) end() {
	if a.ended != nil {
		close(a.wake)
		<-a.ended
		a.ended = nil
	}
}

func (a *ahead) run(wake <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	for range wake {
		for s := a.take(); s != nil; s = a.take() {
			s.findMask()
			a.mu.Lock()
			s.masked = true
			a.finding = nil
			a.done.Broadcast()
			a.mu.Unlock()
		}
	}
}

func (a *ahead) take() *sequence {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.list)
	if n == 0 {
		return nil
	}
	s := a.list[n-1]
	a.list[n-1] = nil
	a.list, a.finding = a.list[:n-1], s
	return s
}
