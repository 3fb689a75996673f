package upstream

import "time"

// dialect is what one kind of server takes, says and breaks.
type dialect struct {
	name string
	// always are members that every generation is sent with, after the client's.
	always string
	// reserved are members that a client must not choose, since they would pass by
	// the gateway's limits or reach into other clients' work. They are taken out.
	reserved []string
	// countChat and countText are the paths that count the tokens of a chat or of a
	// text prompt; "" where the server does not count.
	countChat, countText string
	// usagePerChoice says that the usage is that of one choice, and not of all.
	usagePerChoice bool
	// linger is how long the server may go on with a generation after its
	// connection was closed.
	linger time.Duration
	// health is the path that says whether the server is well.
	health string
}

// reservedEverywhere are members that some server understands as more choices, a
// priority or a place of its own.
var reservedEverywhere = []string{
	"priority", "cache_salt", "extra_key", "request_id", "rid", "session_id", "session_params", "kv_transfer_params", "data_parallel_rank",
	"id_slot", "n_cmpl", "return_progress", "sse_ping_interval", "stream_interval", "service_tier", "store", "background", "nvext",
}

const (
	askUsage           = `"stream_options":{"include_usage":true}`
	askUsageContinuous = `"stream_options":{"include_usage":true,"continuous_usage_stats":true}`
)

// generic is what all servers with the OpenAI API have in common.
var generic = &dialect{name: "openai", always: askUsage, linger: time.Second, health: "/v1/models"}

// dialects are all others, by name.
var dialects = map[string]*dialect{
	"openai": generic,
	"vllm": {
		name: "vllm", always: askUsageContinuous, countChat: "/tokenize", countText: "/tokenize",
		linger: 50 * time.Millisecond, health: "/health",
	},
	"llama-server": {
		name: "llama-server", always: askUsage + `,"timings_per_token":true`, countChat: "/v1/chat/completions/input_tokens", countText: "/tokenize",
		usagePerChoice: true, linger: 100 * time.Millisecond, health: "/health",
	},
}
