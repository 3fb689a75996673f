package control

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// rule says which nodes get a new version first.
type rule struct {
	percent    uint32
	key, value string // of the metadata; "" is no label
	hold       time.Duration

	failedMax   float64
	requestsMin int
}

func newRule(cfg *Config) rule {
	r := rule{percent: uint32(cfg.CanaryPercent), hold: cfg.CanaryHold, failedMax: cfg.CanaryFailedMax, requestsMin: cfg.CanaryRequestsMin}
	r.key, r.value, _ = parseLabel(cfg.CanaryLabel) // Mistakes has checked it
	return r
}

func parseLabel(text string) (key, value string, err error) {
	if text == "" {
		return "", "", nil
	}
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" || value == "" {
		return "", "", fmt.Errorf("canary_label: %q is not KEY=VALUE", text)
	}
	return key, value, nil
}

func (r *rule) on() bool { return r.percent > 0 || r.key != "" }

// includes reports whether a node gets new versions first. Each instance of a control
// plane says the same of a node.
func (r *rule) includes(n *corev3.Node) bool {
	if r.key != "" && n.GetMetadata().GetFields()[r.key].GetStringValue() == r.value {
		return true
	}
	h := fnv.New32a()
	h.Write([]byte(n.GetId()))
	return h.Sum32()%100 < r.percent
}

// trial is which version goes to whom. It is pure: time is an argument.
type trial struct {
	rule
	stable   *Sets
	next     *Sets // on trial, nil for none
	since    time.Time
	rejected string // the version that was taken back, until another comes
	why      string
}

// of is what a node gets.
func (t *trial) of(canary bool) *Sets {
	if canary && t.next != nil {
		return t.next
	}
	return t.stable
}

// version is that of the newest version that some node gets.
func (t *trial) version() string { return t.of(true).Version }

// offer takes a version, and tells whether any node gets something else now.
func (t *trial) offer(s *Sets, now time.Time) bool {
	switch {
	case s.Version == t.rejected || t.stable != nil && s.Version == t.version():
		return false
	case t.stable == nil || !t.on():
		t.stable, t.next = s, nil
	case s.Version == t.stable.Version:
		t.next = nil
	default:
		t.next, t.since = s, now
	}
	t.rejected, t.why = "", ""
	return true
}

// decide ends the trial when it is time. It returns what it did, "" for nothing.
func (t *trial) decide(nodes []*node, now time.Time) string {
	if t.next == nil {
		return ""
	}
	canaries := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return !n.canary })
	for _, n := range canaries {
		for typeURL, p := range n.types {
			version := t.next.of(n.kind).GetVersion(typeURL)
			if p.problem != "" && p.sent == version && version != t.stable.of(n.kind).GetVersion(typeURL) {
				return t.takeBack(fmt.Sprintf("%s refuses it: %s", n.id, p.problem))
			}
		}
	}
	if why := t.sick(nodes); why != "" {
		return t.takeBack(why)
	}
	if now.Sub(t.since) < t.hold || !t.arrived(canaries) {
		return ""
	}
	t.stable, t.next = t.next, nil
	return "the version on trial has held, and goes to all nodes"
}

func (t *trial) takeBack(why string) string {
	t.rejected, t.why, t.next = t.next.Version, why, nil
	return "the version on trial is taken back: " + why
}

// arrived reports whether every canary has taken the version.
func (t *trial) arrived(canaries []*node) bool {
	for _, n := range canaries {
		for typeURL, p := range n.types {
			if p.whole && p.acked != t.next.of(n.kind).GetVersion(typeURL) {
				return false
			}
		}
	}
	return true
}

// words says what becomes of the newest version, "" where all nodes get it.
func (t *trial) words() string {
	switch {
	case t.next != nil:
		return fmt.Sprintf("%s is on trial since %s, for %s at least", t.next.Version, t.since.UTC().Format(time.RFC3339), t.hold)
	case t.rejected != "":
		return fmt.Sprintf("%s was taken back: %s", t.rejected, t.why)
	}
	return ""
}
