package picker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/internal/wire"
)

// Parts are what a Service stands on.
type Parts struct {
	Directory *identity.Directory
	// Pick chooses among the members; nil says that none takes requests.
	Pick func(q *siblings.Query, member func(address string, labels map[string]string) bool) []siblings.Endpoint
	// Able reports whether a member takes requests.
	Able func(member func(address string, labels map[string]string) bool) bool
	// Read renders and tokenizes the prompt of a request for a tenant.
	Read func(ctx context.Context, path string, body []byte, tenant string) (*wire.Prompt, error)
	// PageTokens is the size of a block.
	PageTokens func() int
	// Took hears of each pick how long it took; nil for nobody.
	Took func(time.Duration)
	Log  *slog.Logger
}

// Service picks replicas.
type Service struct {
	cfg   Config
	parts Parts
	pool  *poolFile
	trail *trail

	readers chan struct{} // has room for those that may begin to read
	reading sync.WaitGroup
	quit    context.Context
	stop    context.CancelFunc
	counts  [resultCount]atomic.Uint64
	bodies  atomic.Int64 // bytes that are held, or may come
}

// Results of picks.
const (
	resultKnown  = iota // by what is remembered of the prompt
	resultRead          // the prompt was read first
	resultLoad          // by the replicas' load alone
	resultFull          // so too, since the bodies of other requests take up all room
	resultShed          // refused, since replicas are busy
	resultNobody        // no replica takes requests
	resultCount
)

// ResultNames are the results as metrics name them, in the order of Counts.
var ResultNames = [resultCount]string{"known", "read", "load", "full", "shed", "nobody"}

// New makes a Service. The file of the pool must be right.
func New(cfg Config, parts Parts) (*Service, error) {
	s := &Service{cfg: cfg, parts: parts, trail: newTrail(cfg.ChunksMax), readers: make(chan struct{}, cfg.ReadsMax)}
	var err error
	s.pool, err = openPool(cfg.Pool, func(err error) {
		parts.Log.Error("envoy.picker.pool: the file was not taken, the last one goes on", "error", err)
	})
	if err != nil {
		return nil, fmt.Errorf("envoy.picker.pool: %w", err)
	}
	s.quit, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// hold takes room for so many bytes of bodies, if there is any left.
func (s *Service) hold(n int) bool {
	if s.bodies.Add(int64(n)) <= int64(s.cfg.BodiesMax) {
		return true
	}
	s.bodies.Add(int64(-n))
	return false
}

// Close ends what is being read. No pick may begin afterwards.
func (s *Service) Close() {
	s.stop()
	s.reading.Wait()
}

// Counts are how many picks had each result.
func (s *Service) Counts() (counts [resultCount]uint64) {
	for i := range counts {
		counts[i] = s.counts[i].Load()
	}
	return counts
}

// question is a request as the proxy shows it.
type question struct {
	path, authorization, apiKey, certificate, class, objective string

	body  [][]byte // the parts of it; they are the proxy's, and not kept
	full  bool     // there was no room for the body
	among []string // the replicas that it may go to; nil for all
}

// answer is where it goes, or why nowhere.
type answer struct {
	endpoints []string // the best first
	class     string   // that its objective gives it, "" for none
	refusal   int      // an HTTP status, 0 for none
	why       string
}

const (
	statusShed   = 429
	statusNobody = 503
)

// pick decides where a request goes.
func (s *Service) pick(ctx context.Context, q *question) answer {
	pool := s.pool.now(time.Now())
	objective := pool.objective(q.objective)
	a := answer{}
	if q.class == "" {
		a.class = objective.class
	}
	query := &siblings.Query{PageTokens: s.parts.PageTokens()}
	result := s.look(ctx, q, a.class, query)
	found := s.parts.Pick(query, func(address string, labels map[string]string) bool {
		return pool.has(address, labels) && (q.among == nil || listed(q.among, address))
	})
	switch {
	case len(found) == 0:
		result = resultNobody
		a.refusal, a.why = statusNobody, "no replica takes requests"
		if pool != nil {
			a.why += " of those in the InferencePool " + pool.name
		}
	case objective.priority < 0 && found[0].FirstToken > s.cfg.ShedWait:
		result = resultShed
		a.refusal, a.why = statusShed, fmt.Sprintf("the replicas are busy: the first token would take %s, and the InferenceObjective %s has a negative priority", found[0].FirstToken.Round(time.Millisecond), q.objective)
	}
	s.counts[result].Add(1)
	if a.refusal == 0 {
		for _, e := range found {
			a.endpoints = append(a.endpoints, e.Address)
		}
	}
	return a
}

// ready reports whether a replica of the pool takes requests.
func (s *Service) ready() bool {
	pool := s.pool.now(time.Now())
	return s.parts.Able(pool.has)
}

func listed(among []string, address string) bool {
	for _, one := range among {
		if strings.TrimSpace(one) == address {
			return true
		}
	}
	return false
}

// look fills in what is known of the request, and tells by what it is picked.
func (s *Service) look(ctx context.Context, q *question, class string, query *siblings.Query) int {
	presented := identity.Presented{Bearer: bearer(q.authorization), Certificate: []byte(q.certificate), Socket: true}
	if q.authorization == "" && q.apiKey != "" {
		presented.Bearer = []byte(q.apiKey)
	}
	caller, _ := s.parts.Directory.Identify(&presented, time.Now())
	if caller == nil {
		return resultLoad // the replica says who it may not be
	}
	if q.class != "" {
		class = q.class
	}
	if c, err := caller.Policy.Class(&caller.Tenant, admission.Wish{Name: class, Route: routeOf(q.path)}); err == nil {
		query.Class = c.Name
	}
	text := promptOf(q.body)
	chain := hashes(caller.Tenant.Name+" "+q.path, text)
	blocks, known := s.trail.find(chain)
	result := resultLoad
	if q.full {
		result = resultFull
	}
	if known > 0 {
		result = resultKnown
	}
	if known < len(chain) {
		// Who holds the longer part of a prompt is known already, or worth a wait.
		if read := s.read(q, caller.Tenant.Name, chain); read != nil && known < len(chain)/2 && s.await(ctx, read) {
			blocks, _ = s.trail.find(chain)
			result = resultRead
		}
	}
	query.Blocks = blocks
	query.PromptTokens = max(len(blocks)*query.PageTokens, s.trail.tokens(lengthOf(text))) + 1
	query.Uncached = query.PromptTokens
	return result
}

// read has the prompt read, and what was learned of it noted; nil where all readers
// are busy. The channel is closed when it is done.
func (s *Service) read(q *question, tenant string, chain []uint64) <-chan struct{} {
	select {
	case s.readers <- struct{}{}:
	default:
		return nil
	}
	done := make(chan struct{})
	path, body := q.path, slices.Concat(q.body...) // the request goes on meanwhile
	s.reading.Go(func() {
		defer func() { <-s.readers; close(done) }()
		ctx, cancel := context.WithTimeout(s.quit, longestRead)
		defer cancel()
		if p, err := s.parts.Read(ctx, path, body, tenant); err == nil {
			s.trail.learn(chain, lengthOf(promptOf([][]byte{body})), p.Length(), p.BlockHashes)
		}
	})
	return done
}

// longestRead bounds how long a reader is kept.
const longestRead = 5 * time.Second

// await reports whether a prompt was read within the limit.
func (s *Service) await(ctx context.Context, read <-chan struct{}) bool {
	limit := time.NewTimer(s.cfg.ReadLimit)
	defer limit.Stop()
	select {
	case <-read:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

// routeOf is the name of a path's route in policies.
func routeOf(path string) string {
	return strings.ReplaceAll(strings.TrimPrefix(path, "/v1/"), "/", "_")
}

// bearer is the key in the value of the header Authorization.
func bearer(value string) []byte {
	const scheme = "bearer "
	if len(value) > len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
		return []byte(strings.TrimSpace(value[len(scheme):]))
	}
	return nil
}
