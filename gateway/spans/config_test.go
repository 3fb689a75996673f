package spans

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/conf"
)

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoint, protocol string
		environ            string // with spaces between
		want               target
	}{
		{endpoint: "grpc://c", want: target{grpc: true, host: "c:4317"}},
		{endpoint: "grpcs://c:1", want: target{grpc: true, tls: true, host: "c:1"}},
		{endpoint: "http://c", want: target{host: "c:4318", path: "/v1/traces"}},
		{endpoint: "https://c/base/", want: target{tls: true, host: "c:4318", path: "/base/v1/traces"}},
		{endpoint: "http://c/v1/traces", want: target{host: "c:4318", path: "/v1/traces"}},
		{endpoint: "http://c:4317", want: target{grpc: true, host: "c:4317"}},
		{endpoint: "https://c:4317", protocol: "http/protobuf", want: target{tls: true, host: "c:4317", path: "/v1/traces"}},
		{endpoint: "https://c:1", protocol: "grpc", want: target{grpc: true, tls: true, host: "c:1"}},
		{endpoint: "http://[::1]:9", want: target{host: "[::1]:9", path: "/v1/traces"}},
		{environ: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:9", want: target{host: "c:9", path: "/v1/traces"}},
		{environ: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:9 OTEL_EXPORTER_OTLP_PROTOCOL=grpc", want: target{grpc: true, host: "c:9"}},
		{environ: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:9 OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://d:8/x", want: target{host: "d:8", path: "/x"}},
		{endpoint: "http://a", environ: "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:9", want: target{host: "a:4318", path: "/v1/traces"}},
	} {
		cfg := Config{Endpoint: c.endpoint, Protocol: c.protocol, Environ: strings.Fields(c.environ)}
		got, err := cfg.resolve()
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if c.want.grpc {
			got.path = "" // gRPC has none
		}
		if got.grpc != c.want.grpc || got.tls != c.want.tls || got.host != c.want.host || got.path != c.want.path {
			t.Errorf("%q %q %q: %+v", c.endpoint, c.protocol, c.environ, got)
		}
	}
}

func TestBadConfigurationSaysWhatToChange(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Endpoint: "localhost:4317"}, "is not an address such as grpc://localhost:4317"},
		{Config{Endpoint: "ftp://c"}, `the scheme "ftp" is not one of grpc, grpcs, http, https`},
		{Config{Endpoint: "http://user:secret@c"}, "credentials belong in spans.headers"},
		{Config{Endpoint: "://user:secret@c"}, "is not an address"},
		{Config{Endpoint: "http://c?x=1"}, "may have only scheme, host, port and path"},
		{Config{Endpoint: "http://c", Protocol: "thrift"}, "is not one of grpc, http/protobuf"},
		{Config{Endpoint: "http://c", Headers: "a=b,secret"}, "headers: item 2 is not of the form name=value"},
		{Config{Endpoint: "http://c", Headers: "a=secret%zz"}, "%25"},
		{Config{Endpoint: "http://c", Headers: "a b=secret"}, "letters, digits"},
		{Config{Endpoint: "http://c", Headers: "a=secret%0d%0ax"}, "printable ASCII"},
		{Config{Endpoint: "http://c", Headers: "grpc-timeout=secret"}, "set by the protocol"},
		{Config{Endpoint: "http://c", ResourceAttributes: "x"}, "resource_attributes: item 1"},
		{Config{Endpoint: "http://c", GenAINames: "2.0"}, "1.41, genai"},
		{Config{Endpoint: "grpcs://c", CAFile: "no/such.pem"}, "no/such.pem"},
		{Config{Endpoint: "http://c", QueueMax: 3}, "queue_max"},
		{Config{Environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=c:1"}}, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{Config{Endpoint: "http://c", Environ: []string{"OTEL_EXPORTER_OTLP_HEADERS=secret"}}, "OTEL_EXPORTER_OTLP_HEADERS"},
		{Config{Endpoint: "http://c", Environ: []string{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json"}}, "http/json"},
	} {
		e, err := New(c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "secret%") {
			t.Errorf("%+v: %v", c.cfg, err)
		}
		e.Close()
	}
}

// TestStandardVariables: what our own keys leave empty, and nothing else.
func TestStandardVariables(t *testing.T) {
	environ := []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "OTEL_SERVICE_NAME=theirs", "OTEL_RESOURCE_ATTRIBUTES=team=a%20b,service.name=lost",
		"OTEL_EXPORTER_OTLP_HEADERS=X-Key=1", "OTEL_SEMCONV_STABILITY_OPT_IN=http,gen_ai_latest_experimental", "OTEL_EXPORTER_OTLP_CERTIFICATE=ca.pem",
	}
	theirs, err := (&Config{Environ: environ}).resolve()
	if err != nil || theirs.serviceName != "theirs" || theirs.headers["x-key"] != "1" || theirs.names != NamesGenAI || theirs.caFile != "ca.pem" {
		t.Errorf("%+v, %v", theirs, err)
	}
	if text := theirs.resource("v1", "", false).String(); !strings.Contains(text, "service.name=theirs") || !strings.Contains(text, "team=a b") || !strings.Contains(text, "service.version=v1") {
		t.Errorf("the resource is %s", text)
	}
	ours, err := (&Config{Environ: environ, ServiceName: "ours", ResourceAttributes: "team=c", Headers: "y=2", GenAINames: "1.41", CAFile: "o.pem"}).resolve()
	if err != nil || ours.serviceName != "ours" || ours.headers["y"] != "2" || len(ours.headers) != 1 || ours.names != Names141 || ours.attributes[0].value != "c" || ours.caFile != "o.pem" {
		t.Errorf("%+v, %v", ours, err)
	}
	for want, cfg := range map[string]*Config{
		"theirs-engine": {Environ: environ}, "ours-engine": {Environ: environ, ServiceName: "ours"}, "model": {Environ: environ, EngineServiceName: "model"},
		"forebay-engine": {Endpoint: "http://c"}, "named-engine": {Endpoint: "http://c", ResourceAttributes: "service.name=named"},
	} {
		target, err := cfg.resolve()
		if err != nil {
			t.Fatal(err)
		}
		if text := target.resource("v1", "i", true).String(); !strings.Contains(text, "service.name="+want) || strings.Contains(text, "process.pid") {
			t.Errorf("the engine's resource is %s, want the name %s", text, want)
		}
	}
	plain, err := (&Config{Endpoint: "http://c"}).resolve()
	if text := plain.resource("", "i", false).String(); err != nil || !strings.Contains(text, "service.name=forebay") || !strings.Contains(text, "service.instance.id=i") {
		t.Errorf("%v: the resource is %s", err, text)
	}
}

// TestProcessEnvironmentDecidesNothing: the SDK reads it by itself, so every
// option that it would take from there is given.
func TestProcessEnvironmentDecidesNothing(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS": "x-hidden=1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_SAMPLER": "always_off",
		"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1", "OTEL_EXPORTER_OTLP_COMPRESSION": "none", "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
	} {
		t.Setenv(name, value)
	}
	headers := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { headers <- r.Header }))
	defer server.Close()
	e := newExporter(t, Config{Endpoint: server.URL, Headers: "Authorization=Bearer%20k"})
	e.Export(small(1))
	if h := <-headers; h.Get("X-Hidden") != "" || h.Get("Authorization") != "Bearer k" || h.Get("Content-Encoding") != "gzip" {
		t.Errorf("the headers are %v", h)
	}
}

// TestTLS: an authority of the collector's own, and one that does not know it.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for ca, want := range map[string]Stats{file: {Exported: 1}, "": {Failed: 1}} {
		e := newExporter(t, Config{Endpoint: server.URL, CAFile: ca, ExportTimeout: 5 * time.Second})
		e.Export(small(1))
		e.Close()
		if s := e.Stats(); s != want {
			t.Errorf("with the authority %q: %+v", ca, s)
		}
	}
	if _, err := New(Config{Endpoint: server.URL, CAFile: "config_test.go"}); err == nil || !strings.Contains(err.Error(), "no PEM certificate") {
		t.Errorf("a file that is no certificate: %v", err)
	}
}

func TestConfigIsComplete(t *testing.T) {
	var c Config
	conf.Of(&c) // panics on a bad tag
	if err := conf.Complete("spans", &c); err != nil || c.QueueMax != 8192 || c.FlushLimit != 2*time.Second {
		t.Errorf("%v: %+v", err, c)
	}
}

func FuzzPairs(f *testing.F) {
	for _, seed := range []string{"", "a=b", "a=b,c=d%20e", ",,a = b ,", "a", "=b", "a=%zz", "a=%ff", "A-b_c.1=x%2Cy", "host=x", "grpc-x=y", "a=\n", "a=b;c=d", strings.Repeat("a=b,", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pairs, err := parsePairs(text)
		if err == nil {
			var again []string
			for _, p := range pairs {
				if p.name == "" || !utf8.ValidString(p.name+p.value) {
					t.Fatalf("%q gives %q", text, pairs)
				}
				again = append(again, p.name+"="+url.PathEscape(p.value))
			}
			back, err := parsePairs(strings.Join(again, ","))
			if err != nil && len(strings.Join(again, ",")) <= pairsBytesMax || err == nil && len(back) != len(pairs) {
				t.Fatalf("%q, written again as %q: %v", text, again, err)
			}
		}
		headers, err := parseHeaders(text)
		for name, value := range headers {
			if err == nil && (name != strings.ToLower(name) || strings.ContainsAny(name+value, "\r\n\x00") || http.Header{}.Get(name) != "") {
				t.Fatalf("%q gives the header %q: %q", text, name, value)
			}
		}
	})
}

func FuzzEndpoint(f *testing.F) {
	for _, seed := range []string{"", "http://c", "grpc://[::1]:9", "https://u:p@c", "http://c:99999", "http://:1", "http://c:", "x", "http://%zz", "http://c/%2f"} {
		f.Add(seed, "")
	}
	f.Add("http://c", "grpc")
	f.Fuzz(func(t *testing.T, text, protocol string) {
		target, err := parseEndpoint(text, protocol)
		if err != nil {
			return
		}
		client, release, err := target.connect(time.Second)
		if err != nil {
			return
		}
		client.Shutdown(t.Context())
		release()
	})
}
