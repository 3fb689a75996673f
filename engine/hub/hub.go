package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config configures a Hub.
type Config struct {
	CacheDir  string // the folder that holds models--OWNER--REPO
	Endpoint  string // base address of the server; "" means the Hub itself
	Token     string // "" for none
	Offline   bool   // use what is cached and make no request
	UserAgent string

	StallLimit  time.Duration // time without a byte after which an attempt ends; 0 means 30 s
	AttemptsMax int           // attempts in a row without progress; 0 means 5

	Proxy    func(*http.Request) (*url.URL, error) // nil for none
	Progress func(Progress)                        // nil for none
	Warn     func(text string)                     // nil for none

	// For tests: how to wait, and a random number in [0,1).
	Sleep  func(ctx context.Context, d time.Duration) error
	Random func() float64
}

// DefaultEndpoint is the address of the Hub.
const DefaultEndpoint = "https://huggingface.co"

// Progress is the state of a download.
type Progress struct {
	File        string // being downloaded
	Index, Of   int    // its place among the files to download, from 1
	Done, Total int64  // bytes of all of them
	Finished    bool   // this is the last report
}

// Hub downloads models. Make one with New.
type Hub struct {
	cfg       Config
	endpoint  *url.URL
	transport *http.Transport
}

// New checks the configuration. It uses neither network nor disk.
func New(cfg Config) (*Hub, error) {
	if cfg.CacheDir == "" {
		return nil, errors.New("there is no folder for models: set HF_HUB_CACHE, HF_HOME or HOME")
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = DefaultEndpoint
	}
	cfg.Endpoint = strings.TrimRight(cfg.Endpoint, "/")
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" || endpoint.RawQuery != "" {
		return nil, fmt.Errorf("HF_ENDPOINT is %q; give an address such as %s", cfg.Endpoint, DefaultEndpoint)
	}
	if strings.ContainsFunc(cfg.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("the token in HF_TOKEN has characters that no token has")
	}
	if cfg.StallLimit <= 0 {
		cfg.StallLimit = 30 * time.Second
	}
	if cfg.AttemptsMax <= 0 {
		cfg.AttemptsMax = 5
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	return &Hub{cfg: cfg, endpoint: endpoint, transport: newTransport(&cfg)}, nil
}

// Close closes idle connections.
func (h *Hub) Close() { h.transport.CloseIdleConnections() }

func (h *Hub) warn(format string, args ...any) {
	if h.cfg.Warn != nil {
		h.cfg.Warn(fmt.Sprintf(format, args...))
	}
}

func (h *Hub) progress(p Progress) {
	if h.cfg.Progress != nil {
		h.cfg.Progress(p)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Model is a model in the cache.
type Model struct {
	// Path is that of the file, of the first part of a split file, or of the
	// folder of a model in safetensors.
	Path   string
	Name   string // the file's name without its ending, the repository's for a folder
	Commit string
}

// Pull resolves ref and downloads what is not cached. A cached commit needs no
// request, a branch needs one. If the Hub cannot be reached, the cached state of
// the branch is used, with a warning.
func (h *Hub) Pull(ctx context.Context, ref Ref) (Model, error) {
	f := h.folder(ref.Repo)
	cached, cachedErr := h.cached(f, ref)
	if cachedErr == nil && (h.cfg.Offline || commitPattern.MatchString(ref.revision())) {
		return cached, nil
	}
	if h.cfg.Offline {
		return Model{}, fmt.Errorf("HF_HUB_OFFLINE is set, and %w", cachedErr)
	}
	attempts := h.cfg.AttemptsMax
	if cachedErr == nil {
		attempts = 1
	}
	l, err := h.fetchListing(ctx, ref, attempts)
	if err != nil {
		if cachedErr != nil || ctx.Err() != nil || !mayUseCached(err) {
			return Model{}, err
		}
		h.warn("%v: using what is cached, of commit %.12s", err, cached.Commit)
		return cached, nil
	}
	c, err := l.choose(ref.File)
	if err != nil {
		return Model{}, err
	}
	for _, e := range c.files {
		if !isSafeName(e.Name) {
			return Model{}, fmt.Errorf("%s: the file name %q is not safe to write", ref.Repo, e.Name)
		}
	}
	if err := h.download(ctx, f, ref, l.commit, c.files); err != nil {
		return Model{}, err
	}
	f.writeTree(l)
	if err := f.setRef(ref.revision(), l.commit); err != nil {
		h.warn("%v", err) // the cache is read-only
	}
	return f.model(l.commit, c), nil
}

// mayUseCached tells whether the cached files may be used after err. They may if
// the server is away or refuses us, and not if it says that the model does not
// exist.
func mayUseCached(err error) bool {
	var s *statusError
	if errors.As(err, &s) {
		return isTransient(err) || s.status == http.StatusUnauthorized || s.status == http.StatusForbidden
	}
	return errors.As(err, new(transientError))
}

// cached resolves ref without the network, or reports what is missing.
func (h *Hub) cached(f folder, ref Ref) (Model, error) {
	commit := f.commitOf(ref.revision())
	if commit == "" {
		return Model{}, fmt.Errorf("%s is not in %s", ref, h.cfg.CacheDir)
	}
	l := f.readTree(commit)
	if l == nil {
		var err error
		if l, err = f.scan(commit); err != nil {
			return Model{}, err
		}
		if _, exact := l.find(ref.File); !exact && commit == ref.Revision && !h.cfg.Offline {
			return Model{}, fmt.Errorf("only the hub can tell what %s means", ref)
		}
	}
	c, err := l.choose(ref.File)
	if err != nil {
		return Model{}, err
	}
	for _, e := range c.files {
		if !isSafeName(e.Name) || !f.holds(commit, e) {
			return Model{}, fmt.Errorf("%s of %s is not in %s", e.Name, ref, h.cfg.CacheDir)
		}
	}
	return f.model(commit, c), nil
}

func (f folder) model(commit string, c choice) Model {
	if c.folder {
		return Model{Path: f.snapshot(commit), Name: f.repo[strings.IndexByte(f.repo, '/')+1:], Commit: commit}
	}
	first := c.files[0].Name
	return Model{Path: f.file(commit, first), Name: stem(first), Commit: commit}
}
