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

// Choose decides by the least predicted time to the first token. here is that on this
// replica, if it can serve the request at all. all is sorted in place. Old reports
// say little about who is soonest, and all who read them would choose alike: of
// those two are taken at random. intn is a source of random numbers below n.
func Choose(here time.Duration, possible bool, all []Candidate, c *Config, intn func(n int) int) Choice {
	choice := Choice{Why: WhyAlone}
	if possible {
		choice.Here = here
	}
	fresh := slices.DeleteFunc(slices.Clone(all), func(a Candidate) bool { return a.Age > c.FreshLimit })
	if choice.Fresh = len(fresh); len(fresh) == 0 && len(all) > 0 {
		fresh = []Candidate{all[intn(len(all))], all[intn(len(all))]}
	}
	if len(fresh) == 0 {
		return choice
	}
	slices.SortFunc(fresh, func(a, b Candidate) int { return int(a.FirstToken - b.FirstToken) })
	soonest := fresh[0].FirstToken
	n := 1
	for n < len(fresh) && fresh[n].FirstToken-soonest <= time.Duration(alike*float64(soonest)) {
		n++
	}
	best := fresh[intn(n)]
	switch gain := max(c.GainMin, time.Duration(gainShare*float64(here))); {
	case !possible:
		choice.To, choice.Why = &best, WhyNoWay
	case best.FirstToken < here-gain:
		choice.To, choice.Why = &best, WhySooner
	default:
		choice.Why = WhySoonest
	}
	return choice
}
