package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/safetensors"
	"github.com/forebay-io/forebay/kernels"
)

// hostileValues are what a key of a broken config.json may say.
var hostileValues = []any{nil, 0, 1, 3, 8.5, -1, 1 << 24, 1e300, 1e-300, "", "yarn", true, false,
	[]int{}, []int{-1}, []string{"x"}, map[string]any{}, map[string]any{"rope_type": "yarn"}, map[string]any{"factor": []int{1}}}

// TestHostileConfigsAreComputedOrRefused gives each key of each folder's config.json,
// and of the objects in it, values that do not belong there: whatever still loads must run.
func TestHostileConfigsAreComputedOrRefused(t *testing.T) {
	folders, _ := filepath.Glob("testdata/*")
	team := kernels.NewTeam(1)
	defer team.Close()
	for _, dir := range folders {
		text, err := os.ReadFile(filepath.Join(dir, configName))
		if err != nil {
			t.Fatal(err)
		}
		if said, err := os.ReadFile(filepath.Join(dir, modeloptName)); err == nil {
			if text, err = addQuantization(modeloptName, text, said); err != nil {
				t.Fatal(err)
			}
		}
		weights, err := openWeights(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer weights.Close()
		var whole map[string]any
		if err := json.Unmarshal(text, &whole); err != nil {
			t.Fatal(err)
		}
		loaded, tried := 0, 0
		change := func(object map[string]any, key string) {
			old, present := object[key]
			for _, v := range hostileValues {
				object[key] = v
				changed, _ := json.Marshal(whole)
				tried++
				if runsOnce(t, fmt.Sprintf("%s with %s of %v", dir, key, v), changed, weights, team) {
					loaded++
				}
			}
			if object[key] = old; !present {
				delete(object, key)
			}
		}
		for _, key := range append(slices.Sorted(maps.Keys(whole)), "head_dim", "rope_scaling", "layer_types", "sliding_window", "num_experts", "mlp_only_layers") {
			change(whole, key)
			if inner, ok := whole[key].(map[string]any); ok {
				for _, key := range slices.Sorted(maps.Keys(inner)) {
					change(inner, key)
				}
			}
		}
		if loaded == 0 || loaded == tried {
			t.Errorf("%s: %d of %d load; the test sees nothing", dir, loaded, tried)
		}
	}
}

// runsOnce reports whether a folder of this config.json loads; a panic fails the test by name.
func runsOnce(t *testing.T, name string, config []byte, weights *safetensors.File, team *kernels.Team) bool {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: panic: %v", name, r)
		}
	}()
	f, err := convert(name, config, weights, pooling{})
	if err != nil {
		return false
	}
	m, err := model.Load(f, kernels.Best(), team, model.Options{BatchTokensMax: 4})
	if err != nil {
		return false
	}
	defer m.Close()
	m.Forward([]model.Chunk{{Tokens: []int32{1}, Pages: []int32{0}, Logits: 1}})
	return true
}
