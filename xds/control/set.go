package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"
)

// Kind is what a client is.
type Kind string

// The kinds.
const (
	Envoy   Kind = "envoy"
	GRPC    Kind = "grpc"
	Forebay Kind = "forebay"
)

// Set is all that clients of one kind are given. It never changes, and implements
// cache.ResourceSnapshot, which also serves types that go-control-plane does not
// know. Versions are hashes of what they name.
type Set struct {
	byType map[string]*resources
}

// resources are those of one type.
type resources struct {
	version  string
	items    map[string]types.Resource
	withTTL  map[string]types.ResourceWithTTL
	versions map[string]string
}

// newSet makes a Set; each type of typeURLs has a version, though it may be empty.
func newSet(typeURLs []string, items map[string]map[string]types.Resource) (*Set, error) {
	s := &Set{byType: map[string]*resources{}}
	for _, typeURL := range typeURLs {
		r := &resources{items: items[typeURL], withTTL: map[string]types.ResourceWithTTL{}, versions: map[string]string{}}
		h := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(r.items)) {
			wire, err := cache.MarshalResource(r.items[name])
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", typeURL, name, err)
			}
			r.withTTL[name] = types.ResourceWithTTL{Resource: r.items[name]}
			r.versions[name] = cache.HashResource(wire)
			fmt.Fprintf(h, "%q %s\n", name, r.versions[name])
		}
		r.version = hex.EncodeToString(h.Sum(nil)[:8])
		s.byType[typeURL] = r
	}
	return s, nil
}

var none = &resources{}

func (s *Set) of(typeURL string) *resources {
	if r := s.byType[typeURL]; r != nil {
		return r
	}
	return none
}

// GetVersion implements cache.ResourceSnapshot.
func (s *Set) GetVersion(typeURL string) string { return s.of(typeURL).version }

// GetResourcesAndTTL implements cache.ResourceSnapshot.
func (s *Set) GetResourcesAndTTL(typeURL string) map[string]types.ResourceWithTTL {
	return s.of(typeURL).withTTL
}

// GetResources implements cache.ResourceSnapshot.
func (s *Set) GetResources(typeURL string) map[string]types.Resource { return s.of(typeURL).items }

// ConstructVersionMap implements cache.ResourceSnapshot.
func (s *Set) ConstructVersionMap() error { return nil }

// GetVersionMap implements cache.ResourceSnapshot.
func (s *Set) GetVersionMap(typeURL string) map[string]string { return s.of(typeURL).versions }

// Sets are what clients are given, by kind.
type Sets struct {
	Version string
	byKind  map[Kind]*Set
}

// Build makes what clients are given of a folder's files.
func Build(f *Files) (*Sets, error) {
	s := &Sets{byKind: map[Kind]*Set{}}
	h := sha256.New()
	for _, kind := range []Kind{Envoy, GRPC, Forebay} {
		items, err := f.items(kind)
		if err != nil {
			return nil, err
		}
		if s.byKind[kind], err = newSet(typesOf[kind], items); err != nil {
			return nil, err
		}
		for _, typeURL := range typesOf[kind] {
			fmt.Fprintln(h, kind, typeURL, s.byKind[kind].GetVersion(typeURL))
		}
	}
	s.Version = hex.EncodeToString(h.Sum(nil)[:8])
	return s, nil
}

// of is what a client of a kind is given.
func (s *Sets) of(kind Kind) *Set { return s.byKind[kind] }

func add(items map[string]map[string]types.Resource, typeURL, name string, m proto.Message) {
	if items[typeURL] == nil {
		items[typeURL] = map[string]types.Resource{}
	}
	items[typeURL][name] = m
}
