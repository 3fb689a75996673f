package xds

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

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

// changed notes a response with changes. The error is about the response as such,
// which then changes nothing.
func (b *book) changed(r *discoveryv3.DeltaDiscoveryResponse) error {
	if r.GetTypeUrl() != PolicyType {
		return fmt.Errorf("the response is of the type %q, and %s was asked for", clip(r.GetTypeUrl()), PolicyType)
	}
	next := maps.Clone(b.files)
	if next == nil {
		next = map[string]held{}
	}
	for _, name := range r.GetRemovedResources() {
		delete(next, name)
	}
	seen := map[string]bool{}
	for _, resource := range r.GetResources() {
		name, f := open(resource.GetName(), resource.GetResource())
		if seen[name] {
			return fmt.Errorf("%s: comes twice in one response", clip(name))
		}
		f.version, seen[name] = resource.GetVersion(), true
		next[name] = f
	}
	return b.take(next, r.GetSystemVersionInfo())
}

// replaced notes a response with everything.
func (b *book) replaced(r *discoveryv3.DiscoveryResponse) error {
	if r.GetTypeUrl() != PolicyType {
		return fmt.Errorf("the response is of the type %q, and %s was asked for", clip(r.GetTypeUrl()), PolicyType)
	}
	next := map[string]held{}
	for i, resource := range r.GetResources() {
		name, f := open("", resource)
		if name == "" {
			name = fmt.Sprintf("resource %d", i)
			f.problem = name + f.problem
		}
		if _, twice := next[name]; twice {
			return fmt.Errorf("%s: comes twice in one response", clip(name))
		}
		next[name] = f
	}
	return b.take(next, r.GetVersionInfo())
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
