package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// file is a file of a header and data.
func file(header string, data ...byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

const two = `{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}}`

func TestTensorsAreReadInPlace(t *testing.T) {
	f, err := Parse("f", file(two+"   ", 1, 2, 3, 4, 5, 6, 7, 8))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := f.Tensor("a")
	b, _ := f.Tensor("b")
	if len(f.Tensors) != 2 || f.Tensors[0].Name != "a" || a.Type != "BF16" || !slices.Equal(a.Shape, []int{2, 1}) || a.Elements() != 2 ||
		!bytes.Equal(a.Data, []byte{1, 2, 3, 4}) || !bytes.Equal(b.Data, []byte{5, 6, 7, 8}) {
		t.Errorf("%+v", f.Tensors)
	}
	if _, ok := f.Tensor("c"); ok {
		t.Error("there is a tensor c")
	}
	scalar, err := Parse("f", file(`{"s":{"dtype":"F16","shape":[],"data_offsets":[0,2]},"e":{"dtype":"F16","shape":[0,3],"data_offsets":[2,2]}}`, 1, 2))
	if err != nil || scalar.Tensors[0].Elements() != 1 || scalar.Tensors[1].Elements() != 0 {
		t.Errorf("a number and an empty tensor: %v", err)
	}
}

func TestHostileFilesAreRefusedWithoutAllocating(t *testing.T) {
	entry := func(shape, offsets string) []byte {
		return file(`{"a":{"dtype":"F32","shape":`+shape+`,"data_offsets":`+offsets+`}}`, make([]byte, 8)...)
	}
	for want, data := range map[string][]byte{
		"has 0 bytes":                                    nil,
		"header length is 9223372036854775808":           binary.LittleEndian.AppendUint64(nil, 1<<63),
		"header length is 100000000, but the file has":   binary.LittleEndian.AppendUint64(nil, 100_000_000),
		"header does not begin with {":                   file("[]"),
		"header is not valid UTF-8":                      file("{\"\xff\":1}"),
		"ends within a string":                           file(`{"a`),
		`expected '"', found '}'`:                        file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}`),
		`tensor "a": needs dtype, shape and two`:         file(`{"a":{}}`),
		`key "x" is not understood`:                      file(`{"a":{"x":1}}`),
		`shape appears twice`:                            file(`{"a":{"shape":[1],"shape":[1]}}`),
		`has the unknown type "F99"`:                     file(`{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}`),
		`expected a whole number`:                        entry("[-1]", "[0,4]"),
		`shape of tensor a has more than 8 numbers`:      entry("[1,1,1,1,1,1,1,1,1]", "[0,4]"),
		`shape [4294967296 4294967296] do not take`:      entry("[4294967296,4294967296]", "[0,8]"),
		`do not take the bytes from 8 to 0`:              entry("[2]", "[8,0]"),
		`tensor "a": ends at offset 16, but there are 8`: entry("[4]", "[0,16]"),
		`tensor "a": begins at offset 4; the one before`: entry("[1]", "[4,8]"),
		`the tensors end at offset 4, but there are 8`:   entry("[1]", "[0,4]"),
		`tensor "a" appears twice`:                       file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 0, 0),
		`behind its end`:                                 file(`{} x`),
		`expected '{', found '['`:                        file(`{"a":` + strings.Repeat("[", 10000)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("f", data)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.HasPrefix(err.Error(), "f: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
			t.Errorf("%q: %d bytes allocated", want, grown)
		}
	}
	whole := file(two, make([]byte, 8)...)
	for n := range whole {
		if _, err := Parse("f", whole[:n]); err == nil {
			t.Errorf("cut at %d opens", n)
		}
	}
}

func TestIndexNamesTheFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := func(name string) []byte {
		return file(fmt.Sprintf(`{%q:{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, name), name[0])
	}
	put("1.safetensors", one("a"))
	put("2.safetensors", one("b"))
	index := put("x.index.json", []byte(`{"metadata":{},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`))
	f, err := Open(index)
	if err != nil {
		t.Fatal(err)
	}
	if b, ok := f.Tensor("b"); !ok || b.Data[0] != 'b' || len(f.Tensors) != 2 {
		t.Errorf("%+v", f.Tensors)
	}
	digest := f.Digest()
	if err := f.Close(); err != nil || len(f.Tensors) != 0 {
		t.Errorf("closed: %v", err)
	}
	put("1.safetensors", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 'a', 'z'))
	twice, err := Open(index)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := twice.Tensor("b"); b.Data[0] != 'b' || len(twice.Tensors) != 2 {
		t.Errorf("of two tensors b that is taken which the index does not name: %+v", twice.Tensors)
	}
	if err := twice.Close(); err != nil {
		t.Error(err)
	}
	put("1.safetensors", one("a"))
	put("2.safetensors", file(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 'x'))
	if g, err := Open(index); err != nil || g.Digest() == digest {
		t.Errorf("other bytes, the same digest: %v", err)
	}
	for want, text := range map[string]string{
		"is not an index of weights":                  `[]`,
		"weight_map has 0 tensors":                    `{}`,
		"allowed are names of .safetensors files":     `{"weight_map":{"a":"../1.safetensors"}}`,
		"3.safetensors":                               `{"weight_map":{"a":"3.safetensors"}}`,
		`tensor "b" is not in the weight_map`:         `{"weight_map":{"a":"2.safetensors"}}`,
		`has tensor "c" in 1.safetensors, which does`: `{"weight_map":{"a":"1.safetensors","c":"1.safetensors"}}`,
	} {
		if _, err := Open(put("bad.index.json", []byte(text))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(file(two, make([]byte, 8)...))
	f.Add(file(`{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}}`, 1, 2, 3))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		total := 0
		for i := range file.Tensors {
			total += len(file.Tensors[i].Data)
		}
		if total > len(data) {
			t.Fatalf("%d bytes of tensors in %d", total, len(data))
		}
	})
}
