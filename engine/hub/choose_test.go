package hub

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestParseRef(t *testing.T) {
	for _, c := range []struct {
		text string
		want Ref
	}{
		{"hf:a/b", Ref{"a/b", "", ""}},
		{"hf:a/b:x/y.gguf", Ref{"a/b", "", "x/y.gguf"}},
		{"hf:TheOwner/Some_Model-1.5B-GGUF@refs/pr/1:Q4_K_M", Ref{"TheOwner/Some_Model-1.5B-GGUF", "refs/pr/1", "Q4_K_M"}},
	} {
		got, err := ParseRef(c.text)
		if err != nil || got != c.want || got.String() != c.text {
			t.Errorf("%s: %+v, %v", c.text, got, err)
		}
	}
	for _, text := range []string{
		"", "a/b", "hf:", "hf:a", "hf:a/", "hf:/b", "hf:a/b/c", "hf://a/b", "hf:a--b/c", "hf:../b", "hf:a/..", "hf:a/.b", "hf:a/b-", "hf:a/b?x",
		"hf:a/b@", "hf:a/b@../x", "hf:a/b@x//y", "hf:a/b:", "hf:a/b:../x", "hf:a/b:/x", "hf:a/b:x\\y", "hf:a/b:x\x00", "hf:a/b:x/./y",
		"hf:a/b:nul", "hf:a/b:C:x", "hf:a/b:" + strings.Repeat("x", 300),
	} {
		if got, err := ParseRef(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
	for _, text := range []string{"hf://a/b", "https://huggingface.co/a/b/tree/main"} {
		if _, err := ParseRef(text); err == nil || !strings.Contains(err.Error(), "perhaps hf:a/b is meant") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add("hf:a/b@main:x/y.gguf")
	f.Add("hf:a/b:../x")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRef(text)
		if err != nil {
			return
		}
		if again, err := ParseRef(r.String()); err != nil || again != r {
			t.Errorf("%q: %+v, and then %+v, %v", text, r, again, err)
		}
		h := Hub{cfg: Config{CacheDir: "/cache"}}
		folder := h.folder(r.Repo)
		paths := []string{folder.root, folder.ref(r.revision())}
		if r.File != "" {
			paths = append(paths, folder.file(strings.Repeat("1", 40), r.File))
		}
		for _, path := range paths {
			if !strings.HasPrefix(filepath.Clean(path), "/cache/models--") {
				t.Errorf("%q leads to %s", text, path)
			}
		}
	})
}

func TestChoose(t *testing.T) {
	folder := "config.json tokenizer.json tokenizer_config.json generation_config.json README.md model.safetensors consolidated.safetensors pytorch_model.bin onnx/model.safetensors"
	for _, c := range []struct{ files, file, want string }{
		{"m.gguf", "", "m.gguf"},
		{"m-Q8_0.gguf m-Q4_K_M.gguf m-Q4_0.gguf", "", "m-Q4_K_M.gguf"},
		{"m-Q8_0.gguf m-Q4_K_S.gguf m-Q4_0.gguf", "", "m-Q4_0.gguf"},
		{"m-f16.gguf mmproj-m-f16.gguf m.imatrix.gguf", "", "m-f16.gguf"},
		{"m-F32.gguf m-bf16.gguf", "", "m-bf16.gguf"},
		{"m-Q4_K_M.gguf m-q8_0.gguf", "Q8_0", "m-q8_0.gguf"},
		{"m-Q4_K_M.gguf m-Q4_K.gguf", "q4_k", "m-Q4_K.gguf"},
		{"m.q4_k_m.gguf m_q8_0.gguf", "Q8_0", "m_q8_0.gguf"},
		{"m-UD-Q4_K_XL.gguf m-Q4_0.gguf", "UD-Q4_K_XL", "m-UD-Q4_K_XL.gguf"},
		{"mmproj.gguf m.gguf", "mmproj.gguf", "mmproj.gguf"},
		{"a/m-Q4_0.gguf b/n-Q4_0.gguf", "b/n-Q4_0.gguf", "b/n-Q4_0.gguf"},
		{"Q4_0/m.gguf Q8_0/m.gguf", "q8_0", "Q8_0/m.gguf"},
		{"m-Q8_0-00002-of-00002.gguf m-Q8_0-00001-of-00002.gguf m-F16.gguf", "", "m-Q8_0-00001-of-00002.gguf m-Q8_0-00002-of-00002.gguf"},
		{"m-00001-of-00002.gguf m-00002-of-00002.gguf", "m-00002-of-00002.gguf", "m-00001-of-00002.gguf m-00002-of-00002.gguf"},
		{folder, "", "config.json tokenizer.json tokenizer_config.json generation_config.json model.safetensors"},
		{folder, "README.md", "README.md"},
		{"config.json tokenizer.json a.safetensors", "", "config.json tokenizer.json a.safetensors"},

		{"a-Q4_0.gguf b-Q4_0.gguf", "", `error several files of type Q4_0; name one of "a-Q4_0.gguf", "b-Q4_0.gguf"`},
		{"a-Q4_0.gguf b-Q4_0.gguf", "q4_0", `error several files for "q4_0"`},
		{"a.gguf b.gguf", "", `error several models; name one of "a.gguf", "b.gguf"`},
		{"a.gguf b.gguf", "c.gguf", `error no file "c.gguf"; it has "a.gguf", "b.gguf"`},
		{"a-Q4_0.gguf", "Q5_K", `error no file and no quantisation "Q5_K"; it has "a-Q4_0.gguf"`},
		{"m-00001-of-00002.gguf", "", `error is incomplete: "m-00002-of-00002.gguf"`},
		{"config.json model.safetensors", "", "error no tokenizer.json"},
		{"config.json tokenizer.json model-00001-of-00002.safetensors", "", "error is incomplete"},
		{"config.json tokenizer.json pytorch_model.bin", "", "error no weights in safetensors"},
		{"README.md", "", `error it has "README.md"`},
		{"", "", "error it has no files"},
	} {
		l := listing{repo: "a/b"}
		for name := range strings.FieldsSeq(c.files) {
			l.files = append(l.files, entry{Name: name})
		}
		got, err := l.choose(c.file)
		if want, ok := strings.CutPrefix(c.want, "error "); ok {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q of %q: %v, want an error with %q", c.file, c.files, err, want)
			}
			continue
		}
		var names []string
		for _, e := range got.files {
			names = append(names, e.Name)
		}
		if strings.Join(names, " ") != c.want || err != nil {
			t.Errorf("%q of %q: %q, %v; want %q", c.file, c.files, names, err, c.want)
		}
	}
}
