package main

import (
	"net/http"
	"strings"
	"time"
)

// ending is how a request ended: every request has exactly one.
type ending uint8

const (
	served     ending = iota // answered completely
	refused                  // on arrival
	revoked                  // refused after it had waited
	failed                   // an error that is no refusal, or a broken answer
	unfinished               // given up by the client at the end of its patience
	endings
)

var endingNames = [...]string{"ok", "refused", "revoked", "failed", "unfinished"}

func (e ending) String() string { return endingNames[e] }

// goalDefault is the goal for the first token where the server does not say, and
// atOnce is how long a refusal may take to count as one on arrival.
const (
	goalDefault = 2 * time.Second
	atOnce      = 50 * time.Millisecond
)

// sample is a request that was sent, with all that is known of it. log is nil where
// the server has no access log.
type sample struct {
	*request
	id     string
	sent   time.Duration // since the start of the run
	answer answer
	log    *logged

	ending ending
	broken bool // it was admitted, and its first token came after its goal
}

// lag is how late an open request was sent.
func (s *sample) lag() time.Duration { return max(0, s.sent-s.at) }

// judge decides how the request ended and whether its goal was broken.
func (s *sample) judge() {
	s.ending = s.endedAs()
	switch {
	case s.ending == refused:
	case s.log != nil && s.log.Promise != "":
		s.broken = s.log.Promise == "broken"
	case s.ending != revoked:
		s.broken = s.late()
	}
}

func (s *sample) endedAs() ending {
	a := &s.answer
	switch {
	case a.cut:
		return unfinished
	case a.err != nil:
		return failed
	case a.status == http.StatusOK && a.code == "":
		return served
	case !isRefusal(a.status, a.code) || a.first > 0:
		return failed
	case s.waited():
		return revoked
	}
	return refused
}

// isRefusal tells whether an error means that there is too much work. A stream that
// has begun to wait has the status 200 and the code.
func isRefusal(status int, code string) bool {
	switch code {
	case "would_be_late", "no_longer_in_time", "queue_full", "queue_timeout", "overloaded":
		return true
	}
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// waited tells whether a refused request had been taken in before. A log that does
// not say so tells how long it was in the queue; the time before, in which its
// prompt is rendered, is none.
func (s *sample) waited() bool {
	if s.log == nil {
		return s.answer.end > atOnce
	}
	if s.log.Accepted > 0 || s.log.Outcome == "revoked" {
		return true
	}
	inQueue := s.log.Total - max(s.log.Prepared, s.log.Reserved)
	return s.log.Goal == 0 && inQueue > milliseconds(atOnce)
}

// late tells whether the first token came after the goal: at the gateway, if it
// noted that without a promise, else at the client. One that never came is late once
// the goal is over.
func (s *sample) late() bool {
	if s.log != nil && s.log.FirstWrite > 0 {
		return strings.Contains(","+s.log.Broken+",", ",first_token,")
	}
	first := s.answer.first
	if first == 0 {
		first = s.answer.end
	}
	return first > s.goal()
}

// goal is the request's goal for its first token.
func (s *sample) goal() time.Duration {
	if s.log != nil && s.log.Goal > 0 {
		return time.Duration(s.log.Goal * float64(time.Millisecond))
	}
	return goalDefault
}

// firstToken is the time to the first token at the client; for a request that was
// given up without one it is how long it was waited for, the least that it can be.
func (s *sample) firstToken() (time.Duration, bool) {
	if s.answer.first > 0 {
		return s.answer.first, true
	}
	return s.answer.end, s.ending == unfinished
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
