package spans

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Config says where spans are sent. For an empty key the standard OTEL_ variables of
// Environ hold.
type Config struct {
	Endpoint string `yaml:"endpoint" help:"Collector that spans are sent to over OTLP: grpc://HOST:4317, grpcs:// with TLS, http://HOST:4318 or https://; empty takes OTEL_EXPORTER_OTLP_ENDPOINT and without it sends none; off sends none."`
	Protocol string `yaml:"protocol" oneof:"grpc http/protobuf" help:"Protocol of an endpoint that begins with http:// or https://: grpc or http/protobuf; empty takes OTEL_EXPORTER_OTLP_PROTOCOL, and without it grpc on port 4317."`
	Headers  string `yaml:"headers" secret:"true" help:"Headers of every export, as name=value,name=value with percent-encoded values; empty takes OTEL_EXPORTER_OTLP_HEADERS."`
	CAFile   string `yaml:"ca_file" help:"PEM file with the authorities that the collector's certificate is checked against; empty takes OTEL_EXPORTER_OTLP_CERTIFICATE, and without it the system's."`
	GzipOff  bool   `yaml:"gzip_off" help:"Send without compression."`

	ServiceName        string `yaml:"service_name" help:"Name of this service in the spans; empty takes OTEL_SERVICE_NAME, and without it forebay."`
	EngineServiceName  string `yaml:"engine_service_name" help:"Name of the engine as a service of its own, so that a map of services has both; empty takes the name of this service and -engine."`
	ResourceAttributes string `yaml:"resource_attributes" help:"More attributes of this process, as name=value,name=value with percent-encoded values; empty takes OTEL_RESOURCE_ATTRIBUTES."`
	GenAINames         string `yaml:"gen_ai_names" oneof:"1.41 genai" help:"Names of the gen_ai attributes: 1.41, as most tools expect, or genai, the separate conventions v0.1.0; empty takes 1.41 unless OTEL_SEMCONV_STABILITY_OPT_IN has gen_ai_latest_experimental."`

	QueueMax      int           `yaml:"queue_max" default:"8192" range:"2048..1048576" help:"Most spans that wait to be sent; requests whose spans do not fit are dropped and counted."`
	BatchMax      int           `yaml:"batch_max" default:"512" range:"1..65536" help:"Most spans in one export."`
	ExportTimeout time.Duration `yaml:"export_timeout" default:"10s" range:"10ms..10m" help:"Longest time for one export, including retries, before its spans are dropped."`
	FlushLimit    time.Duration `yaml:"flush_limit" default:"2s" range:"1ms..1m" help:"Longest time to send the waiting spans at a stop."`

	Environ  []string     `yaml:"-"` // NAME=value pairs; only those of OpenTelemetry are read
	Version  string       `yaml:"-"` // of this binary
	Instance string       `yaml:"-"` // service.instance.id; empty draws a random one
	Log      *slog.Logger `yaml:"-"` // for when exports begin to fail and when they work again; nil for none
}

// endpointOff is an Endpoint that switches sending off, whatever the environment says.
const endpointOff = "off"

// Mistakes checks what tags cannot express. It does not look at Environ.
func (c *Config) Mistakes() error {
	var errs []error
	if c.Endpoint != "" && c.Endpoint != endpointOff {
		if _, err := parseEndpoint(c.Endpoint, c.Protocol); err != nil {
			errs = append(errs, fmt.Errorf("endpoint: %w", err))
		}
	}
	if _, err := parseHeaders(c.Headers); err != nil {
		errs = append(errs, fmt.Errorf("headers: %w", err))
	}
	if _, err := parsePairs(c.ResourceAttributes); err != nil {
		errs = append(errs, fmt.Errorf("resource_attributes: %w", err))
	}
	return errors.Join(errs...)
}

// target says where and how to send.
type target struct {
	grpc, tls   bool
	host        string // with port
	path        string // of HTTP
	headers     map[string]string
	caFile      string
	gzip        bool
	serviceName string
	engineName  string
	attributes  []pair
	names       Names
}

// resolve completes c from its environment. It returns nil if nothing is to be sent.
func (c *Config) resolve() (*target, error) {
	endpoint, name := c.Endpoint, "spans.endpoint"
	exact := false
	if endpoint == "" {
		if endpoint, name = c.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"; endpoint != "" {
			exact = true
		} else {
			endpoint, name = c.env("OTEL_EXPORTER_OTLP_ENDPOINT"), "OTEL_EXPORTER_OTLP_ENDPOINT"
		}
		if c.env("OTEL_SDK_DISABLED") == "true" || c.env("OTEL_TRACES_EXPORTER") == "none" {
			endpoint = endpointOff
		}
	}
	if endpoint == "" || endpoint == endpointOff {
		return nil, nil
	}
	t, err := parseEndpoint(endpoint, c.or(c.Protocol, "PROTOCOL"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !exact && !strings.HasSuffix(t.path, tracesPath) {
		t.path = strings.TrimSuffix(t.path, "/") + tracesPath
	}
	t.gzip, t.caFile = !c.GzipOff, c.or(c.CAFile, "CERTIFICATE")
	if t.headers, err = parseHeaders(c.or(c.Headers, "HEADERS")); err != nil {
		return nil, fmt.Errorf("spans.headers or OTEL_EXPORTER_OTLP_HEADERS: %w", err)
	}
	if t.attributes, err = parsePairs(cmp.Or(c.ResourceAttributes, c.env("OTEL_RESOURCE_ATTRIBUTES"))); err != nil {
		return nil, fmt.Errorf("spans.resource_attributes or OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t.serviceName = cmp.Or(c.ServiceName, c.env("OTEL_SERVICE_NAME"))
	t.engineName = c.EngineServiceName
	t.names, err = c.names()
	return t, err
}

func (c *Config) names() (Names, error) {
	if c.GenAINames != "" {
		return parseNames(c.GenAINames)
	}
	for word := range strings.SplitSeq(c.env("OTEL_SEMCONV_STABILITY_OPT_IN"), ",") {
		if strings.TrimSpace(word) == "gen_ai_latest_experimental" {
			return NamesGenAI, nil
		}
	}
	return Names141, nil
}

// or returns own if it is set, or else the exporter's variable for traces, or else the
// one for all signals.
func (c *Config) or(own, suffix string) string {
	return cmp.Or(own, c.env("OTEL_EXPORTER_OTLP_TRACES_"+suffix), c.env("OTEL_EXPORTER_OTLP_"+suffix))
}

func (c *Config) env(name string) (value string) {
	for _, p := range c.Environ {
		if text, ok := strings.CutPrefix(p, name+"="); ok {
			value = strings.TrimSpace(text)
		}
	}
	return value
}

const tracesPath = "/v1/traces"

// parseEndpoint reads the address of a collector; protocol says what the scheme leaves
// open.
func parseEndpoint(text, protocol string) (*target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is not an address such as grpc://localhost:4317 or http://localhost:4318", redacted(text))
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q may have only scheme, host, port and path; credentials belong in spans.headers", u.Scheme+"://"+u.Host)
	}
	t := &target{path: u.Path}
	port := "4318"
	switch u.Scheme {
	case "grpc", "grpcs":
		t.grpc, t.tls = true, u.Scheme == "grpcs"
	case "http", "https":
		t.tls = u.Scheme == "https"
		switch protocol {
		case "grpc":
			t.grpc = true
		case "http/protobuf":
		case "":
			t.grpc = u.Port() == "4317"
		default:
			return nil, fmt.Errorf("the protocol %q is not one of grpc, http/protobuf", protocol)
		}
	default:
		return nil, fmt.Errorf("the scheme %q is not one of grpc, grpcs, http, https", u.Scheme)
	}
	if t.grpc {
		port = "4317"
	}
	if p := u.Port(); p != "" {
		port = p
	}
	t.host = net.JoinHostPort(u.Hostname(), port)
	return t, nil
}

// redacted removes what may be a password.
func redacted(text string) string {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		return "…" + text[at:]
	}
	return text
}

// resource describes this process, or the engine beside it. Configured attributes
// replace found ones.
func (t *target) resource(version, instance string, engine bool) *resource.Resource {
	if instance == "" {
		var random [16]byte
		rand.Read(random[:])
		instance = hex.EncodeToString(random[:])
	}
	list := []attribute.KeyValue{
		attribute.String("service.name", "forebay"), attribute.String("service.version", valid(version)),
		attribute.String("service.instance.id", valid(instance)),
		attribute.String("telemetry.sdk.name", "opentelemetry"), attribute.String("telemetry.sdk.language", "go"),
	}
	if !engine {
		list = append(list, attribute.Int("process.pid", os.Getpid()))
	}
	if host, err := os.Hostname(); err == nil {
		list = append(list, attribute.String("host.name", valid(host)))
	}
	for _, p := range t.attributes {
		list = append(list, attribute.String(p.name, p.value)) // the last of a name wins
	}
	if t.serviceName != "" {
		list = append(list, attribute.String("service.name", valid(t.serviceName)))
	}
	if engine {
		own, _ := resource.NewSchemaless(list...).Set().Value("service.name")
		list = append(list, attribute.String("service.name", valid(cmp.Or(t.engineName, own.AsString()+"-engine"))))
	}
	return resource.NewSchemaless(list...)
}
