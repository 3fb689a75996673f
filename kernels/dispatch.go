package kernels

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// DisableEnv names the environment variable that switches sets off: their names,
// with commas between. ref cannot be switched off.
const DisableEnv = "FOREBAY_KERNELS_DISABLE"

// Sets lists the sets that this processor can run and that are not switched off,
// best first. The last is always ref.
func Sets() []*Set {
	off := strings.Split(os.Getenv(DisableEnv), ",")
	var sets []*Set
	for _, s := range vectorSets() {
		if !slices.ContainsFunc(off, func(name string) bool { return strings.TrimSpace(name) == s.Name }) {
			sets = append(sets, s)
		}
	}
	return append(sets, refSet)
}

// Best is the first of Sets.
func Best() *Set { return Sets()[0] }

// Lookup finds an available set by name.
func Lookup(name string) (*Set, error) {
	var names []string
	for _, s := range Sets() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("no kernel set %q on this machine; available: %s", name, strings.Join(names, ", "))
}
