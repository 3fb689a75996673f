package identity

import (
	"maps"
	"slices"
	"time"
)

// Counts is what a Source shows of itself.
type Counts struct {
	// Taken and NotTaken count the loads of keys and configuration, LastTaken is when
	// one was last taken, and Broken says that the last one of the key files or of the
	// configuration was not.
	Taken, NotTaken uint64
	LastTaken       time.Time
	Broken          bool
	// Generation counts the Snapshots so far.
	Generation uint64
	Keys       [stateCount]int
	Refused    [ReasonCount]uint64
	// Ignored counts headers about client certificates from peers that are not trusted.
	Ignored uint64
	Issuers []IssuerCount
}

// IssuerCount is a set of an issuer's keys.
type IssuerCount struct {
	Place           string // its URL or file
	Fetched, Failed uint64
	LastFetched     time.Time // the zero time is never
}

// Counts reads the counts; the states of keys are those at now.
func (s *Source) Counts(now time.Time) Counts {
	snapshot := s.directory.current.Load()
	c := Counts{
		Taken: s.loads.Load(), NotTaken: s.failures.Load(), LastTaken: time.Unix(s.loaded.Load(), 0), Broken: s.filesBroken.Load() || s.configBroken.Load(),
		Generation: snapshot.generation, Keys: snapshot.count(now), Ignored: s.directory.ignored.Load(),
	}
	for i := range c.Refused {
		c.Refused[i] = s.directory.refused[i].Load()
	}
	sets := map[string]*keySet{}
	for _, n := range snapshot.issuers {
		sets[n.JWKS] = n.keys
	}
	for _, place := range slices.Sorted(maps.Keys(sets)) {
		k := sets[place]
		count := IssuerCount{Place: place, Fetched: k.successes.Load(), Failed: k.failures.Load()}
		if at := k.fetched.Load(); at != 0 {
			count.LastFetched = time.Unix(at, 0)
		}
		c.Issuers = append(c.Issuers, count)
	}
	return c
}
