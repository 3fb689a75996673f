// Package policy says what a control plane may tell: files in the form of the
// gateway's own configuration file, with fewer sections.
//
// Goal: control plane and gateway read the same files by the same code, so that a
// mistake is found where the files are, and an error names file, line, setting and
// reason on both sides.
//
// Lists that stand in several files are put together. A plain value may stand in one
// file only.
//
// Non-goals: how files travel (package xds), and which settings a gateway lets
// replace (the command line's reload).
package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/internal/conf"
)

// Config is what the files of a policy may hold. Of Admission and Identity only the
// settings of Live are allowed.
type Config struct {
	Admission admission.Config `yaml:"admission"`
	Identity  identity.Config  `yaml:"identity"`
	Mesh      Mesh             `yaml:"mesh"`
	Files     []File           `yaml:"files" help:"What is said of single files."`
}

// File is what a policy says of one of its files.
type File struct {
	Name string        `yaml:"name" help:"Path of the file in the folder, with slashes."`
	TTL  time.Duration `yaml:"ttl" range:"1s..8760h" help:"How long the file holds at a gateway that hears no more from the control plane; 0 is until it is taken back."`
}

// TTL is the time to live of a file, 0 for none.
func (p *Policy) TTL(file string) time.Duration {
	for _, f := range p.Files {
		if f.Name == file {
			return f.TTL
		}
	}
	return 0
}

// Live are the settings that a policy may hold and a gateway takes while it runs.
var Live = []string{
	"admission.tenants", "admission.classes", "admission.routes", "admission.default_class", "admission.part_limits",
	"identity.issuers", "identity.mesh_peers", "identity.mesh_identities",
}

// Policy is a Config that was read, and where each of its settings came from.
type Policy struct {
	Config
	schema *conf.Schema
	given  []string
}

// Parse reads files that are one policy together. The error lists every mistake, one
// a line, each with file, line and setting.
func Parse(files []conf.File) (*Policy, error) {
	p := &Policy{}
	p.schema = conf.Of(&p.Config)
	errs := []error{p.schema.LoadFiles(files)}
	keys, places := p.schema.Given()
	for i, key := range keys {
		switch {
		case slices.Contains(Live, key):
			p.given = append(p.given, key)
		case key != "files" && !strings.HasPrefix(key, "mesh."):
			errs = append(errs, fmt.Errorf("%s: %s is not for policies: a gateway reads it once, from its own configuration file; a policy may hold %s, mesh and files", places[i], key, strings.Join(Live, ", ")))
		}
	}
	for i, t := range p.Admission.Tenants {
		for j, key := range t.Keys {
			if key != "*" && !strings.HasPrefix(key, "sha256:") {
				errs = append(errs, p.Place(fmt.Errorf("admission.tenants[%d].keys: key %d is plain text, which everybody could read who can read policies; write sha256: and the SHA-256 of the key in hexadecimal", i, j)))
			}
		}
	}
	return p, errors.Join(errs...)
}

// Place adds, to each line of err that begins with a setting of the policy, the file
// and the line that it came from.
func (p *Policy) Place(err error) error { return p.schema.Place(err) }

// PlaceIn is Place for the settings of one section, which err may leave out.
func (p *Policy) PlaceIn(section string, err error) error { return p.schema.PlaceIn(section, err) }

// Over replaces, in a gateway's own configuration, what the policy holds.
func (p *Policy) Over(a *admission.Config, i *identity.Config) {
	for _, key := range p.given {
		switch key {
		case "admission.tenants":
			a.Tenants = p.Admission.Tenants
		case "admission.classes":
			a.Classes = p.Admission.Classes
		case "admission.routes":
			a.Routes = p.Admission.Routes
		case "admission.default_class":
			a.DefaultClass = p.Admission.DefaultClass
		case "admission.part_limits":
			a.PartLimits = p.Admission.PartLimits
		case "identity.issuers":
			i.Issuers = p.Identity.Issuers
		case "identity.mesh_peers":
			i.MeshPeers = p.Identity.MeshPeers
		case "identity.mesh_identities":
			i.MeshIdentities = p.Identity.MeshIdentities
		}
	}
}

// Given lists the settings of Live that the policy holds.
func (p *Policy) Given() []string { return p.given }

// ForGateways reports whether a file holds a setting of gateways.
func (p *Policy) ForGateways(file string) bool {
	return slices.ContainsFunc(p.schema.GivenBy(file), func(key string) bool { return slices.Contains(Live, key) })
}
