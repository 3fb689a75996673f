package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// dialect is what one kind of server takes, says and breaks. The zero value of a field
// is what all servers with the OpenAI API have in common.
type dialect struct {
	name string
	// owners are who owns a model by the server's list of models.
	owners []string
	// always are members that every generation is sent with, after the client's;
	// empty for askUsage.
	always string
	// countChat and countText are the paths that count the tokens of a chat or of a
	// text prompt; "" where the server does not count.
	countChat, countText string
	// usagePerChoice says that the usage is that of one choice, and not of all.
	usagePerChoice bool
	// sequences is how many sequences a server computes that does not say; 0 for
	// sequencesUnknown.
	sequences int
	// alone says that a second request harms the first, so that none may even wait there.
	alone bool
	// stepTokens is the prefill that a step computes at most; 0 for stepTokensUnknown.
	stepTokens int
	// running and waiting are the names of the metrics that count the requests which
	// the server computes, and which wait there; newest names first.
	running, waiting []string
	// cuts says that the server shortens a prompt that is too long, without a word.
	cuts bool
	// salted says that the member cache_salt keeps cached prefixes apart.
	salted bool
	// priority is the member's value by level, where the server can order by it; the
	// first is that of the most urgent level.
	priority []int
	// rid says that the member rid names a request, which abort, a path, ends.
	rid   bool
	abort string
	// drains says that a closed connection harms other requests, so that an answer
	// which nobody reads is read to its end.
	drains bool
	// linger is how long the server may go on with a generation after its connection
	// was closed, or was aborted; 0 is a second.
	linger time.Duration
	// health is the path that says whether the server is well; "" is its list of models.
	health string
}

// stepTokensUnknown is what a step of most servers computes at most.
const stepTokensUnknown = 2048

// reserved are members that some server understands as more choices, a priority, or a
// place of its own. They would pass by the gateway's limits, or reach into other
// clients' work, so a client's are taken out.
var reserved = []string{
	"priority", "cache_salt", "extra_key", "request_id", "rid", "session_id", "session_params", "kv_transfer_params", "data_parallel_rank",
	"id_slot", "cache_prompt", "n_cmpl", "return_progress", "sse_ping_interval", "stream_interval", "service_tier", "store", "background", "nvext",
}

const (
	askUsage           = `"stream_options":{"include_usage":true}`
	askUsageContinuous = `"stream_options":{"include_usage":true,"continuous_usage_stats":true}`
)

// generic is a server of which nothing more is known.
var generic = &dialect{name: "openai"}

// dialects are all that are known. The names are those of upstream.dialect.
var dialects = []*dialect{
	generic,
	{
		name: "vllm", owners: []string{"vllm"}, always: askUsageContinuous, countChat: "/tokenize", countText: "/tokenize",
		running: []string{"vllm:num_requests_running"}, waiting: []string{"vllm:num_requests_waiting"},
		salted: true, priority: []int{0, 1, 2}, linger: 50 * time.Millisecond, health: "/health",
	},
	{
		name: "sglang", owners: []string{"sglang"}, always: askUsageContinuous, countText: "/tokenize",
		running: []string{"sglang:num_running_reqs"}, waiting: []string{"sglang:num_queue_reqs"},
		salted: true, priority: []int{100, 50, 0}, rid: true, abort: "/abort_request", linger: 100 * time.Millisecond,
		health: "/v1/models", // its /health computes a token
	},
	{
		name: "llama-server", owners: []string{"llamacpp"}, always: askUsage + `,"timings_per_token":true`,
		countChat: "/v1/chat/completions/input_tokens", countText: "/tokenize", usagePerChoice: true,
		running: []string{"llamacpp:requests_processing"}, waiting: []string{"llamacpp:requests_deferred"}, linger: 100 * time.Millisecond, health: "/health",
	},
	{name: "llama-cpp-python", owners: []string{"me"}, sequences: 1, alone: true}, // a second request interrupts the first
	{name: "tgi", sequences: 128, running: []string{"tgi_batch_current_size"}, waiting: []string{"tgi_queue_size"}, health: "/health"},
	{name: "transformers", health: "/health"},
	{name: "ollama", owners: []string{"library"}, sequences: 1, cuts: true, health: "/api/version"},
	{name: "openvino", drains: true, stepTokens: 256, health: "/v2/health/ready"},
	{name: "tensorrt-llm", owners: []string{"tensorrt_llm"}, running: []string{"trtllm_num_requests_running"}, waiting: []string{"trtllm_num_requests_waiting"}, health: "/health"},
	{name: "forebay", owners: []string{"forebay"}, linger: 100 * time.Millisecond, health: "/readyz"}, // our own gateway
	{name: "dynamo", owners: []string{"nvidia"}, linger: 2 * time.Second, health: "/health"},
}

// dialectNamed is the dialect of a name, nil for none.
func dialectNamed(name string) *dialect {
	for _, d := range dialects {
		if d.name == name {
			return d
		}
	}
	return nil
}

// ownMembers appends the members that the server has of us for one generation.
func (d *dialect) ownMembers(b []byte, id, salt string, level int, byPriority bool) []byte {
	b = append(b, ',')
	if d.always == "" {
		b = append(b, askUsage...)
	}
	b = append(b, d.always...)
	if d.salted {
		b = appendMember(append(b, ','), "cache_salt", quote(saltSent(salt)))
	}
	if byPriority && d.priority != nil {
		b = strconv.AppendInt(append(b, `,"priority":`...), int64(d.priority[min(level, len(d.priority)-1)]), 10)
	}
	if d.rid {
		b = appendMember(append(b, ','), "rid", quote(hashed(id)))
	}
	return b
}

// saltSent is what keeps a tenant's cached prefixes apart at the server.
func saltSent(salt string) string { return hashed("salt " + salt) }

// hashed is a name of a fixed length: no such name begins with another, and a
// tenant's name does not leave this process.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// lingers is how long a place stays taken after its connection was closed.
func (d *dialect) lingers() time.Duration {
	if d.linger == 0 {
		return time.Second
	}
	return d.linger
}
