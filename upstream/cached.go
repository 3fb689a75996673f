package upstream

import (
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

// eventAddress is where a server publishes, of an address whose host may be *: that of
// the server.
func (r *replica) eventAddress(address string) (string, error) {
	rest, ok := strings.CutPrefix(address, "tcp://*:")
	if !ok {
		return address, nil
	}
	host := r.address // with a port, where the host's name has several
	if host != "" {
		host, _, _ = net.SplitHostPort(host)
	} else if base, _, err := parseURL(r.cfg.URL); err != nil {
		return "", err
	} else {
		host = base.Hostname()
	}
	return "tcp://" + net.JoinHostPort(host, rest), nil
}

// followCache begins to follow the events of the server's cache, if it has some.
func (r *replica) followCache() error {
	if r.cfg.KVEvents == "" {
		return nil
	}
	events, err := r.eventAddress(r.cfg.KVEvents)
	if err != nil {
		return err
	}
	replay, err := r.eventAddress(r.cfg.KVReplay)
	if err != nil {
		return err
	}
	r.cache = kvevents.New(kvevents.Config{
		Events: events, Replay: replay, BlocksMax: r.cfg.KVBlocksMax, MessageBytesMax: r.cfg.EventBytesMax,
		ConnectLimit: r.cfg.ConnectLimit, Again: r.cfg.CheckInterval, Log: r.engine.log.With("upstream", r.name),
	})
	r.engine.live.Go(func() { r.cache.Run(r.ctx) })
	return nil
}

// checkEvents refuses addresses that cannot be followed.
func checkEvents(where, events, replay string) (errs []error) {
	for name, address := range map[string]string{"kv_events": events, "kv_replay": replay} {
		if address == "" {
			continue
		}
		if _, _, err := kvevents.Network(address); err != nil {
			errs = append(errs, fmt.Errorf("%s.%s: %w", where, name, err))
		}
	}
	if replay != "" && events == "" {
		errs = append(errs, errors.New(where+".kv_replay: it is of no use without kv_events"))
	}
	return errs
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
