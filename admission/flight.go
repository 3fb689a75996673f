package admission

import (
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// flight is what runs at one level, and which of it has no first token yet.
type flight struct {
	sequences, kv int                 // of all running requests
	prefills      [laneCount][]*Entry // under way; Entry.left is how much of each is not computed
}

// given books e, which starts now.
func (v *ledger) given(e *Entry) {
	v.sequences += e.demand.Sequences
	f := &v.flights[e.level]
	f.sequences += e.demand.Sequences
	v.reserve(e, e.kv)
	e.left = e.uncached()
	f.prefills[e.lane()] = append(f.prefills[e.lane()], e)
}

// reserve books more memory for e, or less.
func (v *ledger) reserve(e *Entry, tokens int) {
	v.kv += tokens
	v.flights[e.level].kv += tokens
}

// landed takes e off the prefills under way: it has its first token, or ended.
func (v *ledger) landed(e *Entry) {
	list := &v.flights[e.level].prefills[e.lane()]
	if i := slices.Index(*list, e); i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
}

// computed brings what is left of a lane's prefills into agreement with what the
// last report says, and returns the engine time of what was computed. The engine
// computes the most urgent level first, and in it the smallest key. What was given
// after the report is not in it.
func (v *ledger) computed(lane, reported int) (done time.Duration) {
	left := 0
	for i := range v.flights {
		for _, e := range v.flights[i].prefills[lane] {
			if e.started < v.at {
				left += e.left
			}
		}
	}
	tokens := left - reported
	for i := range v.flights {
		list := v.flights[i].prefills[lane]
		slices.SortFunc(list, compareEntries)
		for _, e := range list {
			if e.started >= v.at {
				continue
			}
			// Less than nothing was computed where pages were taken away.
			n := max(min(tokens, e.left-1), e.left-e.demand.PromptTokens)
			if n > 0 {
				done += v.cost.Prefill(n, e.demand.PromptTokens-e.left, v.chunk)
			}
			e.left -= n
			tokens -= n
		}
	}
	return done
}

// observePace takes in how much engine time of long prefill was done since the
// report before.
func (v *ledger) observePace(done, since time.Duration) {
	if done == 0 || since <= 0 || v.shortReported > 0 || v.rows == 0 {
		return
	}
	pace := min(1, float64(done)/float64(since))
	if v.longPace == 0 {
		v.longPace = pace
	}
	v.longPace += (pace - v.longPace) * min(1, float64(since)/float64(longPaceMemory))
}

// longPaceMemory is the time constant of longPace.
const longPaceMemory = 5 * time.Second

// displacedMost is how many prefills under way may have given way to others of their
// lane and level.
const displacedMost = 4

// stepRoom is the prefill, in tokens, that the next step has room for beside the
// rows that decode.
func (v *ledger) stepRoom() int {
	return v.room.Tokens(&v.cost, cost.Load{DecodeRows: v.rows, DecodeContext: v.rowsContext})
}

// mayBegin tells whether a short prefill may start: the next step must have room
// for some of it behind what is under way. The step that runs now was composed from
// what the last report tells, and computes as much of it as a step has room for; less
// urgent levels cannot rely on that, since they get what is left.
func (v *ledger) mayBegin(e *Entry) bool {
	room, level := v.stepRoom(), e.class.level
	reported, fresh, requests := 0, 0, 0
	for i := range level + 1 {
		for _, u := range v.flights[i].prefills[laneShort] {
			if u.started < v.at {
				reported += u.left
			} else {
				fresh += u.left
			}
			requests++
		}
	}
	switch {
	case requests == 0:
		return true
	case level == levelInteractive:
		return max(0, reported-room)+fresh < room
	}
	return reported+fresh+min(e.uncached(), v.chunk) <= room
}

// mayDisplace tells whether a long prefill may start. It passes those under way,
// so it must come before them.
func (v *ledger) mayDisplace(e *Entry) bool {
	n := 0
	for i := range e.level + 1 {
		for _, u := range v.flights[i].prefills[laneLong] {
			if n++; n == displacedMost || before(u, e) {
				return false
			}
		}
	}
	return true
}

// underWay appends the prefills under way of the levels up to level that take more
// than a step, in the order of service. given is what is left of the others.
func (v *ledger) underWay(dst []underWay, level int) (_ []underWay, given time.Duration) {
	room, tokens := v.stepRoom(), 0
	for i := range level + 1 {
		for _, list := range v.flights[i].prefills {
			for _, e := range list {
				if !e.long && e.left <= room {
					tokens += e.left
					continue
				}
				dst = append(dst, underWay{e, v.cost.Prefill(e.left, e.demand.PromptTokens-e.left, v.chunk)})
			}
		}
	}
	slices.SortFunc(dst, func(a, b underWay) int { return compareEntries(a.Entry, b.Entry) })
	return dst, v.cost.Prefill(tokens, 0, max(1, v.chunk))
}
