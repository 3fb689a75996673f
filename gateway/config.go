package gateway

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Config is the configuration of the HTTP side.
type Config struct {
	CORSOrigins   string        `yaml:"cors_origins" help:"Origins that browsers may call from, separated by commas, or * for all; empty turns CORS off."`
	UnknownFields string        `yaml:"unknown_fields" default:"ignore" help:"What becomes of request fields that nobody knows: ignore names them in the header x-forebay-ignored, refuse answers 400. Known fields that would change the answer and are not supported are refused in any case."`
	TLS           TLSConfig     `yaml:"tls"`
	Limits        LimitsConfig  `yaml:"limits"`
	Timeouts      TimeoutConfig `yaml:"timeouts"`
}

// TLSConfig is how the API speaks TLS on its TCP address.
type TLSConfig struct {
	Certificate  string        `yaml:"certificate" help:"Certificate of the API's address (listen), a PEM file with its chain; empty speaks no TLS. The files of this section are read again when they change."`
	Key          string        `yaml:"key" help:"Its private key, a PEM file."`
	ClientCA     string        `yaml:"client_ca" help:"PEM file of the authorities whose client certificates are verified; with tls in identity.mesh_peers these are identity.mesh_identities. Clients without a certificate need a key."`
	PollInterval time.Duration `yaml:"poll_interval" default:"2s" range:"50ms..1h" help:"How often connections that open make the gateway look whether the files have changed."`
}

// LimitsConfig bounds what a client may send.
type LimitsConfig struct {
	ConnectionsMax int           `yaml:"connections_max" default:"4096" range:"1..1048576" help:"Open client connections; further ones get 503."`
	HeaderBytesMax int           `yaml:"header_bytes_max" default:"16384" range:"1KiB..1MiB" help:"Request line and headers, in bytes; more gets 431."`
	BodyBytesMax   int           `yaml:"body_bytes_max" default:"8388608" range:"1KiB..1GiB" help:"Request body after decompression, in bytes; more gets 413."`
	AnswerBytesMax int           `yaml:"answer_bytes_max" default:"33554432" range:"1KiB..1GiB" help:"Answer that is not streamed, in bytes of text and log-probabilities; a longer one fails."`
	JSONDepthMax   int           `yaml:"json_depth_max" default:"128" range:"8..1000" help:"Levels of nesting in a request body."`
	MessagesMax    int           `yaml:"messages_max" default:"4096" range:"1..1048576" help:"Messages in a chat request."`
	ToolsMax       int           `yaml:"tools_max" default:"512" range:"1..1048576" help:"Tools in a chat request."`
	PromptsMax     int           `yaml:"prompts_max" default:"64" range:"1..65536" help:"Prompts in a legacy completion request."`
	InputsMax      int           `yaml:"inputs_max" default:"2048" range:"1..65536" help:"Texts in an embeddings request, and documents in a rerank request."`
	ChoicesMax     int           `yaml:"choices_max" default:"16" range:"1..128" help:"Choices (n) of one request."`
	PinMax         time.Duration `yaml:"pin_max" default:"24h" range:"1s..8760h" help:"Longest time for which a request may pin its prompt."`
	LogitBiasMax   int           `yaml:"logit_bias_max" default:"1024" range:"1..1048576" help:"Entries in logit_bias, stop_token_ids, allowed_token_ids and bad_words each."`
}

// TimeoutConfig bounds how long things may take. No limit covers the length
// of a healthy stream.
type TimeoutConfig struct {
	HeaderLimit     time.Duration `yaml:"header_limit" default:"10s" help:"Time to receive a request's headers."`
	BodyLimit       time.Duration `yaml:"body_limit" default:"60s" help:"Time to receive a request's body."`
	IdleLimit       time.Duration `yaml:"idle_limit" default:"120s" help:"Time a connection may wait for its next request."`
	WriteStallLimit time.Duration `yaml:"write_stall_limit" default:"20s" help:"Time one write may wait for a slow reader before the request is cut."`
	PrepareLimit    time.Duration `yaml:"prepare_limit" default:"30s" help:"Time the engine may take to render and tokenize a prompt."`
	CommitLimit     time.Duration `yaml:"commit_limit" default:"5s" help:"Time a streamed request may wait before its 200 and headers are sent; later failures are reported inside the stream."`
	KeepAlive       time.Duration `yaml:"keep_alive" default:"5s" help:"Silence in a stream after which a comment line is sent."`
	CancelLimit     time.Duration `yaml:"cancel_limit" default:"10s" help:"Time the engine may take to say what it computed of a request that ends early. Until then the request keeps its place; after it, only what is known is counted and charged."`
	HeartbeatLimit  time.Duration `yaml:"heartbeat_limit" default:"5s" help:"Age of the engine's last sign of life at which it no longer counts as ready."`
}

// Mistakes refuses an origin that can never equal a browser's Origin header.
func (c *Config) Mistakes() error {
	var errs []error
	if c.UnknownFields != "ignore" && c.UnknownFields != "refuse" {
		errs = append(errs, fmt.Errorf("gateway.unknown_fields: %q is neither ignore nor refuse", c.UnknownFields))
	}
	if c.TLS.Certificate != "" != (c.TLS.Key != "") {
		errs = append(errs, errors.New("gateway.tls: certificate and key belong together; give both or none"))
	}
	if c.TLS.ClientCA != "" && c.TLS.Certificate == "" {
		errs = append(errs, errors.New("gateway.tls.client_ca: needs certificate and key, without which there is no TLS"))
	}
	for origin := range strings.SplitSeq(c.CORSOrigins, ",") {
		origin = strings.TrimSpace(origin)
		u, err := url.Parse(origin)
		if origin == "" || origin == "*" || origin == "null" || err == nil && u.Scheme != "" && u.Host != "" && origin == u.Scheme+"://"+u.Host {
			continue
		}
		errs = append(errs, fmt.Errorf("gateway.cors_origins: %q is not an origin such as https://app.example or http://localhost:3000, which has no path and no slash at its end", origin))
	}
	return errors.Join(errs...)
}
