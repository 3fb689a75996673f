package window

import (
	"math/rand/v2"
	"testing"
	"time"
)

// hidden is a server with a queue that nobody sees: it computes up to slots sequences
// in steps, first come, first served.
type hidden struct {
	slots     int
	base, row time.Duration // of a step, and of each row in it
	token     time.Duration // of a prompt token
	chunk     int           // prompt tokens of a step
	now       time.Duration
	queue     []*job
	running   []*job
}

type job struct {
	arrives time.Duration
	prompt  int
	left    int // of the prompt
	out     int
	done    int
	others  bool
	sent    time.Duration
	ahead   int
	last    time.Duration
}

// turn computes a step, and returns what had its first token, a token, and its end.
func (h *hidden) turn() (first, token, ended []*job) {
	for len(h.running) < h.slots && len(h.queue) > 0 && h.queue[0].arrives <= h.now {
		h.running, h.queue = append(h.running, h.queue[0]), h.queue[1:]
	}
	if len(h.running) == 0 {
		h.now += time.Millisecond
		return nil, nil, nil
	}
	took, room := h.base, h.chunk
	for _, j := range h.running {
		if j.left == 0 {
			took += h.row
			continue
		}
		n := min(j.left, room)
		j.left -= n
		room -= n
		took += time.Duration(n) * h.token
		if j.left == 0 {
			first = append(first, j)
		}
	}
	h.now += took
	kept := h.running[:0]
	for _, j := range h.running {
		if j.left == 0 {
			j.done++
			token = append(token, j)
		}
		if j.done >= j.out {
			ended = append(ended, j)
			continue
		}
		kept = append(kept, j)
	}
	h.running = kept
	return first, token, ended
}

// play is what a run showed.
type play struct {
	queued float64 // share of the time in which more than one of ours waited at the server
	tokens int     // of all
	places int     // at the end
	view   View
}

type scene struct {
	limits   Limits
	slots    int
	metrics  bool
	late     time.Duration // age of the metrics
	stranger float64
	restart  bool
	slower   float64 // factor of all costs after a third of the time
	free     bool    // no window at all
}

const lasting = 10 * time.Minute

func (s scene) run(seed uint64) (p play) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	h := &hidden{slots: s.slots, base: 8 * time.Millisecond, row: 500 * time.Microsecond, token: 60 * time.Microsecond, chunk: 512}
	w := New(s.limits)
	type seen struct {
		at               time.Duration
		running, waiting int
	}
	var past []seen
	const wire = 2 * time.Millisecond
	inside, others, nextScrape, restarted := 0, 0, time.Duration(0), false
	waits, lastNow := time.Duration(0), time.Duration(0)
	send := func(stranger bool) {
		j := &job{arrives: h.now + wire, prompt: 20 + rnd.IntN(400), out: 20 + rnd.IntN(200), others: stranger, sent: h.now}
		j.left = j.prompt
		if stranger {
			others++
		} else {
			inside++
			j.ahead = w.Sent(1, j.prompt)
		}
		h.queue = append(h.queue, j)
	}
	for h.now < lasting {
		for !s.free && inside < w.Places() && (w.prefill == 0 || w.prefill < w.Prefill()) || s.free && inside < 4*s.slots {
			send(false)
		}
		for float64(others) < s.stranger*float64(s.slots) {
			send(true)
		}
		if s.slower > 0 && h.now > lasting/3 && !restarted {
			restarted = true
			h.base, h.row, h.token = time.Duration(s.slower*float64(h.base)), time.Duration(s.slower*float64(h.row)), time.Duration(s.slower*float64(h.token))
		}
		if s.restart && h.now > lasting/3 && !restarted {
			restarted = true
			for _, j := range append(h.running, h.queue...) {
				if j.others {
					others--
					continue
				}
				inside--
				if j.done == 0 {
					w.Lost(j.prompt)
				}
				w.Ended(1, h.now)
			}
			h.running, h.queue, h.slots = nil, nil, h.slots/2
			h.now += 5 * time.Second
		}
		first, token, ended := h.turn()
		waiting, running := 0, len(h.running)
		for _, j := range h.queue {
			if !j.others && j.arrives <= h.now {
				waiting++
			}
		}
		if waiting-max(0, h.slots-running) > 1 {
			waits += h.now - lastNow
		}
		lastNow = h.now
		for _, j := range first {
			if !j.others {
				w.First(j.prompt, j.ahead, h.now+wire-j.sent, h.now)
			}
		}
		for _, j := range token {
			p.tokens++
			if !j.others {
				if j.last > 0 {
					w.Token(1, h.now-j.last)
				}
				j.last = h.now
			}
		}
		for _, j := range ended {
			if j.others {
				others--
				continue
			}
			inside--
			w.Ended(1, h.now)
		}
		if s.metrics && h.now >= nextScrape {
			nextScrape = h.now + 100*time.Millisecond
			past = append(past, seen{h.now, running, len(h.queue)})
			for len(past) > 1 && past[1].at <= h.now-s.late {
				past = past[1:]
			}
			w.Metrics(past[0].running, past[0].waiting, h.now)
		}
	}
	p.queued, p.places, p.view = float64(waits)/float64(lasting), w.Places(), w.View(h.now)
	return p
}

// TestQueueOfTheServerStaysEmpty: against a hidden queue, with what can be wrong about
// a server. The control sends everything, and must fail.
func TestQueueOfTheServerStaysEmpty(t *testing.T) {
	const slots = 16
	learned := func(start int) Limits { return Limits{Start: start, Most: 256, StepTokens: 512} }
	for name, c := range map[string]struct {
		scene
		queued, tokens float64
	}{
		"exact":                        {scene{limits: Limits{Start: slots, Exact: true, StepTokens: 512}}, 0.01, 0.98},
		"started with half":            {scene{limits: learned(slots / 2)}, 0.01, 0.98},
		"started with twice":           {scene{limits: learned(slots * 2)}, 0.01, 0.98},
		"started with 4":               {scene{limits: learned(4)}, 0.01, 0.95},
		"half, metrics":                {scene{limits: learned(slots / 2), metrics: true}, 0.01, 0.98},
		"twice, metrics":               {scene{limits: learned(slots * 2), metrics: true}, 0.01, 0.98},
		"twice, metrics a second late": {scene{limits: learned(slots * 2), metrics: true, late: time.Second}, 0.01, 0.98},
		"a restart with half":          {scene{limits: learned(slots), metrics: true, restart: true}, 0.02, 0.95},
		"a restart, no metrics":        {scene{limits: learned(slots), restart: true}, 0.02, 0.95},
		"costs double":                 {scene{limits: learned(slots), slower: 2}, 0.01, 0.98},
		"costs halve":                  {scene{limits: learned(slots), slower: 0.5}, 0.01, 0.98},
		"strangers with 30 %":          {scene{limits: Limits{Start: slots, Exact: true, StepTokens: 512}, metrics: true, stranger: 0.3}, 0.01, 0.95},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.slots = slots
			seed := uint64(len(name))
			got := c.run(seed)
			free := c.scene
			free.free = true
			control := free.run(seed)
			t.Logf("queue over 1 for %.2f %% of the time, %.1f %% of the throughput, %d places; %+v", 100*got.queued, 100*float64(got.tokens)/float64(control.tokens), got.places, got.view)
			if got.queued > c.queued || float64(got.tokens) < c.tokens*float64(control.tokens) {
				t.Error("it does not hold")
			}
			if control.queued < 0.9 {
				t.Errorf("the control has a queue for %.1f %% of the time", 100*control.queued)
			}
			if c.stranger > 0 && got.view.Alone {
				t.Error("the strangers are not noticed")
			}
		})
	}
}

// TestAnsweredAtTheSameTime: a server that answers many requests at the same time computes so
// many, however late their first tokens are, since the machine or the connection may be
// busy. One that answers few, as late, has fewer places.
func TestAnsweredAtTheSameTime(t *testing.T) {
	const burst = 512
	for _, c := range []struct{ slots, least, most int }{{burst, burst, 1024}, {16, 16, 64}} {
		w := New(Limits{Start: 1024, Most: 1024, StepTokens: 1 << 20})
		now := time.Duration(0)
		for range 32 { // alone, in a millisecond
			ahead := w.Sent(1, 0) // all of the prompt is cached
			now += time.Millisecond
			w.First(0, ahead, time.Millisecond, now)
			w.Token(1, time.Millisecond)
			w.Ended(1, now)
		}
		began := now
		var ahead [burst]int
		for i := range ahead {
			ahead[i] = w.Sent(1, 0)
		}
		for i := range ahead {
			now += 200 * time.Microsecond
			w.First(0, ahead[i], now-began, now)
			if i >= c.slots-1 {
				w.Ended(1, now)
			}
		}
		if n := w.Places(); n < c.least || n > c.most {
			t.Errorf("%d places at a server of %d", n, c.slots)
		}
	}
}
