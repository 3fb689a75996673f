package identity

import (
	"slices"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
)

// Caller is who sends a request, and what it may do. It never changes.
type Caller struct {
	// Policy decides the class of the caller's requests.
	Policy *admission.Policy
	// Tenant is the caller's tenant, with the classes that its key leaves.
	Tenant admission.Tenant
	// Key names the key, the token's subject or the mesh identity; "" for keys
	// of the configuration, and for requests without a key.
	Key string
	// Limits are those of the key alone, beside those of the tenant.
	Limits budget.Limits
	// LimitsOf names the holder of Limits: Key, in such a form that a token's and a
	// certificate's never equal a key's.
	LimitsOf string

	routes, models []string
}

// MayRoute reports whether the caller may use a route.
func (c *Caller) MayRoute(route string) bool {
	return len(c.routes) == 0 || slices.Contains(c.routes, route)
}

// MayModel reports whether the caller may use a model.
func (c *Caller) MayModel(model string) bool {
	return len(c.models) == 0 || slices.Contains(c.models, model)
}

// Reason is why a request is nobody's. The list is closed.
type Reason uint8

// The reasons.
const (
	NoKey Reason = iota
	UnknownKey
	KeyDisabled
	KeyExpired
	KeyRevoked
	SeveralKeys
	BadToken        // no token that can be read, or a way of signing that is not taken
	TokenIssuer     // from an issuer that is not trusted, or for another audience
	TokenSignature  // not signed by its issuer
	TokenTime       // expired, or not valid yet
	TokenClaims     // names no tenant or class that it may use
	IssuerDown      // the issuer's keys were never fetched
	UnknownIdentity // a client certificate that is nobody's
	ReasonCount
)

var reasonNames = [ReasonCount]string{
	"no_key", "unknown_key", "key_disabled", "key_expired", "key_revoked", "several_keys",
	"bad_token", "token_issuer", "token_signature", "token_time", "token_claims", "issuer_down", "unknown_identity",
}

// String returns the reason's stable name.
func (r Reason) String() string { return reasonNames[r] }

// Refusal says why a request is nobody's. Message is for the client: it says more
// only to those who hold a secret.
type Refusal struct {
	Reason  Reason
	Message string
	// Caller is whose key it was, where the key is known and no longer good; for
	// records alone.
	Caller *Caller
}

func (r *Refusal) Error() string { return r.Message }
