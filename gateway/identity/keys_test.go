package identity

import (
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/internal/conf"
)

var quietLog = slog.New(slog.NewTextHandler(io.Discard, nil))

// noon is the instant at which tests decide.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

var twoTenants = admission.Config{Tenants: []admission.Tenant{
	{Name: "acme", Keys: []string{"inline-key"}, Weight: 1}, {Name: "night", Weight: 1, Classes: []string{"batch", "offline"}},
}}

func complete(t testing.TB, c Config) Config {
	t.Helper()
	if err := conf.Complete("identity", &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func anything(Entry) error { return nil }

// add makes a key in path and returns it.
func add(t testing.TB, path string, d Draft) string {
	t.Helper()
	key, _, err := Add(path, d, noon, anything)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func opened(t testing.TB, c Config, policy admission.Config) *Source {
	t.Helper()
	s, err := Open(complete(t, c), policy, quietLog)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// whoIs is the caller's tenant and key, or the reason why there is none.
func whoIs(d *Directory, p Presented, now time.Time) string {
	caller, why := d.Identify(&p, now)
	if why != nil {
		return "refused: " + why.Reason.String()
	}
	return caller.Tenant.Name + "/" + caller.Key
}

func bearer(text string) Presented { return Presented{Bearer: []byte(text)} }

func TestKeysNameTheirTenantUntilTheyEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	good := add(t, path, Draft{Name: "app", Tenant: "acme"})
	short := add(t, path, Draft{Name: "short", Tenant: "night", Expires: noon.Add(time.Hour)})
	revoked := add(t, path, Draft{Name: "old", Tenant: "acme"})
	if _, err := Revoke(path, "old", noon); err != nil {
		t.Fatal(err)
	}
	off := add(t, path, Draft{Name: "off", Tenant: "acme"})
	body, _ := os.ReadFile(path)
	os.WriteFile(path, []byte(strings.Replace(string(body), "- name: off\n", "- name: off\n    disabled: true\n", 1)), 0o600)
	d := opened(t, Config{Keys: path}, twoTenants).Directory()
	otherSecret := good[:secretAt] + short[secretAt:]
	otherID := short[:secretAt] + good[secretAt:]
	for _, c := range []struct {
		name string
		p    Presented
		now  time.Time
		want string
	}{
		{"a key", bearer(good), noon, "acme/app"},
		{"long after", bearer(good), noon.AddDate(50, 0, 0), "acme/app"},
		{"the last nanosecond", bearer(short), noon.Add(time.Hour - 1), "night/short"},
		{"the instant of its end", bearer(short), noon.Add(time.Hour), "refused: key_expired"},
		{"a clock that was put back", bearer(short), noon.AddDate(-1, 0, 0), "night/short"},
		{"revoked", bearer(revoked), noon, "refused: key_revoked"},
		{"disabled", bearer(off), noon, "refused: key_disabled"},
		{"another's secret", bearer(otherSecret), noon, "refused: unknown_key"},
		{"another's id", bearer(otherID), noon, "refused: unknown_key"},
		{"cut off", bearer(good[:len(good)-1]), noon, "refused: unknown_key"},
		{"longer", bearer(good + "x"), noon, "refused: unknown_key"},
		{"the configuration's", bearer("inline-key"), noon, "acme/"},
		{"none", Presented{}, noon, "refused: no_key"},
		{"two", Presented{Bearer: []byte(good), Several: true}, noon, "refused: several_keys"},
		{"the hash itself", bearer("sha256:" + strings.Repeat("0", 64)), noon, "refused: unknown_key"},
	} {
		if got := whoIs(d, c.p, c.now); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// Without listed tenants a key file closes the gateway: nobody gets in by saying
// nothing. A tenant with the key * still takes those without a known key, but not
// those who show a key that is no longer good.
func TestKeysAndRequestsWithoutOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	key := add(t, path, Draft{Name: "app", Tenant: admission.TenantDefault, Expires: noon.Add(time.Hour)})
	d := opened(t, Config{Keys: path}, admission.Config{}).Directory()
	if got := whoIs(d, bearer(key), noon) + " " + whoIs(d, Presented{}, noon); got != "default/app refused: no_key" {
		t.Error(got)
	}
	open := opened(t, Config{Keys: path}, admission.Config{Tenants: []admission.Tenant{{Name: "default"}, {Name: "guests", Keys: []string{"*"}}}}).Directory()
	if got := whoIs(open, bearer("x"), noon) + " " + whoIs(open, Presented{}, noon) + " " + whoIs(open, bearer(key), noon.Add(2*time.Hour)); got != "guests/ guests/ refused: key_expired" {
		t.Error(got)
	}
}

func TestRightsStayBelowTheTenants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	key := add(t, path, Draft{Name: "app", Tenant: "night", Classes: []string{"offline"}, Routes: []string{"models"}, Models: []string{"m"}, Limits: []string{"concurrency: 2"}})
	d := opened(t, Config{Keys: path}, twoTenants).Directory()
	p := bearer(key)
	c, why := d.Identify(&p, noon)
	if why != nil {
		t.Fatal(why)
	}
	for wish, want := range map[string]string{"": "offline", "batch": "offline", "interactive": "offline"} {
		if class, err := c.Policy.Class(&c.Tenant, admission.Wish{Name: wish}); err != nil || class.Name != want {
			t.Errorf("%q: %v, %v", wish, class, err)
		}
	}
	if !c.MayRoute("models") || c.MayRoute("completions") || !c.MayModel("m") || c.MayModel("n") || c.Limits != (budget.Limits{Concurrency: 2}) {
		t.Errorf("%+v", c)
	}
	for want, d := range map[string]Draft{
		`.tenant: there is no tenant "nobody" in admission.tenants`:                                     {Tenant: "nobody"},
		`.classes: the tenant night may not use the class interactive`:                                  {Tenant: "night", Classes: []string{"interactive"}},
		`.classes: there is no class "gold"; there are interactive, batch, offline`:                     {Tenant: "acme", Classes: []string{"gold"}},
		`keys[0].routes: there is no route "x"; there are chat_completions, completions, embeddings, m`: {Tenant: "acme", Routes: []string{"x"}},
		`keys[0].limits.concurrency: must not be negative`:                                              {Tenant: "acme", Limits: []string{"concurrency: -1"}},
	} {
		d.Name = "a"
		path := filepath.Join(t.TempDir(), "keys.yaml")
		_, _, err := Add(path, d, noon, func(e Entry) error { return CheckEntry(e, twoTenants) })
		if err == nil || !strings.Contains("."+err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("a key that was refused was written")
		}
	}
}

const hashOfNothing = "sha256:00000000000000000000000000000000:0000000000000000000000000000000000000000000000000000000000000000"

func keyText(name, id, more string) string {
	return "  - name: " + name + "\n    id: \"" + id + "\"\n    hash: " + hashOfNothing + "\n    tenant: acme\n" + more
}

func TestKeyFileMistakes(t *testing.T) {
	const id1, id2 = "0000000000000001", "0000000000000002"
	for want, body := range map[string]string{
		"has no list keys, so it may be half written":                      "",
		"keys[1] has the name \"a\", as [0] has":                           "keys:\n" + keyText("a", id1, "") + keyText("a", id2, ""),
		"is the id of":                                                     "keys:\n" + keyText("a", id1, "") + keyText("b", id1, ""),
		"keys[0].hash: is not a hash as forebay key new writes it":         "keys:\n  - {name: a, id: \"" + id1 + "\", hash: fbk_0123456789abcdef_secret, tenant: acme}",
		"keys.yaml:2: keys[0].name: a has no tenant":                       "keys:\n  - {name: a, id: \"" + id1 + "\", hash: \"" + hashOfNothing + "\"}",
		"keys[0].name: \"../x\" is not a name":                             "keys:\n" + keyText("../x", id1, ""),
		"keys[0].expires: \"soon\" is not a time":                          "keys:\n" + keyText("a", id1, "    expires: soon\n"),
		"keys[0].expire is not a known key; did you mean keys[0].expires?": "keys:\n" + keyText("a", id1, "    expire: 2026-01-01\n"),
		"keys[0].limits.requests_per_minut is not a known key":             "keys:\n" + keyText("a", id1, "    limits: {requests_per_minut: 1}\n"),
		"keys.yaml:1:": "keys: [",
		"there are 3 keys, over identity.keys_max of 2":                              "keys:\n" + keyText("a", id1, "") + keyText("b", id2, "") + keyText("c", "0000000000000003", ""),
		"is over identity.file_bytes_max":                                            strings.Repeat("#", 5000),
		"others than its owner may write it (mode 0620), so anybody could add a key": "mode 620",
		"no such file":        "absent",
		"is not a plain file": "pipe",
	} {
		path := filepath.Join(t.TempDir(), "keys.yaml")
		switch body {
		case "mode 620":
			os.WriteFile(path, []byte("keys: []\n"), 0o600)
			os.Chmod(path, 0o620)
		case "absent":
		case "pipe":
			makePipe(t, path)
		default:
			os.WriteFile(path, []byte(body), 0o600)
		}
		_, err := Open(complete(t, Config{Keys: path, KeysMax: 2, FileBytesMax: 4096}), twoTenants, quietLog)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// A change is taken when it was the same at two looks; one that cannot be taken
// leaves what was there.
func TestFilesAreTakenWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys.yaml")
	first := add(t, path, Draft{Name: "first", Tenant: "acme"})
	s := opened(t, Config{Keys: path}, twoTenants)
	d := s.Directory()
	second := add(t, path, Draft{Name: "second", Tenant: "acme"})
	s.Look()
	if got := whoIs(d, bearer(second), noon); got != "refused: unknown_key" {
		t.Errorf("at the first look: %s", got)
	}
	s.Look()
	if got := whoIs(d, bearer(second), noon); got != "acme/second" {
		t.Errorf("at the second: %s", got)
	}
	whole, _ := os.ReadFile(path)
	generation := s.Counts(noon).Generation
	for name, broken := range map[string]func(){
		"half an entry": func() { os.WriteFile(path, whole[:len(whole)-100], 0o600) },
		"empty":         func() { os.WriteFile(path, nil, 0o600) },
		"gone":          func() { os.Remove(path) },
		"others write":  func() { os.Chmod(path, 0o666) },
	} {
		broken()
		for range 3 {
			s.Look()
		}
		c := s.Counts(noon)
		if got := whoIs(d, bearer(first), noon) + whoIs(d, bearer(second), noon); got != "acme/firstacme/second" || !c.Broken || c.Generation != generation {
			t.Errorf("%s: %s, %+v", name, got, c)
		}
		os.WriteFile(path, whole, 0o600)
		os.Chmod(path, 0o600)
		s.Look()
		s.Look()
		after := s.Counts(noon)
		if after.Broken || after.NotTaken != c.NotTaken || c.NotTaken == 0 || after.Generation != generation+1 {
			t.Errorf("%s, then mended: %+v", name, after)
		}
		generation = after.Generation
	}
	for range 3 {
		s.Look()
	}
	if got := s.Counts(noon).Generation; got != generation {
		t.Errorf("nothing changed, and the generation went from %d to %d", generation, got)
	}
}

// A configuration that was refused stays refused until one is taken, whatever becomes
// of the key files meanwhile.
func TestConfigurationsAreTakenWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	first := add(t, path, Draft{Name: "first", Tenant: "acme"})
	s := opened(t, Config{Keys: path}, twoTenants)
	good := s.cfg
	without := admission.Config{Tenants: twoTenants.Tenants[1:]}
	if err := s.Replace(good, without); err == nil || !strings.Contains(err.Error(), `there is no tenant "acme"`) {
		t.Errorf("tenants without one that has keys: %v", err)
	}
	if err := s.Replace(complete(t, Config{Keys: path + ".none"}), twoTenants); err == nil {
		t.Error("a file that is not there")
	}
	second := add(t, path, Draft{Name: "second", Tenant: "acme"})
	s.Look()
	s.Look()
	if got := whoIs(s.Directory(), bearer(first), noon) + whoIs(s.Directory(), bearer(second), noon); got != "acme/firstacme/second" || !s.Counts(noon).Broken {
		t.Errorf("%s, %+v", got, s.Counts(noon))
	}
	if err := s.Replace(good, admission.Config{Tenants: twoTenants.Tenants[:1]}); err != nil || s.Counts(noon).Broken || whoIs(s.Directory(), bearer(second), noon) != "acme/second" {
		t.Errorf("%v, %+v", err, s.Counts(noon))
	}
}

// As Kubernetes changes a volume: files are links through ..data, whose target is
// swapped.
func TestFolderWhoseLinksAreSwapped(t *testing.T) {
	dir := t.TempDir()
	var keys []string
	for _, version := range []string{"..1", "..2"} {
		os.Mkdir(filepath.Join(dir, version), 0o755)
		keys = append(keys, add(t, filepath.Join(dir, version, "k.yaml"), Draft{Name: "app", Tenant: "acme"}))
		os.Chmod(filepath.Join(dir, version, "k.yaml"), 0o644)
	}
	link := func(to string) {
		os.Symlink(to, filepath.Join(dir, "..tmp"))
		os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data"))
	}
	link("..1")
	os.Symlink("..data/k.yaml", filepath.Join(dir, "k.yaml"))
	s := opened(t, Config{Keys: dir}, twoTenants)
	d := s.Directory()
	before := whoIs(d, bearer(keys[0]), noon) + " " + whoIs(d, bearer(keys[1]), noon)
	link("..2")
	s.Look()
	s.Look()
	after := whoIs(d, bearer(keys[0]), noon) + " " + whoIs(d, bearer(keys[1]), noon)
	if before != "acme/app refused: unknown_key" || after != "refused: unknown_key acme/app" {
		t.Errorf("before: %s, after: %s", before, after)
	}
}

// In a folder that all may write, only the files of its owner count.
func TestStrangersFilesAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to a stranger")
	}
	dir := t.TempDir()
	add(t, dir, Draft{Name: "ours", Tenant: "acme"})
	add(t, dir, Draft{Name: "theirs", Tenant: "acme"})
	os.Chown(filepath.Join(dir, "theirs.yaml"), 12345, 12345)
	for mode, refused := range map[os.FileMode]bool{0o755: false, 0o777 | os.ModeSticky: true, 0o775: true} {
		os.Chmod(dir, mode)
		err := Check(complete(t, Config{Keys: dir}), twoTenants)
		if refused != (err != nil && strings.Contains(err.Error(), "theirs.yaml: belongs to the user 12345")) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

func TestEditsKeepWhatPeopleWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	const mine = "# ours\nkeys:\n- tenant: acme # first\n  name: 'hand'\n  id: \"0000000000000001\"\n  hash: " + hashOfNothing + "\n  classes:\n    - batch\n# the end"
	os.WriteFile(path, []byte(mine), 0o640)
	add(t, path, Draft{Name: "app", Tenant: "acme"})
	if _, err := Revoke(path, "hand", noon); err != nil {
		t.Fatal(err)
	}
	if _, err := Revoke(path, "hand", noon); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("revoked twice: %v", err)
	}
	if _, err := Revoke(path, "nobody", noon); err == nil || !strings.Contains(err.Error(), "forebay key list") {
		t.Errorf("nobody's: %v", err)
	}
	body, _ := os.ReadFile(path)
	about, _ := os.Stat(path)
	want := strings.Replace(mine, "  name: 'hand'\n", "  name: 'hand'\n  revoked: 2026-05-01T12:00:00Z\n", 1)
	if !strings.HasPrefix(string(body), want+"\n- name: app\n  id:") || about.Mode().Perm() != 0o640 {
		t.Errorf("mode %o:\n%s", about.Mode().Perm(), body)
	}
	entries, err := List(path)
	if err != nil || len(entries) != 2 || entries[0].State(noon) != Revoked || entries[1].State(noon) != Active {
		t.Errorf("%+v, %v", entries, err)
	}
	os.WriteFile(path, []byte("keys: [{name: a, id: \"0000000000000001\", hash: \""+hashOfNothing+"\", tenant: acme}]\n"), 0o600)
	if _, _, err := Add(path, Draft{Name: "b", Tenant: "acme"}, noon, anything); err == nil || strings.Contains(err.Error(), keyPrefix) {
		t.Errorf("a form without lines: %v", err)
	}
	if _, err := Revoke(path, "a", noon); err == nil || !strings.Contains(err.Error(), "by hand: revoked: ") {
		t.Errorf("a form without lines: %v", err)
	}
}

func TestFolderGetsAFileForEachKey(t *testing.T) {
	dir := t.TempDir()
	key := add(t, dir, Draft{Name: "app", Tenant: "acme"})
	if _, _, err := Add(dir, Draft{Name: "app", Tenant: "acme"}, noon, anything); err == nil {
		t.Error("two keys of one name")
	}
	for _, name := range []string{"../app", ".app", "a/b", ""} {
		if _, _, err := Add(dir, Draft{Name: name, Tenant: "acme"}, noon, anything); err == nil {
			t.Errorf("the name %q", name)
		}
	}
	about, err := os.Stat(filepath.Join(dir, "app.yaml"))
	if err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", about, err)
	}
	body, _ := os.ReadFile(filepath.Join(dir, "app.yaml"))
	if strings.Contains(string(body), key[secretAt:]) {
		t.Error("the file holds the secret")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestIdentifyingAllocatesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	key := bearer(add(t, path, Draft{Name: "app", Tenant: "acme"}))
	d := opened(t, Config{
		Keys: path, MeshPeers: []string{"127.0.0.6"}, MeshIdentities: []MeshIdentity{{Name: "web", URI: "spiffe://a/*", Tenant: "acme"}},
	}, twoTenants).Directory()
	inline := bearer("inline-key")
	mesh := Presented{Certificate: []byte(`By=spiffe://a/me;Hash=00;Subject="CN=x,O=\"y\"";URI=spiffe://a/web`), Peer: netip.MustParseAddr("127.0.0.6")}
	for name, p := range map[string]*Presented{"key": &key, "inline": &inline, "mesh": &mesh} {
		if n := testing.AllocsPerRun(100, func() {
			if _, why := d.Identify(p, noon); why != nil {
				t.Fatal(why)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzKeyFile(f *testing.F) {
	f.Add("keys:\n"+keyText("a", "0000000000000001", "    limits: {concurrency: 1}\n"), "a")
	f.Add("keys: []\n", "b")
	f.Fuzz(func(t *testing.T, body, name string) {
		files := []text{{"keys.yaml", []byte(body)}}
		entries, err := parseKeys(files, 100)
		if err != nil {
			return
		}
		if s, err := newSnapshot(Config{}, mustPolicy(t), entries, nil); err == nil && len(s.keys) != len(entries) {
			t.Errorf("%d keys of %d entries", len(s.keys), len(entries))
		}
		// An edit changes one entry, or is refused: it never breaks the file.
		draft := Draft{Name: "added", Tenant: "acme"}
		changed, err := parseKeys(with(files, "keys.yaml", appendEntry([]byte(body), draft.entry("00000000000000ff", hashOfNothing, noon))), 101)
		if err == nil && len(changed) == len(entries)+1 && len(differing(entries, changed)) != 1 {
			t.Errorf("appending changed %d entries", len(differing(entries, changed)))
		}
		if marked, ok := markRevoked([]byte(body), name, stamp(noon)); ok && len(marked) <= len(body) {
			t.Error("a mark that adds nothing")
		}
	})
}

func mustPolicy(t testing.TB) *admission.Policy {
	t.Helper()
	p, err := admission.NewPolicy(twoTenants)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func makePipe(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
}
