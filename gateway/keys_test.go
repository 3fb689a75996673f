package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// keyedRig is a rig whose callers come from key files in a folder.
type keyedRig struct {
	*rig
	dir    string
	source *identity.Source
}

func newKeyedRig(t *testing.T, cfg identity.Config, c rigConfig) *keyedRig {
	t.Helper()
	k := &keyedRig{dir: t.TempDir()}
	cfg.Keys = k.dir
	if err := conf.Complete("identity", &cfg); err != nil {
		t.Fatal(err)
	}
	var err error
	if k.source, err = identity.Open(cfg, c.admission, slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
		t.Fatal(err)
	}
	c.identity = k.source.Directory()
	k.rig = newRig(t, c)
	return k
}

// add makes a key and returns it; load makes it hold.
func (k *keyedRig) add(d identity.Draft) string {
	k.t.Helper()
	key, _, err := identity.Add(k.dir, d, time.Now(), func(identity.Entry) error { return nil })
	if err != nil {
		k.t.Fatal(err)
	}
	return key
}

func (k *keyedRig) load() {
	k.source.Look()
	k.source.Look()
}

var acme = admission.Config{Tenants: []admission.Tenant{{Name: "acme"}}}

func TestKeysMayDoLessThanTheirTenant(t *testing.T) {
	r := newKeyedRig(t, identity.Config{}, rigConfig{admission: acme, fake: scripted(wiretest.Script{Pieces: []string{"a"}}), logged: true})
	all := "Bearer " + r.add(identity.Draft{Name: "all", Tenant: "acme"})
	lists := "Bearer " + r.add(identity.Draft{Name: "lists", Tenant: "acme", Routes: []string{"models"}})
	other := "Bearer " + r.add(identity.Draft{Name: "other", Tenant: "acme", Models: []string{"else"}})
	one := "Bearer " + r.add(identity.Draft{Name: "one", Tenant: "acme", Limits: []string{"requests_per_minute: 6"}})
	off := "Bearer " + r.add(identity.Draft{Name: "off", Tenant: "acme", Expires: time.Now().Add(-time.Second)})
	r.load()
	for _, c := range []struct {
		name, key, method, path string
		status                  int
		code, message           string
	}{
		{"all", all, "POST", "/v1/chat/completions", 200, "", ""},
		{"all, the model", all, "GET", "/v1/models/fake", 200, "", ""},
		{"a route", lists, "POST", "/v1/chat/completions", 403, "not_allowed", "route"},
		{"a route that it may use", lists, "GET", "/v1/models/fake", 200, "", ""},
		{"a model", other, "POST", "/v1/chat/completions", 403, "not_allowed", "model"},
		{"a model's page", other, "GET", "/v1/models/fake", 403, "not_allowed", "model"},
		{"its first", one, "POST", "/v1/chat/completions", 200, "", ""},
		{"its second", one, "POST", "/v1/chat/completions", 429, "rate_limit_exceeded", "requests_per_minute"},
		{"another after that", all, "POST", "/v1/chat/completions", 200, "", ""},
		{"expired", off, "POST", "/v1/chat/completions", 401, "invalid_api_key", "expired at"},
		{"no key, on an open route", "", "GET", "/version", 200, "", ""},
		{"no key", "", "GET", "/v1/models", 401, "invalid_api_key", "no API key"},
	} {
		body := ""
		if c.method == "POST" {
			body = chatBody("")
		}
		resp := r.do(c.method, c.path, body, "Authorization", c.key)
		code := ""
		if resp.status != 200 {
			code, _ = errorOf(t, resp.body)
		}
		if resp.status != c.status || code != c.code || !strings.Contains(resp.body, c.message) {
			t.Errorf("%s: %d %s", c.name, resp.status, resp.body)
		}
	}
	if list := r.do("GET", "/v1/models", "", "Authorization", other).body; !strings.Contains(list, `"data":[]`) {
		t.Errorf("a list of what it may use: %s", list)
	}
	r.settled()
	r.stop()
	if logs := r.logs.String(); !strings.Contains(logs, `"key":"all"`) || !strings.Contains(logs, `"key":"off"`) || !strings.Contains(logs, `"error":"not_allowed"`) || strings.Contains(logs, all[len("Bearer fbk_0123456789abcdef_"):]) {
		t.Errorf("the log: %s", logs)
	}
}

func TestTwoAuthorizationHeadersAreRefused(t *testing.T) {
	r := newKeyedRig(t, identity.Config{}, rigConfig{admission: acme, fake: scripted(wiretest.Script{})})
	key := r.add(identity.Draft{Name: "a", Tenant: "acme"})
	r.load()
	got := r.raw(rawPost("/v1/chat/completions", chatBody(""), "Authorization: Bearer "+key, "Authorization: Bearer other", "Connection: close"))
	if !strings.HasPrefix(got, "HTTP/1.1 401") || !strings.Contains(got, "more than one Authorization") {
		t.Error(got)
	}
}

// A key may come as x-api-key, on every route, and beside the same one in Authorization.
func TestAPIKeyHeader(t *testing.T) {
	r := newKeyedRig(t, identity.Config{}, rigConfig{admission: acme, fake: scripted(hello)})
	key := r.add(identity.Draft{Name: "a", Tenant: "acme"})
	r.load()
	for _, c := range []struct {
		headers []string
		status  int
	}{
		{[]string{"X-Api-Key", key}, 200}, {[]string{"x-api-key", " " + key + " "}, 200}, {[]string{"X-Api-Key", key, "Authorization", "Bearer " + key}, 200},
		{[]string{"X-Api-Key", key, "Authorization", "Basic eDp5"}, 200}, {[]string{"X-Api-Key", "fbk_no"}, 401}, {[]string{"X-Api-Key", "other", "Authorization", "Bearer " + key}, 401},
		{[]string{"X-Api-Key", ""}, 401},
	} {
		if got := r.do("POST", "/v1/chat/completions", chatBody(""), c.headers...); got.status != c.status {
			t.Errorf("%v: %d %s", c.headers, got.status, got.body)
		}
		if got := r.do("GET", "/v1/models", "", c.headers...); got.status != c.status {
			t.Errorf("models, %v: %d %s", c.headers, got.status, got.body)
		}
	}
}

// A certificate counts from a trusted peer alone; elsewhere it is ignored and counted.
func TestCertificatesCountFromTrustedPeersAlone(t *testing.T) {
	mesh := func(peer string) *keyedRig {
		return newKeyedRig(t, identity.Config{
			MeshPeers: []string{peer}, MeshIdentities: []identity.MeshIdentity{{Name: "web", URI: "spiffe://a/ns/shop/*", Tenant: "acme"}},
		}, rigConfig{admission: acme, fake: scripted(wiretest.Script{Pieces: []string{"a"}}), records: 16})
	}
	const header, good, bad = "X-Forwarded-Client-Cert", "By=spiffe://a/me;URI=spiffe://a/ns/shop/sa/web", "URI=spiffe://a/ns/other/sa/web"
	trusted, far := mesh("127.0.0.0/8"), mesh("10.0.0.0/8")
	for _, c := range []struct {
		name   string
		r      *keyedRig
		value  string
		status int
	}{{"trusted", trusted, good, 200}, {"unknown", trusted, bad, 401}, {"spoofed", far, good, 401}, {"a client's, and then the proxy's", trusted, good + "," + bad, 401}} {
		if resp := c.r.do("POST", "/v1/chat/completions", chatBody(""), header, c.value); resp.status != c.status {
			t.Errorf("%s: %d %s", c.name, resp.status, resp.body)
		}
	}
	// The second header is what the proxy appended.
	if got := trusted.raw(rawPost("/v1/chat/completions", chatBody(""), header+": "+good, header+": "+bad, "Connection: close")); !strings.HasPrefix(got, "HTTP/1.1 401") {
		t.Error(got)
	}
	if a, b := trusted.source.Counts(time.Now()).Ignored, far.source.Counts(time.Now()).Ignored; a != 0 || b != 1 {
		t.Errorf("ignored: %d and %d, want 0 and 1", a, b)
	}
	trusted.settled()
	if last := trusted.recorder.Last(16); last[len(last)-1].Key != "web" || last[len(last)-1].Tenant != "acme" {
		t.Errorf("%+v", last[len(last)-1])
	}
}

// reloads is how often the load test reloads.
const reloads, keysMade = 1000, 50

// TestReloadsUnderLoad changes which of 50 keys are good a thousand times while
// clients use them. Of each request the generations are known in which it may have
// been decided; its answer must be that of one of them: class and tenant too, which
// change together, so that a mix of two would show.
func TestReloadsUnderLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys.yaml")
	var keys, names []string
	for i := range keysMade {
		names = append(names, fmt.Sprintf("key-%d", i))
		key, _, err := identity.Add(path, identity.Draft{Name: names[i], Tenant: "even", Classes: []string{"interactive"}}, time.Now(), func(identity.Entry) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), "  - ")
	entries := strings.Split(rest, "  - ")
	// In generation n the key i is absent if n+i is divisible by 3. Odd generations
	// have another tenant, in another class.
	good := func(n, i int) bool { return (n+i)%3 != 0 }
	write := func(n int) {
		var b strings.Builder
		b.WriteString(head)
		for i, e := range entries {
			if !good(n, i) {
				continue
			}
			if n%2 == 1 {
				e = strings.Replace(strings.Replace(e, `"even"`, `"odd"`, 1), `"interactive"`, `"batch"`, 1)
			}
			b.WriteString("  - " + e)
		}
		os.WriteFile(path+".tmp", []byte(b.String()), 0o600)
		os.Rename(path+".tmp", path)
	}
	write(0)
	policy := admission.Config{Tenants: []admission.Tenant{{Name: "even", Classes: []string{"interactive"}}, {Name: "odd", Classes: []string{"batch"}}}}
	cfg := identity.Config{Keys: path}
	if err := conf.Complete("identity", &cfg); err != nil {
		t.Fatal(err)
	}
	source, err := identity.Open(cfg, policy, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigConfig{
		identity: source.Directory(), admission: policy, records: 16,
		fake: scripted(wiretest.Script{Pieces: []string{"a", "b", "c"}, Delay: 100 * time.Microsecond}),
	})
	var began, ended atomic.Int64 // the newest generation that may hold, and that surely holds
	var admitted, refused atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for worker := range 4 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				i := (worker + n*7) % keysMade
				first := ended.Load()
				resp, err := r.try("POST", "/v1/chat/completions", chatBody(`"stream":true`), "Authorization", "Bearer "+keys[i])
				last := began.Load()
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				tally(resp.status, &admitted, &refused)
				if !mayBe(resp, int(first), int(last), func(g int) bool { return good(g, i) }) {
					t.Errorf("key %d between generations %d and %d: %d, class %s, %s", i, first, last, resp.status, resp.header.Get("X-Forebay-Class"), resp.body)
					return
				}
			}
		})
	}
	for n := 1; n <= reloads; n++ {
		write(n)
		began.Store(int64(n))
		if err := source.Replace(cfg, policy); err != nil {
			t.Fatal(err)
		}
		ended.Store(int64(n))
	}
	close(stop)
	clients.Wait()
	if c := source.Counts(time.Now()); c.Generation != reloads+1 || c.NotTaken != 0 || admitted.Load() < 100 || refused.Load() < 50 {
		t.Errorf("%+v, %d admitted, %d refused", c, admitted.Load(), refused.Load())
	}
	t.Logf("%d requests admitted, %d refused", admitted.Load(), refused.Load())
	r.settled()
}

func tally(status int, admitted, refused *atomic.Int64) {
	if status == http.StatusOK {
		admitted.Add(1)
	} else {
		refused.Add(1)
	}
}

// mayBe reports whether an answer is what one of the generations gives.
func mayBe(resp response, first, last int, good func(generation int) bool) bool {
	for g := first; g <= last; g++ {
		class := []string{"interactive", "batch"}[g%2]
		switch {
		case !good(g) && resp.status == 401,
			good(g) && resp.status == 200 && resp.header.Get("X-Forebay-Class") == class && strings.HasSuffix(resp.body, "data: [DONE]\n\n"):
			return true
		}
	}
	return false
}

// A limit that is lowered holds for the next request, with what was used before.
func TestLimitsAreReloaded(t *testing.T) {
	r := newKeyedRig(t, identity.Config{}, rigConfig{admission: acme, fake: scripted(wiretest.Script{Pieces: []string{"a"}})})
	key := "Bearer " + r.add(identity.Draft{Name: "a", Tenant: "acme"})
	r.load()
	ask := func() int { return r.do("POST", "/v1/chat/completions", chatBody(""), "Authorization", key).status }
	before := ask()
	cfg := identity.Config{Keys: r.dir}
	if err := conf.Complete("identity", &cfg); err != nil {
		t.Fatal(err)
	}
	limited := admission.Config{Tenants: []admission.Tenant{{Name: "acme", Limits: budget.Limits{RequestsPerMinute: 6}}}}
	if err := r.source.Replace(cfg, limited); err != nil {
		t.Fatal(err)
	}
	if first, second := ask(), ask(); before != 200 || first != 200 || second != 429 {
		t.Errorf("without a limit %d, then %d and %d; want 200, 200, 429", before, first, second)
	}
	if err := r.source.Replace(cfg, acme); err != nil || ask() != 200 {
		t.Errorf("without the limit again: %v", err)
	}
}

// What runs when its key is revoked goes on to its end.
func TestRevokedKeysFinishWhatRuns(t *testing.T) {
	r := newKeyedRig(t, identity.Config{}, rigConfig{admission: acme, fake: scripted(wiretest.Script{Pieces: strings.Split(strings.Repeat("a", 50), ""), Delay: 20 * time.Millisecond})})
	key := r.add(identity.Draft{Name: "a", Tenant: "acme"})
	r.load()
	answer := make(chan response, 1)
	go func() {
		resp, err := r.try("POST", "/v1/chat/completions", chatBody(`"stream":true`), "Authorization", "Bearer "+key)
		if err != nil {
			t.Error(err)
		}
		answer <- resp
	}()
	if !eventually(5*time.Second, func() bool { return r.fake.Live() == 1 }) {
		t.Fatal("it does not run")
	}
	if _, err := identity.Revoke(r.dir, "a", time.Now()); err != nil {
		t.Fatal(err)
	}
	r.load()
	if resp := r.do("POST", "/v1/chat/completions", chatBody(""), "Authorization", "Bearer "+key); resp.status != 401 || !strings.Contains(resp.body, "revoked") {
		t.Errorf("after that: %d %s", resp.status, resp.body)
	}
	if resp := <-answer; resp.status != 200 || !strings.HasSuffix(resp.body, "data: [DONE]\n\n") {
		t.Errorf("what ran: %d %s", resp.status, resp.body)
	}
}
