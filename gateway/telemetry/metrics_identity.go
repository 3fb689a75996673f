package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// IdentityCounts are what became of changes to keys and rights, and of requests that
// are nobody's.
type IdentityCounts struct {
	Taken, NotTaken uint64
	LastTaken       time.Time
	Broken          bool
	Generation      uint64
	Ignored         uint64
	Keys            []ReasonCount // by state
	Refused         []ReasonCount
	Issuers         []IssuerCount
}

// IssuerCount is a set of an issuer's keys.
type IssuerCount struct {
	Place           string
	Fetched, Failed uint64
	LastFetched     time.Time
}

// CountIdentity makes the metrics show the counts that read returns at each scrape.
func (r *Recorder) CountIdentity(read func() IdentityCounts) { r.metrics.identity.Store(&read) }

var (
	specReloads       = counter("forebay_reloads_total", "Loads of keys, tenants and rights, the first included, by result: taken, or refused as a whole.", "result")
	specReloadFailed  = gauge("forebay_reload_failed", "1 while the last load was refused, and the one before goes on holding.")
	specReloadTime    = gauge("forebay_reload_success_timestamp_seconds", "When a load was last taken, in seconds since 1970.")
	specGeneration    = gauge("forebay_reload_generation", "Number of the keys, tenants and rights that hold; each load that is taken adds 1.")
	specKeys          = gauge("forebay_keys", "Keys in the key files, by state: active, disabled, expired or revoked.", "state")
	specNobody        = counter("forebay_identity_refused_total", "Requests refused since nobody could be found to send them, by reason.", "reason")
	specIgnored       = counter("forebay_identity_ignored_certificates_total", "Headers x-forwarded-client-cert from peers that identity.mesh_peers does not list, which were ignored.")
	specIssuerFetches = counter("forebay_issuer_fetches_total", "Reads of an issuer's keys, by the place they are read from and result: ok or failed.", "jwks", "result")
	specIssuerTime    = gauge("forebay_issuer_fetch_success_timestamp_seconds", "When an issuer's keys were last read, in seconds since 1970; 0 is never.", "jwks")
)

func collectIdentity(c *IdentityCounts, out chan<- prometheus.Metric) {
	out <- specReloads.value(float64(c.Taken), "taken")
	out <- specReloads.value(float64(c.NotTaken), "refused")
	failed := 0.
	if c.Broken {
		failed = 1
	}
	out <- specReloadFailed.value(failed)
	out <- specReloadTime.value(float64(c.LastTaken.Unix()))
	out <- specGeneration.value(float64(c.Generation))
	for _, k := range c.Keys {
		out <- specKeys.value(float64(k.Count), k.Reason)
	}
	for _, r := range c.Refused {
		out <- specNobody.value(float64(r.Count), r.Reason)
	}
	out <- specIgnored.value(float64(c.Ignored))
	for _, n := range c.Issuers {
		out <- specIssuerFetches.value(float64(n.Fetched), n.Place, "ok")
		out <- specIssuerFetches.value(float64(n.Failed), n.Place, "failed")
		at := 0.
		if !n.LastFetched.IsZero() {
			at = float64(n.LastFetched.Unix())
		}
		out <- specIssuerTime.value(at, n.Place)
	}
}
