package telemetry

import "github.com/prometheus/client_golang/prometheus"

// SiblingCounts are what a replica and its siblings do for each other.
type SiblingCounts struct {
	Up             bool // Redis answers
	Siblings       int  // that are alive
	Blocks, Own    int  // in the map, and of this replica in it
	Evicted        uint64
	Sent, Dropped  uint64 // changes of own blocks
	Received       uint64
	Resyncs        uint64
	Trips, Failed  uint64 // to Redis
	BytesIn        uint64
	BytesOut       uint64
	Placed         []ReasonCount
	Hops           []ReasonCount // by result
	Taken          uint64
	TokensHeld     uint64 // prompt tokens of hops that the sibling held
	TokensComputed uint64 // the others
}

// CountSiblings makes the metrics show the counts that read returns at each scrape.
func (r *Recorder) CountSiblings(read func() SiblingCounts) { r.metrics.siblings.Store(&read) }

var (
	specSiblings       = gauge("forebay_siblings", "Other replicas that are alive.")
	specSiblingsUp     = gauge("forebay_siblings_store_up", "1 while the Redis through which replicas find each other answers; with siblings.peers, while one of them does or there is no other.")
	specPlaced         = counter("forebay_placements_total", "Requests by why they were served where they were: alone, soonest_here, sooner_there, not_here, hop_failed, kind.", "why")
	specHops           = counter("forebay_hops_total", "Requests sent to siblings, by result: ok, refused, failed; taken are those that siblings sent here.", "result")
	specHopTokens      = counter("forebay_hop_prompt_tokens_total", "Prompt tokens of requests sent to siblings: those that the sibling was known to hold, and the others.", "kind")
	specMapBlocks      = gauge("forebay_hitmap_blocks", "Blocks of siblings that are remembered.")
	specMapOwn         = gauge("forebay_hitmap_own_blocks", "Blocks of this replica that the others are told of.")
	specMapEvicted     = counter("forebay_hitmap_evicted_total", "Blocks that were forgotten, since siblings.blocks_max were remembered.")
	specBlockChanges   = counter("forebay_hitmap_changes_total", "Changes of blocks: sent to the others, dropped since too many waited, received from others.", "kind")
	specResyncs        = counter("forebay_hitmap_resyncs_total", "Times that all blocks of a sibling were fetched, after a start or a gap.")
	specSiblingTrips   = counter("forebay_siblings_round_trips_total", "Round trips to Redis, or questions to peers, about siblings, by result: ok or failed.", "result")
	specSiblingTraffic = counter("forebay_siblings_bytes_total", "Bytes of blocks and reports, to and from Redis or peers.", "direction")
)

func collectSiblings(c *SiblingCounts, out chan<- prometheus.Metric) {
	out <- specSiblings.value(float64(c.Siblings))
	out <- specSiblingsUp.value(oneIf(c.Up))
	for _, p := range c.Placed {
		out <- specPlaced.value(float64(p.Count), p.Reason)
	}
	for _, h := range c.Hops {
		out <- specHops.value(float64(h.Count), h.Reason)
	}
	out <- specHops.value(float64(c.Taken), "taken")
	out <- specHopTokens.value(float64(c.TokensHeld), "held")
	out <- specHopTokens.value(float64(c.TokensComputed), "computed")
	out <- specMapBlocks.value(float64(c.Blocks))
	out <- specMapOwn.value(float64(c.Own))
	out <- specMapEvicted.value(float64(c.Evicted))
	out <- specBlockChanges.value(float64(c.Sent), "sent")
	out <- specBlockChanges.value(float64(c.Dropped), "dropped")
	out <- specBlockChanges.value(float64(c.Received), "received")
	out <- specResyncs.value(float64(c.Resyncs))
	out <- specSiblingTrips.value(float64(c.Trips-c.Failed), "ok")
	out <- specSiblingTrips.value(float64(c.Failed), "failed")
	out <- specSiblingTraffic.value(float64(c.BytesOut), "out")
	out <- specSiblingTraffic.value(float64(c.BytesIn), "in")
}
