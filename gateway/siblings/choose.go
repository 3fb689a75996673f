package siblings

import (
	"slices"
	"time"
)

// Candidate is a sibling that could take a request.
type Candidate struct {
	Name       string
	FirstToken time.Duration // predicted, with the hop
	Age        time.Duration // of what the prediction rests on
	Cached     int           // tokens of the prompt that it holds
	Work       time.Duration // of FirstToken, the prefill
}

// Why says why a request goes where it goes. The list is closed.
type Why uint8

// The reasons.
const (
	WhyAlone   Why = iota // no sibling could take it
	WhySoonest            // here it is soonest, or sooner than elsewhere but for the least gain
	WhySooner             // it is sooner there
	WhyNoWay              // it cannot be served here
	WhyFailed             // a hop failed, so it is served here
	WhyKind               // requests of its kind make no hop
	WhyCount
)

var whyNames = [...]string{"alone", "soonest_here", "sooner_there", "not_here", "hop_failed", "kind"}

// String is the reason's stable name.
func (w Why) String() string { return whyNames[w] }

// Choice is where a request goes, and what it rests on.
type Choice struct {
	To    *Candidate // nil for here
	Why   Why
	Here  time.Duration // predicted, 0 where it cannot be served here
	Fresh int           // candidates with a fresh report
}

// gainShare is the part of the time here by which a sibling must be sooner.
const gainShare = 0.1

// alike is the part of its time by which a candidate may be later than the soonest
// and still be chosen: so many gateways with one request each do not choose the same.
const alike = 0.1

// crowded is the shortest backlog, in requests of typical work, at which the work of a
// newcomer counts twice: it delays all that come before the backlog is worked off, which
// under load are several for each that waits.
const crowded = 0.25

// Choose decides by the least cost. Where some replica has nothing to do, the cost is
// the predicted time to the first token. Where all are busy, work that another replica
// has done already delays everybody who waits: so it counts the more, the longer even
// the shortest backlog is, in requests of typical work. Without that a fleet under
// load computes again what it holds, and gets further behind.
//
// here is this replica, if it can serve the request at all. Old reports say little
// about who is soonest, and all who read them would choose alike: of those two are
// taken at random. intn is a source of random numbers below n.
func Choose(here Candidate, possible bool, all []Candidate, typical time.Duration, c *Config, intn func(n int) int) Choice {
	choice := Choice{Why: WhyAlone}
	fresh := slices.DeleteFunc(slices.Clone(all), func(a Candidate) bool { return a.Age > c.FreshLimit })
	if choice.Fresh = len(fresh); len(fresh) == 0 && len(all) > 0 {
		fresh = []Candidate{all[intn(len(all))], all[intn(len(all))]}
	}
	shortest := here.FirstToken - here.Work
	if !possible && len(fresh) > 0 {
		shortest = fresh[0].FirstToken - fresh[0].Work
	}
	for i := range fresh {
		shortest = min(shortest, fresh[i].FirstToken-fresh[i].Work)
	}
	weight := float64(max(0, shortest)) / (crowded * float64(max(typical, time.Millisecond)))
	price := func(a *Candidate) time.Duration { return a.FirstToken + time.Duration(weight*float64(a.Work)) }
	if possible {
		choice.Here = here.FirstToken
	}
	if len(fresh) == 0 {
		return choice
	}
	slices.SortFunc(fresh, func(a, b Candidate) int { return int(price(&a) - price(&b)) })
	least := price(&fresh[0])
	n := 1
	for n < len(fresh) && price(&fresh[n])-least <= time.Duration(alike*float64(least)) {
		n++
	}
	best := fresh[intn(n)]
	own := price(&here)
	switch gain := max(c.GainMin, time.Duration(gainShare*float64(own))); {
	case !possible:
		choice.To, choice.Why = &best, WhyNoWay
	case price(&best) < own-gain:
		choice.To, choice.Why = &best, WhySooner
	default:
		choice.Why = WhySoonest
	}
	return choice
}
