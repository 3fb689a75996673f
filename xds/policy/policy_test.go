package policy

import (
	"reflect"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/internal/conf"
)

// TestEveryLiveSettingIsTaken: each setting that a policy may hold replaces the one of
// the gateway, and no other.
func TestEveryLiveSettingIsTaken(t *testing.T) {
	texts := map[string]string{
		"admission.tenants":        "admission: {tenants: [{name: a}]}",
		"admission.classes":        "admission: {classes: [{name: chat}]}",
		"admission.routes":         "admission: {routes: [{route: completions, class: batch}]}",
		"admission.default_class":  "admission: {default_class: batch}",
		"admission.part_limits":    "admission: {part_limits: [{name: p, class: batch, limits: {requests_per_minute: 1}}]}",
		"identity.issuers":         "identity: {issuers: [{issuer: i, jwks: 'https://i.example/keys', audiences: [a], tenant: t}]}",
		"identity.mesh_peers":      "identity: {mesh_peers: [127.0.0.6]}",
		"identity.mesh_identities": "identity: {mesh_peers: [127.0.0.6], mesh_identities: [{name: m, uri: 'spiffe://x', tenant: a}]}",
	}
	if len(texts) != len(Live) {
		t.Fatalf("%d texts for %d settings", len(texts), len(Live))
	}
	for _, key := range Live {
		p, err := Parse([]conf.File{{Name: "f", Text: []byte(texts[key])}})
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		var a admission.Config
		var i identity.Config
		p.Over(&a, &i)
		if reflect.DeepEqual(a, admission.Config{}) && reflect.DeepEqual(i, identity.Config{}) {
			t.Errorf("%s changes nothing", key)
		}
		if !p.ForGateways("f") {
			t.Errorf("%s is not for gateways", key)
		}
	}
	if p, err := Parse([]conf.File{{Name: "f", Text: []byte("mesh: {}")}}); err != nil || p.ForGateways("f") {
		t.Errorf("mesh is for gateways, %v", err)
	}
	if p, err := Parse(nil); err != nil || len(p.Given()) != 0 {
		t.Errorf("nothing gives %v, %v", p, err)
	}
}

func TestMeshMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"listeners: [{name: l, address: x}]":                                                                  `listeners[0].address: "x" is not an address`,
		"listeners: [{name: l, address: 'unix:rel'}]":                                                         "is not unix: and an absolute path",
		"listeners: [{name: l, certificate: c}]":                                                              `there is no certificate "c"`,
		"clusters: [{name: c, endpoints: ['1.1.1.1:1'], balance: picker}]":                                    "clusters[0].balance: no listener has a picker",
		"listeners: [{name: l, picker: c}], clusters: [{name: c, endpoints: ['1.1.1.1:1'], http2: true}]":     "listeners[0].picker: no cluster has the balance picker",
		"listeners: [{name: l, picker: d}], clusters: [{name: c, endpoints: ['1.1.1.1:1'], balance: picker}]": `listeners[0].picker: there is no cluster "d"`,
		"listeners: [{name: l, picker: c}], clusters: [{name: c, endpoints: ['1.1.1.1:1'], balance: picker}]": "listeners[0].picker: the cluster c needs http2",
		"clusters: [{name: c}]": "clusters[0].endpoints: list one at least",
		"clusters: [{name: c, endpoints: ['1.1.1.1:1'], health: readyz}]":                                              "is not a path such as /readyz",
		"clusters: [{name: c, endpoints: ['1.1.1.1:1'], certificate: d}]":                                              `there is no certificate "d"`,
		"clusters: [{name: c, endpoints: ['1.1.1.1:1'], balance: best}]":                                               "is not one of least_request, round_robin, random",
		"routes: [{name: r, listener: l, cluster: c}]":                                                                 `there is no listener "l"`,
		"clusters: [{name: c, endpoints: ['1.1.1.1:1']}], routes: [{name: r, cluster: c, prefix: v1}]":                 "does not begin with /",
		"certificates: [{name: c, chain: f}]":                                                                          "a chain needs a key",
		"certificates: [{name: c}]":                                                                                    "give chain and key, or ca",
		"certificates: [{name: c, ca: f}], listeners: [{name: l, certificate: c}]":                                     "c has no chain, and the listener l needs one",
		"certificates: [{name: d, chain: f, key: f}], clusters: [{name: c, endpoints: ['1.1.1.1:1'], certificate: d}]": "d has no ca",
	} {
		_, err := Parse([]conf.File{{Name: "f", Text: []byte("mesh: {" + text + "}")}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}
