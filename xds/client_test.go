package xds

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAnHourWithoutControlPlane: what holds goes on holding, a gateway that starts
// meanwhile begins with what was kept, both say how old it is, and when the control
// plane is back nothing is sent a second time.
func TestAnHourWithoutControlPlane(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: policyOf("1", "a=x", "b=y")}
		c, g := start(t, p, Config{StateDir: dir})
		stop := run(t, c)
		pause(time.Minute)
		if s := c.State(time.Now()); s.Source != FromServer || s.Stale != 0 || s.Server != "one" || g.holds() != "a=x b=y " {
			t.Fatalf("state %+v, holds %s", s, g.holds())
		}
		p.set(true, nil)
		close(p.link().send)
		pause(time.Hour)
		if s := c.State(time.Now()); s.Source != FromServer || s.Stale != time.Hour || s.Server != "" || !strings.Contains(s.Problem, "connection refused") || g.holds() == "" {
			t.Errorf("after an hour: %+v", s)
		}
		if p.dials < 60 || p.dials > 180 {
			t.Errorf("%d dials in an hour", p.dials)
		}
		stop()

		// One that starts meanwhile. Its file is an hour old by the virtual clock.
		c, g = start(t, p, Config{StateDir: dir})
		if s := c.State(time.Now()); s.Source != FromDisk || s.Stale < time.Hour-time.Second || s.Stale > time.Hour+2*time.Minute || g.holds() != "a=x b=y " {
			t.Errorf("warm: %+v, holds %s", s, g.holds())
		}
		stop = run(t, c)
		pause(time.Minute)
		p.set(false, policyOf("1"))
		pause(time.Minute)
		if s := c.State(time.Now()); s.Source != FromServer || s.Stale != 0 || g.takes() != 1 {
			t.Errorf("back: %+v, %d takes", s, g.takes())
		}
		if have := p.lastAsked(); have["a"] != "v1" || have["b"] != "v1" {
			t.Errorf("it asked with %v", have)
		}
		stop()
	})
}

// TestRefusedPolicyKeepsTheLast: the reason goes back, the last policy holds, and the
// next version is the refused one and its changes.
func TestRefusedPolicyKeepsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: policyOf("1", "a=x")}
		c, g := start(t, p, Config{})
		defer run(t, c)()
		pause(time.Second)
		p.link().send <- policyOf("2", "a=z", "b=bad")
		pause(time.Second)
		if s := c.State(time.Now()); g.holds() != "a=x " || !s.Refusing || s.Version != "1" || s.Problem != "b:1: is bad" {
			t.Errorf("state %+v, holds %s", s, g.holds())
		}
		p.link().send <- policyOf("3", "b=y")
		pause(time.Second)
		if s := c.State(time.Now()); g.holds() != "a=z b=y " || s.Refusing || s.Problem != "" || s.Taken != 2 || s.Refused != 1 {
			t.Errorf("state %+v, holds %s", s, g.holds())
		}
		p.link().send <- policyOf("4", "a", "b")
		pause(time.Second)
		if g.holds() != "a=z b=y " || p.answers()[3] != errNothingLeft.Error() {
			t.Errorf("a policy without files: holds %s, answer %s", g.holds(), p.answers()[3])
		}
		if len(p.answers()) != 4 || p.dials != 1 {
			t.Errorf("%d answers to 4 responses on %d links", len(p.answers()), p.dials)
		}
	})
}

// TestRefusedPolicyIsLookedAtAgain: when what a policy did not fit with has changed, it
// holds without being sent a second time.
func TestRefusedPolicyIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: policyOf("1", "a=x")}
		c, g := start(t, p, Config{})
		defer run(t, c)()
		pause(time.Second)
		c.Again() // nothing is refused: nothing happens
		g.refuses.Store("y")
		p.link().send <- policyOf("2", "a=y")
		pause(time.Second)
		if s := c.State(time.Now()); !s.Refusing || s.Connected != 1 {
			t.Fatalf("state %+v", s)
		}
		g.refuses.Store("")
		p.set(false, policyOf("2"))
		c.Again()
		pause(2 * time.Second)
		if s := c.State(time.Now()); s.Refusing || g.holds() != "a=y " || s.Connected != 2 {
			t.Errorf("state %+v, holds %s", s, g.holds())
		}
	})
}

func TestFallsBackToTheOtherProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: policyOf("1", "a=x")}
		c, g := start(t, p, Config{})
		var protocols []string
		c.dial = func(ctx context.Context, s *BootstrapServer, protocol string, have map[string]string, accepted string) (link, func(), error) {
			protocols = append(protocols, protocol)
			if protocol == deltaProtocol {
				return broken{status.Error(codes.Unimplemented, "unknown method")}, func() {}, nil
			}
			return p.dial(ctx, s, protocol, have, accepted)
		}
		defer run(t, c)()
		pause(time.Second)
		close(p.link().send)
		pause(time.Minute)
		if got := strings.Join(protocols, " "); got != "delta sotw sotw" || g.holds() != "a=x " {
			t.Errorf("%s, holds %s", got, g.holds())
		}
	})
}

// broken is a link that ends at once.
type broken struct{ err error }

func (b broken) receive() (string, response, error) { return "", nil, b.err }
func (broken) whole() bool                          { return true }
func (broken) answer(string, string, error) error   { return nil }
func (broken) report(Health) error                  { return nil }

func TestPausesGrow(t *testing.T) {
	for n, want := range map[int]struct{ least, most time.Duration }{
		0: {0, time.Second}, 1: {1280 * time.Millisecond, 1920 * time.Millisecond}, 3: {3276 * time.Millisecond, 4916 * time.Millisecond},
		50: {24 * time.Second, 36 * time.Second}, 1 << 20: {24 * time.Second, 36 * time.Second},
	} {
		if least, most := backoff(n, 0, 30*time.Second), backoff(n, 1, 30*time.Second); least < want.least-time.Millisecond || most > want.most || least > most {
			t.Errorf("pause %d lies in %v..%v, want %v..%v", n, least, most, want.least, want.most)
		}
	}
}
