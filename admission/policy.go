package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Policy says which tenant an API key names, and in which class its request goes.
// It never changes.
type Policy struct {
	classes  map[string]*Class
	names    []string // of the classes, from the first level to the last
	tenants  map[[sha256.Size]byte]*Tenant
	list     []*Tenant // all of them, in the order of the configuration
	anyone   *Tenant   // of requests without a key, or with an unknown one; nil refuses them
	routes   map[string]string
	fallback string
	parts    []PartLimits
	listed   bool
}

// TenantDefault is the one tenant where none is configured.
const TenantDefault = "default"

// anyKey in a tenant's keys stands for every key that names no tenant, and for none.
const anyKey = "*"

// hashedKey begins a key that is given as its SHA-256 in hexadecimal.
const hashedKey = "sha256:"

// Mistakes lists every mistake in classes, routes and tenants.
func (c *Config) Mistakes() error {
	_, err := NewPolicy(*c)
	return err
}

// nameForm is the form of names of classes and tenants, since logs, metrics,
// headers and paths carry them.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// NewPolicy makes the policy of a completed Config. The error lists every mistake,
// one a line, each beginning with its key; no line shows an API key.
func NewPolicy(c Config) (*Policy, error) {
	table, err := c.ClassTable()
	errs := []error{err}
	p := &Policy{classes: map[string]*Class{}, tenants: map[[sha256.Size]byte]*Tenant{}, routes: map[string]string{}, fallback: c.DefaultClass, parts: c.PartLimits}
	for i := range table {
		p.classes[table[i].Name] = &table[i]
		p.names = append(p.names, table[i].Name)
	}
	known := func(key, class string) {
		if p.classes[class] == nil {
			errs = append(errs, fmt.Errorf("%s: there is no class %q; there are %s", key, class, strings.Join(p.names, ", ")))
		}
	}
	for i := range c.Classes {
		if !nameForm.MatchString(c.Classes[i].Name) {
			errs = append(errs, badName(fmt.Sprintf("classes[%d].name", i), c.Classes[i].Name))
		}
	}
	if p.fallback == "" {
		p.fallback = levelNames[levelInteractive]
	}
	known("default_class", p.fallback)
	for i, r := range c.Routes {
		known(fmt.Sprintf("routes[%d].class", i), r.Class)
		p.routes[r.Route] = r.Class
	}
	for i := range c.Tenants {
		t := c.Tenants[i]
		key := fmt.Sprintf("tenants[%d]", i)
		if t.PrefixGroup != "" && !nameForm.MatchString(t.PrefixGroup) {
			errs = append(errs, badName(key+".prefix_group", t.PrefixGroup))
		}
		if !nameForm.MatchString(t.Name) {
			errs = append(errs, badName(key+".name", t.Name))
		}
		for _, class := range t.Classes {
			known(key+".classes", class)
		}
		p.list = append(p.list, &t)
		errs = append(errs, p.addKeys(key+".keys", &t)...)
	}
	for i, part := range c.PartLimits {
		key := fmt.Sprintf("part_limits[%d]", i)
		if part.Class != "" {
			known(key+".class", part.Class)
		}
		if part.Tenant != "" && len(c.Tenants) > 0 && !slices.ContainsFunc(c.Tenants, func(t Tenant) bool { return t.Name == part.Tenant }) {
			errs = append(errs, fmt.Errorf("%s.tenant: there is no tenant %q", key, part.Tenant))
		}
		if !nameForm.MatchString(part.Name) {
			errs = append(errs, badName(key+".name", part.Name))
		}
	}
	if len(c.Tenants) == 0 {
		p.anyone = &Tenant{Name: TenantDefault, Weight: 1, PinnedTokensMax: math.MaxInt32} // the engine bounds its pins
		p.list = []*Tenant{p.anyone}
	}
	p.listed = len(c.Tenants) > 0
	return p, errors.Join(errs...)
}

func badName(key, name string) error {
	return fmt.Errorf("%s: %q is not a name of 1 to 64 letters, digits, dots, dashes and underscores", key, name)
}

// addKeys makes t's keys name it.
func (p *Policy) addKeys(key string, t *Tenant) (errs []error) {
	for i, text := range t.Keys {
		digest := sha256.Sum256([]byte(text))
		hexed, hashed := strings.CutPrefix(text, hashedKey)
		switch {
		case text == anyKey && p.anyone != nil:
			errs = append(errs, fmt.Errorf("%s: * is the key of %s already", key, p.anyone.Name))
			continue
		case text == anyKey:
			p.anyone = t
			continue
		case text == "…":
			errs = append(errs, fmt.Errorf("%s: key %d is the mark that config print shows in place of one", key, i))
			continue
		case hashed:
			if n, err := hex.Decode(digest[:], []byte(clipHex(hexed))); err != nil || n != len(digest) || len(hexed) != 2*len(digest) {
				errs = append(errs, fmt.Errorf("%s: key %d is not %s and 64 hexadecimal digits", key, i, hashedKey))
				continue
			}
		}
		if other := p.tenants[digest]; other != nil {
			errs = append(errs, fmt.Errorf("%s: key %d is a key of %s already", key, i, other.Name))
			continue
		}
		p.tenants[digest] = t
	}
	return errs
}

// clipHex cuts text to what a digest can hold.
func clipHex(text string) string { return text[:min(len(text), 2*sha256.Size)] }

// Tenant is the tenant that an API key names, nil for no key; nil where it names
// none. The look-up is by the key's digest, so its time tells nothing about keys.
func (p *Policy) Tenant(key []byte) *Tenant {
	if len(key) > 0 {
		if t := p.Owner(sha256.Sum256(key)); t != nil {
			return t
		}
	}
	return p.anyone
}

// Owner is the tenant that has the key with this SHA-256, nil for none.
func (p *Policy) Owner(key [sha256.Size]byte) *Tenant { return p.tenants[key] }

// Tenants are all tenants, in the order of the configuration. Listed says that
// the configuration lists them; if not, there is one, TenantDefault.
func (p *Policy) Tenants() []*Tenant { return p.list }

// Listed reports whether the configuration lists tenants.
func (p *Policy) Listed() bool { return p.listed }

// Named is the tenant of a name, nil for none.
func (p *Policy) Named(name string) *Tenant {
	for _, t := range p.list {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// HasClass reports whether there is a class of this name.
func (p *Policy) HasClass(name string) bool { return p.classes[name] != nil }

// Salt separates what t's requests reuse from that of others. No tenant's name equals a
// group's salt.
func (t *Tenant) Salt() string {
	if t.PrefixGroup != "" {
		return "group:" + t.PrefixGroup
	}
	return t.Name
}

// Wish is what a request says about its class, "" where it says nothing.
type Wish struct {
	// Name is a class's name, as the client wrote it.
	Name string
	// Tier is OpenAI's service_tier: priority is the class interactive, flex
	// is batch, and others say nothing.
	Tier string
	// Route is the request's, as in RouteClass.
	Route string
}

var classOfTier = map[string]string{"priority": levelNames[levelInteractive], "flex": levelNames[levelBatch]}

// Class is the class of a request of t: the one that it names, or that of its
// tier, of its route, the first of its tenant, or the default, in this order. A
// class that the tenant may not use becomes the tenant's first. The error says
// that there is no class of that name.
func (p *Policy) Class(t *Tenant, w Wish) (*Class, error) {
	name := w.Name
	if name != "" && p.classes[name] == nil {
		return nil, fmt.Errorf("there is no such class; there are %s", strings.Join(p.names, ", "))
	}
	if name == "" {
		name = classOfTier[w.Tier]
	}
	if name == "" {
		name = p.routes[w.Route]
	}
	if name == "" && len(t.Classes) > 0 {
		name = t.Classes[0]
	}
	if name == "" {
		name = p.fallback
	}
	if !t.May(name) {
		name = t.Classes[0]
	}
	return p.classes[name], nil
}

// May tells whether the tenant may use a class.
func (t *Tenant) May(class string) bool {
	return len(t.Classes) == 0 || slices.Contains(t.Classes, class)
}

// Fit is the class in which a prompt of some length waits: c, or the tenant's first
// offline class that takes it, where it is over c's limit and c demotes such
// prompts. The error is a *Refusal.
func (p *Policy) Fit(t *Tenant, c *Class, promptTokens int) (*Class, error) {
	if c.PromptTokensMax == 0 || promptTokens <= c.PromptTokensMax || c.Oversized == "allow" {
		return c, nil
	}
	if c.Oversized == "demote" {
		for _, name := range p.names {
			lower := p.classes[name]
			if levelOf(lower) == levelOffline && lower != c && t.May(name) && (lower.PromptTokensMax == 0 || promptTokens <= lower.PromptTokensMax) {
				return lower, nil
			}
		}
	}
	return nil, &Refusal{Reason: TooLarge, Message: fmt.Sprintf("the prompt has %d tokens and the class %s takes at most %d", promptTokens, c.Name, c.PromptTokensMax)}
}

// Level is a class's level: 0 for requests that people wait for, higher ones may
// wait longer. It is 0 for an unknown class too.
func (p *Policy) Level(class string) int {
	if c := p.classes[class]; c != nil {
		return levelOf(c)
	}
	return 0
}

// Classes are the names of all classes, from the first level to the last.
func (p *Policy) Classes() []string { return slices.Clone(p.names) }
