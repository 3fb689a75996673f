package budget

import "time"

// Waits predicts when refused requests should come back. Each is told its own time,
// when its tokens will have refilled after those that were promised to earlier ones,
// so that clients do not all come in the same second. The owner guards it.
type Waits struct {
	promised [RuleCount]time.Time // until when the refill is promised
	running  time.Duration        // how long a request holds its place, a moving mean
}

// waitsMax is how far promises reach, since some clients never come back.
const waitsMax = time.Minute

// For returns how long a request must wait that needs ask of rule, where missing
// is what the level lacks. share is the part of the refill that this process may
// promise, above 0.
func (w *Waits) For(t *Terms, rule Rule, ask, missing, share float64, now time.Time) time.Duration {
	rate := t.Rate[rule]
	switch rule {
	case Day:
		return untilTomorrow(now)
	case Concurrency:
		rate = t.Limit[rule] / max(time.Second, w.running).Seconds()
	}
	first := now.Add(seconds(missing / rate))
	at := first
	if w.promised[rule].After(first) && w.promised[rule].Sub(first) < waitsMax {
		at = w.promised[rule]
	}
	w.promised[rule] = at.Add(seconds(min(ask, t.Hold[rule]) / (rate * share)))
	return at.Sub(now)
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

const daySeconds = 24 * 60 * 60

// DayOf is the UTC day of t, in days since 1970.
func DayOf(t time.Time) int64 { return t.Unix() / daySeconds }

func untilTomorrow(now time.Time) time.Duration {
	return time.Unix((DayOf(now)+1)*daySeconds, 0).Sub(now)
}
