package gateway

import (
	"fmt"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// Config is everything that can be set about the HTTP side.
type Config struct {
	CORSOrigins string        `yaml:"cors_origins" help:"Origins that browsers may call from, separated by commas, or * for all; empty turns CORS off."`
	Limits      LimitsConfig  `yaml:"limits"`
	Timeouts    TimeoutConfig `yaml:"timeouts"`
}

// LimitsConfig bounds what a client may send.
type LimitsConfig struct {
	ConnectionsMax int `yaml:"connections_max" default:"4096" help:"Open client connections; further ones get 503."`
	HeaderBytesMax int `yaml:"header_bytes_max" default:"16384" help:"Request line and headers, in bytes; more gets 431."`
	BodyBytesMax   int `yaml:"body_bytes_max" default:"8388608" help:"Request body after decompression, in bytes; more gets 413."`
	AnswerBytesMax int `yaml:"answer_bytes_max" default:"33554432" help:"Answer that is not streamed, in bytes of text and log-probabilities; a longer one fails."`
	JSONDepthMax   int `yaml:"json_depth_max" default:"128" help:"Levels of nesting in a request body."`
	MessagesMax    int `yaml:"messages_max" default:"4096" help:"Messages in a chat request."`
	ToolsMax       int `yaml:"tools_max" default:"512" help:"Tools in a chat request."`
	PromptsMax     int `yaml:"prompts_max" default:"64" help:"Prompts in a legacy completion request."`
	ChoicesMax     int `yaml:"choices_max" default:"16" help:"Choices (n) of one request, up to 128."`
	LogitBiasMax   int `yaml:"logit_bias_max" default:"1024" help:"Entries in logit_bias."`
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
	HeartbeatLimit  time.Duration `yaml:"heartbeat_limit" default:"5s" help:"Age of the engine's last sign of life at which it no longer counts as ready."`
}

func (c *Config) fillAndValidate() error {
	conf.Fill(c)
	for _, f := range []struct {
		key              string
		value, low, high int
	}{
		{"connections_max", c.Limits.ConnectionsMax, 1, 1 << 20},
		{"header_bytes_max", c.Limits.HeaderBytesMax, 1024, 1 << 20},
		{"body_bytes_max", c.Limits.BodyBytesMax, 1024, 1 << 30},
		{"answer_bytes_max", c.Limits.AnswerBytesMax, 1024, 1 << 30},
		{"json_depth_max", c.Limits.JSONDepthMax, 8, 1000},
		{"messages_max", c.Limits.MessagesMax, 1, 1 << 20},
		{"tools_max", c.Limits.ToolsMax, 1, 1 << 20},
		{"prompts_max", c.Limits.PromptsMax, 1, 1 << 16},
		{"choices_max", c.Limits.ChoicesMax, 1, 128},
		{"logit_bias_max", c.Limits.LogitBiasMax, 1, 1 << 20},
	} {
		if f.value < f.low || f.value > f.high {
			return fmt.Errorf("gateway.limits.%s must be from %d to %d, not %d", f.key, f.low, f.high, f.value)
		}
	}
	for _, f := range []struct {
		key   string
		value time.Duration
	}{
		{"header_limit", c.Timeouts.HeaderLimit},
		{"body_limit", c.Timeouts.BodyLimit},
		{"idle_limit", c.Timeouts.IdleLimit},
		{"write_stall_limit", c.Timeouts.WriteStallLimit},
		{"prepare_limit", c.Timeouts.PrepareLimit},
		{"commit_limit", c.Timeouts.CommitLimit},
		{"keep_alive", c.Timeouts.KeepAlive},
		{"heartbeat_limit", c.Timeouts.HeartbeatLimit},
	} {
		if f.value <= 0 {
			return fmt.Errorf("gateway.timeouts.%s must be above 0s, not %v", f.key, f.value)
		}
	}
	return nil
}
