package cli

import (
	"time"

	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/telemetry"
)

// identityCounts is what the metrics show of keys and issuers.
func identityCounts(s *identity.Source, now time.Time) telemetry.IdentityCounts {
	counts := s.Counts(now)
	c := telemetry.IdentityCounts{
		Taken: counts.Taken, NotTaken: counts.NotTaken, LastTaken: counts.LastTaken, Broken: counts.Broken, Generation: counts.Generation, Ignored: counts.Ignored,
	}
	for state, n := range counts.Keys {
		c.Keys = append(c.Keys, telemetry.ReasonCount{Reason: identity.State(state).String(), Count: uint64(n)})
	}
	for reason, n := range counts.Refused {
		c.Refused = append(c.Refused, telemetry.ReasonCount{Reason: identity.Reason(reason).String(), Count: n})
	}
	for _, issuer := range counts.Issuers {
		c.Issuers = append(c.Issuers, telemetry.IssuerCount(issuer))
	}
	return c
}
