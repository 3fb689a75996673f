package upstream

import "time"

// health decides whether a server is used. A server that answers its health page and
// computes nothing is known of every engine, so what counts is progress: whether
// events of answers come. Time is an argument.
type health struct {
	found       bool // it was found, and answers its health page
	unreachable int  // connections in a row that failed
	answers     [healthAnswers]answered
	next        int // of answers

	ejected bool
	until   time.Duration // then a canary is sent
	times   int           // ejections since it last worked for a while
	up      time.Duration // when it was taken back, 0 for never
}

// answered is how a request ended, and when.
type answered struct {
	at  time.Duration
	end answerEnd
}

type answerEnd uint8

const (
	endServed  answerEnd = iota // whole
	endRefused                  // an error of the server before it began: perhaps of the request alone
	endBroken                   // it broke off, or nothing came
)

const (
	healthAnswers  = 32
	healthWindow   = 10 * time.Second // answers in it count
	healthFew      = 5                // answers that decide at least
	healthConnects = 3                // failed connections in a row that eject
	quietLeast     = 10 * time.Second // without any event while something runs
	quietGaps      = 20               // times the usual time of an event
	ejectFirst     = time.Second      // doubles with each ejection
	ejectMost      = time.Minute
	forgiveAfter   = 5 * time.Minute // in use, after which earlier ejections are forgotten
	slowStart      = 20 * time.Second
	slowStartLeast = 0.25 // share of the places at its beginning
)

// usable tells whether it may be given work.
func (h *health) usable() bool { return h.found && !h.ejected }

// connected books whether the server could be reached.
func (h *health) connected(ok bool) {
	if h.unreachable++; ok {
		h.unreachable = 0
	}
}

// answer books how a request ended.
func (h *health) answer(end answerEnd, now time.Duration) {
	h.answers[h.next] = answered{now, end}
	h.next = (h.next + 1) % healthAnswers
}

// verdict says why the server is to be ejected, "" for no reason. quiet is how long no
// event has come while something runs there, 0 where nothing does; gap is the usual
// time between two events.
func (h *health) verdict(quiet, gap, now time.Duration) string {
	var ends [3]int
	for _, a := range h.answers {
		if a.at > 0 && now-a.at < healthWindow {
			ends[a.end]++
		}
	}
	all := ends[endServed] + ends[endRefused] + ends[endBroken]
	switch {
	case h.ejected:
		return ""
	case h.unreachable >= healthConnects:
		return "it cannot be reached"
	case all >= healthFew && 2*ends[endBroken] > all:
		return "most answers break off"
	case all >= healthFew && ends[endServed] == 0: // a client that sends what it cannot do must not take it from others
		return "all answers fail"
	case quiet > max(quietLeast, quietGaps*gap):
		return "it works on requests and sends nothing"
	}
	return ""
}

// eject takes the server out of use for a while.
func (h *health) eject(now time.Duration) {
	if h.up > 0 && now-h.up > forgiveAfter {
		h.times = 0
	}
	h.ejected = true
	h.until = now + min(ejectMost, ejectFirst<<min(h.times, 10))
	h.times++
}

// readmit takes it back, after a canary was answered or not.
func (h *health) readmit(ok bool, now time.Duration) {
	if !ok {
		h.eject(now)
		return
	}
	*h = health{found: h.found, times: h.times, up: now}
}

// share is the part of its places that it gets at the time now: a server that was
// just taken back has cold caches, and may fail again.
func (h *health) share(now time.Duration) float64 {
	if h.up == 0 || now-h.up >= slowStart {
		return 1
	}
	return slowStartLeast + (1-slowStartLeast)*float64(now-h.up)/float64(slowStart)
}
