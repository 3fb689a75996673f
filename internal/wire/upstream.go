package wire

import (
	"encoding/json"
	"time"
)

// Relayed is the part of another server's answer that is passed on as JSON.
type Relayed struct {
	// Delta is the new members of the message but role and content, such as
	// "tool_calls":[…], separated by commas; empty for none.
	Delta []byte
	// Logprobs is the logprobs object of the new text; nil for none.
	Logprobs json.RawMessage

	// Exact says that the server's own events are passed on in place of all else that
	// is told of the choice. Lines are the data of those that came with this event, in
	// order, and UsageLine that of the one which has the usage alone; nil for none.
	Exact     bool
	Lines     [][]byte
	UsageLine []byte
}

// UpstreamReport is what an engine that relays knows of one other server. It does not
// cross the socket.
type UpstreamReport struct {
	Group string `json:"group,omitempty"` // of servers with a queue of their own; "" is the only one
	Name  string `json:"upstream"`        // its address
	Kind  string `json:"kind"`            // its dialect and version, or ""
	State string `json:"state"`           // looking, up, starting (not all of its places yet), ejected, standby (a fallback that is not needed), draining, drained or leaving (its address has gone)
	Why   string `json:"why,omitempty"`

	// Tokenizer says whether prompts are counted here: trusted, differs (no longer), or
	// "" for no tokenizer.
	Tokenizer string `json:"tokenizer,omitempty"`

	Inside      int     `json:"sequences"` // sequences there, as was sent and has not ended
	Places      int     `json:"places"`    // how many may be there
	PlacesExact bool    `json:"places_exact"`
	Prefill     int     `json:"prefill_tokens"` // prompt tokens there without a first token
	Strangers   float64 `json:"strangers"`      // sequences of others, by its own metrics

	Delay time.Duration `json:"delay_ns"` // of a first token, beside prefill
	Token time.Duration `json:"token_ns"` // of a prompt token
	Step  time.Duration `json:"step_ns"`  // between two tokens of an answer
	Heard int64         `json:"-"`        // when the last event of an answer came, 0 for never

	// Cache is what is known of its cache by its events; nil where they are not followed.
	Cache *UpstreamCache `json:"cache,omitempty"`

	// Since the start:
	Served  uint64 `json:"served"`  // whole answers
	Failed  uint64 `json:"failed"`  // answers that failed by its fault
	Resent  uint64 `json:"resent"`  // requests that were sent again after it
	Ejected uint64 `json:"ejected"` // times it was taken out of use
	Guessed uint64 `json:"guessed"` // answers without the reason of their end
	// Uncounted are whole answers without a usage: their events were counted.
	Uncounted uint64 `json:"uncounted"`
	Rejected  uint64 `json:"rejected"` // requests that it had no room for
}

// UpstreamCache is what the events of a server's cache told.
type UpstreamCache struct {
	State       string `json:"state"` // known, in part (some that it holds may be missing here) or unheard (its events do not come)
	Blocks      int    `json:"blocks"`
	BlockTokens int    `json:"block_tokens"` // 0 for not known yet
	Missed      uint64 `json:"missed"`       // times that events were missed or could not be read, or that it was started anew
	Left        uint64 `json:"left_out"`     // blocks that there was no room for here
}

// Upstreams is implemented by an engine that relays.
type Upstreams interface {
	// DrainUpstream keeps new requests from the server that is reported by this name,
	// or lets them go there again. What it has of others goes on to its end.
	DrainUpstream(name string, drained bool) *Error
}
