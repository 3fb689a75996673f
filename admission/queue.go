package admission

import (
	"fmt"
	"slices"
	"time"
)

// Invariants of queue, which check holds after every call in the tests:
//  1. runningSequences and the waiting sums equal what the entries hold.
//  2. runningSequences never exceeds Config.RunningSequencesMax.
//  3. The waiting list is in order of arrival, and its head does not fit.
//  4. An entry is in one state, and leaves it for settled once.

type state uint8

const (
	waiting state = iota
	running
	expired // timed out; still to be settled
	settled
)

// entry is one request in the queue.
type entry struct {
	work    Work
	state   state
	arrived time.Time
	started time.Time
}

// queue is the pure core: a bounded first-in-first-out list before a bounded
// number of running sequences.
type queue struct {
	cfg Config

	running          int
	runningSequences int

	waiting          []*entry
	waitingSequences int
	waitingTokens    int
	waitingBytes     int

	// service is a moving mean of how long a request runs.
	service time.Duration
}

// serviceGuess stands for the mean until a request has finished.
const serviceGuess = time.Second

// retryMin and retryMax bound a predicted wait. Clients overlook one of more
// than a minute, and the gateway spreads it by up to a quarter.
const (
	retryMin = time.Second
	retryMax = 45 * time.Second
)

// enter takes w in, running or waiting, or says why not.
func (q *queue) enter(w Work, now time.Time) (*entry, *Refusal) {
	e := &entry{work: w, arrived: now}
	switch {
	case w.Sequences > q.cfg.RunningSequencesMax:
		return nil, &Refusal{Reason: TooLarge, Message: fmt.Sprintf("the request asks for %d sequences (prompts times n) and at most %d may run at once", w.Sequences, q.cfg.RunningSequencesMax)}
	case len(q.waiting) == 0 && q.fits(e):
		q.start(e, now)
	case len(q.waiting) >= q.cfg.WaitingRequestsMax,
		len(q.waiting) > 0 && w.UncachedTokens > q.cfg.WaitingTokensMax-q.waitingTokens,
		w.Bytes > q.cfg.WaitingBytesMax-q.waitingBytes:
		return nil, &Refusal{Reason: QueueFull, Message: fmt.Sprintf("%d requests are waiting and there is no room for another", len(q.waiting)), RetryAfter: q.predict()}
	default:
		q.waiting = append(q.waiting, e)
		q.count(e, 1)
	}
	return e, nil
}

// leave settles e and returns the waiting entries that start in its place. It
// does nothing when e is settled already.
func (q *queue) leave(e *entry, now time.Time) []*entry {
	was := e.state
	e.state = settled
	switch was {
	case waiting:
		q.drop(e)
	case running:
		q.running--
		q.runningSequences -= e.work.Sequences
		q.learn(now.Sub(e.started))
	default:
		return nil
	}
	return q.admit(now)
}

// expire ends the waits that began WaitLimit ago, and returns them together
// with the entries that start because the head gave way.
func (q *queue) expire(now time.Time) (late, started []*entry) {
	for len(q.waiting) > 0 && now.Sub(q.waiting[0].arrived) >= q.cfg.WaitLimit {
		e := q.waiting[0]
		e.state = expired
		q.drop(e)
		late = append(late, e)
	}
	return late, q.admit(now)
}

// deadline is when expire is due, or false when nobody waits.
func (q *queue) deadline() (time.Time, bool) {
	if len(q.waiting) == 0 {
		return time.Time{}, false
	}
	return q.waiting[0].arrived.Add(q.cfg.WaitLimit), true
}

// predict guesses how long a newcomer would wait: each running request's
// place is free after the mean service time.
func (q *queue) predict() time.Duration {
	service := q.service
	if service == 0 {
		service = serviceGuess
	}
	rounds := float64(len(q.waiting)+1) / float64(max(1, q.running))
	return min(max(time.Duration(rounds*float64(service)), retryMin), retryMax)
}

func (q *queue) load() Load {
	return Load{Running: q.running, RunningSequences: q.runningSequences, Waiting: len(q.waiting), WaitingSequences: q.waitingSequences}
}

func (q *queue) admit(now time.Time) (started []*entry) {
	for len(q.waiting) > 0 && q.fits(q.waiting[0]) {
		e := q.waiting[0]
		q.drop(e)
		q.start(e, now)
		started = append(started, e)
	}
	return started
}

func (q *queue) fits(e *entry) bool {
	return e.work.Sequences <= q.cfg.RunningSequencesMax-q.runningSequences
}

func (q *queue) start(e *entry, now time.Time) {
	e.state, e.started = running, now
	q.running++
	q.runningSequences += e.work.Sequences
}

func (q *queue) drop(e *entry) {
	i := slices.Index(q.waiting, e)
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.count(e, -1)
}

func (q *queue) count(e *entry, sign int) {
	q.waitingSequences += sign * e.work.Sequences
	q.waitingTokens += sign * e.work.UncachedTokens
	q.waitingBytes += sign * e.work.Bytes
}

func (q *queue) learn(d time.Duration) {
	if q.service == 0 {
		q.service = d
		return
	}
	q.service += (d - q.service) / 8
}
