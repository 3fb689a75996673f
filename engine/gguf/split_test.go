package gguf

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// split writes a model of three tensors in three parts, changed by edit, and
// gives the path of part n, from 1.
func split(t *testing.T, edit func(no int, b *gguftest.Builder) *gguftest.Builder) func(n int) string {
	t.Helper()
	dir := t.TempDir()
	path := func(n int) string { return filepath.Join(dir, fmt.Sprintf("m-%05d-of-00003.gguf", n)) }
	for no := range 3 {
		b := &gguftest.Builder{}
		b.Set("split.no", uint16(no)).Set("split.count", uint16(3)).Set("split.tensors.count", int32(3))
		if no == 0 {
			b.Set("general.name", "whole")
		}
		b.Tensor(fmt.Sprintf("t%d", no), kernels.F32, []int{2}, gguftest.Encode(kernels.F32, []float32{float32(no), 9}))
		if edit != nil {
			b = edit(no, b)
		}
		if b == nil {
			continue
		}
		if err := os.WriteFile(path(no+1), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestSplitFilesAreOneModelWhicheverIsNamed(t *testing.T) {
	path := split(t, nil)
	var digests []string
	size := 0
	for n := 1; n <= 3; n++ {
		info, err := os.Stat(path(n))
		if err != nil {
			t.Fatal(err)
		}
		size += int(info.Size())
	}
	for n := 1; n <= 3; n++ {
		f, err := Open(path(n))
		if err != nil {
			t.Fatal(err)
		}
		if f.SizeBytes() != size {
			t.Errorf("%d bytes, the parts have %d", f.SizeBytes(), size)
		}
		if len(f.Tensors) != 3 || f.Text("general.name") != `"whole"` || f.Text("split.count") != "" || len(f.Keys()) != 1 {
			t.Errorf("part %d opens as %v with the keys %v", n, f.Tensors, f.Keys())
		}
		for no := range 3 {
			tensor, ok := f.Tensor(fmt.Sprintf("t%d", no))
			if !ok || !bytes.Equal(tensor.Data, gguftest.Encode(kernels.F32, []float32{float32(no), 9})) {
				t.Errorf("tensor %d is %v", no, tensor)
			}
		}
		digests = append(digests, f.Digest())
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if digests[0] != digests[1] || digests[0] != digests[2] {
		t.Errorf("digests %v", digests)
	}
	if left := mappings(filepath.Dir(path(1))); left != 0 {
		t.Errorf("%d parts are still mapped", left)
	}
	other, err := Open(split(t, func(no int, b *gguftest.Builder) *gguftest.Builder { // a name of another size would move data
		if no == 1 {
			b = (&gguftest.Builder{}).Set("split.no", uint16(1)).Set("split.count", uint16(3)).Set("split.tensors.count", int32(3)).
				Tensor("T1", kernels.F32, []int{2}, gguftest.Encode(kernels.F32, []float32{1, 9}))
		}
		return b
	})(1))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.Digest() == digests[0] {
		t.Error("the digest does not cover the other parts' directories")
	}
}

// mappings counts the files under dir that are mapped, where the system tells.
func mappings(dir string) int {
	maps, _ := os.ReadFile("/proc/self/maps")
	return bytes.Count(maps, []byte(dir))
}

// TestAFirstPartOfMetadataAlone is how gguf-split --no-tensor-first-split cuts.
func TestAFirstPartOfMetadataAlone(t *testing.T) {
	path := split(t, func(no int, b *gguftest.Builder) *gguftest.Builder {
		if no > 0 {
			return b
		}
		return (&gguftest.Builder{}).Set("general.name", "whole").
			Set("split.no", uint16(0)).Set("split.count", uint16(3)).Set("split.tensors.count", int32(2))
	})
	f, err := Open(path(1))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Tensors) != 2 || f.Text("general.name") != `"whole"` {
		t.Errorf("%v, %v", f.Tensors, f.Keys())
	}
}

// FuzzSplit gives two parts any numbers: they are one model of two tensors, or refused.
func FuzzSplit(f *testing.F) {
	f.Add(uint32(0), uint32(1), uint32(2), uint32(2), uint32(2), uint32(2))
	f.Add(uint32(0), uint32(0), uint32(2), uint32(1), uint32(0), uint32(1<<32-1))
	f.Add(uint32(0), uint32(1), uint32(99999), uint32(1<<32-1), uint32(3), uint32(2))
	f.Fuzz(func(t *testing.T, no1, no2, count1, count2, tensors, name uint32) {
		dir := t.TempDir()
		paths := []string{filepath.Join(dir, fmt.Sprintf("m-00001-of-%05d.gguf", name%100000)), filepath.Join(dir, fmt.Sprintf("m-00002-of-%05d.gguf", name%100000))}
		for i, path := range paths {
			b := (&gguftest.Builder{}).Set("split.no", []uint32{no1, no2}[i]).Set("split.count", []uint32{count1, count2}[i]).Set("split.tensors.count", tensors)
			if err := os.WriteFile(path, b.Tensor(fmt.Sprint(i), kernels.F32, []int{1}, make([]byte, 4)).Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		file, err := Open(paths[0])
		if err != nil {
			return
		}
		defer file.Close()
		whole := no1 == 0 && no2 == 1 && count1 == 2 && count2 == 2 && tensors == 2 && name%100000 == 2
		if alone := count1 <= 1; !alone && (!whole || len(file.Tensors) != 2) || alone && len(file.Tensors) != 1 {
			t.Errorf("opens with %d tensors", len(file.Tensors))
		}
	})
}

func TestSplitFilesThatDoNotFitAreRefusedByName(t *testing.T) {
	set := func(at int, key string, v any) func(int, *gguftest.Builder) *gguftest.Builder {
		return func(no int, b *gguftest.Builder) *gguftest.Builder {
			if no != at {
				return b
			}
			c := (&gguftest.Builder{}).Set("split.no", uint16(no)).Set("split.count", uint16(3)).Set("split.tensors.count", int32(3))
			if key != "" {
				c = &gguftest.Builder{}
				for _, k := range []string{"split.no", "split.count", "split.tensors.count"} {
					if k != key {
						c.Set(k, map[string]any{"split.no": uint16(no), "split.count": uint16(3), "split.tensors.count": int32(3)}[k])
					} else if v != nil {
						c.Set(k, v)
					}
				}
			}
			return c.Tensor("t1", kernels.F32, []int{1}, make([]byte, 4))
		}
	}
	for want, edit := range map[string]func(int, *gguftest.Builder) *gguftest.Builder{
		"part 2 of 3 of": func(no int, b *gguftest.Builder) *gguftest.Builder {
			if no == 1 {
				return nil
			}
			return b
		},
		"m-00003-of-00003.gguf: tensor t1 is in another part too":            set(2, "", nil),
		"m-00002-of-00003.gguf: key split.no: is 2, but the file's place":    set(1, "split.no", uint16(2)),
		"m-00002-of-00003.gguf: key split.count: is 4, but the file's place": set(1, "split.count", uint16(4)),
		"m-00002-of-00003.gguf: key split.no is missing":                     set(1, "split.no", nil),
		"the name says 00003 parts, and the key split.count says 7":          set(0, "split.count", uint16(7)),
		"key split.count: is 4294967295; the most allowed is 99999":          set(0, "split.count", uint32(1<<32-1)),
		"the 3 parts have 3 tensors, and the key split.tensors.count says 5": set(0, "split.tensors.count", int32(5)),
		"key split.tensors.count: is -1":                                     set(0, "split.tensors.count", int32(-1)),
	} {
		path := split(t, edit)
		if strings.Contains(want, "says 5") || strings.Contains(want, "is -1") { // t0 is t1 there
			path = split(t, func(no int, b *gguftest.Builder) *gguftest.Builder {
				if no == 1 {
					return (&gguftest.Builder{}).Set("split.no", uint16(1)).Set("split.count", uint16(3)).Tensor("t9", kernels.F32, []int{1}, make([]byte, 4))
				}
				return edit(no, b)
			})
		}
		f, err := Open(path(1))
		if err == nil {
			f.Close()
			t.Errorf("opens; want %q", want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want %q", err, want)
		}
		if left := mappings(filepath.Dir(path(1))); left != 0 {
			t.Errorf("%s: %d parts are still mapped", want, left)
		}
	}
	path := split(t, nil)
	for _, no := range []int{0, 4} { // beside three good parts
		data, _ := os.ReadFile(path(1))
		os.WriteFile(path(no), data, 0o600)
		if _, err := Open(path(no)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("says part %d, and the parts are 1 to 3", no)) {
			t.Errorf("part %d: %v", no, err)
		}
	}
	other := filepath.Join(t.TempDir(), "renamed.gguf")
	data, _ := os.ReadFile(split(t, nil)(1))
	os.WriteFile(other, data, 0o600)
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "its name must end in -00001-of-00003.gguf") {
		t.Errorf("a renamed part: %v", err)
	}
}

func TestWriteGivesBackWhatWasParsed(t *testing.T) {
	data := gguftest.TinyBuilder(gguftest.Tiny{Type: kernels.Q8_0}).Set("a.u8", uint8(3)).Set("a.bools", []bool{true, false}).Set("a.f64", 0.1).Bytes()
	f, err := Parse("a", data)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDraft("b")
	d.Copy(f)
	for _, tensor := range f.Tensors {
		made := tensor.Data
		d.Add(Tensor{Name: tensor.Name, Type: tensor.Type, Dims: tensor.Dims, Make: func() []byte { return made }})
	}
	again, err := d.File("", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*File{f, again} {
		var out bytes.Buffer
		var told []string
		if err := Write(&out, f, func(tensor *Tensor) { told = append(told, tensor.Name) }); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), data) {
			t.Errorf("%s: %d bytes written, %d parsed", f.Name(), out.Len(), len(data))
		}
		if len(told) != len(f.Tensors) {
			t.Errorf("told of %d tensors", len(told))
		}
	}
}

func TestWriteKeepsTheAlignment(t *testing.T) {
	b := (&gguftest.Builder{Alignment: 64}).Set("a", "b")
	for _, name := range []string{"x", "y"} {
		b.Tensor(name, kernels.F32, []int{3}, gguftest.Encode(kernels.F32, []float32{1, 2, 3}))
	}
	data := b.Bytes()
	f, err := Parse("aligned", data)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, f, nil); err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%d bytes written, %d parsed: %v", out.Len(), len(data), err)
	}
}

func TestDraftRefusesWhatDoesNotFit(t *testing.T) {
	good := Tensor{Name: "a", Type: kernels.F32, Dims: []int{2}, Data: make([]byte, 8)}
	for want, tensors := range map[string][]Tensor{
		`tensor "a": has no name, one of more`: {good, good},
		`tensor "": has no name`:               {{Type: kernels.F32, Dims: []int{2}}},
		"tensor a: has 7 bytes; type and":      {{Name: "a", Type: kernels.F32, Dims: []int{2}, Data: make([]byte, 7)}},
		"type Q8_0 and the shape [33]":         {{Name: "a", Type: kernels.Q8_0, Dims: []int{33}}},
		"type type 99 and the shape":           {{Name: "a", Type: 99, Dims: []int{1}}},
		"shape [4611686018427387904 4]":        {{Name: "a", Type: kernels.F32, Dims: []int{1 << 62, 4}}},
	} {
		d := NewDraft("x")
		for _, tensor := range tensors {
			d.Add(tensor)
		}
		if _, err := d.File("", false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	d := NewDraft("x")
	d.Set("k", "1")
	d.Set("n", []int32{1, -2})
	d.Set("k", uint32(2))
	d.Add(good)
	f, err := d.File("id", false)
	if err != nil || f.Text("k") != "2" || !cmp.Equal(f.Keys(), []string{"k", "n"}) || f.SizeBytes() != 8 {
		t.Errorf("%v, %v", f, err)
	}
	if n, _, err := f.Ints("n"); err != nil || !cmp.Equal(n, []int64{1, -2}) {
		t.Errorf("%v, %v", n, err)
	}
	if g, _ := d.File("other", false); g.Digest() == f.Digest() {
		t.Error("the digest does not cover the identity")
	}
}

// Rows that belong to no token are left out, of the embedding and of the output, and
// the others stay as they were, also where they are made when they are read.
func TestWithoutPadding(t *testing.T) {
	padded, err := Parse("padded", gguftest.TinyModel(gguftest.Tiny{Vocab: 320, Untied: true}))
	if err != nil {
		t.Fatal(err)
	}
	d := NewDraft("made")
	d.Copy(padded)
	for _, from := range padded.Tensors {
		data := from.Data
		from.Data, from.Make = nil, func() []byte { return data }
		d.Add(from)
	}
	made, err := d.File("made", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*File{padded, made} {
		out, err := f.WithoutPadding()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := Write(&b, out, nil); err != nil {
			t.Fatal(err)
		}
		if out, err = Parse("out", b.Bytes()); err != nil {
			t.Fatal(err)
		}
		if n, _, _ := out.Uint("llama.vocab_size"); n != gguftest.TinyTokens {
			t.Errorf("the file says %d tokens", n)
		}
		for i := range out.Tensors {
			got, from := &out.Tensors[i], &padded.Tensors[i]
			want := from.Dims[len(from.Dims)-1]
			if want == 320 {
				want = gguftest.TinyTokens
			}
			if got.Dims[len(got.Dims)-1] != want || !bytes.Equal(got.Data, from.Data[:len(got.Data)]) {
				t.Errorf("%s: %v of %v", got.Name, got.Dims, from.Dims)
			}
		}
		if again, err := out.WithoutPadding(); again != out || err != nil {
			t.Errorf("of a file without padding: %v", err)
		}
	}
}
