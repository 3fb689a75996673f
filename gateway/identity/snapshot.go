package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/forebay-io/forebay/admission"
)

// Snapshot decides who sends a request. It never changes.
type Snapshot struct {
	generation uint64
	policy     *admission.Policy
	anyone     *Caller // of requests without a known key; nil refuses them
	keys       map[keyID]*key
	inline     map[*admission.Tenant]*Caller // of the configuration's own keys
	issuers    map[string]*issuer
	mesh       mesh
	bearer     *bearerLimits
}

// bearerLimits bound tokens.
type bearerLimits struct {
	leeway   time.Duration
	bytesMax int
}

// key is a key of a key file.
type key struct {
	hash     hash
	caller   Caller
	revoked  bool
	disabled bool
	expires  time.Time
}

// Presented is what a request says of its sender.
type Presented struct {
	// Bearer is the text after Bearer in the header Authorization, nil for none.
	Bearer []byte
	// Several says that there was more than one such header.
	Several bool
	// Certificate is the header x-forwarded-client-cert, nil for none, and Peer the
	// address from which the request came.
	Certificate []byte
	Peer        netip.Addr
	// Verified are the URIs of the client's certificate, which the gateway's own TLS has
	// verified.
	Verified []*url.URL
	// Socket says that it came over the Unix socket, which has no such address.
	Socket bool
}

// Of is a Snapshot of a policy alone.
func Of(policy *admission.Policy) *Snapshot {
	s, err := newSnapshot(Config{}, policy, nil, nil)
	if err != nil {
		panic(err) // nothing in it can be wrong
	}
	return s
}

// newSnapshot builds a Snapshot. The error lists every mistake, each with its place.
func newSnapshot(cfg Config, policy *admission.Policy, entries []entryIn, sets map[string]*keySet) (*Snapshot, error) {
	s := &Snapshot{
		policy: policy, keys: make(map[keyID]*key, len(entries)), inline: map[*admission.Tenant]*Caller{}, issuers: map[string]*issuer{},
		bearer: &bearerLimits{cfg.TokenLeeway, cfg.TokenBytesMax},
	}
	for _, t := range policy.Tenants() {
		s.inline[t] = &Caller{Policy: policy, Tenant: *t}
	}
	if anyone := policy.Tenant(nil); anyone != nil && (!cfg.On() || policy.Listed()) {
		s.anyone = s.inline[anyone]
	}
	var errs []error
	for i := range entries {
		e := &entries[i]
		caller, err := s.caller(e.Tenant, e.Name, Rights{e.Classes, e.Routes, e.Models})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", e.place, err))
			continue
		}
		caller.Limits, caller.LimitsOf = e.Limits, e.Name
		k := &key{caller: *caller, revoked: e.Revoked != "", disabled: e.Disabled}
		k.hash, _ = parseHash(e.Hash)       // Entry.Mistakes has checked it
		k.expires, _ = parseTime(e.Expires) // and this
		s.keys[keyID([]byte(e.ID))] = k
	}
	errs = append(errs, s.addIssuers(&cfg, sets)...)
	errs = append(errs, s.addMesh(&cfg)...)
	return s, errors.Join(errs...)
}

// caller is a caller of a tenant, with fewer rights. The error begins with the key
// that is wrong.
func (s *Snapshot) caller(tenant, name string, rights Rights) (*Caller, error) {
	t := s.policy.Named(tenant)
	if t == nil {
		return nil, fmt.Errorf("tenant: there is no tenant %q in admission.tenants", clip(tenant))
	}
	c := &Caller{Policy: s.policy, Tenant: *t, Key: name, routes: rights.Routes, models: rights.Models}
	for _, class := range rights.Classes {
		switch {
		case !s.policy.HasClass(class):
			return nil, fmt.Errorf("classes: there is no class %q; there are %s", class, strings.Join(s.policy.Classes(), ", "))
		case !t.May(class):
			return nil, fmt.Errorf("classes: the tenant %s may not use the class %s", tenant, class)
		}
	}
	if len(rights.Classes) > 0 {
		c.Tenant.Classes = rights.Classes
	}
	return c, nil
}

// clip shortens a name for a message.
func clip(name string) string {
	const most = 64
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

var (
	errNoKey       = &Refusal{Reason: NoKey, Message: "there is no API key; send it as Authorization: Bearer KEY, or as x-api-key: KEY"}
	errUnknownKey  = &Refusal{Reason: UnknownKey, Message: "no tenant has this API key"}
	errSeveralKeys = &Refusal{Reason: SeveralKeys, Message: "there is more than one Authorization or x-api-key header, and they differ; send one"}
)

// Identify says who presents p at now, or why it is nobody.
func (s *Snapshot) Identify(p *Presented, now time.Time) (*Caller, *Refusal) {
	switch {
	case p.Several:
		return nil, errSeveralKeys
	case len(p.Bearer) > 0:
		return s.byBearer(p.Bearer, now)
	case len(p.Certificate) > 0 && s.mesh.trusts(p):
		if caller := s.mesh.find(p.Certificate); caller != nil {
			return caller, nil
		}
		return s.orAnyone(errUnknownIdentity)
	case len(p.Verified) > 0 && s.mesh.own:
		if caller := s.mesh.findVerified(p.Verified); caller != nil {
			return caller, nil
		}
		return s.orAnyone(errUnknownIdentity)
	}
	return s.orAnyone(errNoKey)
}

// orAnyone is the tenant of requests without a known key, or the refusal.
func (s *Snapshot) orAnyone(why *Refusal) (*Caller, *Refusal) {
	if s.anyone != nil {
		return s.anyone, nil
	}
	return nil, why
}

// byBearer finds a key, or checks a token.
func (s *Snapshot) byBearer(text []byte, now time.Time) (*Caller, *Refusal) {
	if id, ok := idOf(text); ok {
		if k := s.keys[id]; k != nil && k.hash.matches(text) {
			return k.use(now)
		}
	}
	if t := s.policy.Owner(sha256.Sum256(text)); t != nil {
		return s.inline[t], nil
	}
	if len(s.issuers) > 0 && isToken(text) {
		return s.byToken(text, now)
	}
	return s.orAnyone(errUnknownKey)
}

// use is the key's caller. Who reaches it has shown the whole key, and so is told
// what is wrong with it.
func (k *key) use(now time.Time) (*Caller, *Refusal) {
	switch stateOf(k.revoked, k.disabled, k.expires, now) {
	case Revoked:
		return nil, &Refusal{KeyRevoked, "this API key was revoked", &k.caller}
	case Disabled:
		return nil, &Refusal{KeyDisabled, "this API key is disabled", &k.caller}
	case Expired:
		return nil, &Refusal{KeyExpired, "this API key expired at " + k.expires.UTC().Format(time.RFC3339), &k.caller}
	}
	return &k.caller, nil
}

// count is how many keys are in each state at now.
func (s *Snapshot) count(now time.Time) (counts [stateCount]int) {
	for _, k := range s.keys {
		counts[stateOf(k.revoked, k.disabled, k.expires, now)]++
	}
	return counts
}
