package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/forebay-io/forebay/internal/wire"
)

// Group is some of the servers, which alone answer for a model, or for some routes of
// it.
type Group struct {
	ModelID       string   `yaml:"model_id" repeats:"by route" help:"Name by which clients ask for the model of these servers."`
	Routes        []string `yaml:"routes" help:"Routes whose requests for the model come here: chat_completions, completions, responses or messages. None listed takes those of all routes that no other group of the model lists."`
	Servers       []string `yaml:"servers" help:"Its servers, by name or address; own is the engine of upstream.own_engine. A server is in one group."`
	Name          string   `yaml:"name" help:"What it is called on the page, in metrics and in the header x-forebay-group; empty is model_id."`
	Tokenizer     string   `yaml:"tokenizer" help:"As upstream.tokenizer, which it takes where it is empty."`
	ContextTokens int      `yaml:"context_tokens" range:"..16777216" help:"As upstream.context_tokens, which it takes where it is 0."`

	Counter Counter `yaml:"-"` // of Tokenizer, nil for none
}

// NameOwn is the name of the server that is an engine of our own.
const NameOwn = "own"

// groupsMost bounds the groups of one gateway.
const groupsMost = 16

// groupForm is the form of names of groups, since logs, metrics and headers carry them.
var groupForm = regexp.MustCompile(`^[A-Za-z0-9_./:@-]{1,128}$`)

// routesRelayed are the routes that another server may answer.
var routesRelayed = []string{"chat_completions", "completions", "responses", "messages"}

// Label is what the group is called.
func (g *Group) Label() string { return cmp.Or(g.Name, g.ModelID) }

func (g *Group) has(s *Server) bool {
	return slices.Contains(g.Servers, s.nameAt("")) || slices.Contains(g.Servers, s.URL)
}

// OwnModelID is the name by which clients ask for the model of an engine of our own.
func (c *Config) OwnModelID() string {
	for i := range c.Groups {
		if slices.Contains(c.Groups[i].Servers, NameOwn) {
			return c.Groups[i].ModelID
		}
	}
	return c.ModelID
}

// checkGroups refuses groups between which a request or a server could not choose.
func (c *Config) checkGroups(servers []Server) (errs []error) {
	if len(c.Groups) == 0 {
		return nil
	}
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("upstream.groups"+format, args...)) }
	if len(c.Groups) > groupsMost {
		fail(": %d groups; at most %d are kept apart", len(c.Groups), groupsMost)
	}
	if c.ModelID != "" {
		errs = append(errs, errors.New("upstream.model_id: leave it out beside upstream.groups, which have a model_id each"))
	}
	names, routes, rest := map[string]bool{}, map[[2]string]string{}, map[string]string{}
	for i := range c.Groups {
		g := &c.Groups[i]
		at, name := fmt.Sprintf("[%d]", i), g.Label()
		switch {
		case g.ModelID == "":
			fail(at + ".model_id: give the name by which clients ask for the model")
			continue
		case !groupForm.MatchString(name):
			fail(at+".name: %q is not a name of 1 to 128 letters, digits and characters of _./:@-; give the group one", name)
		case names[name]:
			fail(at+".name: another group is called %s; give one of them another name", name)
		case len(g.Routes) == 0 && rest[g.ModelID] != "":
			fail(at+".routes: the group %s takes all routes of %s already; list those that come here", rest[g.ModelID], g.ModelID)
		}
		names[name] = true
		if len(g.Routes) == 0 {
			rest[g.ModelID] = name
		}
		for _, r := range g.Routes {
			key := [2]string{g.ModelID, r}
			if !slices.Contains(routesRelayed, r) {
				fail(at+".routes: %q is none of %s", r, strings.Join(routesRelayed, ", "))
			} else if routes[key] != "" {
				fail(at+".routes: %s of %s goes to the group %s already", r, g.ModelID, routes[key])
			}
			routes[key] = name
		}
		errs = append(errs, c.checkMembers(i, servers)...)
	}
	for i := range c.Groups {
		if id := c.Groups[i].ModelID; id != "" && rest[id] == "" {
			rest[id] = "said"
			fail("[%d].routes: no group takes the other routes of %s; leave routes out of one", i, id)
		}
	}
	for i := range servers {
		if s := &servers[i]; !slices.ContainsFunc(c.Groups, func(g Group) bool { return g.has(s) }) {
			fail(": the server %s is in none; list it in the servers of one group", s.nameAt(""))
		}
	}
	if c.OwnEngine != "" && c.OwnModelID() == "" {
		fail(": the engine of upstream.own_engine is in none; list %s in the servers of one group", NameOwn)
	}
	return errs
}

// checkMembers refuses servers of a group that are not there, or in an earlier one too.
func (c *Config) checkMembers(i int, servers []Server) (errs []error) {
	g := &c.Groups[i]
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("upstream.groups[%d].servers: "+format, append([]any{i}, args...)...))
	}
	if len(g.Servers) == 0 {
		fail("list one at least, by the name or address that it has in upstream.servers or upstream.url")
	}
	for _, name := range g.Servers {
		if at := slices.IndexFunc(servers, func(s Server) bool { return s.nameAt("") == name || s.URL == name }); at < 0 && (name != NameOwn || c.OwnEngine == "") {
			fail("there is no server %q; the names and addresses are those of upstream.servers and upstream.url", name)
			continue
		}
		for j := range c.Groups[:i] {
			if other := &c.Groups[j]; slices.Contains(other.Servers, name) || slices.ContainsFunc(servers, func(s Server) bool { return g.has(&s) && other.has(&s) && (s.nameAt("") == name || s.URL == name) }) {
				fail("%s is in the group %s; a server can be in one group only, since each has a queue of its own", name, other.Label())
			}
		}
	}
	return errs
}

// of is the configuration of a group's own Engine, among all servers.
func (c *Config) of(g *Group, all []Server) Config {
	own := *c
	own.URL, own.Servers, own.Groups, own.OwnEngine = "", nil, nil, ""
	for i := range all {
		if g.has(&all[i]) {
			own.Servers = append(own.Servers, all[i])
		}
	}
	own.group, own.ModelID = g.Label(), g.ModelID
	own.Tokenizer, own.Counter = cmp.Or(g.Tokenizer, c.Tokenizer), g.Counter
	own.ContextTokens = cmp.Or(g.ContextTokens, c.ContextTokens)
	return own
}

// Groups are the engines of Config.Groups, one for each, in that order.
type Groups struct {
	Engines []*Engine
	names   []string
	onState func(*wire.State)
	state   atomic.Pointer[wire.State]

	mu   sync.Mutex    // guards what follows, and the order of states
	last []*wire.State // of each; nil before its first
}

// NewGroups starts to look for the servers of all groups, and returns at once. each is
// called with every State of a group, in order, and then cfg.OnState with that of all
// together; neither may block or call an engine.
func NewGroups(cfg Config, each func(group string, s *wire.State)) (*Groups, error) {
	all, err := cfg.all()
	if err != nil {
		return nil, err
	}
	g := &Groups{onState: cfg.OnState, last: make([]*wire.State, len(cfg.Groups))}
	g.state.Store(&wire.State{At: wire.Monotonic(), Err: errNoServer})
	for i := range cfg.Groups {
		own, name := cfg.of(&cfg.Groups[i], all), cfg.Groups[i].Label()
		own.OnState = func(s *wire.State) {
			each(name, s)
			g.heard(i, s)
		}
		e, err := New(own)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.Engines, g.names = append(g.Engines, e), append(g.names, name)
	}
	return g, nil
}

// heard takes in a State of one group.
func (g *Groups) heard(i int, s *wire.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last[i] = s
	sum := together(g.last)
	g.state.Store(sum)
	if g.onState != nil {
		g.onState(sum)
	}
}

// together is the State of all groups: the model of the first that can serve, the sums of
// what they have and have done, and all their servers.
func together(last []*wire.State) *wire.State {
	sum := new(wire.State)
	sum.Err = errNoServer
	sum.RatioMedian, sum.RatioHigh = 1, 1
	for _, s := range last {
		if s == nil {
			continue
		}
		switch {
		case s.Err == nil && sum.Err != nil:
			sum.Err, sum.Model, sum.Pace = nil, s.Model, s.Pace
		case sum.Model.ID == "":
			sum.Model, sum.Err = s.Model, s.Err
		}
		sum.At = max(sum.At, s.At)
		sum.Step += s.Step
		sum.Running += s.Running
		sum.Paused += s.Paused
		sum.Sequences += s.Sequences
		sum.Places += s.Places
		sum.ShortPrefill += s.ShortPrefill
		sum.LongPrefill += s.LongPrefill
		sum.DecodeTokens += s.DecodeTokens
		sum.PrefillTokens += s.PrefillTokens
		sum.CachedTokens += s.CachedTokens
		sum.Upstreams = append(sum.Upstreams, s.Upstreams...)
	}
	return sum
}

// State is that of all groups together.
func (g *Groups) State() *wire.State { return g.state.Load() }

// Name says which servers these are, for a line to the operator.
func (g *Groups) Name() string { return g.list((*Engine).Name) }

// Addresses are those of the servers, separated by commas.
func (g *Groups) Addresses() string { return g.list((*Engine).Addresses) }

func (g *Groups) list(of func(*Engine) string) string {
	var all []string
	for _, e := range g.Engines {
		if text := of(e); text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

// WaitReady waits until one of the groups can serve. Where ctx ends first, the error says
// why the first of them cannot.
func (g *Groups) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan error, len(g.Engines))
	for _, e := range g.Engines {
		go func() { found <- e.WaitReady(ctx) }()
	}
	var first error
	for range g.Engines {
		err := <-found
		if err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}

// Close is Engine.Close of all.
func (g *Groups) Close() error {
	var errs []error
	for _, e := range g.Engines {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// Prepare implements wire.Engine for callers who know no groups: the first one prepares.
func (g *Groups) Prepare(ctx context.Context, r *wire.Request) (*wire.Prompt, error) {
	return g.Engines[0].Prepare(ctx, r)
}

// Generate implements wire.Engine, as Prepare.
func (g *Groups) Generate(r *wire.Generation) *wire.Stream { return g.Engines[0].Generate(r) }

// DrainUpstream implements wire.Upstreams.
func (g *Groups) DrainUpstream(name string, drained bool) (err *wire.Error) {
	for _, e := range g.Engines {
		if err = e.DrainUpstream(name, drained); err == nil {
			return nil
		}
	}
	return err
}
