package xds

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// FuzzBook: whatever a control plane sends, what is held stays within its limits, and
// is either a policy or has a reason why it is none.
func FuzzBook(f *testing.F) {
	for _, r := range []*discoveryv3.DeltaDiscoveryResponse{policyOf("1", "a=x", "b=y"), policyOf("2", "a"), {TypeUrl: PolicyType, Resources: []*discoveryv3.Resource{{Name: "a"}, {}}}} {
		wire, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var r discoveryv3.DeltaDiscoveryResponse
		if proto.Unmarshal(wire, &r) != nil {
			return
		}
		const files, bytes = 4, 64
		now := time.Unix(0, 0)
		b := book{filesMax: files, bytesMax: bytes}
		if _, err := b.changed(policyOf("0", "a=1"), now); err != nil {
			t.Fatal(err)
		}
		if _, err := b.changed(&r, now); err != nil {
			if len(b.files) != 1 || b.version != "0" {
				t.Fatalf("what could not be noted changed what is held: %v", b.files)
			}
			return
		}
		held := 0
		list, err := b.policy()
		for _, f := range list {
			held += len(f.Name) + len(f.Text)
			if f.Name == "" && err == nil {
				t.Fatal("a file without a name is part of a policy")
			}
		}
		if len(list) > files || held > bytes {
			t.Fatalf("%d files with %d bytes are held", len(list), held)
		}
		b.forget()
		if _, err := b.policy(); err != nil {
			t.Fatalf("after forgetting: %v", err)
		}
	})
}
