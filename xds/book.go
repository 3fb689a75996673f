package xds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/xds/controlpb"
)

// book is what the control plane has sent, accepted or not: in the protocol of
// changes it sends a refused file no second time, so that the next version is this
// one and its changes. It is pure.
type book struct {
	filesMax, bytesMax int
	files              map[string]held
	version            string // of the whole, as the control plane calls it
}

// held is a file. problem says why it can never be taken; it is asked for again when
// the stream is a new one.
type held struct {
	version, text, problem string

	ttl     time.Duration // 0 is for ever
	expires time.Time     // unless it is confirmed before
}

// confirmed is f with its time to live begun anew.
func (f held) confirmed(ttl *durationpb.Duration, now time.Time) held {
	f.ttl, f.expires = 0, time.Time{}
	if ttl == nil {
		return f
	}
	if f.ttl = ttl.AsDuration(); f.ttl <= 0 {
		f.problem = fmt.Sprintf("has the time to live %v, which is not above 0", f.ttl)
	}
	f.expires = now.Add(f.ttl)
	return f
}

// open reads one resource.
func open(name string, resource *anypb.Any) (string, held) {
	var f controlpb.PolicyFile
	switch {
	case resource.GetTypeUrl() != PolicyType:
		return name, held{problem: fmt.Sprintf("%s: is of the type %q, and %s was asked for", clip(name), clip(resource.GetTypeUrl()), PolicyType)}
	case resource.UnmarshalTo(&f) != nil:
		return name, held{problem: clip(name) + ": is not a PolicyFile: its bytes cannot be read"}
	case f.GetName() == "":
		return name, held{problem: clip(name) + ": names no file"}
	case name != "" && f.GetName() != name:
		return name, held{problem: fmt.Sprintf("%s: holds the file %s", clip(name), clip(f.GetName()))}
	}
	return f.GetName(), held{text: f.GetText()}
}

// changed notes a response with changes. It tells whether it only confirms files that are
// held already. The error is about the response as such, which then changes nothing.
func (b *book) changed(r *discoveryv3.DeltaDiscoveryResponse, now time.Time) (confirms bool, err error) {
	if r.GetTypeUrl() != PolicyType {
		return false, wrongType(r.GetTypeUrl())
	}
	next := maps.Clone(b.files)
	if next == nil {
		next = map[string]held{}
	}
	for _, name := range r.GetRemovedResources() {
		delete(next, name)
	}
	notes := notes{next: next, seen: map[string]bool{}, now: now}
	for _, resource := range r.GetResources() {
		if err := notes.add(b, resource); err != nil {
			return false, err
		}
	}
	return notes.confirmsOnly() && len(r.GetRemovedResources()) == 0, b.take(next, r.GetSystemVersionInfo())
}

func wrongType(typeURL string) error {
	return fmt.Errorf("the response is of the type %q, and %s was asked for", clip(typeURL), PolicyType)
}

// notes is a response that is being read.
type notes struct {
	next             map[string]held
	seen             map[string]bool
	confirmed, given int
	now              time.Time
}

// confirmsOnly reports whether the response holds nothing but confirmations.
func (n *notes) confirmsOnly() bool { return n.confirmed > 0 && n.given == 0 }

// add notes a resource. One without content, but with a time to live, confirms a file of b.
func (n *notes) add(b *book, resource *discoveryv3.Resource) error {
	name, f := resource.GetName(), held{}
	if resource.GetResource() == nil && resource.GetTtl() != nil {
		n.confirmed++
		had, ok := b.files[name]
		if !ok {
			return fmt.Errorf("%s: is confirmed, and it has expired or was never sent", clip(name))
		}
		f = had
	} else {
		n.given++
		name, f = open(name, resource.GetResource())
		if name == "" { // its problem says what it is
			name = fmt.Sprintf("resource %d", len(n.seen))
			f.problem = name + f.problem
		}
		f.version = resource.GetVersion()
	}
	if n.seen[name] {
		return fmt.Errorf("%s: comes twice in one response", clip(name))
	}
	n.seen[name] = true
	n.next[name] = f.confirmed(resource.GetTtl(), n.now)
	return nil
}

// wrapperType is the type of resources in the state of the world that have a time to live.
const wrapperType = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// replaced notes a response with everything, or one that only confirms, which it tells.
func (b *book) replaced(r *discoveryv3.DiscoveryResponse, now time.Time) (confirms bool, err error) {
	if r.GetTypeUrl() != PolicyType {
		return false, wrongType(r.GetTypeUrl())
	}
	notes := notes{next: map[string]held{}, seen: map[string]bool{}, now: now}
	for _, one := range r.GetResources() {
		resource := &discoveryv3.Resource{Resource: one}
		if one.GetTypeUrl() == wrapperType {
			resource = new(discoveryv3.Resource)
			if one.UnmarshalTo(resource) != nil {
				resource = &discoveryv3.Resource{Resource: one} // open says what is wrong with it
			}
		}
		if err := notes.add(b, resource); err != nil {
			return false, err
		}
	}
	if notes.confirmsOnly() {
		for name, f := range b.files {
			if !notes.seen[name] {
				notes.next[name] = f
			}
		}
		return true, b.take(notes.next, b.version)
	}
	return false, b.take(notes.next, r.GetVersionInfo())
}

// take replaces what is held, unless it is too much.
func (b *book) take(next map[string]held, version string) error {
	bytes := 0
	for name, f := range next {
		bytes += len(name) + len(f.text)
	}
	switch {
	case len(next) > b.filesMax:
		return fmt.Errorf("the policy has %d files, and xds.files_max allows %d", len(next), b.filesMax)
	case bytes > b.bytesMax:
		return fmt.Errorf("the policy has %d bytes, and xds.total_bytes_max allows %d", bytes, b.bytesMax)
	}
	b.files, b.version = next, version
	return nil
}

// policy is what is held, in the order of names, or why it is none.
func (b *book) policy() ([]conf.File, error) {
	var list []conf.File
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		f := b.files[name]
		if f.problem != "" {
			errs = append(errs, errors.New(f.problem))
		}
		list = append(list, conf.File{Name: name, Text: []byte(f.text)})
	}
	return list, errors.Join(errs...)
}

// forget drops what can never be taken. A new stream does not name it, and so is sent
// it again if it is still there.
func (b *book) forget() {
	maps.DeleteFunc(b.files, func(_ string, f held) bool { return f.problem != "" })
}

// versions are those of the files that need not be sent again.
func (b *book) versions() map[string]string {
	v := map[string]string{}
	for name, f := range b.files {
		if f.version != "" {
			v[name] = f.version
		}
	}
	return v
}

// clip shortens what a control plane says, for messages.
func clip(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}
