package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// Config says where keys, issuers of tokens and mesh identities come from.
type Config struct {
	Keys         string        `yaml:"keys" help:"File of keys, or folder of such files, as forebay key writes them; empty is none."`
	PollInterval time.Duration `yaml:"poll_interval" default:"2s" range:"50ms..1h" help:"How often the key files, and files of issuers' keys, are looked at for changes."`
	KeysMax      int           `yaml:"keys_max" default:"10000" range:"1..1000000" help:"Most keys in all key files."`
	FileBytesMax int           `yaml:"file_bytes_max" default:"16777216" range:"1KiB..1GiB" help:"Largest key file, or all those of a folder together, in bytes."`

	Issuers         []Issuer      `yaml:"issuers" help:"Identity providers whose tokens (JWT) are taken as keys."`
	TokenLeeway     time.Duration `yaml:"token_leeway" default:"30s" range:"1s..10m" help:"How far the clocks of an issuer and of this machine may differ."`
	TokenBytesMax   int           `yaml:"token_bytes_max" default:"8192" range:"256..1MiB" help:"Longest token, in bytes."`
	RefreshInterval time.Duration `yaml:"refresh_interval" default:"15m" range:"1m..24h" help:"How often the keys of an issuer are fetched from its URL."`
	FetchLimit      time.Duration `yaml:"fetch_limit" default:"5s" range:"100ms..1m" help:"Longest time that a fetch of an issuer's keys may take."`
	JWKSBytesMax    int           `yaml:"jwks_bytes_max" default:"262144" range:"1KiB..16MiB" help:"Largest set of an issuer's keys, in bytes."`

	MeshPeers      []string       `yaml:"mesh_peers" help:"Addresses, such as 127.0.0.6 or 10.0.0.0/8, of proxies whose header x-forwarded-client-cert is believed, or unix for those who may connect to listen_socket, or tls for certificates that gateway.tls.client_ca verified; anybody who can connect from them can be any mesh identity."`
	MeshIdentities []MeshIdentity `yaml:"mesh_identities" help:"Client certificates that mesh_peers may present, the first that fits counts."`
}

// Rights are what a key may do, below what its tenant may; none listed allows all.
type Rights struct {
	Classes, Routes, Models []string
}

// Issuer is an identity provider.
type Issuer struct {
	Issuer       string        `yaml:"issuer" help:"What the claim iss of its tokens says, exactly."`
	JWKS         string        `yaml:"jwks" help:"Its public keys (JWKS): an https URL, or a file."`
	Audiences    []string      `yaml:"audiences" help:"The claim aud of a token must have one of these."`
	Tenant       string        `yaml:"tenant" help:"Tenant of all its tokens; empty reads it from tenant_claim."`
	TenantClaim  string        `yaml:"tenant_claim" default:"tenant" help:"Claim with the name of the tenant; dots lead into objects."`
	Tenants      []string      `yaml:"tenants" help:"Tenants that its tokens may name; none listed allows all."`
	NameClaim    string        `yaml:"name_claim" default:"sub" help:"Claim that names the key in logs and limits."`
	ClassesClaim string        `yaml:"classes_claim" help:"Claim with the classes that the token may use, as a list or separated by spaces; empty gives the tenant's."`
	Routes       []string      `yaml:"routes" help:"Routes that its tokens may use, of chat_completions, completions, responses, messages, embeddings, rerank and models; none listed allows all."`
	Models       []string      `yaml:"models" help:"Models that its tokens may use; none listed allows all."`
	Limits       budget.Limits `yaml:"limits" help:"Budgets of each name, beside those of the tenant."`
}

// MeshIdentity gives a client certificate a tenant.
type MeshIdentity struct {
	Name    string        `yaml:"name" help:"Name in logs and limits, in place of a key's."`
	URI     string        `yaml:"uri" help:"URI in the client's certificate, such as spiffe://cluster.local/ns/shop/sa/web; a * at its end stands for any rest."`
	Tenant  string        `yaml:"tenant" help:"Its tenant."`
	Classes []string      `yaml:"classes" help:"Classes that it may use; none listed gives the tenant's."`
	Routes  []string      `yaml:"routes" help:"Routes that it may use, of chat_completions, completions, responses, messages, embeddings, rerank and models; none listed allows all."`
	Models  []string      `yaml:"models" help:"Models that it may use; none listed allows all."`
	Limits  budget.Limits `yaml:"limits" help:"Its budgets, beside those of the tenant."`
}

// On reports whether anything but admission.tenants says who somebody is.
func (c *Config) On() bool {
	return c.Keys != "" || len(c.Issuers) > 0 || len(c.MeshIdentities) > 0
}

// routeNames are the routes that rights may name.
var routeNames = []string{"chat_completions", "completions", "embeddings", "messages", "models", "rerank", "responses"}

// Mistakes checks what no tag can say and what needs no tenants.
func (c *Config) Mistakes() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i := range c.Issuers {
		n := &c.Issuers[i]
		at := fmt.Sprintf("issuers[%d]", i)
		if err := checkLocation(n.JWKS); err != nil {
			fail("%s.jwks: %w", at, err)
		}
		if len(n.Audiences) == 0 {
			fail("%s.audiences: list what aud must say, or tokens for other services would be taken", at)
		}
		if err := checkRoutes(n.Routes); err != nil {
			fail("%s.routes: %w", at, err)
		}
	}
	for i, text := range c.MeshPeers {
		if _, err := parsePeers(text); err != nil && text != socketPeer && text != ownPeer {
			fail("mesh_peers[%d]: %q is not an address such as 127.0.0.6 or 10.0.0.0/8, nor unix or tls", i, text)
		}
	}
	if len(c.MeshIdentities) > 0 && len(c.MeshPeers) == 0 {
		fail("mesh_identities: needs mesh_peers, the proxies that are believed")
	}
	for i := range c.MeshIdentities {
		m := &c.MeshIdentities[i]
		at := fmt.Sprintf("mesh_identities[%d]", i)
		if !nameForm.MatchString(m.Name) {
			fail("%s.name: %w", at, badName(m.Name))
		}
		if m.URI == "" || strings.Contains(strings.TrimSuffix(m.URI, "*"), "*") {
			fail("%s.uri: %q is not a URI with at most one *, at its end", at, m.URI)
		}
		if err := checkRoutes(m.Routes); err != nil {
			fail("%s.routes: %w", at, err)
		}
	}
	return errors.Join(errs...)
}

// checkLocation refuses a place of an issuer's keys that others could change on
// their way here.
func checkLocation(text string) error {
	if text == "" {
		return errors.New("is missing: give the URL or the file of the issuer's keys")
	}
	if !isURL(text) {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%q is not a URL", text)
	}
	if host, err := netip.ParseAddr(u.Hostname()); u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && host.IsLoopback() {
		return nil
	}
	return errors.New("must be an https URL: over http anybody on the way could give keys of their own")
}

func isURL(text string) bool { return strings.Contains(text, "://") }

func checkRoutes(routes []string) error {
	for _, route := range routes {
		if !slices.Contains(routeNames, route) {
			return fmt.Errorf("there is no route %q; there are %s", route, strings.Join(routeNames, ", "))
		}
	}
	return nil
}

// parsePeers reads one address or a range of addresses.
func parsePeers(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err
}
