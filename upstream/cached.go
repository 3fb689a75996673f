package upstream

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/upstream/kvevents"
)

// This file says how much of a prompt a server has cached: by the events of its cache
// where it publishes them and the prompt's tokens are known, and else by what it was
// sent before.

// eventsOff is a server's kv_events where those of upstream.kv_events are not its.
const eventsOff = "off"

// eventsOf are the addresses of s's events and of what gives them again, "" for none. Their
// host may be *: that of the server, at which is one of its addresses, with the port, or "".
func (c *Config) eventsOf(s *Server, at string) (events, replay string) {
	events, replay = cmp.Or(s.KVEvents, c.KVEvents), cmp.Or(s.KVReplay, c.KVReplay)
	if events == "" || events == eventsOff {
		return "", ""
	}
	host := ""
	if at != "" {
		host, _, _ = net.SplitHostPort(at)
	} else if base, _, err := parseURL(s.URL); err == nil {
		host = base.Hostname()
	}
	for _, address := range []*string{&events, &replay} {
		if port, ok := strings.CutPrefix(*address, "tcp://*:"); ok {
			*address = "tcp://" + net.JoinHostPort(host, port)
		}
	}
	return events, replay
}

// checkEvents refuses addresses that cannot be followed, and one for two servers.
func (c *Config) checkEvents(servers []Server) (errs []error) {
	if c.KVReplay != "" && c.KVEvents == "" {
		errs = append(errs, errors.New("upstream.kv_replay: it is of no use without upstream.kv_events"))
	}
	of := map[string]string{}
	for i := range servers {
		s := &servers[i]
		events, replay := c.eventsOf(s, "")
		if events == "" {
			continue
		}
		for _, address := range []string{events, replay} {
			if address == "" {
				continue
			}
			if _, _, err := kvevents.Network(address); err != nil {
				errs = append(errs, fmt.Errorf("upstream.kv_events: %w", err))
			}
		}
		if other := of[events]; other != "" {
			errs = append(errs, fmt.Errorf("upstream.kv_events: %s and %s would have the events of %s; give each server its own, or off, in upstream.servers", other, s.nameAt(""), events))
		}
		of[events] = s.nameAt("")
	}
	return errs
}

// followCache begins to follow the events of the server's cache, if it has some.
func (r *replica) followCache() {
	e := r.engine
	events, replay := e.cfg.eventsOf(r.of, r.address)
	if events == "" {
		return
	}
	r.cache = kvevents.New(kvevents.Config{
		Events: events, Replay: replay, BlocksMax: r.cfg.KVBlocksMax, MessageBytesMax: r.cfg.EventBytesMax,
		ConnectLimit: r.cfg.ConnectLimit, Again: r.cfg.CheckInterval, Log: e.log.With("upstream", r.name),
	})
	e.live.Go(func() { r.cache.Run(r.ctx) })
}

// uncached is how many of the prompt's tokens the server has to compute, as far as is
// known. The caller holds engine.mu.
func (r *replica) uncached(v *relayed, tokens int) float64 {
	guess := float64(tokens) * (1 - r.prefixes.match(v.blocks, v.bytes))
	if r.cache == nil || r.model == nil {
		return guess
	}
	held, whole := r.cache.Match(v.chains, r.model.dialect.salted)
	known := float64(max(1, tokens-held)) // the last token is computed in any case
	if whole {
		return known
	}
	return min(guess, known)
}

// chain prepares the search for the prompt's tokens in the caches that are followed.
func (e *Engine) chain(v *relayed, tokens []int32, salt string) {
	if tokens == nil || v.traits[traitMedia] > 0 {
		return
	}
	e.mu.Lock()
	var shapes []kvevents.Shape
	for _, r := range e.replicas {
		if r.cache == nil || r.model == nil {
			continue
		}
		s := kvevents.Shape{Size: r.cache.BlockTokens(), Salted: r.model.dialect.salted}
		if s.Size > 0 && !slices.Contains(shapes, s) {
			shapes = append(shapes, s)
		}
	}
	e.mu.Unlock()
	for _, s := range shapes {
		v.chains = append(v.chains, kvevents.NewChain(tokens, s, saltSent(salt)))
	}
}
