package xds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forebay-io/forebay/xds/controlpb"
)

// TestHostileControlPlanes: each is refused with a reason, changes nothing, and costs
// little, however long it goes on.
func TestHostileControlPlanes(t *testing.T) {
	odd, _ := anypb.New(&controlpb.Node{Id: "x"})
	huge := policyOf("2")
	for i := range 11 {
		huge.Resources = append(huge.Resources, policyOf("2", fmt.Sprintf("f%d=x", i)).Resources...)
	}
	wrongName := policyOf("2", "b=y")
	wrongName.Resources[0].Name = "c"
	otherType := policyOf("2", "b=y")
	otherType.TypeUrl = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	for want, r := range map[string]*discoveryv3.DeltaDiscoveryResponse{
		"b: comes twice in one response":                   {TypeUrl: PolicyType, Resources: append(policyOf("2", "b=y").Resources, policyOf("2", "b=z").Resources...)},
		"the response is of the type":                      otherType,
		`b: is of the type "type.googleapis.com/forebay.`:  {TypeUrl: PolicyType, Resources: []*discoveryv3.Resource{{Name: "b", Resource: odd}}},
		"b: is not a PolicyFile: its bytes cannot be read": {TypeUrl: PolicyType, Resources: []*discoveryv3.Resource{{Name: "b", Resource: &anypb.Any{TypeUrl: PolicyType, Value: []byte{0xff}}}}},
		"b: names no file":                                 {TypeUrl: PolicyType, Resources: []*discoveryv3.Resource{{Name: "b", Resource: &anypb.Any{TypeUrl: PolicyType}}}},
		"c: holds the file b":                              wrongName,
		"has 12 files, and xds.files_max allows 10":        huge,
		"bytes, and xds.total_bytes_max allows 1024":       policyOf("2", "b="+strings.Repeat("x", 2000)),
		"b: is of the type \"\"":                           {TypeUrl: PolicyType, Resources: []*discoveryv3.Resource{{Name: "b"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &plane{first: policyOf("1", "a=x")}
			c, g := start(t, p, Config{FilesMax: 10, BytesMax: 1024})
			defer run(t, c)()
			pause(time.Second)
			p.set(false, r)
			p.link().send <- r
			pause(time.Hour)
			if s := c.State(time.Now()); !strings.Contains(s.Problem, want) || g.holds() != "a=x " || g.takes() != 1 {
				t.Errorf("%s: state %+v, holds %s", want, s, g.holds())
			}
			if len(p.answers()) > 200 {
				t.Errorf("%s: %d answers in an hour", want, len(p.answers()))
			}
			p.set(false, policyOf("3", "b=y"))
			close(p.link().send)
			pause(time.Minute)
			if s := c.State(time.Now()); g.holds() != "a=x b=y " || s.Refusing {
				t.Errorf("%s: afterwards %+v, holds %s", want, s, g.holds())
			}
		})
	}
}

// TestFlappingVersions: a control plane that changes its mind without end is followed
// at a bounded rate.
func TestFlappingVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plane{first: policyOf("1", "a=x")}
		c, g := start(t, p, Config{})
		defer run(t, c)()
		pause(time.Second)
		for i := range 10000 {
			p.link().send <- policyOf("same", fmt.Sprintf("a=%d", i%2)) // its version never changes, and it lies
		}
		pause(10 * time.Second)
		if g.takes() < 100 || g.takes() > 2+10*int(time.Second/settleTime) {
			t.Errorf("%d takes in 10 s", g.takes())
		}
	})
}

// TestSilentControlPlane: a server that takes the stream and never answers is left for
// the next one, and asked again with pauses.
func TestSilentControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, good := &plane{}, &plane{first: policyOf("1", "a=x")}
		c, g := start(t, good, Config{})
		c.boot.Servers = []BootstrapServer{{URI: "silent"}, {URI: "good"}}
		c.dial = func(ctx context.Context, s *BootstrapServer, protocol string, have map[string]string, accepted string) (link, func(), error) {
			if s.URI == "silent" {
				return silent.dial(ctx, s, protocol, have, accepted)
			}
			return good.dial(ctx, s, protocol, have, accepted)
		}
		defer run(t, c)()
		pause(answerLimit + time.Second)
		if s := c.State(time.Now()); s.Server != "good" || g.holds() != "a=x " {
			t.Errorf("state %+v, holds %s", s, g.holds())
		}
		good.set(true, nil)
		close(good.link().send)
		pause(time.Minute)
		if s := c.State(time.Now()); !strings.Contains(s.Problem, "refused") && !strings.Contains(s.Problem, "did not answer within 15s") {
			t.Errorf("state %+v", s)
		}
		pause(time.Hour)
		if silent.count() > 200 {
			t.Errorf("%d dials in an hour", silent.count())
		}
	})
}
