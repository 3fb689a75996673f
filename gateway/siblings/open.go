package siblings

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/forebay-io/forebay/cache/shared"
	"github.com/forebay-io/forebay/internal/store"
)

// Open joins the siblings. ln is where they send requests, which the gateway serves.
func Open(cfg Config, ln net.Addr, local Local, version string, log *slog.Logger) (*Group, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	secret, err := readSecret(cfg.SecretFile)
	if err != nil {
		return nil, err
	}
	address, err := addressOf(&cfg, ln)
	if err != nil {
		return nil, err
	}
	g := &Group{cfg: cfg, local: local, address: address, api: apiOf(&cfg, address), version: version, direct: len(cfg.Peers) > 0, scheme: "http", peers: map[string]*peer{}}
	g.labels, _ = readLabels(cfg.Labels) // Mistakes has checked it
	if cfg.TLSCert != "" {
		g.scheme = "https"
		if g.files, err = openFiles(&g.cfg, log); err != nil {
			return nil, err
		}
	}
	g.client, g.news = g.connect(cfg.HopsMax+1), g.connect(2)
	if err := g.join(secret, log); err != nil {
		return nil, err
	}
	g.quit, g.stop = context.WithCancel(context.Background())
	g.tasks.Go(g.report)
	log.Info("siblings: this replica takes requests of others", "name", cfg.Name, "address", address)
	return g, nil
}

// connect makes a client of at most connsMax connections to each sibling.
func (g *Group) connect(connsMax int) *http.Client {
	t := &http.Transport{
		DialContext:     (&net.Dialer{Timeout: g.cfg.ConnectLimit}).DialContext,
		MaxConnsPerHost: connsMax, MaxIdleConnsPerHost: min(connsMax, 64), IdleConnTimeout: time.Minute,
		DisableCompression: true, ResponseHeaderTimeout: g.cfg.SilenceLimit,
	}
	if g.files != nil {
		t.DialTLSContext = g.files.dial
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// join opens the fleet: through Redis, or by asking peers.
func (g *Group) join(secret []byte, log *slog.Logger) (err error) {
	cfg := &g.cfg
	o := shared.Options{
		Prefix: cfg.Prefix, Name: cfg.Name, Secret: secret, Interval: cfg.Interval, Limit: cfg.CallLimit, Lease: cfg.Lease,
		BlocksMax: cfg.BlocksMax, ChangesMax: cfg.ChangesMax, LogMax: cfg.LogMax, LoadsMax: cfg.ReportsMax, Log: log,
	}
	if g.direct {
		f := &finder{peers: cfg.Peers, lookup: net.DefaultResolver.LookupNetIP, log: log, last: map[string][]string{}}
		o.Direct = &shared.Direct{Addresses: f.addresses, Every: cfg.PeersEvery, Ask: g.ask}
		o.Limit = cfg.Lease / 2 // what comes later is too old
		g.fleet, err = shared.Open(o)
		return err
	}
	o.Client, err = store.Open(store.Access{
		Setting: "siblings.store", Address: cfg.Store, User: cfg.StoreUser, PasswordFile: cfg.StorePasswordFile,
		CA: cfg.StoreCA, Cert: cfg.StoreCert, Key: cfg.StoreKey, ServerName: cfg.StoreServerName, Limit: cfg.CallLimit, PoolSize: 2,
	})
	if err != nil {
		return err
	}
	if g.fleet, err = shared.Open(o); err != nil {
		o.Client.Close()
	}
	return err
}

// addressOf is the address that siblings are told.
func addressOf(cfg *Config, ln net.Addr) (string, error) {
	if cfg.Advertise != "" {
		return cfg.Advertise, nil
	}
	host, port, err := net.SplitHostPort(ln.String())
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() || cfg.Store == "" {
		return ln.String(), nil
	}
	// The address by which this host reaches Redis; nothing is sent.
	c, err := net.Dial("udp", store.Host(cfg.Store))
	if err != nil {
		return "", fmt.Errorf("siblings.advertise is not set, and the address of this host towards siblings.store is not known: set it, as HOST:%s", port)
	}
	defer c.Close()
	host, _, err = net.SplitHostPort(c.LocalAddr().String())
	return net.JoinHostPort(host, port), err
}
