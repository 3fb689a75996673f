package identity

import (
	"bytes"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// mesh says which client certificates are whose.
type mesh struct {
	peers      []netip.Prefix
	socket     bool // and whoever may connect to the Unix socket
	own        bool // and this server itself, of the certificates that TLS verified
	identities []meshIdentity
}

type meshIdentity struct {
	uri    string
	prefix bool // uri is only the beginning
	caller *Caller
}

var errUnknownIdentity = &Refusal{Reason: UnknownIdentity, Message: "no mesh identity has the URI of this client certificate"}

func (s *Snapshot) addMesh(cfg *Config) (errs []error) {
	for _, text := range cfg.MeshPeers {
		switch text {
		case socketPeer:
			s.mesh.socket = true
			continue
		case ownPeer:
			s.mesh.own = true
			continue
		}
		if peers, err := parsePeers(text); err == nil { // Config.Mistakes has checked it
			s.mesh.peers = append(s.mesh.peers, peers)
		}
	}
	for i := range cfg.MeshIdentities {
		m := &cfg.MeshIdentities[i]
		caller, err := s.caller(m.Tenant, m.Name, Rights{m.Classes, m.Routes, m.Models})
		if err != nil {
			errs = append(errs, fmt.Errorf("identity.mesh_identities[%d].%w", i, err))
			continue
		}
		caller.Limits, caller.LimitsOf = m.Limits, "mesh:"+m.Name
		uri, prefix := strings.CutSuffix(m.URI, "*")
		s.mesh.identities = append(s.mesh.identities, meshIdentity{uri, prefix, caller})
	}
	return errs
}

// socketPeer in mesh_peers stands for those who may connect to the Unix socket.
const socketPeer = "unix"

// ownPeer in mesh_peers stands for the gateway's own TLS.
const ownPeer = "tls"

// findVerified is the caller of a certificate with these URIs, nil for none.
func (m *mesh) findVerified(uris []*url.URL) *Caller {
	for i := range m.identities {
		id := &m.identities[i]
		for _, u := range uris {
			if id.fits([]byte(u.String())) {
				return id.caller
			}
		}
	}
	return nil
}

// fits tells that the identity has this URI.
func (id *meshIdentity) fits(uri []byte) bool {
	return string(uri) == id.uri || id.prefix && len(uri) >= len(id.uri) && string(uri[:len(id.uri)]) == id.uri
}

// on reports whether any proxy is believed.
func (m *mesh) on() bool { return m.socket || len(m.peers) > 0 }

// trusts reports whether p comes from a proxy whose word is believed.
func (m *mesh) trusts(p *Presented) bool {
	if p.Socket {
		return m.socket
	}
	peer := p.Peer.Unmap()
	for i := range m.peers {
		if m.peers[i].Contains(peer) {
			return true
		}
	}
	return false
}

// find is the caller of the certificate in a header, nil for none. Of several
// URIs the first that fits an identity counts.
func (m *mesh) find(header []byte) *Caller {
	for i := range m.identities {
		id := &m.identities[i]
		if eachURI(header, id.fits) {
			return id.caller
		}
	}
	return nil
}

// eachURI calls fits for each URI of the last element of x-forwarded-client-cert,
// until it returns true, which eachURI then returns too. A proxy appends the
// certificate of its own client, so earlier elements are what that client said.
//
// An element is KEY=VALUE pairs between semicolons, and elements stand between
// commas. A value may be in quotes, in which \" is a quote; one that never ends makes
// the header worthless.
func eachURI(header []byte, fits func([]byte) bool) bool {
	element, ok := lastElement(header)
	if !ok {
		return false
	}
	for len(element) > 0 {
		end := cutAt(element, ';')
		pair := element[:end]
		element = element[min(end+1, len(element)):]
		name, value, _ := bytes.Cut(pair, []byte("="))
		if !bytes.EqualFold(bytes.TrimSpace(name), []byte("URI")) {
			continue
		}
		value = bytes.TrimSpace(value)
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		// No URI holds these: a value with them was not written by a proxy.
		if len(value) > 0 && !bytes.ContainsAny(value, "\"\\ ") && fits(value) {
			return true
		}
	}
	return false
}

// lastElement is what follows the last comma outside quotes; ok is false where a
// quote never ends.
func lastElement(header []byte) (element []byte, ok bool) {
	element = header
	for {
		end := cutAt(element, ',')
		if end < 0 {
			return nil, false
		}
		if end == len(element) {
			return bytes.TrimSpace(element), true
		}
		element = element[end+1:]
	}
}

// cutAt is where sep is first outside quotes, the length of b where it is nowhere,
// and -1 where a quote never ends.
func cutAt(b []byte, sep byte) int {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case quoted && b[i] == '\\':
			i++
		case b[i] == '"':
			quoted = !quoted
		case b[i] == sep && !quoted:
			return i
		}
	}
	if quoted {
		return -1
	}
	return len(b)
}
