package telemetry

import (
	"cmp"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
)

// Config says what is kept and what is logged.
type Config struct {
	RecordsMax   int    `yaml:"records_max" default:"1024" range:"1..1048576" help:"Finished requests kept in memory for the debug page."`
	AccessLogOff bool   `yaml:"access_log_off" help:"Write no access log line per request."`
	LogFormat    string `yaml:"log_format" default:"json" oneof:"json text" help:"Form of the log lines: json or text (key=value)."`
	TenantsMax   int    `yaml:"tenants_max" default:"200" range:"1..100000" help:"Tenants that have metrics of usage of their own; those that come later share the tenant (other)."`
	KeysMax      int    `yaml:"keys_max" default:"1000" range:"1..1000000" help:"Keys whose use since the start the page of budgets shows; those that come later are shown as one."`

	PricePerHour float64 `yaml:"price_per_hour" range:"0..1000000" help:"What an hour of this machine costs, in any currency; from it follows what a million tokens cost. 0 is unknown."`
}

// Recorder turns finished records into log lines and metrics, and keeps the last
// records. Its methods may be called from any goroutine.
type Recorder struct {
	ring     *Ring
	log      *slog.Logger
	metrics  *metrics
	registry *prometheus.Registry
	health   health
	offer    func(*Record) bool // nil if nothing is kept
	export   func(*Record)      // nil if no usage is written
}

// New makes a Recorder that logs to w and reads level gauges from levels.
func New(cfg Config, w io.Writer, levels func() Levels) (*Recorder, error) {
	if err := conf.Complete("telemetry", &cfg); err != nil {
		return nil, err
	}
	r := &Recorder{ring: NewRing(cfg.RecordsMax), registry: prometheus.NewRegistry()}
	switch {
	case cfg.AccessLogOff:
	case cfg.LogFormat == "json":
		r.log = slog.New(slog.NewJSONHandler(w, nil))
	default:
		r.log = slog.New(slog.NewTextHandler(w, nil))
	}
	r.metrics = newMetrics(r.registry, &cfg, levels)
	r.Price(cfg.PricePerHour)
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return r, nil
}

// Registry has all metrics.
func (r *Recorder) Registry() *prometheus.Registry { return r.registry }

// Last returns up to n of the newest finished records, newest first.
func (r *Recorder) Last(n int) []Record { return r.ring.Last(n) }

// OfferTo makes Finish ask offer whether a request is kept. It asks before it counts,
// so that an exemplar can point at the request. Call it before the first Finish; offer
// must not keep the pointer.
func (r *Recorder) OfferTo(offer func(*Record) bool) { r.offer = offer }

// ExportTo makes Finish hand each record of a client's request to export, which must not
// keep the pointer.
// Call it before the first Finish.
func (r *Recorder) ExportTo(export func(*Record)) { r.export = export }

// Finish finds which goals rec missed, and copies, counts and logs it. It must be
// called once for each request.
func (r *Recorder) Finish(rec *Record) {
	if rec.Finished == 0 {
		rec.Finished = wire.Monotonic()
	}
	rec.Broken = rec.Missed(rec.Finished)
	rec.Kept = r.offer != nil && r.offer(rec)
	r.ring.Put(rec)
	r.metrics.observe(rec)
	r.health.observe(rec)
	if r.export != nil && rec.Route != RouteSibling { // billed by its client's gateway
		r.export(rec)
	}
	if r.log != nil {
		r.log.LogAttrs(context.Background(), slog.LevelInfo, "request", rec.attrs()...)
	}
}

// attrs are the fields of the access log line.
func (r *Record) attrs() []slog.Attr {
	a := []slog.Attr{
		slog.String("id", r.ID),
		slog.String("trace_id", hex.EncodeToString(r.Trace.TraceID[:])),
		slog.String("span_id", hex.EncodeToString(r.Trace.SpanID[:])),
		slog.String("route", r.Route),
		slog.String("outcome", r.Outcome.String()),
		slog.Int("status", r.Status),
		slog.String("tenant", r.Tenant),
		slog.String("class", r.Class),
		slog.String("model", r.Model),
		slog.Bool("stream", r.Stream),
		slog.Int("prompts", r.Prompts),
		slog.Int("choices", r.Choices),
		slog.Int("prompt_tokens", r.PromptTokens),
		slog.Int("cached_tokens", r.CachedTokens),
		slog.Int("computed_tokens", r.ComputedTokens),
		slog.Int("reasoning_tokens", r.ReasoningTokens),
		slog.Int("tool_calls", r.ToolCalls),
		slog.Int("completion_tokens", r.CompletionTokens),
		slog.Int64("bytes_in", r.BytesIn),
		slog.Int64("bytes_out", r.BytesOut),
		slog.Float64("total_ms", milliseconds(r.Finished-r.Arrived)),
		slog.Bool("kept", r.Kept),
	}
	for _, stage := range []struct {
		name string
		at   int64
	}{{"decoded_ms", r.Decoded}, {"prepared_ms", r.Prepared}, {"reserved_ms", r.Reserved}, {"accepted_ms", r.Accepted}, {"admitted_ms", r.Admitted}, {"dispatched_ms", r.Dispatched}, {"first_token_ms", r.FirstToken}, {"first_write_ms", r.FirstWrite}} {
		if stage.at != 0 {
			a = append(a, slog.Float64(stage.name, milliseconds(stage.at-r.Arrived)))
		}
	}
	for _, span := range []struct {
		name string
		ns   int64
	}{{"predicted_ms", r.WaitPredicted}, {"first_token_goal_ms", int64(cmp.Or(r.Promised, r.FirstTokenGoal))}} {
		if span.ns != 0 {
			a = append(a, slog.Float64(span.name, milliseconds(span.ns)))
		}
	}
	for _, word := range []struct{ name, text string }{{"key", r.Key}, {"client_id", r.ClientID}, {"promise", r.Promise(r.Finished).String()}, {"broken", strings.Join(r.Broken.Names(), ",")}, {"demoted_from", r.DemotedFrom}, {"wait_reason", r.WaitReason}, {"group", r.Group}, {"served_by", r.ServedBy}, {"placement", r.Placement}, {"ignored", r.Ignored}, {"error", r.ErrorKind}, {"param", r.Param}, {"error_text", r.ErrorText}} {
		if word.text != "" {
			a = append(a, slog.String(word.name, word.text))
		}
	}
	if r.Unanswered {
		a = append(a, slog.Bool("unanswered", true))
	}
	return a
}

func milliseconds(ns int64) float64 { return float64(ns/int64(time.Microsecond)) / 1000 }
