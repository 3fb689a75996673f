package schema

import (
	"net/url"
	"strconv"
	"strings"
)

// identifiers knows the schemas of a document by $id and $anchor.
type identifiers struct {
	root      *value
	resources map[string]*value // by absolute URI
	anchors   map[string]*value // by URI with fragment
	bases     map[*value]*url.URL
}

// Where keywords hold schemas.
var (
	schemaIn  = words("additionalItems additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems unevaluatedProperties")
	schemasIn = words("allOf anyOf items oneOf prefixItems")
	namedIn   = words("$defs definitions dependencies dependentSchemas patternProperties properties")
)

func words(list string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		m[w] = true
	}
	return m
}

func identify(root *value, draft int) *identifiers {
	ids := &identifiers{root: root, resources: map[string]*value{}, anchors: map[string]*value{}, bases: map[*value]*url.URL{}}
	ids.bases[root] = &url.URL{}
	ids.resources[""] = root
	ids.visit(root, &url.URL{}, draft)
	return ids
}

func (ids *identifiers) visit(v *value, base *url.URL, draft int) {
	if v.kind != kindObject {
		return
	}
	for _, key := range []string{"$id", "id"} {
		id := v.get(key)
		if id == nil || id.kind != kindString || key == "id" && draft > 4 {
			continue
		}
		u, err := base.Parse(id.text)
		if err != nil {
			continue
		}
		if strings.HasPrefix(id.text, "#") { // an anchor's spelling up to draft 7
			ids.anchors[u.String()] = v
			continue
		}
		u.Fragment, u.RawFragment = "", ""
		base = u
		ids.bases[v] = u
		if _, ok := ids.resources[u.String()]; !ok || u.String() != "" {
			ids.resources[u.String()] = v
		}
		break
	}
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		if a := v.get(key); a != nil && a.kind == kindString {
			ids.anchors[withoutFragment(base)+"#"+a.text] = v
		}
	}
	for _, m := range v.members {
		switch {
		case schemaIn[m.key] && m.value.kind == kindObject:
			ids.visit(m.value, base, draft)
		case schemasIn[m.key] && m.value.kind == kindArray:
			for _, x := range m.value.items {
				ids.visit(x, base, draft)
			}
		case namedIn[m.key] && m.value.kind == kindObject:
			for _, x := range m.value.members {
				ids.visit(x.value, base, draft)
			}
		}
	}
}

func withoutFragment(u *url.URL) string {
	v := *u
	v.Fragment, v.RawFragment = "", ""
	return v.String()
}

// resource is the schema that v belongs to: the nearest with an $id, or the root.
func (ids *identifiers) resource(v *value) *value {
	for ; v.parent != nil; v = v.parent {
		if _, ok := ids.bases[v]; ok {
			return v
		}
	}
	return v
}

// find is the schema that a reference in v names, or nil.
func (ids *identifiers) find(v *value, ref string) *value {
	resource := ids.resource(v)
	base := ids.bases[resource]
	if base == nil {
		base = &url.URL{}
	}
	u, err := base.Parse(ref)
	if err != nil {
		return nil
	}
	target := resource
	if !strings.HasPrefix(ref, "#") {
		if target = ids.resources[withoutFragment(u)]; target == nil {
			return nil
		}
	}
	switch {
	case u.Fragment == "":
		return target
	case strings.HasPrefix(u.Fragment, "/"):
		return follow(target, u.Fragment)
	}
	home := ids.bases[ids.resource(target)]
	if home == nil {
		home = &url.URL{}
	}
	return ids.anchors[withoutFragment(home)+"#"+u.Fragment]
}

// follow walks a JSON pointer.
func follow(v *value, pointer string) *value {
	for step := range strings.SplitSeq(pointer[1:], "/") {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		switch v.kind {
		case kindObject:
			v = v.get(step)
		case kindArray:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v.items) {
				return nil
			}
			v = v.items[i]
		default:
			return nil
		}
		if v == nil {
			return nil
		}
	}
	return v
}
