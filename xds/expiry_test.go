package xds

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// lasting gives the files of a response a time to live.
func lasting(r *discoveryv3.DeltaDiscoveryResponse, ttl time.Duration, names string) *discoveryv3.DeltaDiscoveryResponse {
	for _, one := range r.Resources {
		if strings.Contains(names, one.Name) {
			one.Ttl = durationpb.New(ttl)
		}
	}
	return r
}

// confirming confirms files.
func confirming(ttl time.Duration, names ...string) *discoveryv3.DeltaDiscoveryResponse {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: PolicyType}
	for _, name := range names {
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Ttl: durationpb.New(ttl)})
	}
	return r
}

// TestTimeToLive: a file holds for as long as it is confirmed, then what is left holds; it
// is asked for anew on the next stream, and does not come back from the disk.
func TestTimeToLive(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: lasting(policyOf("1", "a=x", "b=y"), time.Minute, "b")}
		c, g := start(t, p, Config{StateDir: dir})
		stop := run(t, c)
		for range 6 {
			pause(30 * time.Second)
			p.link().send <- confirming(time.Minute, "b")
		}
		pause(time.Second)
		if s := c.State(time.Now()); g.holds() != "a=x b=y " || g.takes() != 1 || s.Files != 2 || s.Refusing {
			t.Fatalf("while it is confirmed: %+v, holds %s after %d takes", s, g.holds(), g.takes())
		}
		p.set(true, nil)
		close(p.link().send)
		pause(58 * time.Second)
		if g.holds() != "a=x b=y " {
			t.Errorf("before its time: holds %s", g.holds())
		}
		pause(2 * time.Second)
		if s := c.State(time.Now()); g.holds() != "a=x " || g.takes() != 2 || s.Files != 1 || s.Refusing || !slices.Equal(s.Expired, []string{"b"}) {
			t.Errorf("after its time: %+v, holds %s", s, g.holds())
		}
		stop()
		c, g = start(t, p, Config{StateDir: dir})
		if g.holds() != "a=x " {
			t.Errorf("kept: holds %s", g.holds())
		}
		stop = run(t, c)
		p.set(false, policyOf("1", "b=y"))
		pause(time.Minute)
		if have := p.lastAsked(); g.holds() != "a=x b=y " || len(c.State(time.Now()).Expired) > 0 || have["a"] == "" || have["b"] != "" {
			t.Errorf("back: holds %s, it asked with %v", g.holds(), have)
		}
		stop()
	})
}

// TestKeptFileExpires: a file that was kept holds for its time after the control plane last
// had it, whatever happened meanwhile.
func TestKeptFileExpires(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: lasting(policyOf("1", "a=x", "b=y"), time.Hour, "b")}
		c, g := start(t, p, Config{StateDir: dir})
		stop := run(t, c)
		pause(time.Second)
		stop()
		if g.holds() != "a=x b=y " {
			t.Fatalf("holds %s", g.holds())
		}
		p.set(true, nil)
		time.Sleep(59 * time.Minute)
		c, g = start(t, p, Config{StateDir: dir})
		if g.holds() != "a=x b=y " {
			t.Errorf("before its time: holds %s", g.holds())
		}
		stop = run(t, c)
		pause(2 * time.Minute)
		if g.holds() != "a=x " {
			t.Errorf("after its time: holds %s", g.holds())
		}
		stop()
		c, g = start(t, p, Config{StateDir: dir})
		if s := c.State(time.Now()); g.holds() != "a=x " || s.Source != FromDisk {
			t.Errorf("a start after its time: %+v, holds %s", s, g.holds())
		}
	})
}

// TestWhatIsLeftDoesNotFit: a file whose end leaves nothing, or something wrong, ends
// nothing that holds, and says so.
func TestWhatIsLeftDoesNotFit(t *testing.T) {
	for want, first := range map[string]*discoveryv3.DeltaDiscoveryResponse{
		"holds no file any more":                 policyOf("1", "a=x"),
		"what is left does not fit: b:1: is bad": policyOf("1", "a=x", "b=y"),
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &plane{first: lasting(first, time.Minute, "a")}
			c, g := start(t, p, Config{})
			defer run(t, c)()
			pause(time.Second)
			held := g.holds()
			g.refuses.Store("y")
			p.set(true, nil)
			close(p.link().send)
			pause(time.Hour)
			if s := c.State(time.Now()); g.holds() != held || !s.Refusing || !strings.Contains(s.Problem, want) {
				t.Errorf("%+v, holds %s", s, g.holds())
			}
		})
	}
}

// TestConfirmations: one of a file that is not held begins a new stream, by which the file
// comes again; in the state of the world one names a few files and takes none away.
func TestConfirmations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: policyOf("1", "a=x")}
		c, g := start(t, p, Config{})
		defer run(t, c)()
		pause(time.Second)
		p.set(false, policyOf("1", "b=y"))
		p.link().send <- confirming(time.Minute, "b")
		pause(time.Minute)
		if s := c.State(time.Now()); g.holds() != "a=x b=y " || s.Connected != 2 || s.Refusing {
			t.Errorf("%+v, holds %s", s, g.holds())
		}
	})
	now := time.Unix(1000, 0)
	wrap := func(r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DiscoveryResponse {
		all := &discoveryv3.DiscoveryResponse{TypeUrl: PolicyType, VersionInfo: r.SystemVersionInfo}
		for _, one := range r.Resources {
			packed, err := anypb.New(one)
			if err != nil {
				t.Fatal(err)
			}
			all.Resources = append(all.Resources, packed)
		}
		return all
	}
	b := book{filesMax: 10, bytesMax: 1000}
	if confirms, err := b.replaced(wrap(lasting(policyOf("1", "a=x", "b=y"), time.Minute, "b")), now); confirms || err != nil || b.version != "1" || !b.files["b"].expires.Equal(now.Add(time.Minute)) {
		t.Errorf("%v, %v: %+v", confirms, err, b.files)
	}
	if confirms, err := b.replaced(wrap(confirming(2*time.Minute, "b")), now); !confirms || err != nil || b.version != "1" || len(b.files) != 2 || !b.files["b"].expires.Equal(now.Add(2*time.Minute)) {
		t.Errorf("%v, %v: %+v", confirms, err, b.files)
	}
	if _, err := b.changed(lasting(policyOf("2", "b=z"), -time.Second, "b"), now); err != nil || !strings.Contains(b.files["b"].problem, "not above 0") {
		t.Errorf("%v: %+v", err, b.files)
	}
	if names := b.expire(now.Add(time.Hour)); len(names) != 1 || len(b.files) != 1 || !b.expiry().IsZero() {
		t.Errorf("%v expired, %+v are left", names, b.files)
	}
}
