package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func policyOf(t *testing.T, c Config) *Policy {
	t.Helper()
	p, err := NewPolicy(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestKeysNameTenants(t *testing.T) {
	digest := sha256.Sum256([]byte("hashed"))
	p := policyOf(t, Config{Tenants: []Tenant{
		{Name: "plain", Keys: []string{"one", "two"}}, {Name: "hashed", Keys: []string{"sha256:" + hex.EncodeToString(digest[:])}},
	}})
	for key, want := range map[string]string{"one": "plain", "two": "plain", "hashed": "hashed", "": "", "One": "", "three": "", "*": "", "sha256:" + hex.EncodeToString(digest[:]): ""} {
		name := ""
		if tenant := p.Tenant([]byte(key)); tenant != nil {
			name = tenant.Name
		}
		if name != want {
			t.Errorf("the key %q names %q, want %q", key, name, want)
		}
	}
	open := policyOf(t, Config{Tenants: []Tenant{{Name: "known", Keys: []string{"one"}}, {Name: "guests", Keys: []string{"*"}}}})
	if open.Tenant([]byte("one")).Name != "known" || open.Tenant(nil).Name != "guests" || open.Tenant([]byte("other")).Name != "guests" {
		t.Error("the tenant of * is not everybody else's")
	}
	none := policyOf(t, Config{})
	if none.Tenant(nil).Name != TenantDefault || none.Tenant([]byte("x")).Name != TenantDefault {
		t.Error("without tenants there is more than one")
	}
}

// TestClassOfARequest: who says it, in order, and what a tenant may not raise.
func TestClassOfARequest(t *testing.T) {
	p := policyOf(t, Config{
		Classes:      []Class{{Name: "gold"}, {Name: "night", Level: "offline"}},
		Routes:       []RouteClass{{Route: "completions", Class: "batch"}},
		DefaultClass: "gold",
		Tenants:      []Tenant{{Name: "low", Keys: []string{"l"}, Classes: []string{"batch", "night"}}, {Name: "any", Keys: []string{"*"}}},
	})
	for _, c := range []struct {
		key, name, tier, route, want string
	}{
		{"", "", "", "chat_completions", "gold"},
		{"", "", "auto", "chat_completions", "gold"},
		{"", "", "", "completions", "batch"},
		{"", "", "priority", "completions", "interactive"},
		{"", "", "flex", "chat_completions", "batch"},
		{"", "night", "priority", "completions", "night"},
		{"l", "", "", "chat_completions", "batch"}, // its first, before the default
		{"l", "night", "", "chat_completions", "night"},
		{"l", "interactive", "", "chat_completions", "batch"}, // forged
		{"l", "gold", "priority", "completions", "batch"},
		{"l", "", "priority", "chat_completions", "batch"},
	} {
		got, err := p.Class(p.Tenant([]byte(c.key)), Wish{c.name, c.tier, c.route})
		if err != nil || got.Name != c.want {
			t.Errorf("%+v: got %v, %v", c, got, err)
		}
	}
	if _, err := p.Class(p.Tenant(nil), Wish{Name: "silver"}); err == nil || !strings.HasSuffix(err.Error(), "there are interactive, gold, batch, offline, night") {
		t.Errorf("an unknown class: %v", err)
	}
}

func TestOversizedPrompts(t *testing.T) {
	p := policyOf(t, Config{
		Classes: []Class{
			{Name: "interactive", PromptTokensMax: 100, Oversized: "demote"}, {Name: "strict", PromptTokensMax: 100}, {Name: "lax", PromptTokensMax: 100, Oversized: "allow"},
			{Name: "offline", PromptTokensMax: 1000, Oversized: "demote"},
		},
		Tenants: []Tenant{{Name: "all", Keys: []string{"a"}}, {Name: "few", Keys: []string{"f"}, Classes: []string{"interactive"}}},
	})
	for _, c := range []struct {
		key, class string
		tokens     int
		want       string // "" is refused
	}{
		{"a", "interactive", 100, "interactive"}, {"a", "interactive", 101, "offline"}, {"a", "interactive", 1001, ""}, {"f", "interactive", 101, ""},
		{"a", "strict", 101, ""}, {"a", "lax", 101, "lax"}, {"a", "batch", 1 << 30, "batch"}, {"a", "offline", 1001, ""},
	} {
		got, err := p.Fit(p.Tenant([]byte(c.key)), p.classes[c.class], c.tokens)
		var refusal *Refusal
		switch {
		case c.want == "" && (!errors.As(err, &refusal) || refusal.Reason != TooLarge || !strings.Contains(refusal.Message, fmt.Sprint(c.tokens))):
			t.Errorf("%+v: %v", c, err)
		case c.want != "" && (err != nil || got.Name != c.want):
			t.Errorf("%+v: got %v, %v", c, got, err)
		}
	}
}

func TestPolicyMistakes(t *testing.T) {
	for want, c := range map[string]Config{
		`default_class: there is no class "x"; there are interactive, batch, offline`:                                   {DefaultClass: "x"},
		`routes[0].class: there is no class "x"; there are interactive, batch, offline`:                                 {Routes: []RouteClass{{"completions", "x"}}},
		`tenants[0].classes: there is no class "x"; there are interactive, batch, offline`:                              {Tenants: []Tenant{{Name: "a", Keys: []string{"k"}, Classes: []string{"x"}}}},
		`tenants[0].name: "a b" is not a name of 1 to 64 letters, digits, dots, dashes and underscores`:                 {Tenants: []Tenant{{Name: "a b", Keys: []string{"k"}}}},
		`classes[0].name: "ä" is not a name of 1 to 64 letters, digits, dots, dashes and underscores`:                   {Classes: []Class{{Name: "ä"}}},
		"tenants[1].keys: key 1 is a key of a already":                                                                  {Tenants: []Tenant{{Name: "a", Keys: []string{"hush"}}, {Name: "b", Keys: []string{"x", "hush"}}}},
		"tenants[1].keys: * is the key of a already":                                                                    {Tenants: []Tenant{{Name: "a", Keys: []string{"*"}}, {Name: "b", Keys: []string{"*"}}}},
		"tenants[0].keys: key 0 is not sha256: and 64 hexadecimal digits":                                               {Tenants: []Tenant{{Name: "a", Keys: []string{"sha256:hush"}}}},
		"tenants[0].keys: key 0 is the mark that config print shows in place of one":                                    {Tenants: []Tenant{{Name: "a", Keys: []string{"…"}}}},
		"tenants[0].keys: key 1 is not sha256: and 64 hexadecimal digits\ntenants[0].keys: key 2 is a key of a already": {Tenants: []Tenant{{Name: "a", Keys: []string{"k", "sha256:" + strings.Repeat("0", 66), "k"}}}},
	} {
		if err := c.Mistakes(); (c.DefaultClass == "" || c.DefaultClass == "x") && fmt.Sprint(err) != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// Weights that change while requests wait hold from the next turn on.
func TestTenantsChangeWhileTheyWait(t *testing.T) {
	weights := func(a float64) []Tenant { return []Tenant{{Name: "a", Weight: a}, {Name: "b", Weight: 1}} }
	p := newPipe(t, Config{Tenants: weights(1)})
	for range 200 {
		p.ask("a", "batch", 100)
		p.ask("b", "batch", 100)
	}
	served := func(from int) (a, b int) {
		for _, e := range p.ended[from:] {
			if e.demand.Tenant == "a" {
				a++
			} else {
				b++
			}
		}
		return a, b
	}
	p.runUntil(6 * time.Second)
	if a, b := served(0); a+b < 50 || max(a, b)-min(a, b) > 6 {
		t.Errorf("with equal weights: %d and %d", a, b)
	}
	p.SetTenants(weights(3))
	p.runUntil(8 * time.Second) // turns that had begun
	half := len(p.ended)
	p.runUntil(20 * time.Second)
	if a, b := served(half); a+b < 50 || float64(a)/float64(b) < 2.5 || float64(a)/float64(b) > 3.5 {
		t.Errorf("with three times the weight: %d and %d", a, b)
	}
	p.SetTenants(weights(1)[1:])
	if v := p.tenants["a"]; v.configured || v.weight != 1 {
		t.Errorf("a tenant that is not listed any more: %+v", v)
	}
}
