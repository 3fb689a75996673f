package gguf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

func parse(t *testing.T, b *gguftest.Builder) *File {
	t.Helper()
	f, err := Parse("test.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// get unwraps a getter's answer and wants the key present.
func get[T any](t *testing.T) func(v T, present bool, err error) T {
	return func(v T, present bool, err error) T {
		t.Helper()
		if err != nil || !present {
			t.Fatalf("present %v, error %v", present, err)
		}
		return v
	}
}

func TestGettersReturnEveryKindOfValue(t *testing.T) {
	for _, version := range []uint32{2, 3} {
		f := parse(t, (&gguftest.Builder{Version: version}).
			Set("a.text", "words\x00\xff").Set("a.u8", uint8(200)).Set("a.u64", uint64(1)<<40).Set("a.i32", int32(7)).
			Set("a.f32", float32(0.5)).Set("a.f64", 0.25).Set("a.bool", true).
			Set("a.strings", []string{"x", "", "yz"}).Set("a.ints", []int32{-1, 5}).Set("a.floats", []float32{1, -2}))
		if got := get[string](t)(f.String("a.text")); got != "words\x00\xff" {
			t.Errorf("text %q", got)
		}
		for key, want := range map[string]uint64{"a.u8": 200, "a.u64": 1 << 40, "a.i32": 7} {
			if got := get[uint64](t)(f.Uint(key)); got != want {
				t.Errorf("%s is %d, want %d", key, got, want)
			}
		}
		for key, want := range map[string]float64{"a.f32": 0.5, "a.f64": 0.25} {
			if got := get[float64](t)(f.Float(key)); got != want {
				t.Errorf("%s is %v, want %v", key, got, want)
			}
		}
		if !get[bool](t)(f.Bool("a.bool")) {
			t.Error("bool is false")
		}
		if got := get[[]string](t)(f.Strings("a.strings")); !slices.Equal(got, []string{"x", "", "yz"}) {
			t.Errorf("strings %q", got)
		}
		if got := get[[]int64](t)(f.Ints("a.ints")); !slices.Equal(got, []int64{-1, 5}) {
			t.Errorf("ints %v", got)
		}
		if got := get[[]float32](t)(f.Floats("a.floats")); !slices.Equal(got, []float32{1, -2}) {
			t.Errorf("floats %v", got)
		}
		if f.Version() != int(version) || len(f.Keys()) != 10 || f.Count("a.strings") != 3 {
			t.Errorf("version %d, %d keys, %d strings", f.Version(), len(f.Keys()), f.Count("a.strings"))
		}
	}
}

func TestGettersNameKeyAndTypeOfAnotherKind(t *testing.T) {
	f := parse(t, (&gguftest.Builder{}).Set("k", int32(-3)).Set("s", []string{"x"}).Set("f", float32(1)).
		Raw("u", 9, words(uint32(10), uint64(2), uint64(1), uint64(1)<<63)))
	errs := map[string]error{}
	add := func(name string, present bool, err error) {
		if !present {
			t.Errorf("%s: not present", name)
		}
		errs[name] = err
	}
	_, ok, err := f.String("k")
	add("key k: has type i32, not string", ok, err)
	_, ok, err = f.Uint("k")
	add("key k: is -3, not a whole number", ok, err)
	_, ok, err = f.Uint("s")
	add("key s: is array of string, 1 elements, not a whole number", ok, err)
	_, ok, err = f.Float("k")
	add("key k: has type i32, not f32 or f64", ok, err)
	_, ok, err = f.Bool("k")
	add("key k: has type i32, not bool", ok, err)
	_, ok, err = f.Strings("f")
	add("key f: has type f32, not array of string", ok, err)
	_, ok, err = f.Ints("s")
	add("key s: has type array of string, not array of whole numbers", ok, err)
	_, ok, err = f.Ints("u")
	add("key u: element 1 is over 2^63-1", ok, err)
	_, ok, err = f.Floats("s")
	add("key s: has type array of string, not array of f32", ok, err)
	for want, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "test.gguf: "+want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, ok, err := f.Uint("absent"); ok || err != nil {
		t.Errorf("absent key: present %v, error %v", ok, err)
	}
}

func TestTensorsAreReadInPlace(t *testing.T) {
	for _, alignment := range []int{8, 24, 32, 4096} {
		a, q := gguftest.Encode(kernels.F32, []float32{1, 2, 3}), gguftest.Encode(kernels.Q8_0, make([]float32, 64))
		b := &gguftest.Builder{Alignment: alignment}
		f := parse(t, b.Tensor("a", kernels.F32, []int{3}, a).Tensor("q", kernels.Q8_0, []int{32, 2}, q).
			Tensor("foreign", 3, []int{32}, make([]byte, 20)))
		ta, _ := f.Tensor("a")
		tq, _ := f.Tensor("q")
		if !slices.Equal(ta.Data, a) || !slices.Equal(tq.Data, q) || !slices.Equal(tq.Dims, []int{32, 2}) {
			t.Errorf("alignment %d: tensors differ from what was written", alignment)
		}
		want := []TypeUse{{kernels.Q8_0, 1, 68}, {3, 1, 20}, {kernels.F32, 1, 12}}
		if d := cmp.Diff(want, f.TypeUses()); d != "" {
			t.Error(d)
		}
		if f.Parameters() != 3+64+32 {
			t.Errorf("%d parameters", f.Parameters())
		}
		if _, ok := f.Tensor("b"); ok {
			t.Error("found a tensor that is not there")
		}
	}
}

// TestForeignTypesAreForeignAndNamed holds this package's table and that of
// kernels together: a type moves from one to the other when it is supported.
func TestForeignTypesAreForeignAndNamed(t *testing.T) {
	for foreign, l := range foreignLayouts {
		if foreign.Known() || strings.HasPrefix(foreign.String(), "type ") || l.elements < 1 || l.bytes < 1 {
			t.Errorf("%s: known %v, layout %+v", foreign, foreign.Known(), l)
		}
	}
}

func TestDigestTellsModelsApart(t *testing.T) {
	digest := func(name string, first float32) string {
		b := &gguftest.Builder{}
		data := gguftest.Encode(kernels.F32, append(make([]float32, 20000), first))
		return parse(t, b.Set("general.name", name).Tensor("a", kernels.F32, []int{20001}, data)).Digest()
	}
	base := digest("a", 1)
	if len(base) != 32 || base != digest("a", 1) {
		t.Errorf("digest %q is not stable", base)
	}
	if base == digest("b", 1) || base == digest("a", 2) {
		t.Error("digests of different models are equal")
	}
}

func TestOpenMapsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	data := gguftest.TinyModel(gguftest.Tiny{})
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	fromMemory, err := Parse("tiny", data)
	if err != nil {
		t.Fatal(err)
	}
	if f.Digest() != fromMemory.Digest() || f.SizeBytes() != len(data) || f.Name() != path {
		t.Error("the mapped file differs from the bytes written")
	}
	tokens := get[[]string](t)(f.Strings("tokenizer.ggml.tokens"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if tokens[1] != "<|im_start|>" { // strings outlive the mapping
		t.Errorf("token 1 is %q", tokens[1])
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, present, _ := f.String("general.name"); present || len(f.Keys()) > 0 || f.Name() != path {
		t.Error("a closed file answers from the mapping that is gone")
	}
}

// TestRealFilesOpen reads every file there is, of types and architectures
// that we compute with and of others.
func TestRealFilesOpen(t *testing.T) {
	shared := filepath.Join("..", "..", "..", "shared")
	paths, _ := filepath.Glob(filepath.Join(shared, "conformance", "*", "*.gguf"))
	more, _ := filepath.Glob(filepath.Join(shared, "conformance", "tokenizers", "*", "*.gguf"))
	models, _ := filepath.Glob(filepath.Join(shared, "models", "*.gguf"))
	paths = append(append(paths, more...), models...)
	if len(paths) == 0 {
		t.Skipf("no .gguf files under %s", shared)
	}
	for _, path := range paths {
		f, err := Open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, key := range f.Keys() {
			if f.Text(key) == "" {
				t.Errorf("%s: key %s has no text", path, key)
			}
		}
		f.Close()
	}
}
