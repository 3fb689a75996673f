package cli

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/engine/hub"
	"github.com/forebay-io/forebay/gateway"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/gateway/usage"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/supervise"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/upstream"
	"github.com/forebay-io/forebay/xds"
)

// Config is the whole configuration: one section for each package that has one.
type Config struct {
	Listen           string        `yaml:"listen" default:"127.0.0.1:8080" help:"Address of the API, as host:port; off for none, beside listen_socket."`
	Admin            string        `yaml:"admin" default:"127.0.0.1:8081" help:"Address of metrics and debug pages, as host:port; off for none."`
	ListenSocket     string        `yaml:"listen_socket" help:"Unix socket of the API, beside listen, for a proxy on the same machine; empty is none."`
	ListenSocketMode string        `yaml:"listen_socket_mode" default:"0600" oneof:"0600 0660 0666" help:"Permissions of listen_socket: who may connect is its owner, its group too, or everybody."`
	DrainLimit       time.Duration `yaml:"drain_limit" default:"30s" help:"Time that running streams have to finish after SIGTERM."`

	Log          LogConfig         `yaml:"log"`
	Telemetry    telemetry.Config  `yaml:"telemetry"`
	Capture      capture.Config    `yaml:"capture"`
	Spans        spans.Config      `yaml:"spans"`
	Usage        usage.Config      `yaml:"usage"`
	Gateway      gateway.Config    `yaml:"gateway"`
	Identity     identity.Config   `yaml:"identity"`
	Admission    admission.Config  `yaml:"admission"`
	Budget       budget.Config     `yaml:"budget"`
	Siblings     siblings.Config   `yaml:"siblings"`
	Engine       engine.Config     `yaml:"engine"`
	Socket       wire.Config       `yaml:"socket"`
	EngineSocket wire.ServerConfig `yaml:"engine_socket"`
	Supervise    supervise.Config  `yaml:"supervise"`
	Upstream     upstream.Config   `yaml:"upstream"`
	XDS          xds.Config        `yaml:"xds"`
	Envoy        EnvoyConfig       `yaml:"envoy"`
}

// Mistakes checks what one section alone cannot check.
func (c *Config) Mistakes() error {
	var errs []error
	for _, f := range []struct{ key, address string }{{"listen", c.Listen}, {"admin", c.Admin}} {
		if f.address == addressOff && (f.key == "admin" || c.ListenSocket != "") {
			continue
		}
		if !isAddress(f.address) {
			errs = append(errs, fmt.Errorf("%s: %q is not an address such as 127.0.0.1:8080 or :8080", f.key, f.address))
		}
	}
	if a := c.Envoy.Listen; a != "" && !isAddress(a) && !strings.HasPrefix(a, unixPrefix+"/") {
		errs = append(errs, fmt.Errorf("envoy.listen: %q is not an address such as 127.0.0.1:8082 or unix:/run/forebay/limits.sock", a))
	}
	if c.Envoy.Picker.On && (c.Envoy.Listen == "" || !c.Siblings.On()) {
		errs = append(errs, errors.New("envoy.picker.on: needs envoy.listen, where proxies ask, and siblings.store, through which the replicas are known"))
	}
	if _, port, _ := net.SplitHostPort(c.Admin); c.Admin == c.Listen && port != "0" && c.Admin != addressOff {
		errs = append(errs, fmt.Errorf("admin: %q is the address of the API too; give another, or off", c.Admin))
	}
	for i, t := range c.Admission.Tenants {
		if len(t.Keys) == 0 && !c.Identity.On() {
			errs = append(errs, fmt.Errorf("admission.tenants[%d].keys: %s has no key, so nobody can use it; give it one in a key file (identity.keys) or here, or * for requests without a known key", i, t.Name))
		}
	}
	if slices.Contains(c.Identity.MeshPeers, "tls") && c.Gateway.TLS.ClientCA == "" {
		errs = append(errs, errors.New("identity.mesh_peers: tls needs gateway.tls.client_ca, by which client certificates are verified"))
	}
	switch {
	case c.Upstream.On() && c.Upstream.OwnEngine == "" && c.Engine.Model != "":
		errs = append(errs, fmt.Errorf("engine.model: %q would not be used, since upstream.url names a server that has the model; leave one of them out, or say by upstream.own_engine when it is", c.Engine.Model))
	case c.Upstream.OwnEngine != "" && !c.Upstream.On():
		errs = append(errs, errors.New("upstream.own_engine: there is no server that it could stand in for (upstream.url)"))
	case c.Upstream.OwnEngine != "" && c.Upstream.ModelID == "" && len(c.Upstream.Groups) == 0:
		errs = append(errs, errors.New("upstream.own_engine: upstream.model_id must give the name by which clients ask for the model, whichever of the two answers"))
	}
	if len(c.Upstream.Groups) > 0 && (c.Siblings.On() || c.Envoy.Listen != "") {
		errs = append(errs, errors.New("upstream.groups: siblings and envoy.listen know one model only; leave them out, or run a gateway for each model"))
	}
	if hub.IsRef(c.Engine.Model) {
		if _, err := hub.ParseRef(c.Engine.Model); err != nil {
			errs = append(errs, fmt.Errorf("engine.model: %w", err))
		}
	}
	if c.Engine.Kernels != "" {
		if _, err := kernels.Lookup(c.Engine.Kernels); err != nil {
			errs = append(errs, fmt.Errorf("engine.kernels: %w", err))
		}
	}
	return errors.Join(errs...)
}

// addressOff is the value of listen and admin that opens no address.
const addressOff = "off"

// LogConfig configures the log.
type LogConfig struct {
	Level    string `yaml:"level" default:"info" oneof:"debug info warn error" help:"Least level of the log lines on standard error."`
	Format   string `yaml:"format" default:"text" oneof:"text json" help:"Form of the log lines on standard error; the access log has its own, telemetry.log_format."`
	LinesMax int    `yaml:"lines_max" default:"4096" range:"1..1048576" help:"Log lines of each output that wait for a slow reader; more are dropped and counted."`
}

// shortFlags maps short flags to their settings.
var shortFlags = map[string]string{"model": "engine.model", "socket": "socket.path", "upstream": "upstream.url", "log-level": "log.level", "device": "engine.device.kind", "device-id": "engine.device.id", "xds": "xds.bootstrap"}

// configVar is the environment variable with the path of the configuration file.
const configVar = "FOREBAY_CONFIG"

// settings is a Config with what is needed to load it.
type settings struct {
	Config
	schema *conf.Schema
	path   *string           // of the YAML file, "" for none
	given  map[string]string // by flags
	loaded map[string]string // the texts of all settings as they were read, by key
	hung   chan struct{}     // receives when SIGHUP asks to reload
	beside bool              // it is the child of a gateway before other servers, which greets
}

// settings adds the configuration's flags to set.
func (c *console) settings(set *flag.FlagSet) *settings {
	s := &settings{hung: make(chan struct{}, 1)}
	s.schema = conf.Of(&s.Config)
	s.path = set.String("config", c.getenv(configVar), "YAML file with the configuration")
	s.given = s.schema.Flags(set, shortFlags)
	return s
}

// configure reads flags, environment and file for a command that takes only
// flags. set may hold flags of its own.
func (c *console) configure(set *flag.FlagSet, args []string) (*settings, error) {
	s := c.settings(set)
	rest, err := c.parse(set, args)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, usageError(fmt.Sprintf("%q is not expected here", rest[0]))
	}
	return s, c.load(s)
}

func (c *console) load(s *settings) error {
	from := conf.Source{FileName: *s.path, Flags: s.given}
	for _, pair := range c.environ {
		if !strings.HasPrefix(pair, configVar+"=") {
			from.Environ = append(from.Environ, pair)
		}
	}
	var err error
	if *s.path != "" {
		if from.File, err = os.ReadFile(*s.path); err != nil {
			err = fmt.Errorf("configuration: %w", err)
		}
	}
	err = errors.Join(err, s.schema.Load(from))
	s.loaded = s.schema.Values()
	return err
}

func (c *console) getenv(name string) string {
	for _, pair := range c.environ {
		if text, ok := strings.CutPrefix(pair, name+"="); ok {
			return text
		}
	}
	return ""
}

// engineEnviron returns the environment without our variables. The engine child
// gets their values as flags.
func (c *console) engineEnviron(schema *conf.Schema) []string {
	ours := map[string]bool{configVar: true}
	for _, name := range schema.Vars() {
		ours[name] = true
	}
	var environ []string
	for _, pair := range c.environ {
		if name, _, _ := strings.Cut(pair, "="); !ours[name] {
			environ = append(environ, pair)
		}
	}
	return environ
}

// logger writes to standard error, in the configured form.
func (c *console) logger(cfg LogConfig, process string) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(cfg.Level)) // conf has checked it
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(c.err, options)).With("process", process)
	}
	return slog.New(slog.NewTextHandler(c.err, options))
}
