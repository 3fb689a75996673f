package control

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/xds/controlpb"
)

// Diff writes how resources differ from others that are served, and tells whether
// they do: + before what is new, - before what is gone, ~ before what changes. The
// lines of policy files follow.
func Diff(w io.Writer, served, files []*controlpb.Resource) bool {
	before, after := index(served), index(files)
	var keys []string
	for key := range before {
		keys = append(keys, key)
	}
	for key := range after {
		if before[key] == nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	differs := false
	for _, key := range keys {
		old, now := before[key], after[key]
		switch {
		case old == nil:
			fmt.Fprintf(w, "+ %s\n", key)
			diffLines(w, "", now.Text)
		case now == nil:
			fmt.Fprintf(w, "- %s\n", key)
			diffLines(w, old.Text, "")
		case old.Version != now.Version:
			fmt.Fprintf(w, "~ %s\n", key)
			diffLines(w, old.Text, now.Text)
		default:
			continue
		}
		differs = true
	}
	return differs
}

func index(list []*controlpb.Resource) map[string]*controlpb.Resource {
	byKey := map[string]*controlpb.Resource{}
	for _, r := range list {
		byKey[r.TypeUrl[strings.LastIndexByte(r.TypeUrl, '.')+1:]+" "+r.Name] = r
	}
	return byKey
}

// diffLines writes what lies between the lines that both texts begin with and those
// that both end with.
func diffLines(w io.Writer, before, after string) {
	old, now := slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(after))
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	for _, line := range old {
		fmt.Fprintf(w, "    - %s\n", strings.TrimSuffix(line, "\n"))
	}
	for _, line := range now {
		fmt.Fprintf(w, "    + %s\n", strings.TrimSuffix(line, "\n"))
	}
}
