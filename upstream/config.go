package upstream

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// Config says which server to relay to, and bounds what is believed of it.
type Config struct {
	URL     string   `yaml:"url" help:"Server to relay to instead of running a model: http://HOST:PORT, https://HOST/PREFIX, or unix:/PATH of a socket; the paths /v1/... come after it. Several with the same model are separated by commas. Empty runs our own engine."`
	Servers []Server `yaml:"servers" help:"Servers with weights and keys of their own, in place of url or beside it."`
	Groups  []Group  `yaml:"groups" help:"Which servers answer for which model, where there are several models: each group has a queue of its own. None listed makes all servers one group, of one model."`
	// OwnEngine is what the command line starts an engine of our own for.
	OwnEngine string `yaml:"own_engine" oneof:"always overflow fallback" help:"Run engine.model beside the servers, under the same name for clients: always as one of them, overflow for what they have no free place for, fallback for when none of them can be used; empty runs none. In upstream.groups its name is own."`

	KeyFile string `yaml:"key_file" help:"File with the key that the server asks for, sent as a bearer token and read again when it changes; empty sends none. Keys of clients are never sent."`
	CAFile  string `yaml:"ca_file" help:"File of certificates (PEM) that may have signed the server's; empty takes the system's."`
	Dialect string `yaml:"dialect" default:"auto" oneof:"auto openai vllm sglang llama-server llama-cpp-python tgi transformers ollama openvino tensorrt-llm dynamo forebay" help:"What the server is; auto asks it. openai is what all have in common."`
	Model   string `yaml:"model" help:"The model's name at the server; empty takes the only one, or the first, of its list."`
	ModelID string `yaml:"model_id" help:"Name by which clients ask for the model; empty takes the server's, without folders and .gguf."`

	// Tokenizer is opened by the command line, which gives Counter.
	Tokenizer string `yaml:"tokenizer" help:"A GGUF file, tokenizer.json or folder of the model at the server: its prompts are counted here, to the token. Counts are compared with the server's; where they differ it is not used any more. Empty asks the server, or estimates."`

	ContextTokens int `yaml:"context_tokens" range:"..16777216" help:"Longest prompt and output together, in tokens; 0 takes what the server says, or 8192 where it does not."`
	SequencesMax  int `yaml:"sequences_max" range:"..65536" help:"Most sequences at the server; more wait here, in our order. 0 takes what the server says that it computes at once, or learns it, beginning with 4."`

	KVEvents    string `yaml:"kv_events" help:"Address where a server publishes the events of its cache over ZeroMQ: tcp://HOST:PORT, with * for the server's own host, or ipc:///PATH (--kv-events-config of vLLM and SGLang). Then requests go by what each server really holds; empty goes by what it was sent."`
	KVReplay    string `yaml:"kv_replay" help:"Address where it gives missed events again (replay_endpoint there); empty forgets what is known after each gap."`
	KVBlocksMax int    `yaml:"kv_blocks_max" default:"262144" range:"1024..16777216" help:"Most blocks of one server's cache that are remembered, of 60 to 120 bytes each; what is beyond is not known."`

	Relay          string `yaml:"relay" default:"envelope" oneof:"envelope exact" help:"How a streamed answer is passed on: envelope writes its ids, roles, reasons of the end and usage itself, exact passes the server's own events on as they came."`
	Cancel         string `yaml:"cancel" default:"auto" oneof:"auto close drain" help:"What becomes of an answer whose client has left: close ends its connection, drain reads it to its end, for servers that a closed connection harms; auto goes by the dialect."`
	Priority       bool   `yaml:"priority" help:"Tell the server the level of each request, if it was started to order by priority (vLLM, SGLang): useful where others use it too."`
	PromptCacheOff bool   `yaml:"prompt_cache_off" help:"Forbid llama-server to reuse the prompt of another request, which it shares between tenants."`

	ConnectLimit    time.Duration `yaml:"connect_limit" default:"2s" range:"1ms..1m" help:"Time to connect, handshakes included."`
	FirstTokenLimit time.Duration `yaml:"first_token_limit" default:"2m" range:"10ms..24h" help:"Time that the server may take until the first event of an answer."`
	SilenceLimit    time.Duration `yaml:"silence_limit" default:"1m" range:"10ms..24h" help:"Time that the server may take between two events of an answer."`
	CountLimit      time.Duration `yaml:"count_limit" default:"200ms" range:"1ms..1m" help:"Time that the server may take to count the tokens of a prompt before they are estimated."`
	CountBytesMin   int           `yaml:"count_bytes_min" default:"4096" range:"1..1073741824" help:"Prompts of this many bytes are counted by the server before they are admitted, if it can count; shorter ones are estimated once it has been learned how."`
	CheckInterval   time.Duration `yaml:"check_interval" default:"1s" range:"10ms..4s" help:"How often the server is asked whether it is well."`

	MetricsInterval time.Duration `yaml:"metrics_interval" default:"500ms" range:"50ms..1m" help:"How often the server's metrics are read while it works, for how many sequences it runs and lets wait."`
	MetricsOff      bool          `yaml:"metrics_off" help:"Do not read the server's metrics."`

	EventBytesMax   int           `yaml:"event_bytes_max" default:"4194304" range:"1KiB..1GiB" help:"Largest event of an answer, in bytes; a larger one ends the request with an error. A larger message of kv_events ends that connection."`
	StreamEventsMax int           `yaml:"stream_events_max" default:"256" range:"1..1048576" help:"Most events of one stream that wait for their reader; then no more of it is read from the server."`
	GenerationsMax  int           `yaml:"generations_max" default:"1024" range:"1..1048576" help:"Most generations at the server at the same time."`
	MessageBytesMax int           `yaml:"message_bytes_max" default:"262144" range:"1KiB..16MiB" help:"Most bytes that are read of any other answer of the server: errors, counts, lists of models."`
	ResolveInterval time.Duration `yaml:"resolve_interval" range:"..24h" help:"How often the host names of servers are looked up again: each address of a name that has several is a server of its own, as behind a headless service. 0 leaves a name one server."`
	IdleConnections int           `yaml:"idle_connections" default:"64" range:"1..65536" help:"Most connections that are kept open for further requests."`

	Counter Counter      `yaml:"-"` // nil for none
	Version string       `yaml:"-"` // of this program, told to the server
	Log     *slog.Logger `yaml:"-"` // nil drops what is said

	// OnState, where set, is called with every new State, in order. It must not
	// block and must not call the engine.
	OnState func(*wire.State) `yaml:"-"`

	group string // of an Engine that is one of Groups
}

// Server is one of several servers with the same model.
type Server struct {
	URL          string  `yaml:"url" help:"Its address, as upstream.url."`
	Name         string  `yaml:"name" help:"What it is called on the page, in metrics and by forebay upstream; empty is its address."`
	Weight       float64 `yaml:"weight" default:"1" range:"0.01..100" help:"How much it is preferred: with 2, its first token may be expected in twice the time."`
	KeyFile      string  `yaml:"key_file" help:"Its key; empty takes upstream.key_file."`
	SequencesMax int     `yaml:"sequences_max" range:"..65536" help:"Most sequences there; 0 takes upstream.sequences_max."`
	Model        string  `yaml:"model" help:"The model's name there; empty takes upstream.model."`
	KVEvents     string  `yaml:"kv_events" help:"Where it publishes the events of its cache; empty takes upstream.kv_events, off is for one that publishes none."`
	KVReplay     string  `yaml:"kv_replay" help:"Where it gives missed events again; empty takes upstream.kv_replay."`
	Use          string  `yaml:"use" default:"always" oneof:"always overflow fallback" help:"When it gets requests: always; overflow where no other has a free place; fallback where no other can be used at all."`
}

// relayExact is the value of Relay that passes the server's own events on.
const relayExact = "exact"

// Values of Server.Use.
const (
	useOverflow = "overflow"
	useFallback = "fallback"
)

// On tells whether there is a server to relay to.
func (c *Config) On() bool { return c.URL != "" || len(c.Servers) > 0 }

// all are the servers of both settings.
func (c *Config) all() (all []Server, err error) {
	var errs []error
	for url := range strings.SplitSeq(c.URL, ",") {
		if url = strings.TrimSpace(url); url != "" {
			all = append(all, Server{URL: url, Weight: 1, Use: "always"})
		}
	}
	all = append(all, c.Servers...)
	seen := map[string]bool{}
	for _, s := range all {
		if _, _, err := parseURL(s.URL); err != nil {
			errs = append(errs, fmt.Errorf("upstream.url: %w", err))
		} else if seen[s.URL] {
			errs = append(errs, fmt.Errorf("upstream.url: %q is there twice", s.URL))
		}
		if seen[s.URL] = true; s.Name != "" && seen[s.Name] {
			errs = append(errs, fmt.Errorf("upstream.servers: the name %q is there twice", s.Name))
		}
		seen[s.Name] = true
	}
	if len(all) > serversMost {
		errs = append(errs, fmt.Errorf("upstream.url: %d servers; at most %d are kept apart", len(all), serversMost))
	}
	errs = append(errs, c.checkGroups(all)...)
	return all, errors.Join(append(errs, c.checkEvents(all)...)...)
}

// serversMost bounds the servers of one gateway.
const serversMost = 256

// Mistakes refuses addresses that cannot be relayed to.
func (c *Config) Mistakes() error {
	_, err := c.all()
	return err
}

// parseURL returns the address of a server, and the path of its socket where it
// listens on one.
func parseURL(text string) (base *url.URL, socket string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if !strings.HasPrefix(path, "/") {
			return nil, "", fmt.Errorf("%q does not name a socket by its whole path, such as unix:/run/vllm.sock", text)
		}
		return &url.URL{Scheme: "http", Host: "localhost"}, path, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, "", fmt.Errorf("%q is not an address such as http://127.0.0.1:8000, https://host/prefix or unix:/path", text)
	case u.User != nil:
		return nil, "", errors.New("it must not hold a user or password; put the key into upstream.key_file")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, "", fmt.Errorf("%q must end with its path", text)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1")
	return u, "", nil
}
