package control

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/forebay-io/forebay/xds"
)

// This file is what gateways say of their requests, by which a version on trial is
// judged: it may be taken by all and still refuse every request.

// tally counts a node's requests.
type tally struct{ requests, failed float64 }

// readHealth is what a node says in its metadata; false where it says nothing.
func readHealth(n *corev3.Node) (tally, bool) {
	v, ok := n.GetMetadata().GetFields()[xds.HealthKey]
	if !ok {
		return tally{}, false
	}
	fields := v.GetStructValue().GetFields()
	h := tally{fields["requests"].GetNumberValue(), fields["failed"].GetNumberValue()}
	return h, h.requests >= 0 && h.failed >= 0 && h.failed <= h.requests
}

// heard notes what a node says of its requests. What it had counted when the trial began,
// or when it connected since, is not the version's doing.
func (n *node) heard(h tally) {
	switch {
	case !n.told:
		n.before = h
	case h.requests < n.health.requests: // it has begun anew
		n.before = tally{}
	}
	n.health, n.told = h, true
}

// rebase begins to count anew, since a trial begins.
func (n *node) rebase() { n.before = n.health }

// during is what was counted since the trial began.
func (n *node) during() tally {
	return tally{n.health.requests - n.before.requests, n.health.failed - n.before.failed}
}

// sick compares the canaries with the other gateways. It returns why the version on
// trial is to be taken back, "" for nothing.
func (r *rule) sick(nodes []*node) string {
	var canaries, others tally
	for _, n := range nodes {
		of := &others
		if n.canary {
			of = &canaries
		}
		s := n.during()
		of.requests += s.requests
		of.failed += s.failed
	}
	if canaries.requests < max(1, float64(r.requestsMin)) {
		return ""
	}
	share, usual := canaries.failed/canaries.requests, 0.0
	if others.requests > 0 {
		usual = others.failed / others.requests
	}
	if share <= usual+r.failedMax {
		return ""
	}
	return fmt.Sprintf("of %.0f requests at the gateways that have it, %.0f failed (%.1f%%; elsewhere %.1f%%)", canaries.requests, canaries.failed, 100*share, 100*usual)
}
