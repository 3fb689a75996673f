package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
)

func TestPinsAreCheckedAndPassedOn(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{Limits: LimitsConfig{PinMax: 2 * time.Hour}}, admission: admission.Config{Tenants: []admission.Tenant{
		{Name: "may", Keys: []string{"sk-may"}, PinnedTokensMax: 500}, {Name: "not", Keys: []string{"sk-not"}},
	}}})
	for _, c := range []struct {
		key, pin, path, body string
		status               int
		says                 string
	}{
		{"sk-may", "30m", "/v1/chat/completions", chatBody(""), 200, ""},
		{"sk-may", "0", "/v1/chat/completions", chatBody(""), 200, ""},
		{"sk-may", "3h", "/v1/chat/completions", chatBody(""), 400, "gateway.limits.pin_max"},
		{"sk-may", "-1s", "/v1/chat/completions", chatBody(""), 400, "a time such as 30m"},
		{"sk-may", "soon", "/v1/chat/completions", chatBody(""), 400, "a time such as 30m"},
		{"sk-may", "1h", "/v1/completions", `{"model":"fake","prompt":["a","b"]}`, 400, "one prompt"},
		{"sk-not", "1h", "/v1/chat/completions", chatBody(""), 403, "pinned_tokens_max"},
	} {
		resp := r.do("POST", c.path, c.body, "Authorization", "Bearer "+c.key, "X-Forebay-Pin", c.pin)
		if resp.status != c.status || !strings.Contains(resp.body, c.says) {
			t.Errorf("%s of %s: %d %s", c.pin, c.key, resp.status, resp.body)
		}
	}
	r.settled()
	var pins []wire.Pin
	for _, rec := range r.fake.Records() {
		if rec.Dispatched {
			pins = append(pins, rec.Pin)
		}
	}
	if len(pins) != 2 || pins[0] != (wire.Pin{Asked: true, For: 30 * time.Minute, TokensMax: 500}) || pins[1] != (wire.Pin{Asked: true, TokensMax: 500}) {
		t.Errorf("pins %+v", pins)
	}
}

func TestUsageSaysWhatIsPinned(t *testing.T) {
	for want, u := range map[string]wire.Usage{
		`"cached_tokens":3}`:                             {Cached: 3},
		`"cached_tokens":3,"pinned_tokens":16}`:          {Cached: 3, Pinned: 16},
		`"pinned_tokens":0,"pin_refused":"tenant_full"}`: {PinRefused: wire.PinTenant},
	} {
		if got := string(appendUsage(nil, u)); !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}

// Tenants of a group share what is cached; others, and tenants without one, do not.
func TestSaltsOfGroups(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: admission.Config{Tenants: []admission.Tenant{
		{Name: "a", Keys: []string{"sk-a"}, PrefixGroup: "shop"}, {Name: "b", Keys: []string{"sk-b"}, PrefixGroup: "shop"},
		{Name: "c", Keys: []string{"sk-c"}, PrefixGroup: "bank"}, {Name: "shop", Keys: []string{"sk-d"}},
	}}})
	for _, key := range []string{"sk-a", "sk-b", "sk-c", "sk-d"} {
		r.as(key, chatBody(""))
	}
	salts := map[string]int{}
	for _, rec := range r.fake.Records() {
		if rec.Dispatched {
			salts[rec.Salt]++
		}
	}
	if len(salts) != 3 || salts["group:shop"] != 2 || salts["group:bank"] != 1 || salts["shop"] != 1 {
		t.Errorf("salts %v", salts)
	}
}
