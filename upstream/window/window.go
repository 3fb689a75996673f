package window

import (
	"math"
	"slices"
	"time"
)

// Limits are what is known of a server before anything was learned.
type Limits struct {
	// Start is the size to begin with, at least 1. Exact says that the server computes
	// so many sequences at once, and no more.
	Start int
	Exact bool
	// Most bounds the size and the places.
	Most int
	// StepTokens is the prefill that a step of the server computes at most.
	StepTokens int
}

const (
	roundFirsts = 8 // first tokens that decide about the size together
	excessLeast = 10 * time.Millisecond
	excessSteps = 2
	shrink      = 0.9
	shrinkFirst = 0.8 // until the size is about right
	growFirst   = 1.25

	baseRise  = 0.002 // share by which the least delay approaches a longer one
	rateRise  = 0.01
	rateFall  = 0.3
	rateLeast = 32 // prompt tokens from which a first token teaches the time of a token
	stepShare = 1. / 16

	growthWorth  = 0.1  // share of the expected gain that keeps a growth
	growthGain   = 0.02 // the expected gain is at most this
	growthRounds = 4    // rounds between two growths
	heldGrowths  = 4    // growths that are left out after one that was not worth it

	holdLeast      = 1500 * time.Millisecond // after a change by the server's numbers
	strangersTime  = 10 * time.Second        // time constant of their mean, where it falls
	strangersRise  = 400 * time.Millisecond  // and where it rises
	strangersShare = 0.05                    // of the size, from which others count as present
	strangersAfter = 30 * time.Second
	metricsFresh   = 3 * time.Second

	tokenGuess = 50e3 // nanoseconds
	stepGuess  = 10e6
	peakLast   = 1500 * time.Millisecond // an interval of peaks
)

// Window is what is learned of one server.
type Window struct {
	limits Limits
	size   float64

	prefill int // prompt tokens that were sent and have no first token
	inside  int // sequences that were sent and have not ended
	asked   int // their requests
	unheard int // those of them without a first token

	known   bool    // delay and rate have a value
	delay   float64 // of the connection and a step, in nanoseconds
	rate    float64 // nanoseconds of a prompt token
	step    float64 // nanoseconds of a decode step; 0 is unknown
	excess  [roundFirsts]float64
	firsts  int     // in this round
	full    bool    // all places were in use at some time of the round
	rounds  int     // since the size changed
	held    int     // growths that are left out
	settled bool    // the size is about right: it was too large, and then was not
	shrunk  bool    // it was too large
	grown   bool    // the size grew before this round
	before  float64 // tokens in a nanosecond, before that growth
	tokens  int     // in this round
	began   time.Duration

	between float64 // nanoseconds from one completion to the next, a moving mean
	endedAt time.Duration

	peaks   [2]int // most of inside, in the last intervals
	abreast [2]int // most requests that had their first token and not their end
	peakAt  time.Duration

	hold       time.Duration // until then the server's numbers are not believed
	heardAt    time.Duration // of the last numbers, 0 for none
	strangers  float64
	presentFor time.Duration // since when others are there, 0 for not
}

// New is a Window that has learned nothing.
func New(l Limits) *Window {
	l.Start, l.StepTokens = max(1, l.Start), max(1, l.StepTokens)
	l.Most = max(l.Start, l.Most)
	return &Window{limits: l, size: float64(l.Start)}
}

// Forget begins anew with other limits, as for a server that was started again. What
// is inside stays booked.
func (w *Window) Forget(l Limits) {
	fresh := New(l)
	fresh.inside, fresh.prefill, fresh.asked, fresh.unheard = w.inside, w.prefill, w.asked, w.unheard
	*w = *fresh
}

// Sent books a request of n sequences whose prompt has so many uncached tokens. The
// result is for First.
func (w *Window) Sent(n, uncached int) (ahead int) {
	w.inside += n
	w.asked++
	w.unheard++
	w.peaks[0] = max(w.peaks[0], w.inside)
	w.prefill += uncached
	w.full = w.full || w.inside >= w.Places()
	return w.prefill
}

// First books a first token, took after its request was sent.
func (w *Window) First(uncached, ahead int, took, now time.Duration) {
	w.prefill -= uncached
	w.unheard--
	w.turnPeaks(now)
	w.abreast[0] = max(w.abreast[0], w.asked-w.unheard)
	y, x := float64(took), float64(ahead)
	w.learn(y, x)
	w.excess[w.firsts] = y - w.delay - w.rate*x
	if w.firsts++; w.firsts == roundFirsts {
		w.judge(now)
	}
}

// learn follows delay and rate.
func (w *Window) learn(y, x float64) {
	if !w.known {
		w.known, w.delay, w.rate = true, y, 0
		return
	}
	if x >= rateLeast {
		share := rateRise
		r := max(0, y-w.delay) / x
		if r < w.rate {
			share = rateFall
		}
		w.rate += share * (r - w.rate)
	}
	if base := max(0, y-w.rate*x); base < w.delay {
		w.delay = base
	} else {
		w.delay += baseRise * (base - w.delay)
	}
}

// judge ends a round of first tokens.
func (w *Window) judge(now time.Duration) {
	slices.Sort(w.excess[:])
	late := w.excess[roundFirsts/2] > max(float64(excessLeast), excessSteps*w.step)
	full := w.full
	w.firsts, w.full = 0, w.inside >= w.Places()
	if w.limits.Exact || w.heardAt > 0 && now < w.heardAt+metricsFresh {
		w.restart(now, false)
		return
	}
	w.rounds++
	switch {
	case late && w.grown:
		w.takeBack(now)
	case late && w.settled:
		w.reduce(shrink, now)
	case late:
		w.reduce(shrinkFirst, now)
		w.shrunk = true
	case !full:
		w.restart(now, false)
	case !w.settled && w.shrunk:
		w.settled = true
		w.restart(now, false)
	case !w.settled:
		w.resize(w.size * growFirst)
		w.restart(now, false)
	case w.rounds < growthRounds:
	case w.grown && w.speed(now) < w.before*(1+min(growthGain, growthWorth/w.size)):
		w.takeBack(now)
	case w.held > 0:
		w.held--
		w.restart(now, false)
	default:
		w.before = w.speed(now)
		w.resize(w.size + 1)
		w.restart(now, true)
	}
}

// reduce makes the size less, but not less than the requests that were answered at the
// same time in the last seconds: so many the server computes at once, and first tokens
// that were late waited for something else.
func (w *Window) reduce(by float64, now time.Duration) {
	w.resize(max(w.size*by, float64(max(w.abreast[0], w.abreast[1]))))
	w.restart(now, false)
}

// takeBack undoes a growth, and lets the size be for a while.
func (w *Window) takeBack(now time.Duration) {
	w.resize(w.size - 1)
	w.held = heldGrowths
	w.restart(now, false)
}

// restart begins the rounds after which the size may grow.
func (w *Window) restart(now time.Duration, grown bool) {
	w.rounds, w.tokens, w.began, w.grown = 0, 0, now, grown
}

// speed is the tokens in a nanosecond since restart.
func (w *Window) speed(now time.Duration) float64 {
	return float64(w.tokens) / float64(max(1, now-w.began))
}

func (w *Window) resize(to float64) { w.size = min(max(1, to), float64(w.limits.Most)) }

// Lost books a request that ended before its first token.
func (w *Window) Lost(uncached int) {
	w.prefill -= uncached
	w.unheard--
}

// Token books tokens of one sequence that came took after the last ones of it.
func (w *Window) Token(tokens int, took time.Duration) {
	w.tokens += tokens
	if tokens < 1 || took <= 0 {
		return
	}
	each := float64(took) / float64(tokens)
	if w.step == 0 {
		w.step = each
	}
	w.step += stepShare * (each - w.step)
}

// Ended books the end of a request of n sequences.
func (w *Window) Ended(n int, now time.Duration) {
	w.inside -= n
	w.asked--
	if w.endedAt > 0 {
		each := float64(now-w.endedAt) / float64(max(1, n))
		w.between += stepShare * (each - w.between)
	}
	w.endedAt = now
}

// Refused books that the server had no room.
func (w *Window) Refused(now time.Duration) {
	if now < w.hold || w.limits.Exact {
		return
	}
	w.resize(min(w.size, float64(w.inside)) - 1)
	w.believeFrom(now)
}

// believeFrom sets the hold after a change.
func (w *Window) believeFrom(now time.Duration) {
	w.hold = now + max(holdLeast, time.Duration(4*w.delay))
}

// Metrics books what the server says of itself: the requests that it computes and
// those that wait there.
func (w *Window) Metrics(running, waiting int, now time.Duration) {
	since := now - w.heardAt
	if w.heardAt == 0 {
		since = 0
	}
	w.heardAt = now
	others := float64(max(0, running+waiting-w.peak(now)))
	memory := strangersTime
	if others > w.strangers {
		memory = strangersRise
	}
	w.strangers += (others - w.strangers) * (1 - math.Exp(-float64(since)/float64(memory)))
	switch {
	case w.strangers <= strangersShare*w.size:
		w.presentFor = 0
	case w.presentFor == 0:
		w.presentFor = now
	}
	if w.limits.Exact || now < w.hold {
		return
	}
	ours := float64(w.inside) / max(1, float64(running+waiting)) // the share of what waits that is ours
	switch n := float64(waiting) * min(1, ours); {
	case n > 1:
		w.resize(min(w.size, float64(w.inside)) - math.Ceil(n) + 1)
		w.believeFrom(now)
	case waiting == 0 && running >= w.inside && w.inside >= w.Places():
		w.resize(w.size + 1)
		w.believeFrom(now)
	}
}

// peak is the most sequences that were inside in the last seconds: what the server
// says may be as old.
func (w *Window) peak(now time.Duration) int {
	w.turnPeaks(now)
	w.peaks[0] = max(w.peaks[0], w.inside)
	return max(w.peaks[0], w.peaks[1])
}

// turnPeaks begins a new interval of peaks when the last one is over.
func (w *Window) turnPeaks(now time.Duration) {
	if now-w.peakAt > peakLast {
		w.peaks[1], w.peaks[0] = w.peaks[0], 0
		w.abreast[1], w.abreast[0] = w.abreast[0], 0
		w.peakAt = now
	}
}

// Places is how many sequences may be at the server now.
func (w *Window) Places() int {
	n := math.Floor(w.size) - math.Ceil(w.strangers-0.25)
	// A place that was left is taken again only after the delay: where places change
	// hands so often that this costs a hundredth, one request waits at the server.
	if refill := w.delay / max(w.between, 1); w.between > 0 && refill > 0.01*w.size {
		n += math.Ceil(min(refill, w.size/2))
	}
	return int(min(max(1, n), float64(w.limits.Most)))
}

// Prefill is how many prompt tokens may be at the server without a first token: those
// of a step, and what it computes while the next ones are on their way.
func (w *Window) Prefill() int {
	n := float64(w.limits.StepTokens)
	if w.rate > 0 {
		n += w.delay / w.rate
	}
	return int(min(n, math.MaxInt32))
}

// Cost is what work costs there: the time of a prompt token, and of a step, which
// computes a token of every sequence. Before anything was learned it is a guess, so
// that requests can be compared.
func (w *Window) Cost() (token, step float64) {
	token, step = tokenGuess, stepGuess
	if w.rate > 0 {
		token = w.rate
	}
	if w.step > 0 {
		step = w.step
	}
	return token, step
}

// View is what a Window knows, for people.
type View struct {
	Places    int
	Size      float64
	Exact     bool
	Inside    int
	Prefill   int           // of what is inside
	Delay     time.Duration // of a first token beside prefill
	Token     time.Duration // of a prompt token
	Step      time.Duration // of a decode step
	Strangers float64       // sequences of others
	Alone     bool          // no others for half a minute
}

// View returns what is known at the time now.
func (w *Window) View(now time.Duration) View {
	return View{
		Places: w.Places(), Size: w.size, Exact: w.limits.Exact, Inside: w.inside, Prefill: w.prefill,
		Delay: time.Duration(w.delay), Token: time.Duration(w.rate), Step: time.Duration(w.step), Strangers: w.strangers,
		Alone: w.presentFor == 0 || now-w.presentFor < strangersAfter,
	}
}
