package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// issuer is an identity provider with its keys.
type issuer struct {
	Issuer
	keys *keySet
}

// addIssuers adds the issuers, whose keys are in sets by their place.
func (s *Snapshot) addIssuers(cfg *Config, sets map[string]*keySet) (errs []error) {
	for i := range cfg.Issuers {
		n := &issuer{Issuer: cfg.Issuers[i], keys: sets[cfg.Issuers[i].JWKS]}
		named := n.Tenants
		if n.Tenant != "" {
			named = append(slices.Clone(named), n.Tenant)
		}
		for _, tenant := range named {
			if s.policy.Named(tenant) == nil {
				errs = append(errs, fmt.Errorf("identity.issuers[%d].tenants: there is no tenant %q in admission.tenants", i, clip(tenant)))
			}
		}
		s.issuers[n.Issuer.Issuer] = n
	}
	return errs
}

var (
	errNoIssuer    = &Refusal{Reason: TokenIssuer, Message: "the token's iss is not an issuer that this gateway trusts"}
	errAudience    = &Refusal{Reason: TokenIssuer, Message: "the token is for another service: its aud does not name this one"}
	errSignature   = &Refusal{Reason: TokenSignature, Message: "the token's signature is not one of its issuer"}
	errUnknownSign = &Refusal{Reason: TokenSignature, Message: "the token's issuer has no key of its kid and alg"}
	errIssuerDown  = &Refusal{Reason: IssuerDown, Message: "the keys of the token's issuer could not be fetched yet; try again"}
)

// byToken checks a token and finds its caller. What the token claims is used only
// after its signature was verified, but for iss, which says whose keys to try.
func (s *Snapshot) byToken(text []byte, now time.Time) (*Caller, *Refusal) {
	if len(text) > s.bearer.bytesMax {
		return nil, badToken(fmt.Errorf("it is longer than %d bytes", s.bearer.bytesMax))
	}
	t, err := parseToken(text)
	if err != nil {
		return nil, badToken(err)
	}
	iss, _ := t.claims.text("iss")
	n := s.issuers[iss]
	if n == nil {
		return nil, errNoIssuer
	}
	k, why := n.keys.find(t.kid, t.alg)
	switch {
	case why != nil:
		return nil, why
	case !t.verify(k):
		return nil, errSignature
	case !slices.ContainsFunc(t.claims.list("aud"), func(aud string) bool { return slices.Contains(n.Audiences, aud) }):
		return nil, errAudience
	}
	if why := t.claims.checkTime(now, s.bearer.leeway); why != nil {
		return nil, why
	}
	return n.caller(s, t.claims)
}

// caller is what verified claims say.
func (n *issuer) caller(s *Snapshot, c claims) (*Caller, *Refusal) {
	tenant := n.Tenant
	if tenant == "" {
		var ok bool
		if tenant, ok = c.text(n.TenantClaim); !ok {
			return nil, &Refusal{Reason: TokenClaims, Message: "the token has no claim " + n.TenantClaim + " that names its tenant"}
		}
		if len(n.Tenants) > 0 && !slices.Contains(n.Tenants, tenant) {
			return nil, &Refusal{Reason: TokenClaims, Message: "the token's issuer may not name the tenant " + clip(tenant)}
		}
	}
	t := s.policy.Named(tenant)
	if t == nil {
		return nil, &Refusal{Reason: TokenClaims, Message: "there is no tenant " + clip(tenant) + ", which the token names"}
	}
	name, ok := c.text(n.NameClaim)
	if !ok {
		return nil, &Refusal{Reason: TokenClaims, Message: "the token has no claim " + n.NameClaim + " that names its user"}
	}
	caller := &Caller{Policy: s.policy, Tenant: *t, Key: safeName(name), Limits: n.Limits, LimitsOf: "token:" + safeName(name), routes: n.Routes, models: n.Models}
	if n.ClassesClaim == "" {
		return caller, nil
	}
	var classes []string
	for _, text := range c.list(n.ClassesClaim) {
		for class := range strings.FieldsSeq(text) {
			if s.policy.HasClass(class) && t.May(class) && !slices.Contains(classes, class) {
				classes = append(classes, class)
			}
		}
	}
	if len(classes) == 0 {
		return nil, &Refusal{Reason: TokenClaims, Message: "the token's claim " + n.ClassesClaim + " names no class that the tenant may use"}
	}
	caller.Tenant.Classes = classes
	return caller, nil
}

// safeName is a name that others chose, in the form and length that logs and limits
// carry. What does not fit becomes an underscore, and the beginning of the name's
// SHA-256 keeps such names apart.
func safeName(name string) string {
	if nameForm.MatchString(name) {
		return name
	}
	const kept = 47
	b := []byte(name[:min(len(name), kept)])
	for i, c := range b {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || i > 0 && (c == '.' || c == '-')) {
			b[i] = '_'
		}
	}
	if b[0] == '_' {
		b[0] = 'x'
	}
	sum := sha256.Sum256([]byte(name))
	return string(b) + "-" + hex.EncodeToString(sum[:8])
}
