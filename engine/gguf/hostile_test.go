package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// words joins numbers and text as they lie in a file.
func words(parts ...any) []byte {
	var w bytes.Buffer
	for _, p := range parts {
		if s, ok := p.(string); ok {
			w.WriteString(s)
		} else if err := binary.Write(&w, binary.LittleEndian, p); err != nil {
			panic(err)
		}
	}
	return w.Bytes()
}

// header is the start of a version 3 file with the counts as given.
func header(tensors, keys uint64) []byte { return words("GGUF", uint32(3), tensors, keys) }

// oneKey is a file of one key k, whose type and value are parts.
func oneKey(parts ...any) []byte {
	return append(append(header(0, 1), words(uint64(1), "k")...), words(parts...)...)
}

// wantRefused wants an error of the file's name, a byte and the words.
func wantRefused(t *testing.T, name string, file []byte, want string) {
	t.Helper()
	f, err := Parse("bad.gguf", file)
	if err == nil {
		t.Errorf("%s: read, with %d keys and %d tensors", name, len(f.Keys()), len(f.Tensors))
		return
	}
	if !strings.HasPrefix(err.Error(), "bad.gguf: byte ") || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %q, want %q", name, err, want)
	}
}

// nested is an array of arrays, depth deep.
func nested(depth int) []byte {
	b := words(uint32(9))
	for range depth - 1 {
		b = append(b, words(uint32(9), uint64(1))...)
	}
	return append(b, words(uint32(0), uint64(1), uint8(7))...)
}

func TestCountsBeyondTheFileAreRefusedWithoutAllocating(t *testing.T) {
	const str, arr, u8 = uint32(8), uint32(9), uint32(0)
	cases := []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "magic: needs 4 bytes, but the file has only 0 left"},
		{"string of 2^62", oneKey(str, uint64(1)<<62), "k: needs 4611686018427387904 bytes"},
		{"string of 2^64-1", oneKey(str, uint64(math.MaxUint64)), "k: needs 18446744073709551615 bytes"},
		{"string of 1 GiB", oneKey(str, uint64(1)<<30), "k: needs 1073741824 bytes"},
		{"array of 2^40", oneKey(arr, u8, uint64(1)<<40), "k count: is 1099511627776, which cannot fit into the 0 bytes"},
		{"array of 2^64-1", oneKey(arr, u8, uint64(math.MaxUint64)), "k count: is 18446744073709551615; the most allowed"},
		{"strings of 2^40", oneKey(arr, str, uint64(1)<<40), "k count: is 1099511627776"},
		{"string in array of 2^63", oneKey(arr, str, uint64(1), uint64(1)<<63), "k: needs 9223372036854775808 bytes"},
		{"keys of 2^63", header(0, 1<<63), "key count: is 9223372036854775808; the most allowed"},
		{"keys that cannot fit", header(0, 1000), "key count: is 1000, which cannot fit into the 0 bytes"},
		{"tensors of 2^63", header(1<<63, 0), "tensor count: is 9223372036854775808; the most allowed"},
		{"tensors that cannot fit", header(60000, 0), "tensor count: is 60000, which cannot fit"},
		{"tensors that half fit", append(header(1000, 0), make([]byte, 2000)...), "tensor count: is 1000, which cannot fit into the 2008 bytes"},
		{"key of 1 MiB", append(header(0, 1), words(uint64(1)<<20, strings.Repeat("k", 32))...), "key: is 1048576 bytes long; allowed are 1 to 65535"},
		{"empty key", append(header(0, 1), words(uint64(0), u8, uint8(1), uint8(0))...), "key: is 0 bytes long"},
		{"key with a NUL", append(header(0, 1), words(uint64(2), "k\x00", u8, uint8(1))...), "byte 33: key: has the byte 0x00"},
		{"arrays nested 10,000 deep", append(oneKey(), nested(10_000)...), "arrays nested more than 4 deep"},
		{"unknown value type 13", oneKey(uint32(13), uint64(0)), "k: has the unknown value type 13"},
		{"unknown element type 13", oneKey(arr, uint32(13), uint64(1)), "k: has the unknown element type 13"},
		{"bool of 2", oneKey(uint32(7), uint8(2)), "k: is a bool of value 2"},
		{"version 1", words("GGUF", uint32(1), uint64(0), uint64(0)), "version: is 1; versions 2 and 3 are supported"},
		{"version 4", words("GGUF", uint32(4), uint64(0), uint64(0)), "version: is 4;"},
		{"big-endian", words("GGUF", uint32(3)<<24, uint64(0), uint64(0)), "version: is byte-swapped (3): big-endian"},
		{"other file", []byte("PK\x03\x04............"), `magic: is "PK\x03\x04", so this is not a GGUF file`},
	}
	for _, c := range cases {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		wantRefused(t, c.name, c.file, c.want)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; len(c.file) < 200 && n > 1<<20 {
			t.Errorf("%s: %d bytes allocated for a file of %d", c.name, n, len(c.file))
		}
	}
	if _, err := Parse("ok", append(oneKey(), nested(4)...)); err != nil {
		t.Errorf("arrays nested 4 deep: %v", err)
	}
}

// TestArraysDoNotGrowInMemory: an element of one byte would take eight.
func TestArraysDoNotGrowInMemory(t *testing.T) {
	const n = elementsMax + 1
	for elem, read := range map[uint32]func(f *File) error{
		0: func(f *File) error { _, _, err := f.Ints("k"); return err },
		6: func(f *File) error { _, _, err := f.Floats("k"); return err },
		8: func(f *File) error { _, _, err := f.Strings("k"); return err },
	} {
		size := max(1, map[uint32]int{6: 4, 8: 8}[elem])
		f, err := Parse("long", append(oneKey(uint32(9), elem, uint64(n)), make([]byte, n*size)...))
		if err != nil {
			t.Fatal(err)
		}
		if err := read(f); err == nil || !strings.Contains(err.Error(), "long: key k: has 4194305 elements; allowed are up to 4194304") {
			t.Errorf("array of type %d: error %v", elem, err)
		}
	}
}

func TestEveryCutOfAFileIsRefused(t *testing.T) {
	whole := gguftest.TinyModel(gguftest.Tiny{Layers: 1, Embed: 32, Heads: 1, KVHeads: 1})
	f, err := Parse("whole", whole)
	if err != nil {
		t.Fatal(err)
	}
	step := 1
	for n := 0; n < len(whole); n += step {
		if n > len(f.header)+64 {
			step = 997 // within data, cuts are alike
		}
		wantRefused(t, fmt.Sprintf("cut at %d", n), whole[:n], "")
	}
}

func TestAlignmentsAreReadRightOrRefused(t *testing.T) {
	data := gguftest.Encode(kernels.F32, []float32{1, 2})
	for _, n := range []int{8, 16, 24, 32, 40, 64, 4096} {
		b := &gguftest.Builder{Alignment: n}
		f, err := Parse("good", b.Tensor("a", kernels.F32, []int{2}, data).Tensor("b", kernels.F32, []int{2}, data).Bytes())
		if err != nil {
			t.Errorf("alignment %d: %v", n, err)
			continue
		}
		if b, _ := f.Tensor("b"); !bytes.Equal(b.Data, data) {
			t.Errorf("alignment %d: tensor b is % x", n, b.Data)
		}
	}
	const key = "general.alignment"
	for name, v := range map[string]any{
		"is 0;": uint32(0), "is 1;": uint32(1), "is 7;": uint32(7), "is 12;": uint32(12), "is 1073741824;": uint32(1) << 30,
		"is 2147483648;": uint32(1) << 31, "has type i32": int32(-32), "has type string": "32", "has type f32": float32(32), "has type u64": uint64(32),
	} {
		b := (&gguftest.Builder{}).Set(key, v).Tensor("a", kernels.F32, []int{2}, data)
		wantRefused(t, fmt.Sprint(v), b.Bytes(), key+": "+name)
	}
	twice := (&gguftest.Builder{}).Set(key, uint32(32)).Set(key, uint32(64))
	wantRefused(t, "twice", twice.Bytes(), "key general.alignment: appears twice")
}

func TestShapesAreMultipliedWithCare(t *testing.T) {
	entry := func(dims ...uint64) []byte {
		b := append(header(1, 0), words(uint64(1), "a", uint32(len(dims)), dims)...)
		return append(b, words(uint32(0), uint64(0), make([]byte, 256))...)
	}
	wantRefused(t, "product wraps", entry(1<<42+1, 1<<22), "tensor a: has a dimension of 4194304; the product must be")
	wantRefused(t, "2^64-1 by 2", entry(math.MaxUint64, 2), "tensor a: has a dimension of 18446744073709551615")
	wantRefused(t, "zero dimension", entry(4, 0), "tensor a: has a dimension of 0")
	wantRefused(t, "no dimension", entry(), "tensor a: has 0 dimensions; allowed are 1 to 4")
	wantRefused(t, "five dimensions", entry(1, 1, 1, 1, 1), "tensor a: has 5 dimensions")
	wantRefused(t, "nine dimensions", entry(1, 1, 1, 1, 1, 1, 1, 1, 1), "tensor a: has 9 dimensions")
	many := append(header(1, 0), words(uint64(1), "a", uint32(math.MaxUint32), make([]byte, 64))...)
	wantRefused(t, "2^32-1 dimensions", many, "tensor a: has 4294967295 dimensions")
	wantRefused(t, "larger than the file", entry(1<<30, 1<<20), "tensor a: is larger than the whole file")

	sums := (&gguftest.Builder{}).Entry("a", kernels.F32, []int{1 << 61}, 0).Entry("b", kernels.F32, []int{1 << 61}, 1<<63)
	wantRefused(t, "sum of sizes wraps", sums.Tensor("c", kernels.F32, []int{1}, make([]byte, 4)).Bytes(), "larger than the whole file")
	for _, tp := range []kernels.Type{kernels.Q8_0, kernels.Q4_0, 3, 12} {
		b := (&gguftest.Builder{}).Tensor("a", tp, []int{48, 2}, make([]byte, 400))
		wantRefused(t, "row of 48", b.Bytes(), "tensor a: has rows of 48, which the blocks of")
	}
	wantRefused(t, "name of 65 bytes", (&gguftest.Builder{}).Tensor(strings.Repeat("n", 65), kernels.F32, []int{1}, make([]byte, 4)).Bytes(),
		"tensor name: is 65 bytes long; allowed are 1 to 64")
}

func TestTensorsOutsideOverlappingOrUnknownAreRefused(t *testing.T) {
	data := make([]byte, 64)
	base := func() *gguftest.Builder {
		return (&gguftest.Builder{}).Tensor("a", kernels.F32, []int{16}, data)
	}
	wantRefused(t, "past the end", base().Entry("b", kernels.F32, []int{1}, 64).Bytes(), "tensor b: lies outside the file: offset 64 and 4 bytes, but there are 64")
	wantRefused(t, "far past the end", base().Entry("b", kernels.F32, []int{1}, 1<<63).Bytes(), "tensor b: lies outside the file")
	wantRefused(t, "ends behind the end", base().Entry("b", kernels.F32, []int{9}, 32).Bytes(), "tensor b: lies outside the file")
	whole := base().Bytes()
	wantRefused(t, "last byte cut off", whole[:len(whole)-1], "tensor a: lies outside the file: offset 0 and 64 bytes, but there are 63 bytes of data (is the file cut short?)")
	wantRefused(t, "not aligned", base().Entry("b", kernels.F32, []int{1}, 33).Bytes(), "tensor b: begins at offset 33, which is not a multiple of the alignment 32")
	wantRefused(t, "not aligned to all", base().Entry("b", kernels.F32, []int{1}, 40).Bytes(), "tensor b: begins at offset 40, which is not")
	wantRefused(t, "around the end", base().Entry("b", kernels.F32, []int{16}, math.MaxUint64-31).Bytes(), "tensor b: lies outside the file")
	wantRefused(t, "inside the header", base().Entry("b", kernels.F32, []int{1}, math.MaxUint64-31).Bytes(), "tensor b: lies outside the file")
	wantRefused(t, "overlapping", base().Entry("b", kernels.F32, []int{1}, 32).Bytes(), "tensor b: overlaps tensor a")
	wantRefused(t, "same place", base().Entry("b", kernels.F32, []int{1}, 0).Bytes(), "overlaps tensor")
	for _, tp := range []kernels.Type{4, 5, 31, 32, 33, 36, 37, 38, 200, 1 << 31} {
		wantRefused(t, "type", base().Entry("b", tp, []int{1}, 0).Bytes(), fmt.Sprintf("tensor b: has the unknown or removed type %d", uint32(tp)))
	}
	wantRefused(t, "tensor twice", base().Tensor("a", kernels.F32, []int{1}, data[:4]).Bytes(), "tensor a: appears twice")
	wantRefused(t, "key twice", base().Set("k", uint32(1)).Set("k", "x").Bytes(), "key k: appears twice")
}

func FuzzGGUF(f *testing.F) {
	tiny := gguftest.TinyModel(gguftest.Tiny{Layers: 1, Heads: 1, KVHeads: 1, Type: kernels.Q8_0})
	f.Add(tiny[:8192]) // the whole directory would hide behind the tokens
	f.Add((&gguftest.Builder{Alignment: 24}).Set("s", "x").Set("f", 1.5).Set("b", true).Set("ss", []string{"a", ""}).Set("ii", []int32{1}).
		Tensor("a", kernels.F32, []int{2, 3}, make([]byte, 24)).Tensor("q", 3, []int{32}, make([]byte, 20)).Bytes())
	f.Add(append(oneKey(), nested(4)...))
	f.Add(oneKey(uint32(9), uint32(8), uint64(1)<<40))
	f.Add(words("GGUF", uint32(2), uint64(0), uint64(0)))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("fuzz", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz: byte ") {
				t.Errorf("error %q names no byte", err)
			}
			return
		}
		readAll(file)
		file.Digest()
		for i := range file.Tensors {
			tensor := &file.Tensors[i]
			if l, _ := layoutOf(tensor.Type); tensor.Elements()/l.elements*l.bytes != len(tensor.Data) {
				t.Errorf("tensor %s: %d elements of %s in %d bytes", tensor.Name, tensor.Elements(), tensor.Type, len(tensor.Data))
			}
		}
	})
}

// readAll calls every getter on every key: none may panic.
func readAll(f *File) {
	for _, key := range f.Keys() {
		_, _, _ = f.String(key)
		_, _, _ = f.Uint(key)
		_, _, _ = f.Float(key)
		_, _, _ = f.Bool(key)
		_, _, _ = f.Strings(key)
		_, _, _ = f.Ints(key)
		_, _, _ = f.Floats(key)
		_ = f.Text(key)
	}
}
