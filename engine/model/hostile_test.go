package model

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// hostileValues are what a key of a broken file may say.
var hostileValues = []any{uint32(0), uint32(1), uint32(2), uint32(3), uint32(47), uint32(1 << 12), uint32(1 << 24), uint32(1<<32 - 1), int32(-1),
	uint64(1 << 63), float32(0), float32(-1), float32(1e-30), float32(math.MaxFloat32), float32(math.NaN()), float32(math.Inf(1)),
	"", "yarn", true, false, []int32{}, []int32{1, 2, 3}, []int32{-1}, []bool{}, []bool{true}, []bool{true, true, true, true}, []string{"a"}}

// TestHostileKeysAreComputedOrRefused gives each key of each architecture values that
// do not belong there: whatever still loads must run.
func TestHostileKeysAreComputedOrRefused(t *testing.T) {
	for arch := range families {
		hostileKeys(t, arch, familyFile(t, arch, kernels.F32), hostileValues)
	}
}

// TestHostileKeysOfReferenceModels does the same with some values a key.
func TestHostileKeysOfReferenceModels(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, base := range referenceModels(t) {
		f := openFile(t, base+".gguf")
		if filepath.Base(filepath.Dir(base)) == "arch2" {
			rng.Shuffle(len(hostileValues), func(i, j int) { hostileValues[i], hostileValues[j] = hostileValues[j], hostileValues[i] })
			arch, _, _ := f.String("general.architecture")
			values := hostileValues[:3]
			if underRace { // one worker computes
				values = values[:1]
			}
			hostileKeys(t, arch, f, values)
		}
	}
}

func hostileKeys(t *testing.T, arch string, f *gguf.File, values []any) {
	t.Helper()
	team := newTeam(t, 1)
	c, err := ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	k := &keys{file: f, prefix: arch + ".", read: map[string]bool{}}
	architectures[arch](k, &c) // asks for every key, those that the file lacks too
	k.readHarmless(&c)
	loaded, tried := 0, 0
	for _, key := range append(slices.Collect(maps.Keys(k.read)), f.Keys()...) {
		if strings.HasPrefix(key, "tokenizer.") {
			continue
		}
		for _, v := range values {
			d := gguf.NewDraft(fmt.Sprintf("%s with %s of %T %v", arch, key, v, v))
			d.Copy(f)
			d.Set(key, v)
			for _, tensor := range f.Tensors {
				d.Add(tensor)
			}
			changed, err := d.File("", false)
			if err != nil {
				t.Fatal(err)
			}
			tried++
			if runsOnce(t, changed, team) {
				loaded++
			}
		}
	}
	if loaded == 0 || loaded == tried {
		t.Errorf("%s: %d of %d load; the test sees nothing", arch, loaded, tried)
	}
}

// runsOnce reports whether the file loads; a panic fails the test by the file's name.
func runsOnce(t *testing.T, f *gguf.File, team *kernels.Team) bool {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: panic: %v", f.Name(), r)
		}
	}()
	m, err := Load(f, kernels.Best(), team, Options{})
	if err != nil {
		return false
	}
	defer m.Close()
	m.Forward([]Chunk{{Tokens: []int32{1, 2}[:min(2, m.Config().ContextTokens)], Pages: []int32{0}, Logits: 1}})
	return true
}
