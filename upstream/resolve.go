package upstream

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file makes many servers of a host name that has many addresses, and follows
// them as the name changes.

// addressesMost bounds the addresses of one name that are servers of their own.
const addressesMost = 64

// named is the host of the server where that is a name, else "".
func (s *Server) named() string {
	u, socket, err := parseURL(s.URL)
	if err != nil || socket != "" {
		return ""
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return ""
	}
	return u.Hostname()
}

// nameAt is the name of the server at one of its addresses, for people.
func (s *Server) nameAt(address string) string {
	u, _, err := parseURL(s.URL)
	if address == "" || err != nil {
		return cmp.Or(s.Name, s.URL)
	}
	u.Host = address
	return u.String()
}

// lookup is how names are looked up; tests replace it.
var lookup = net.DefaultResolver.LookupNetIP

// addresses are those of host with the port of s; none where it has just one. Of a
// host with both families those of IPv4 are taken, since the others lead to the same
// machines.
func (s *Server) addresses(ctx context.Context, host string) ([]string, error) {
	ips, err := lookup(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var four, six []netip.Addr
	for _, ip := range ips {
		if ip = ip.Unmap(); ip.Is4() {
			four = append(four, ip)
		} else {
			six = append(six, ip)
		}
	}
	if four == nil {
		four = six
	}
	slices.SortFunc(four, netip.Addr.Compare)
	if four = slices.Compact(four); len(four) < 2 {
		return nil, nil
	}
	u, _, err := parseURL(s.URL)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	var all []string
	for _, ip := range four[:min(len(four), addressesMost)] {
		all = append(all, net.JoinHostPort(ip.String(), port))
	}
	return all, nil
}

// follow looks host up again and again. Without upstream.resolve_interval it looks
// once, to say what that would change.
func (e *Engine) follow(s *Server, host string) {
	told := ""
	for {
		ctx, cancel := context.WithTimeout(e.ctx, max(e.cfg.ConnectLimit, 2*time.Second))
		all, err := s.addresses(ctx, host)
		cancel()
		switch {
		case e.ctx.Err() != nil:
			return
		case e.cfg.ResolveInterval == 0:
			if len(all) > 0 {
				e.log.Info("the upstream's name has several addresses and counts as one server; upstream.resolve_interval makes each a server of its own", "upstream", s.URL, "addresses", len(all))
			}
			return
		case err == nil:
			told = ""
			e.reconcile(s, all)
		case err.Error() != told: // what was known stays
			told = err.Error()
			e.log.Warn("the upstream's name cannot be looked up; its last addresses are used", "upstream", s.URL, "reason", err)
		}
		select {
		case <-e.ctx.Done():
			return
		case <-time.After(e.cfg.ResolveInterval):
		}
	}
}

// reconcile makes the replicas of s those at the addresses, or the one by its name
// where there are none. One whose address has gone gets no requests once another can be
// used, and is removed when its last answer has ended.
func (e *Engine) reconcile(s *Server, addresses []string) {
	if len(addresses) == 0 {
		addresses = []string{""}
	}
	e.mu.Lock()
	var missing []string
	for _, address := range addresses {
		if !slices.ContainsFunc(e.replicas, func(r *replica) bool { return r.of == s && r.address == address }) {
			missing = append(missing, address)
		}
	}
	for _, r := range e.replicas {
		if r.of == s {
			r.gone = !slices.Contains(addresses, r.address)
		}
	}
	room := serversMost - len(e.replicas)
	e.retire()
	e.publish()
	e.mu.Unlock()
	if len(missing) > room {
		e.log.Warn("the upstream's name has more addresses than there may be servers", "upstream", s.URL, "addresses", len(addresses), "most", serversMost)
		missing = missing[:max(0, room)]
	}
	for _, address := range missing {
		if err := e.add(s, address); err != nil {
			e.log.Warn("an address of the upstream is not used", "upstream", s.nameAt(address), "reason", err)
		}
	}
}

// retire removes the replicas whose addresses have gone, that have no work and are not
// the last. The caller holds mu.
func (e *Engine) retire() {
	used := e.used(nil)
	needed := len(used) > 0 && used[0].gone
	e.replicas = slices.DeleteFunc(e.replicas, func(r *replica) bool {
		if !r.gone || r.ledger.live > 0 || r.ready() && needed {
			return false
		}
		r.stop()
		r.server.client.close()
		e.log.Info("the upstream's address has gone", "upstream", r.name)
		return true
	})
}

// DrainUpstream implements wire.Upstreams.
func (e *Engine) DrainUpstream(name string, drained bool) *wire.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.replicas, func(r *replica) bool { return r.name == name })
	if i < 0 {
		return wire.InvalidParam("upstream", "there is no upstream %s; GET /debug/queue?format=json lists them", brief(name))
	}
	r := e.replicas[i]
	if r.drained != drained && !drained {
		r.health.up = time.Duration(wire.Monotonic()) // it begins slowly, as after every pause
	}
	r.drained = drained
	e.publish()
	return nil
}
