package budget

import "time"

// Waits predicts when refused requests should come back. Each client is told its own
// time, when its tokens will have refilled after those that were promised to earlier
// ones, so that clients do not all come in the same second. One that comes back too
// early is told the time that it has. The owner guards it.
type Waits struct {
	promised [RuleCount]time.Time // until when the refill is promised
	told     []promise            // the latest, at most toldMax
	running  time.Duration        // how long a request holds its place, a moving mean
}

// promise is what a client was told.
type promise struct {
	client   uint64
	rule     Rule
	told, at time.Time
}

const (
	// waitsMax is how far promises reach, since some clients never come back.
	waitsMax = time.Minute
	// toldMax bounds the promises that are remembered.
	toldMax = 64
	// together is the time within which equal requests of a client that may send
	// several at once are several, and not one that is sent again.
	together = 100 * time.Millisecond
)

// For returns how long a request must wait that needs ask of rule, where missing
// is what the level lacks. share is the part of the refill that this process may
// promise, above 0. client tells one client's request from others'.
func (w *Waits) For(t *Terms, rule Rule, ask, missing, share float64, client Client, now time.Time) time.Duration {
	rate := t.Rate[rule]
	switch {
	case Spans[rule] != 0:
		return untilNext(rule, now)
	case rule == Concurrency:
		rate = t.Limit[rule] / max(time.Second, w.running).Seconds()
	}
	first := now.Add(seconds(missing / rate))
	if at, ok := w.again(rule, client, now); ok {
		if at.Before(first) {
			at = first
		}
		return at.Sub(now)
	}
	at := first
	if w.promised[rule].After(first) && w.promised[rule].Sub(first) < waitsMax {
		at = w.promised[rule]
	}
	w.promised[rule] = at.Add(seconds(min(ask, t.Hold[rule]) / (rate * share)))
	w.note(promise{client.ID, rule, now, at})
	return at.Sub(now)
}

// again is the earliest promise that a client has, if it has come back before. It is told
// now, so several requests that come back together have one each.
func (w *Waits) again(rule Rule, client Client, now time.Time) (at time.Time, ok bool) {
	alone := func() bool { return client.Alone != nil && client.Alone() }
	var first *promise
	for i := range w.told {
		p := &w.told[i]
		mine := client.ID != 0 && p.client == client.ID && p.rule == rule && p.at.After(now)
		if mine && (first == nil || p.at.Before(first.at)) && (now.Sub(p.told) >= together || alone()) {
			first = p
		}
	}
	if first == nil {
		return at, false
	}
	first.told = now
	return first.at, true
}

// note remembers a promise in place of one that is over, or of the oldest.
func (w *Waits) note(p promise) {
	if p.client == 0 {
		return
	}
	if len(w.told) < toldMax {
		w.told = append(w.told, p)
		return
	}
	oldest := 0
	for i := range w.told {
		if !w.told[i].at.After(p.told) {
			oldest = i
			break
		}
		if w.told[i].told.Before(w.told[oldest].told) {
			oldest = i
		}
	}
	w.told[oldest] = p
}

// Held says how long a request held its place.
func (w *Waits) Held(d time.Duration) {
	const part = 8
	if w.running == 0 {
		w.running = d
	}
	w.running += (d - w.running) / part
}

func seconds(x float64) time.Duration {
	const most = 100 * 365 * 24 * time.Hour // keeps sums of times in range
	return time.Duration(min(x*float64(time.Second), float64(most)))
}
