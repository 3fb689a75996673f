package identity

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// uris are all URIs of the header's last element.
func uris(header string) (all []string) {
	eachURI([]byte(header), func(uri []byte) bool {
		all = append(all, string(uri))
		return false
	})
	return all
}

func TestURIsOfClientCertificates(t *testing.T) {
	for header, want := range map[string][]string{
		`URI=spiffe://a/b`: {"spiffe://a/b"},
		`By=spiffe://a/me;Hash=00ff;Subject="";URI=spiffe://a/b`:                {"spiffe://a/b"},
		`By=x;Hash=1;Subject="CN=a,URI=spiffe://evil;O=\"b\"";URI=spiffe://a/b`: {"spiffe://a/b"},
		`URI=spiffe://a/1,URI=spiffe://a/2`:                                     {"spiffe://a/2"},
		`URI=spiffe://a/1;URI=spiffe://a/2;DNS=x`:                               {"spiffe://a/1", "spiffe://a/2"},
		`uri="spiffe://a/b"; Hash=1`:                                            {"spiffe://a/b"},
		`URI=spiffe://a/1,Hash=1`:                                               nil,
		`Subject="URI=spiffe://a/1`:                                             nil, // a quote that never ends
		`Subject="x\";URI=spiffe://evil`:                                        nil,
		`URI=spiffe://a/1,`:                                                     nil,
		`URI="spiffe://a/\"b"`:                                                  nil,
		`URI=`:                                                                  nil,
		``:                                                                      nil,
		`;;;=;,,`:                                                               nil,
		`Cert="-----BEGIN%20CERTIFICATE-----%0A;URI=spiffe://evil";URI=spiffe://a`: {"spiffe://a"},
	} {
		if diff := cmp.Diff(want, uris(header)); diff != "" {
			t.Errorf("%s: %s", header, diff)
		}
	}
}

func TestMeshIdentities(t *testing.T) {
	d := opened(t, Config{
		MeshPeers: []string{"127.0.0.6", "10.1.0.0/16", "fd00::/8"},
		MeshIdentities: []MeshIdentity{
			{Name: "web", URI: "spiffe://a/ns/shop/sa/web", Tenant: "acme", Classes: []string{"interactive"}},
			{Name: "shop", URI: "spiffe://a/ns/shop/*", Tenant: "night"},
		},
	}, twoTenants).Directory()
	for _, c := range []struct{ peer, uri, bearer, want string }{
		{"127.0.0.6", "spiffe://a/ns/shop/sa/web", "", "acme/web"},
		{"::ffff:127.0.0.6", "spiffe://a/ns/shop/sa/web", "", "acme/web"},
		{"10.1.255.255", "spiffe://a/ns/shop/sa/job", "", "night/shop"},
		{"fd12::1", "spiffe://a/ns/shop/", "", "night/shop"},
		{"10.1.0.1", "spiffe://a/ns/shopper/sa/web", "", "refused: unknown_identity"},
		{"10.1.0.1", "spiffe://b/ns/shop/sa/web", "", "refused: unknown_identity"},
		{"10.2.0.0", "spiffe://a/ns/shop/sa/web", "", "refused: no_key"},
		{"127.0.0.1", "spiffe://a/ns/shop/sa/web", "", "refused: no_key"},
		{"127.0.0.6", "spiffe://a/ns/shop/sa/web", "inline-key", "acme/"},
		{"127.0.0.6", "spiffe://a/ns/shop/sa/web", "wrong", "refused: unknown_key"}, // a key that is shown must be good
	} {
		p := Presented{Certificate: []byte("Hash=1;URI=" + c.uri), Peer: netip.MustParseAddr(c.peer), Bearer: []byte(c.bearer)}
		if got := whoIs(d, p, noon); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
	if p := (Presented{Certificate: []byte("URI=spiffe://a/ns/shop/sa/web")}); whoIs(d, p, noon) != "refused: no_key" {
		t.Error("a peer without an address is trusted")
	}
	if n := d.ignored.Load(); n != 3 {
		t.Errorf("%d certificates ignored, want 3", n)
	}
}

func FuzzClientCertificate(f *testing.F) {
	f.Add(`By=x;Hash=1;Subject="CN=a,URI=spiffe://evil;O=\"b\"";URI=spiffe://a/b`, "spiffe://a/c")
	f.Add(`URI=a,URI=b`, "c")
	f.Fuzz(func(t *testing.T, said, uri string) {
		for _, u := range uris(said) {
			if u == "" || !strings.Contains(said, u) || strings.ContainsAny(u, `"\ ;`) && !strings.Contains(said, `"`) {
				t.Errorf("%q in %q", u, said)
			}
		}
		// Whatever a client said, what the proxy appends decides, or nothing does.
		if strings.ContainsAny(uri, "\"\\,; \t\r\n\v\f=\u0085\u00a0") || uri == "" || strings.TrimSpace(uri) != uri {
			return
		}
		if got := uris(said + ",URI=" + uri); len(got) > 1 || len(got) == 1 && got[0] != uri {
			t.Errorf("%q appended to %q gives %q", uri, said, got)
		}
	})
}

// TestMeshOverSocket: whoever may connect to the Unix socket is believed where
// mesh_peers says so, and no address is.
func TestMeshOverSocket(t *testing.T) {
	for peers, want := range map[string]string{"unix": "acme", "127.0.0.6": "no_key"} {
		d := opened(t, Config{MeshPeers: []string{peers}, MeshIdentities: []MeshIdentity{{Name: "web", URI: "spiffe://a", Tenant: "acme"}}}, twoTenants).Directory()
		got := ""
		caller, why := d.Identify(&Presented{Certificate: []byte("URI=spiffe://a"), Socket: true}, time.Now())
		if caller != nil {
			got = caller.Tenant.Name
		} else {
			got = why.Reason.String()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", peers, got, want)
		}
	}
	d := opened(t, Config{MeshPeers: []string{"unix"}, MeshIdentities: []MeshIdentity{{Name: "web", URI: "spiffe://a", Tenant: "acme"}}}, twoTenants).Directory()
	if caller, _ := d.Identify(&Presented{Certificate: []byte("URI=spiffe://a"), Peer: netip.MustParseAddr("127.0.0.6")}, time.Now()); caller != nil {
		t.Error("an address was believed")
	}
}
