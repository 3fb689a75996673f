package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PolicyCounts is how far a gateway is with the policy of its control plane.
type PolicyCounts struct {
	Source              string // none, kept or live
	Connected, Refusing bool
	Stale               time.Duration
	Taken, Refused      uint64
	Streams             uint64
}

// CountPolicy makes the metrics show the counts that read returns at each scrape.
func (r *Recorder) CountPolicy(read func() PolicyCounts) { r.metrics.policy.Store(&read) }

var (
	specPolicySource    = gauge("forebay_xds_policy", "1 for where the policy that holds came from: live, kept from an earlier run, or none.", "source")
	specPolicyStale     = gauge("forebay_xds_policy_stale_seconds", "Time since the control plane was last known to have the policy that holds; 0 while it has.")
	specPolicyConnected = gauge("forebay_xds_connected", "1 while a control plane is connected.")
	specPolicyRefusing  = gauge("forebay_xds_refusing", "1 while the last policy that came is refused, and the one before goes on holding.")
	specPolicies        = counter("forebay_xds_policies_total", "Policies that came from the control plane, by result: taken, or refused as a whole.", "result")
	specPolicyStreams   = counter("forebay_xds_streams_total", "Streams from a control plane that sent something.")
)

func collectPolicy(c *PolicyCounts, out chan<- prometheus.Metric) {
	number := map[bool]float64{true: 1}
	for _, source := range []string{"none", "kept", "live"} {
		out <- specPolicySource.value(number[c.Source == source], source)
	}
	out <- specPolicyStale.value(c.Stale.Seconds())
	out <- specPolicyConnected.value(number[c.Connected])
	out <- specPolicyRefusing.value(number[c.Refusing])
	out <- specPolicies.value(float64(c.Taken), "taken")
	out <- specPolicies.value(float64(c.Refused), "refused")
	out <- specPolicyStreams.value(float64(c.Streams))
}
