package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
)

// signer is an identity provider of the tests, with a key of each kind.
type signer struct {
	rsa     *rsa.PrivateKey
	ecdsa   *ecdsa.PrivateKey
	ed25519 ed25519.PrivateKey
}

func newSigner(t testing.TB) *signer {
	t.Helper()
	r, err1 := rsa.GenerateKey(rand.Reader, 2048)
	e, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, d, err3 := ed25519.GenerateKey(rand.Reader)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	return &signer{r, e, d}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwks is the signer's public keys, with ids that begin with prefix.
func (s *signer) jwks(prefix string) string {
	point, _ := s.ecdsa.PublicKey.Bytes()
	return fmt.Sprintf(`{"keys":[
		{"kty":"RSA","kid":"%[1]sr","use":"sig","alg":"RS256","n":"%[2]s","e":"AQAB"},
		{"kty":"EC","kid":"%[1]se","crv":"P-256","x":"%[3]s","y":"%[4]s"},
		{"kty":"OKP","kid":"%[1]sd","crv":"Ed25519","x":"%[5]s"},
		{"kty":"oct","kid":"%[1]so","k":"c2VjcmV0"},{"kty":"RSA","kid":"enc","use":"enc","n":"AQAB","e":"AQAB"}]}`,
		prefix, b64(s.rsa.N.Bytes()), b64(point[1:33]), b64(point[33:]), b64(s.ed25519.Public().(ed25519.PublicKey)))
}

// sign makes a token. An alg that no key is for is signed by nothing.
func (s *signer) sign(alg, kid string, claims map[string]any) string {
	head, _ := json.Marshal(map[string]any{"alg": alg, "kid": kid, "typ": "JWT"})
	body, _ := json.Marshal(claims)
	text := b64(head) + "." + b64(body)
	sum := sha256.Sum256([]byte(text))
	var signature []byte
	switch alg {
	case "RS256":
		signature, _ = rsa.SignPKCS1v15(rand.Reader, s.rsa, crypto.SHA256, sum[:])
	case "ES256":
		r, v, _ := ecdsa.Sign(rand.Reader, s.ecdsa, sum[:])
		signature = append(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))...)
	case "EdDSA":
		signature = ed25519.Sign(s.ed25519, []byte(text))
	case "HS256": // with the public key as the secret, the old confusion
		mac := hmac.New(sha256.New, s.rsa.N.Bytes())
		mac.Write([]byte(text))
		signature = mac.Sum(nil)
	}
	return text + "." + b64(signature)
}

// claimsOf are good claims at noon, with changes; nil removes one.
func claimsOf(changes map[string]any) map[string]any {
	c := map[string]any{"iss": "https://idp", "aud": "forebay", "exp": noon.Add(time.Minute).Unix(), "sub": "svc", "org": map[string]any{"tenant": "acme"}, "scope": "openid batch"}
	for name, value := range changes {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

func issuerAt(place string) Config {
	return Config{Issuers: []Issuer{{
		Issuer: "https://idp", JWKS: place, Audiences: []string{"other", "forebay"}, TenantClaim: "org.tenant", Tenants: []string{"acme", "gone"}, ClassesClaim: "scope",
	}}}
}

var threeTenants = admission.Config{Tenants: append([]admission.Tenant{{Name: "gone"}}, twoTenants.Tenants...)}

func TestTokens(t *testing.T) {
	s, stranger := newSigner(t), newSigner(t)
	path := filepath.Join(t.TempDir(), "jwks.json")
	os.WriteFile(path, []byte(s.jwks("")), 0o600)
	d := opened(t, issuerAt(path), threeTenants).Directory()
	good := s.sign("ES256", "e", claimsOf(nil))
	parts := strings.Split(good, ".")
	at := func(seconds int64) map[string]any { return claimsOf(map[string]any{"exp": noon.Unix() + seconds}) }
	with := func(name string, value any) string {
		return s.sign("EdDSA", "d", claimsOf(map[string]any{name: value}))
	}
	for name, c := range map[string]struct{ token, want string }{
		"RS256":                       {s.sign("RS256", "r", claimsOf(nil)), "acme/svc"},
		"ES256":                       {good, "acme/svc"},
		"EdDSA":                       {s.sign("EdDSA", "d", claimsOf(nil)), "acme/svc"},
		"no kid, one key of its kind": {s.sign("ES256", "", claimsOf(nil)), "acme/svc"},
		"several audiences":           {with("aud", []string{"x", "forebay"}), "acme/svc"},
		"none":                        {s.sign("none", "r", claimsOf(nil)), "bad_token"},
		"None":                        {s.sign("None", "", claimsOf(nil)), "bad_token"},
		"HS256 with the public key":   {s.sign("HS256", "r", claimsOf(nil)), "bad_token"},
		"HS256 with the oct key":      {s.sign("HS256", "o", claimsOf(nil)), "bad_token"},
		"RS256 by a key for ES256":    {s.sign("RS256", "e", claimsOf(nil)), "token_signature"},
		"ES256 by a key for RS256":    {s.sign("ES256", "r", claimsOf(nil)), "token_signature"},
		"another's key":               {stranger.sign("ES256", "e", claimsOf(nil)), "token_signature"},
		"an unknown kid":              {s.sign("ES256", "x", claimsOf(nil)), "token_signature"},
		"no signature":                {parts[0] + "." + parts[1] + ".", "token_signature"},
		"claims of another token":     {parts[0] + "." + strings.Split(with("sub", "admin"), ".")[1] + "." + parts[2], "token_signature"},
		"a longer signature":          {good + "AAAA", "token_signature"},
		"padding":                     {good + "=", "bad_token"},
		"expired, within the leeway":  {s.sign("ES256", "e", at(-29)), "acme/svc"},
		"expired by the leeway":       {s.sign("ES256", "e", at(-30)), "token_time"},
		"no exp":                      {with("exp", nil), "token_time"},
		"exp as text":                 {with("exp", "soon"), "token_time"},
		"exp of another case":         {s.sign("ES256", "e", claimsOf(map[string]any{"exp": nil, "EXP": noon.Add(time.Hour).Unix()})), "token_time"},
		"nbf, within the leeway":      {with("nbf", noon.Unix()+30), "acme/svc"},
		"nbf after the leeway":        {with("nbf", noon.Unix()+31), "token_time"},
		"iat in the future":           {with("iat", noon.Unix()+3600), "token_time"},
		"a large exp":                 {with("exp", 1e300), "token_time"},
		"another issuer":              {with("iss", "https://evil"), "token_issuer"},
		"another audience":            {with("aud", "billing"), "token_issuer"},
		"no audience":                 {with("aud", nil), "token_issuer"},
		"no tenant":                   {with("org", nil), "token_claims"},
		"a tenant of others":          {with("org", map[string]any{"tenant": "night"}), "token_claims"},
		"no name":                     {with("sub", nil), "token_claims"},
		"a name that is a number":     {with("sub", 7), "token_claims"},
		"no class that it may use":    {with("scope", "openid gold"), "token_claims"},
		"classes as a list":           {with("scope", []string{"batch"}), "acme/svc"},
		"a name for logs":             {with("sub", "auth0|Müller\n"), "acme/auth0_M__ller_-b590b13e7842972a"},
		"not JSON":                    {b64([]byte("x")) + ".e30.", "bad_token"},
		"null":                        {b64([]byte("null")) + ".bnVsbA.", "bad_token"},
		"too long":                    {with("sub", strings.Repeat("x", 9000)), "bad_token"},
		"critical extensions":         {b64([]byte(`{"alg":"ES256","crit":["b64"],"b64":false}`)) + ".e30.AA", "bad_token"},
		"four parts":                  {good + ".x", "unknown_key"},
	} {
		got := strings.TrimPrefix(whoIs(d, bearer(c.token), noon), "refused: ")
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	p := bearer(good)
	if c, _ := d.Identify(&p, noon); len(c.Tenant.Classes) != 1 || c.Tenant.Classes[0] != "batch" || c.LimitsOf != "token:svc" {
		t.Errorf("%+v", c)
	}
	p = bearer(s.sign("ES256", "e", at(-60)))
	if _, why := d.Identify(&p, noon); why == nil || !strings.Contains(why.Message, "expired at 2026-05-01T11:59:00Z") {
		t.Errorf("what an expired token is told: %v", why)
	}
	p = bearer(stranger.sign("ES256", "e", claimsOf(map[string]any{"org": map[string]any{"tenant": "night"}})))
	if _, why := d.Identify(&p, noon); why == nil || strings.Contains(why.Message, "night") || strings.Contains(why.Message, "acme") {
		t.Errorf("a token that nobody signed is told: %v", why)
	}
}

func TestKeySetsOfIssuers(t *testing.T) {
	s := newSigner(t)
	small, _ := rsa.GenerateKey(rand.Reader, 1024)
	for want, body := range map[string]string{
		"":                         s.jwks("a"),
		"is not a JSON Web Key":    "<html>",
		"has no key for RS256":     `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`,
		"1024 bits":                `{"keys":[{"kty":"RSA","e":"AQAB","n":"` + b64(small.N.Bytes()) + `"}]}`,
		"exponent":                 `{"keys":[{"kty":"RSA","e":"AQ","n":"` + b64(s.rsa.N.Bytes()) + `"}]}`,
		"no point of P-256":        `{"keys":[{"kty":"EC","crv":"P-256","x":"` + b64(make([]byte, 32)) + `","y":"` + b64(big.NewInt(5).FillBytes(make([]byte, 32))) + `"}]}`,
		"not 32 bytes":             `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`,
		"at most 64 are taken":     `{"keys":[` + strings.TrimSuffix(strings.Repeat("{},", 65), ",") + `]}`,
		"number that is not base6": `{"keys":[{"kty":"RSA","e":"AQAB","n":"!"}]}`,
	} {
		set, err := parseJWKS([]byte(body))
		if want == "" && (err != nil || len(set.keys) != 3) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// idp serves a key set that tests change.
type idp struct {
	*httptest.Server
	body  atomic.Pointer[string] // nil fails
	asked atomic.Int64
}

func newIDP(t *testing.T) *idp {
	i := &idp{}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		if body := i.body.Load(); body != nil {
			fmt.Fprint(w, *body)
			return
		}
		http.Error(w, "down", http.StatusBadGateway)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *idp) serves(body string) { i.body.Store(&body) }

// An issuer that is down at the start gives 503 and not 401; a new kid is fetched
// once a minute at most, and the request that names it waits for that.
func TestKeysOfAnIssuerAreFetched(t *testing.T) {
	s, i := newSigner(t), newIDP(t)
	source := opened(t, issuerAt(i.URL), threeTenants)
	d := source.Directory()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); source.Run(ctx) }()
	defer func() { stop(); <-ran }()
	token := func(kid string) Presented { return bearer(s.sign("ES256", kid, claimsOf(nil))) }
	if got := whoIs(d, token("1e"), noon); got != "refused: issuer_down" {
		t.Errorf("while it is down: %s", got)
	}
	i.serves(s.jwks("1"))
	for end := time.Now().Add(10 * time.Second); whoIs(d, token("1e"), noon) != "acme/svc"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its keys were never fetched again")
		}
	}
	set := source.sets[i.URL]
	forget := func() { // as if a minute had passed
		set.mu.Lock()
		defer set.mu.Unlock()
		set.asked = time.Time{}
	}
	forget()
	i.serves(s.jwks("2"))
	if got := whoIs(d, token("2e"), noon); got != "acme/svc" {
		t.Errorf("a new kid: %s", got)
	}
	asked := i.asked.Load()
	for n := range 100 {
		if got := whoIs(d, token(fmt.Sprint("x", n)), noon); got != "refused: token_signature" {
			t.Fatal(got)
		}
	}
	if got := i.asked.Load(); got != asked {
		t.Errorf("%d fetches for unknown kids within a minute, want none", got-asked)
	}
	i.body.Store(nil)
	forget()
	if got := whoIs(d, token("y"), noon) + " " + whoIs(d, token("2e"), noon); got != "refused: token_signature acme/svc" {
		t.Errorf("after a fetch that failed: %s", got)
	}
	if c := source.Counts(noon).Issuers; len(c) != 1 || c[0].Failed < 2 || c[0].Fetched < 2 || c[0].LastFetched.IsZero() {
		t.Errorf("%+v", c)
	}
}

func TestIssuersBodyIsBounded(t *testing.T) {
	i := newIDP(t)
	i.serves(`{"keys":[` + strings.Repeat(" ", 5000) + "]}")
	cfg := issuerAt(i.URL)
	cfg.JWKSBytesMax = 4096
	set := newKeySet(i.URL, &Config{FetchLimit: time.Second, JWKSBytesMax: 4096}, quietLog)
	if err := set.refresh(noon); err == nil || !strings.Contains(err.Error(), "identity.jwks_bytes_max") {
		t.Error(err)
	}
}

// A file of keys that changes is taken, and one that is broken is not.
func TestIssuersFileIsWatched(t *testing.T) {
	s := newSigner(t)
	path := filepath.Join(t.TempDir(), "jwks.json")
	os.WriteFile(path, []byte(s.jwks("1")), 0o600)
	source := opened(t, issuerAt(path), threeTenants)
	for _, c := range []struct{ body, want string }{{s.jwks("2"), "refused: token_signature acme/svc"}, {"{", "refused: token_signature acme/svc"}, {s.jwks("1"), "acme/svc refused: token_signature"}} {
		os.WriteFile(path+".tmp", []byte(c.body), 0o600)
		os.Rename(path+".tmp", path)
		source.Look()
		source.Look()
		got := whoIs(source.Directory(), bearer(s.sign("RS256", "1r", claimsOf(nil))), noon) + " " + whoIs(source.Directory(), bearer(s.sign("RS256", "2r", claimsOf(nil))), noon)
		if got != c.want {
			t.Errorf("%.20s: %s, want %s", c.body, got, c.want)
		}
	}
}

func TestIdentitySettingsMistakes(t *testing.T) {
	for want, c := range map[string]Config{
		"issuers[0].jwks: must be an https URL":              {Issuers: []Issuer{{Issuer: "a", JWKS: "http://idp.example/keys", Audiences: []string{"x"}}}},
		"issuers[0].jwks: is missing":                        {Issuers: []Issuer{{Issuer: "a", Audiences: []string{"x"}}}},
		"issuers[0].audiences: list what aud must say":       {Issuers: []Issuer{{Issuer: "a", JWKS: "f"}}},
		`mesh_peers[0]: "envoy" is not an address`:           {MeshPeers: []string{"envoy"}},
		"mesh_identities: needs mesh_peers":                  {MeshIdentities: []MeshIdentity{{Name: "a", URI: "b", Tenant: "acme"}}},
		`mesh_identities[0].uri: "a*b" is not a URI with at`: {MeshPeers: []string{"::1"}, MeshIdentities: []MeshIdentity{{Name: "a", URI: "a*b", Tenant: "acme"}}},
		`mesh_identities[0].name: "a b" is not a name`:       {MeshPeers: []string{"::1"}, MeshIdentities: []MeshIdentity{{Name: "a b", URI: "a", Tenant: "acme"}}},
	} {
		if err := c.Mistakes(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	cfg := issuerAt(filepath.Join(t.TempDir(), "none"))
	if _, err := Open(complete(t, cfg), twoTenants, quietLog); err == nil || !strings.Contains(err.Error(), `identity.issuers[0].tenants: there is no tenant "gone"`) || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

func FuzzToken(f *testing.F) {
	s := newSigner(f)
	good := s.sign("ES256", "e", claimsOf(nil))
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add("a.b.c")
	path := filepath.Join(f.TempDir(), "jwks.json")
	os.WriteFile(path, []byte(s.jwks("")), 0o600)
	d := opened(f, issuerAt(path), threeTenants).Directory()
	f.Fuzz(func(t *testing.T, text string) {
		if got := whoIs(d, bearer(text), noon); !strings.HasPrefix(got, "refused: ") && text != good && !strings.HasPrefix(text, good[:strings.LastIndexByte(good, '.')]) {
			t.Errorf("%q is %s", text, got)
		}
		if set, err := parseJWKS([]byte(text)); err == nil && len(set.keys) == 0 {
			t.Error("a set without keys")
		}
	})
}
