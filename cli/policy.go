package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/xds"
	"github.com/forebay-io/forebay/xds/policy"
)

// Variables of gRPC that name a bootstrap, or hold one.
const (
	bootstrapVar       = "GRPC_XDS_BOOTSTRAP"
	bootstrapConfigVar = "GRPC_XDS_BOOTSTRAP_CONFIG"
)

// door is where a change of tenants, keys, rights and classes comes in, from the
// gateway's own configuration or from a control plane: one at a time, and each as a
// whole.
type door struct {
	mu     sync.Mutex
	own    *settings      // the gateway's own, as read last
	policy *policy.Policy // of the control plane, nil for none
}

// take makes a configuration hold, with the policy over it. An error changes nothing.
func (f *front) take(own *settings, p *policy.Policy) error {
	merged := own.Config
	place := own.schema.Place
	if p != nil {
		p.Over(&merged.Admission, &merged.Identity)
		place = func(err error) error { return own.schema.Place(p.PlaceIn("admission", p.Place(err))) }
	}
	if p != nil {
		// Each part is right by itself; whether they fit is seen here.
		if err := errors.Join(merged.Mistakes(), identity.Check(merged.Identity, merged.Admission)); err != nil {
			f.identity.NotTaken()
			return place(err)
		}
	}
	table, err := merged.Admission.ClassTable()
	if err == nil {
		err = f.queue.SetClasses(table)
	}
	if err != nil {
		f.identity.NotTaken()
		return place(err)
	}
	if err := f.identity.Replace(merged.Identity, merged.Admission); err != nil {
		_ = f.queue.SetClasses(f.classes) // these held before, so that nothing is wrong with them
		return place(err)
	}
	f.classes = table
	f.queue.SetTenants(merged.Admission.Tenants)
	f.door.own, f.door.policy = own, p
	return nil
}

// takePolicy makes the files of a control plane hold.
func (f *front) takePolicy(files []conf.File) error {
	p, err := policy.Parse(files)
	if err != nil {
		f.identity.NotTaken()
		return err
	}
	f.door.mu.Lock()
	defer f.door.mu.Unlock()
	return f.take(f.door.own, p)
}

// bootstrap is the bootstrap that configuration or environment name, nil for none.
func (c *console) bootstrap(cfg xds.Config) (*xds.Bootstrap, error) {
	file, text, from := cfg.Bootstrap, "", "xds.bootstrap"
	if file == "" {
		file, text = c.getenv(bootstrapVar), c.getenv(bootstrapConfigVar)
		from = "a variable of gRPC names a bootstrap of xDS (--xds off does without)"
	}
	var b *xds.Bootstrap
	var err error
	switch {
	case file == xds.Off, file == "" && text == "":
		return nil, nil
	case file != "":
		b, err = xds.ReadBootstrap(file)
	default:
		b, err = xds.ParseBootstrap([]byte(text))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return b, nil
}

// openPolicy makes the client of the control plane, if there is one, and takes what an
// earlier run has kept.
func (f *front) openPolicy() error {
	boot, err := f.console.bootstrap(f.cfg.XDS)
	if err != nil || boot == nil {
		return err
	}
	log := f.console.logger(f.cfg.Log, "gateway")
	if f.xds, err = xds.New(f.cfg.XDS, boot, version, f.takePolicy, log); err != nil {
		return err
	}
	if err := f.xds.Warm(); err != nil {
		log.Error("xds: the gateway starts without the kept policy", "error", err)
	}
	return nil
}

// followPolicy follows the control plane until ctx ends.
func (f *front) followPolicy(ctx context.Context) {
	if f.xds != nil {
		f.xds.Run(ctx)
	}
}

// awaitPolicy waits for the first policy. Without one it is an error to go on where
// everybody could use the gateway.
func (f *front) awaitPolicy(ctx context.Context) error {
	if f.xds == nil {
		return nil
	}
	select {
	case <-f.xds.First():
		return nil
	case <-ctx.Done():
		return nil
	case <-time.After(f.cfg.XDS.FirstWait):
	}
	problem := f.xds.State(time.Now()).Problem
	if len(f.cfg.Admission.Tenants) == 0 && !f.cfg.Identity.On() {
		return fmt.Errorf("xds: %w (%s)", xds.ErrNoPolicy, problem)
	}
	f.console.logger(f.cfg.Log, "gateway").Warn("xds: no policy has come yet: the gateway starts with its own configuration", "error", problem)
	return nil
}

// policyNote is what /readyz says of the policy.
func (f *front) policyNote() func() []byte {
	if f.xds == nil {
		return nil
	}
	return func() []byte {
		s := f.xds.State(time.Now())
		text, err := json.Marshal(struct {
			Source  string   `json:"source"`
			Version string   `json:"version"`
			Server  string   `json:"server,omitempty"`
			Stale   int64    `json:"stale_seconds"`
			Expired []string `json:"expired,omitempty"`
			Problem string   `json:"problem,omitempty"`
		}{s.Source, s.Version, s.Server, int64(s.Stale.Seconds()), s.Expired, s.Problem})
		if err != nil {
			return nil
		}
		return text
	}
}

// policyCounts is what the metrics show of the policy.
func (f *front) policyCounts() telemetry.PolicyCounts {
	s := f.xds.State(time.Now())
	return telemetry.PolicyCounts{
		Source: s.Source, Connected: s.Server != "", Refusing: s.Refusing, Stale: s.Stale, Taken: s.Taken, Refused: s.Refused, Streams: s.Connected,
	}
}
