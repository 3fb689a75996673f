package identity

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// Entry is one key in a key file.
type Entry struct {
	Name     string        `yaml:"name" help:"Name in logs and limits."`
	ID       string        `yaml:"id" help:"Public id, the digits after fbk_ in the key."`
	Hash     string        `yaml:"hash" help:"Salted SHA-256 of the key."`
	Tenant   string        `yaml:"tenant" help:"Its tenant."`
	Created  string        `yaml:"created" help:"When it was made, as 2026-01-31T12:00:00Z."`
	Expires  string        `yaml:"expires" help:"From when on it is refused, as 2026-01-31T12:00:00Z; empty is never."`
	Disabled bool          `yaml:"disabled" help:"Refuse it for now."`
	Revoked  string        `yaml:"revoked" help:"When it was revoked, as 2026-01-31T12:00:00Z. It is refused whatever the time says."`
	Classes  []string      `yaml:"classes" help:"Classes that it may use; none listed gives the tenant's."`
	Routes   []string      `yaml:"routes" help:"Routes that it may use, of chat_completions, completions, responses, messages, embeddings, rerank and models; none listed allows all."`
	Models   []string      `yaml:"models" help:"Models that it may use; none listed allows all."`
	Limits   budget.Limits `yaml:"limits" help:"Its budgets, beside those of the tenant."`
}

// keyFile is what a key file holds.
type keyFile struct {
	Keys []Entry `yaml:"keys" help:"The keys."`
}

var idForm = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Mistakes checks an entry by itself.
func (e *Entry) Mistakes() error {
	var errs []error
	fail := func(key string, err error) { errs = append(errs, fmt.Errorf("%s: %w", key, err)) }
	if e.Name != "" && !nameForm.MatchString(e.Name) { // a missing one is reported already
		fail("name", badName(e.Name))
	}
	for _, field := range []struct{ key, text string }{{"id", e.ID}, {"hash", e.Hash}, {"tenant", e.Tenant}} {
		if field.text == "" && e.Name != "" {
			fail("name", fmt.Errorf("%s has no %s", clip(e.Name), field.key))
		}
	}
	if e.ID != "" && !idForm.MatchString(e.ID) {
		fail("id", errors.New("is not 16 hexadecimal digits, the id that forebay key new writes"))
	}
	if _, err := parseHash(e.Hash); e.Hash != "" && err != nil {
		fail("hash", err)
	}
	for _, field := range []struct{ key, text string }{{"created", e.Created}, {"expires", e.Expires}, {"revoked", e.Revoked}} {
		if _, err := parseTime(field.text); err != nil {
			fail(field.key, err)
		}
	}
	if err := checkRoutes(e.Routes); err != nil {
		fail("routes", err)
	}
	return errors.Join(errs...)
}

// parseTime reads an instant, or the beginning of a day in UTC; "" is the zero time.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 2026-01-31T12:00:00Z or 2026-01-31", text)
}

// State is what a key is at an instant.
type State uint8

// The states of a key.
const (
	Active State = iota
	Disabled
	Expired
	Revoked
	stateCount
)

var stateNames = [stateCount]string{"active", "disabled", "expired", "revoked"}

// String returns the state's stable name.
func (s State) String() string { return stateNames[s] }

// State is the entry's at now.
func (e *Entry) State(now time.Time) State {
	expires, _ := parseTime(e.Expires) // Mistakes has checked it
	return stateOf(e.Revoked != "", e.Disabled, expires, now)
}

// stateOf decides a state. A key is good until the instant at which it expires.
func stateOf(revoked, disabled bool, expires, now time.Time) State {
	switch {
	case revoked:
		return Revoked
	case disabled:
		return Disabled
	case !expires.IsZero() && !now.Before(expires):
		return Expired
	}
	return Active
}
