package picker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Pool says which replicas are picked from, and what objectives mean. It never changes.
type Pool struct {
	name       string
	labels     map[string]string
	ports      []int // nil for any
	objectives map[string]objective
}

// objective is an InferenceObjective.
type objective struct {
	priority int
	class    string // "" for that of the request
}

// classAnnotation names the class that requests of an InferenceObjective get.
const classAnnotation = "forebay.io/class"

// poolBytesMax bounds the file of a pool.
const poolBytesMax = 1 << 20

// ReadPool reads a file of manifests. Those of other kinds are left out.
func ReadPool(file string) (*Pool, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, poolBytesMax+1))
	if err == nil && len(text) > poolBytesMax {
		err = fmt.Errorf("it has more than %d bytes", poolBytesMax)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p, err := parsePool(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

func parsePool(text []byte) (*Pool, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, fmt.Errorf("not valid YAML: %s", line)
	}
	p := &Pool{objectives: map[string]objective{}}
	refs := map[string]string{} // the pools that objectives name
	pools := 0
	for _, doc := range file.Docs {
		m := tree{doc.Body}
		name := m.at("metadata", "name").text()
		switch m.at("kind").text() {
		case "InferencePool":
			pools++
			if err := p.take(name, m.at("spec")); err != nil {
				return nil, fmt.Errorf("InferencePool %s: %w", name, err)
			}
		case "InferenceObjective":
			if _, twice := refs[name]; twice || name == "" {
				return nil, fmt.Errorf("InferenceObjective %q: its metadata.name is missing, or that of another one", name)
			}
			o := objective{class: m.at("metadata", "annotations", classAnnotation).text()}
			if text := m.at("spec", "priority").text(); text != "" {
				if o.priority, err = strconv.Atoi(text); err != nil {
					return nil, fmt.Errorf("InferenceObjective %s: spec.priority: %q is no whole number", name, text)
				}
			}
			p.objectives[name], refs[name] = o, m.at("spec", "poolRef", "name").text()
		}
	}
	if pools != 1 {
		return nil, fmt.Errorf("it has %d InferencePools; give it one", pools)
	}
	for name, ref := range refs {
		if ref != p.name {
			return nil, fmt.Errorf("InferenceObjective %s: spec.poolRef.name is %q, and the pool is %q", name, ref, p.name)
		}
	}
	return p, nil
}

// take reads the spec of an InferencePool, in the form of v1 or of v1alpha2.
func (p *Pool) take(name string, spec tree) error {
	p.name, p.labels = name, map[string]string{}
	selector := spec.at("selector")
	if inner := selector.at("matchLabels"); inner.node != nil {
		selector = inner
	}
	for key, value := range selector.members() {
		if p.labels[key] = value.text(); p.labels[key] == "" {
			return fmt.Errorf("spec.selector: %s must be a text; labels that must be equal are known, and nothing else", key)
		}
	}
	ports := []string{}
	if old := spec.at("targetPortNumber").text(); old != "" {
		ports = append(ports, old)
	}
	for _, port := range spec.at("targetPorts").items() {
		ports = append(ports, port.at("number").text())
	}
	for _, text := range ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("spec.targetPorts: %q is no port", text)
		}
		p.ports = append(p.ports, int(port))
	}
	if len(ports) == 0 {
		return errors.New("spec.targetPorts: is missing")
	}
	return nil
}

// tree is a part of a YAML document, with a nil node where there is none.
type tree struct{ node ast.Node }

// members are those of a mapping.
func (t tree) members() map[string]tree {
	all := map[string]tree{}
	var pairs []*ast.MappingValueNode
	switch n := t.node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	}
	for _, pair := range pairs {
		all[tree{pair.Key}.text()] = tree{pair.Value}
	}
	return all
}

// at follows keys.
func (t tree) at(keys ...string) tree {
	for _, key := range keys {
		t = t.members()[key]
	}
	return t
}

// items are those of a list.
func (t tree) items() (all []tree) {
	if n, ok := t.node.(*ast.SequenceNode); ok {
		for _, item := range n.Values {
			all = append(all, tree{item})
		}
	}
	return all
}

// text is a plain value, "" for anything else.
func (t tree) text() string {
	switch n := t.node.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.IntegerNode:
		return n.Token.Value
	}
	return ""
}

// has reports whether a replica belongs to the pool.
func (p *Pool) has(address string, labels map[string]string) bool {
	if p == nil {
		return true
	}
	_, text, _ := net.SplitHostPort(address)
	port, err := strconv.Atoi(text)
	if err != nil || !slices.Contains(p.ports, port) {
		return false
	}
	for key, value := range p.labels {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (p *Pool) objective(name string) objective {
	if p == nil {
		return objective{}
	}
	return p.objectives[name]
}

// lookEach is how often the file of a pool is looked at.
const lookEach = time.Second

// poolFile is the Pool of a file, which may change.
type poolFile struct {
	file   string
	failed func(error)
	pool   atomic.Pointer[Pool]
	looked atomic.Int64 // Unix nanoseconds
	seen   atomic.Pointer[string]
}

// openPool reads a file, "" for none. failed hears of a file that was not taken later.
func openPool(file string, failed func(error)) (*poolFile, error) {
	f := &poolFile{file: file, failed: failed}
	if file == "" {
		return f, nil
	}
	f.changed()
	p, err := ReadPool(file)
	f.pool.Store(p)
	f.looked.Store(time.Now().UnixNano())
	return f, err
}

// now is the pool as it is; of a file that is wrong the last good one holds.
func (f *poolFile) now(now time.Time) *Pool {
	last := f.looked.Load()
	if f.file != "" && now.UnixNano()-last > int64(lookEach) && f.looked.CompareAndSwap(last, now.UnixNano()) && f.changed() {
		if p, err := ReadPool(f.file); err != nil {
			f.failed(err)
		} else {
			f.pool.Store(p)
		}
	}
	return f.pool.Load()
}

// changed reports whether the file is another than at the last look.
func (f *poolFile) changed() bool {
	sign := "none"
	if info, err := os.Stat(f.file); err == nil {
		sign = fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	}
	last := f.seen.Swap(&sign)
	return last == nil || *last != sign
}
