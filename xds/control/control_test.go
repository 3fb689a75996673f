package control

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forebay-io/forebay/xds"
	"github.com/forebay-io/forebay/xds/controlpb"
)

// plane is a control plane over a folder, whose looks the test makes.
type plane struct {
	*Server
	t    *testing.T
	dir  string
	conn *grpc.ClientConn
	now  time.Time
}

const oneTenant = "admission: {tenants: [{name: acme, keys: ['*']}]}\n"

func startPlane(t *testing.T, cfg Config, files map[string]string) *plane {
	t.Helper()
	p := &plane{t: t, dir: t.TempDir(), now: time.Now()}
	for name, text := range files {
		p.write(name, text)
	}
	if cfg.Dir == "" {
		cfg.Dir = p.dir
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var err error
	if p.Server, err = New(ctx, cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(ln) }()
	t.Cleanup(func() { p.Stop(); <-served })
	if p.conn, err = grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.Close() })
	return p
}

func (p *plane) write(name, text string) {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// look lets the server see the folder as it is: two looks see the same.
func (p *plane) look() {
	for range 2 {
		p.now = p.now.Add(time.Second)
		p.Look(p.now)
	}
}

func as(id, agent string) *corev3.Node {
	return &corev3.Node{Id: id, UserAgentName: agent}
}

// sotwStream is a client of the protocol in which each response has everything.
type sotwStream struct {
	t *testing.T
	grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
	got chan *discoveryv3.DiscoveryResponse
}

func (p *plane) sotw(first *discoveryv3.DiscoveryRequest) *sotwStream {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(cancel)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.conn).StreamAggregatedResources(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	c := &sotwStream{p.t, s, make(chan *discoveryv3.DiscoveryResponse, 1000)}
	go func() {
		defer close(c.got)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			c.got <- r
		}
	}()
	if err := s.Send(first); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// next is the next response; it fails if there is none for long.
func (c *sotwStream) next() *discoveryv3.DiscoveryResponse {
	c.t.Helper()
	select {
	case r, ok := <-c.got:
		if ok {
			return r
		}
	case <-time.After(10 * time.Second):
	}
	c.t.Fatal("no response")
	return nil
}

// quiet fails if a response comes within a moment.
func (c *sotwStream) quiet() {
	c.t.Helper()
	select {
	case r := <-c.got:
		c.t.Errorf("a response came: version %s, nonce %s", r.GetVersionInfo(), r.GetNonce())
	case <-time.After(150 * time.Millisecond):
	}
}

func (c *sotwStream) answer(r *discoveryv3.DiscoveryResponse, accepted string, refusal error) {
	c.t.Helper()
	request := &discoveryv3.DiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), VersionInfo: accepted}
	if refusal != nil {
		request.ErrorDetail = &status.Status{Message: refusal.Error()}
	}
	if err := c.Send(request); err != nil {
		c.t.Fatal(err)
	}
}

func texts(t *testing.T, r *discoveryv3.DiscoveryResponse) string {
	t.Helper()
	var names []string
	for _, any := range r.GetResources() {
		var f controlpb.PolicyFile
		if err := any.UnmarshalTo(&f); err != nil {
			t.Fatal(err)
		}
		names = append(names, f.GetName())
	}
	return strings.Join(names, " ")
}

// TestRefusedVersionIsSentOnce: a client that refuses a version gets it once, and the
// next version when it comes. Without the guard it is sent without end.
func TestRefusedVersionIsSentOnce(t *testing.T) {
	p := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant})
	c := p.sotw(&discoveryv3.DiscoveryRequest{Node: as("n", "forebay"), TypeUrl: xds.PolicyType})
	first := c.next()
	if texts(t, first) != "a.yaml" {
		t.Fatalf("got %s", texts(t, first))
	}
	c.answer(first, "", fmt.Errorf("a.yaml:1: is wrong"))
	c.quiet()
	p.write("a.yaml", oneTenant+"# other\n")
	p.look()
	second := c.next()
	if second.GetVersionInfo() == first.GetVersionInfo() {
		t.Error("the version stayed the same")
	}
	c.answer(second, "", fmt.Errorf("still wrong"))
	c.quiet()
	p.write("a.yaml", oneTenant+"# third\n")
	p.look()
	third := c.next()
	c.answer(third, third.GetVersionInfo(), nil)
	c.quiet()
	page, _ := p.GetStatus(context.Background(), nil)
	if s := page.Nodes[0].Types[0]; s.Nacks != 2 || s.Error != "" || s.AckedVersion != third.GetVersionInfo() || s.Responses != 3 {
		t.Errorf("status %v", s)
	}
}

// TestBadFileKeepsWhatIsServed: a mistake names file, line, setting and reason, and
// changes nothing for clients.
func TestBadFileKeepsWhatIsServed(t *testing.T) {
	p := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant})
	c := p.sotw(&discoveryv3.DiscoveryRequest{Node: as("n", "forebay"), TypeUrl: xds.PolicyType})
	first := c.next()
	c.answer(first, first.GetVersionInfo(), nil)
	for text, want := range map[string]string{
		"admission:\n  tenants: [{name: b, weight: 900}]":        "sub/b.yaml:2: admission.tenants[0].weight: 900 is out of range; allowed is 0.01 to 100",
		"admission:\n  tenants: [{name: acme}]":                  `sub/b.yaml:2: admission.tenants[1] has the name "acme", as [0] has`,
		"admission:\n  tenants: [{name: b, keys: [secret]}]":     "sub/b.yaml:2: admission.tenants[1].keys: key 0 is plain text",
		"admission: {wait_limit: 3s}":                            "sub/b.yaml:1: admission.wait_limit is not for policies",
		"mesh: {routes: [{name: r, cluster: c}]}":                `sub/b.yaml:1: mesh.routes[0].cluster: there is no cluster "c" in mesh.clusters`,
		"mesh: {clusters: [{name: c, endpoints: ['h:1']}]}":      `sub/b.yaml:1: mesh.clusters[0].endpoints: "h:1" is not an address such as`,
		"mesh: {certificates: [{name: c, ca: " + p.dir + "/x}]}": "sub/b.yaml:1: mesh.certificates[0].ca: ",
		"x: [": "sub/b.yaml:1: not valid YAML",
	} {
		p.write("sub/b.yaml", text)
		p.look()
		page, _ := p.GetStatus(context.Background(), nil)
		if !strings.HasPrefix(page.Error, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", text, page.Error, want)
		}
		if page.Error != "" && strings.Contains(page.Error, "secret") {
			t.Errorf("the error shows a key: %s", page.Error)
		}
	}
	c.quiet()
	p.write("sub/b.yaml", "admission: {tenants: [{name: b}]}")
	p.look()
	if got := texts(t, c.next()); got != "a.yaml sub/b.yaml" && got != "sub/b.yaml a.yaml" {
		t.Errorf("got %s", got)
	}
	if page, _ := p.GetStatus(context.Background(), nil); page.Error != "" {
		t.Error(page.Error)
	}
}

// TestMissingFileIsLookedForAgain: a file that a policy names may come after it.
func TestMissingFileIsLookedForAgain(t *testing.T) {
	a := newAuthority(t)
	p := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant})
	before := p.Version()
	p.write("m.yaml", fmt.Sprintf("mesh: {certificates: [{name: c, ca: %q}]}", a.file("late.pem")))
	p.look()
	if page, _ := p.GetStatus(context.Background(), nil); !strings.Contains(page.Error, "late.pem: no such file") || p.Version() != before {
		t.Fatalf("the error is %q", page.Error)
	}
	a.issue("late", nil)
	p.now = p.now.Add(retryWait)
	p.look()
	if page, _ := p.GetStatus(context.Background(), nil); page.Error != "" || p.Version() == before {
		t.Errorf("the error is %q", page.Error)
	}
}

// TestDeltaSendsWhatChanges: a client of the other protocol gets the files that
// change, and of what it has from before nothing.
func TestDeltaSendsWhatChanges(t *testing.T) {
	p := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant, "b.yaml": "admission: {tenants: [{name: b}]}", "m.yaml": "mesh: {}", "notes.txt": "x", ".hidden.yaml": "x: 1"})
	open := func(have map[string]string) discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		t.Cleanup(cancel)
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.conn).DeltaAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: as("n", "forebay"), TypeUrl: xds.PolicyType, InitialResourceVersions: have})
		return s
	}
	s := open(nil)
	r, err := s.Recv()
	if err != nil || len(r.GetResources()) != 2 {
		t.Fatalf("%d resources, %v", len(r.GetResources()), err)
	}
	have := map[string]string{}
	for _, resource := range r.GetResources() {
		have[resource.GetName()] = resource.GetVersion()
	}
	s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.PolicyType, ResponseNonce: r.GetNonce()})
	p.write("b.yaml", "admission: {tenants: [{name: b, weight: 3}]}")
	p.look()
	if r, err = s.Recv(); err != nil || len(r.GetResources()) != 1 || r.GetResources()[0].GetName() != "b.yaml" {
		t.Errorf("%v, %v", r, err)
	}
	s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
	if err := os.Remove(filepath.Join(p.dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	p.look()
	if r, err = open(have).Recv(); err != nil || len(r.GetResources()) != 0 || len(r.GetRemovedResources()) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

// TestSameFilesGiveSameVersions: whichever instance reads them.
func TestSameFilesGiveSameVersions(t *testing.T) {
	files := map[string]string{"a.yaml": oneTenant, "sub/m.yaml": mesh}
	one, two := startPlane(t, Config{}, files), startPlane(t, Config{}, files)
	if one.Version() != two.Version() {
		t.Errorf("%s and %s", one.Version(), two.Version())
	}
	two.write("a.yaml", strings.Replace(oneTenant, "acme", "other", 1))
	two.look()
	for _, typeURL := range typesOf[Envoy] {
		if a, b := one.trial.stable.of(Envoy).GetVersion(typeURL), two.trial.stable.of(Envoy).GetVersion(typeURL); a != b {
			t.Errorf("%s: %s and %s, and only tenants differ", typeURL, a, b)
		}
	}
	if one.Version() == two.Version() {
		t.Error("other files have the same version")
	}
}

const mesh = `mesh:
  listeners:
  - {name: front, address: "127.0.0.1:10000"}
  - {name: grpc}
  routes:
  - {name: chat, listener: front, prefix: /v1/, domains: ["*.example", "api.other"], cluster: one}
  - {name: rest, cluster: two}
  clusters:
  - {name: one, endpoints: ["unix:/run/forebay/api.sock"], health: /readyz}
  - {name: two, endpoints: ["10.0.0.1:8080", "[::1]:8080"], http2: true}
`

// TestConfigMap follows the swap of a symbolic link, by which Kubernetes changes all
// files of a ConfigMap at once.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		os.Mkdir(filepath.Join(dir, name), 0o700)
		os.WriteFile(filepath.Join(dir, name, "a.yaml"), []byte(text), 0o600)
		os.Symlink(name, filepath.Join(dir, "..tmp"))
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..2026_1", oneTenant)
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "current")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	p := startPlane(t, Config{Dir: link}, nil)
	before := p.Version()
	version("..2026_2", strings.Replace(oneTenant, "acme", "other", 1))
	p.look()
	if list := p.trial.stable.List(); len(list) != 1 || !strings.Contains(list[0].Text, "other") || p.Version() == before {
		t.Errorf("got %v", list)
	}
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), fmt.Appendf(nil, "admission: {tenants: [{name: t%d}]}\n", i), 0o600)
	}
	for _, c := range []struct {
		files, bytes int
		want         string
	}{{3, 200, ""}, {2, 200, "files_max, 2"}, {3, 80, "are left of the limit"}} {
		if _, err := Read(dir, c.files, c.bytes); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d files, %d bytes: %v", c.files, c.bytes, err)
		}
	}
	p := startPlane(t, Config{NodesMax: 1}, map[string]string{"a.yaml": oneTenant})
	one := p.sotw(&discoveryv3.DiscoveryRequest{Node: as("1", "forebay"), TypeUrl: xds.PolicyType})
	one.next()
	for _, n := range []*corev3.Node{as("2", "forebay"), nil} {
		two := p.sotw(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: xds.PolicyType})
		if r, ok := <-two.got; ok {
			t.Errorf("%v was answered: %v", n, r)
		}
	}
	one.CloseSend()
	for range 100 {
		if page, _ := p.GetStatus(context.Background(), nil); len(page.Nodes) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.sotw(&discoveryv3.DiscoveryRequest{Node: as("2", "forebay"), TypeUrl: xds.PolicyType}).next()
	if keys := p.cache.GetStatusKeys(); len(keys) != 1 {
		t.Errorf("the cache remembers %v", keys)
	}
}

// TestUnknownTypesEndNothing: a client that asks for more than there is keeps its
// stream.
func TestUnknownTypesEndNothing(t *testing.T) {
	p := startPlane(t, Config{}, map[string]string{"a.yaml": oneTenant, "m.yaml": mesh})
	c := p.sotw(&discoveryv3.DiscoveryRequest{Node: as("e", "envoy"), TypeUrl: "type.googleapis.com/envoy.service.runtime.v3.Runtime", ResourceNames: []string{"x"}})
	c.Send(&discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/example.Odd"})
	c.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterType})
	if r := c.next(); r.GetTypeUrl() != clusterType || len(r.GetResources()) != 2 {
		t.Errorf("got %v", r)
	}
}
