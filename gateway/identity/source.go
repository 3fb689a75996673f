package identity

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/admission"
)

// Directory points to the present Snapshot, and counts what it decides.
type Directory struct {
	current atomic.Pointer[Snapshot]
	refused [ReasonCount]atomic.Uint64
	ignored atomic.Uint64
}

// NewDirectory is a Directory of one Snapshot, which nothing replaces.
func NewDirectory(s *Snapshot) *Directory {
	d := &Directory{}
	d.current.Store(s)
	return d
}

// Identify says who presents p at now, or why it is nobody. A certificate from a
// peer that is not trusted is counted, and means nothing.
func (d *Directory) Identify(p *Presented, now time.Time) (*Caller, *Refusal) {
	s := d.current.Load()
	if len(p.Certificate) > 0 && s.mesh.on() && !s.mesh.trusts(p) {
		d.ignored.Add(1)
	}
	return s.Identify(p, now)
}

// Vouched is the caller of a request whose sender another gateway has identified, by
// the names of tenant and key; nil where there is no such tenant here. The key's rights
// and limits were the other's to check.
func (d *Directory) Vouched(tenant, key string) *Caller {
	s := d.current.Load()
	t := s.policy.Named(tenant)
	if t == nil {
		return nil
	}
	return &Caller{Policy: s.policy, Tenant: *t, Key: key}
}

// Refused counts a request that was refused because it is nobody's.
func (d *Directory) Refused(why Reason) { d.refused[why].Add(1) }

// Source reads key files and the keys of issuers, and replaces a Directory's
// Snapshot when they change.
type Source struct {
	directory *Directory
	log       *slog.Logger

	generation atomic.Uint64
	loaded     atomic.Int64 // when a load last succeeded, in seconds since 1970
	loads      atomic.Uint64
	failures   atomic.Uint64
	// The last load of the key files, or of the configuration, was not taken.
	filesBroken, configBroken atomic.Bool

	mu      sync.Mutex
	cfg     Config
	policy  admission.Config
	seen    string    // the signature at the last look
	tried   string    // the signature at the last load, whether it succeeded or not
	failed  time.Time // when a load last failed
	sets    map[string]*keySet
	running context.Context // of Run, nil before
	cancels map[string]context.CancelFunc
	workers sync.WaitGroup
}

// Open loads everything once. Whatever is wrong is an error; but an issuer whose URL
// does not answer is asked again by Run.
func Open(cfg Config, policy admission.Config, log *slog.Logger) (*Source, error) {
	s := &Source{directory: &Directory{}, log: log, sets: map[string]*keySet{}, cancels: map[string]context.CancelFunc{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(cfg, policy); err != nil {
		return nil, err
	}
	return s, nil
}

// Check reads and builds everything as Open does, and keeps nothing.
func Check(cfg Config, policy admission.Config) error {
	_, _, err := (&Source{}).build(cfg, policy)
	return err
}

// CheckEntry says whether a key fits a configuration.
func CheckEntry(e Entry, policy admission.Config) error {
	p, err := admission.NewPolicy(policy)
	if err == nil {
		_, err = Of(p).caller(e.Tenant, e.Name, Rights{e.Classes, e.Routes, e.Models})
	}
	return err
}

// Directory is the one that the Source keeps up to date.
func (s *Source) Directory() *Directory { return s.directory }

// Replace loads everything under another configuration. After an error all is as it
// was.
func (s *Source) Replace(cfg Config, policy admission.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, tried := s.seen, s.tried
	err := s.load(cfg, policy)
	s.configBroken.Store(err != nil)
	if err != nil {
		s.seen, s.tried = seen, tried
		return err
	}
	s.filesBroken.Store(false)
	return nil
}

// NotTaken counts a configuration that could not be read at all.
func (s *Source) NotTaken() {
	s.failures.Add(1)
	s.configBroken.Store(true)
}

// load reads and builds, and only then replaces what there was.
func (s *Source) load(cfg Config, policyConfig admission.Config) error {
	seen := signature(cfg.Keys)
	s.seen, s.tried = seen, seen
	snapshot, sets, err := s.build(cfg, policyConfig)
	if err != nil {
		s.failed = time.Now()
		s.failures.Add(1)
		return err
	}
	snapshot.generation = s.generation.Add(1)
	s.directory.current.Store(snapshot)
	s.cfg, s.policy = cfg, policyConfig
	s.adopt(sets)
	s.loaded.Store(time.Now().Unix())
	s.loads.Add(1)
	return nil
}

// build makes a Snapshot and the sets of keys that it needs. It changes nothing.
func (s *Source) build(cfg Config, policyConfig admission.Config) (snapshot *Snapshot, sets map[string]*keySet, err error) {
	policy, err := admission.NewPolicy(policyConfig)
	if err != nil {
		return nil, nil, err
	}
	var entries []entryIn
	if cfg.Keys != "" {
		files, err := readKeys(cfg.Keys, cfg.FileBytesMax)
		if err != nil {
			return nil, nil, err
		}
		if entries, err = parseKeys(files, cfg.KeysMax); err != nil {
			return nil, nil, err
		}
	}
	sets = map[string]*keySet{}
	var errs []error
	for i := range cfg.Issuers {
		place := cfg.Issuers[i].JWKS
		set := s.sets[place]
		if set == nil || !set.suits(&cfg) {
			set = newKeySet(place, &cfg, s.log)
			if !isURL(place) {
				errs = append(errs, set.refresh(time.Now()))
			}
		}
		sets[place] = set
	}
	snapshot, err = newSnapshot(cfg, policy, entries, sets)
	return snapshot, sets, errors.Join(append(errs, err)...)
}

// adopt starts the sets that are new, and stops those that are gone.
func (s *Source) adopt(sets map[string]*keySet) {
	for place, old := range s.sets {
		if sets[place] != old && s.cancels[place] != nil {
			s.cancels[place]()
			delete(s.cancels, place)
		}
	}
	s.sets = sets
	if s.running != nil {
		s.start()
	}
}

// start runs the sets that do not run yet.
func (s *Source) start() {
	for place, set := range s.sets {
		if !isURL(place) || s.cancels[place] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(s.running)
		s.cancels[place] = cancel
		s.workers.Go(func() { set.run(ctx) })
	}
}

// Run looks for changes and fetches the keys of issuers until ctx ends.
func (s *Source) Run(ctx context.Context) {
	s.mu.Lock()
	s.running = ctx
	s.start()
	wait := s.cfg.PollInterval
	s.mu.Unlock()
	defer s.workers.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = s.Look()
	}
}

// retryWait is the time after which a load that failed is tried again, though the
// files look the same.
const retryWait = time.Minute

// Look loads the key files if they have changed, and are the same as at the last
// look: files that are being written wait for the next one. It returns when to look
// again.
func (s *Source) Look() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, place := range slices.Sorted(maps.Keys(s.sets)) {
		s.lookAt(s.sets[place])
	}
	before := s.seen
	s.seen = signature(s.cfg.Keys)
	again := s.filesBroken.Load() && time.Since(s.failed) > retryWait // its cause may lie elsewhere
	if s.cfg.Keys == "" || s.seen != before || s.seen == s.tried && !again {
		return s.cfg.PollInterval
	}
	err := s.load(s.cfg, s.policy)
	s.filesBroken.Store(err != nil)
	if err != nil {
		s.log.Error("the key files changed and were not taken: the keys from before go on holding", "path", s.cfg.Keys, "generation", s.generation.Load(), "error", err)
		return s.cfg.PollInterval
	}
	s.log.Info("the key files changed and were taken", "path", s.cfg.Keys, "keys", len(s.directory.current.Load().keys), "generation", s.generation.Load())
	return s.cfg.PollInterval
}

// lookAt reads a file of an issuer's keys again if it has changed.
func (s *Source) lookAt(set *keySet) {
	if isURL(set.place) || !set.changed() {
		return
	}
	if err := set.refresh(time.Now()); err != nil {
		s.log.Error("the keys of an issuer changed and were not taken: its last ones go on holding", "error", err)
		return
	}
	s.log.Info("the keys of an issuer changed and were taken", "path", set.place)
}
