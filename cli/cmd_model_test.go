package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
)

func TestModelLogitsEqualReference(t *testing.T) {
	t.Parallel()
	stem := strings.TrimSuffix(shared(t, "conformance/arch/llama-gqa-tied.gguf"), ".gguf")
	text, err := os.ReadFile(stem + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var reference struct{ IDs []int }
	if err := json.Unmarshal(text, &reference); err != nil {
		t.Fatal(err)
	}
	ids := strings.Trim(strings.ReplaceAll(fmt.Sprint(reference.IDs), " ", ","), "[]")
	for _, set := range []string{"", "ref"} {
		out := filepath.Join(t.TempDir(), "out.f32")
		if words, status := run(t, "", "model", "logits", stem+".gguf", "--ids", ids, "-o", out, "--kernels", set); status != 0 {
			t.Fatalf("status %d: %s", status, words)
		}
		if nmse := compareFloats(t, out, stem+".logits.f32"); !(nmse < 1e-5) {
			t.Errorf("kernels %q: NMSE %g", set, nmse)
		}
	}
}

// compareFloats is Σ(a−b)²/Σb² over two files of float32.
func compareFloats(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := readFloats(t, a), readFloats(t, b)
	if len(x) != len(y) || len(x) == 0 {
		t.Fatalf("%s has %d numbers, %s has %d", a, len(x), b, len(y))
	}
	var difference, size float64
	for i := range x {
		difference += (x[i] - y[i]) * (x[i] - y[i])
		size += y[i] * y[i]
	}
	return difference / size
}

func readFloats(t *testing.T, name string) (x []float64) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for ; len(raw) >= 4; raw = raw[4:] {
		x = append(x, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
	}
	return x
}

func TestModelLogitsToStandardOutput(t *testing.T) {
	t.Parallel()
	args := []string{"model", "logits", filepath.Join("engine", "demo", "forebay-demo-q8_0.gguf"), "--ids", "1,2", "-o"}
	var report strings.Builder
	cmd := exec.Command(program, append(args, "-")...)
	cmd.Stderr = &report
	out, err := cmd.Output()
	if err != nil || len(out) != 2*1901*4 || !strings.HasPrefix(report.String(), "-: 2 rows of 1901, by ") {
		t.Errorf("%d bytes, %v, %q", len(out), err, &report)
	}
	if out, status := run(t, "", append(args, "/dev/full")...); status != 1 || strings.Count(out, "\n") != 1 {
		t.Errorf("a full disk: status %d, %q; want one line", status, out)
	}
}

// What a default stands for in a tokenizer is told before the model is served.
func TestModelInfoWarns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "typeless.gguf")
	data := gguftest.TinyModel(gguftest.Tiny{})
	const key = "tokenizer.ggml.token_type"
	types := data[bytes.Index(data, []byte(key))+len(key)+4+4+8:] // after the kinds of array and element, and the count
	for id := range gguftest.TinyTokens {
		binary.LittleEndian.PutUint32(types[4*id:], 1)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	out, status := run(t, "", "model", "info", path)
	if status != 0 || strings.Count(out, "\nwarning ") != 1 || !strings.Contains(out, "control strings normal text") || !strings.HasSuffix(out, "\ncan be served\n") {
		t.Errorf("status %d\n%s", status, out)
	}
}

func TestModelInfo(t *testing.T) {
	t.Parallel()
	demo := filepath.Join("engine", "demo", "forebay-demo-q8_0.gguf")
	out, status := run(t, "", "model", "info", demo)
	for _, want := range []string{"llama", "2048 tokens", "4 layers", "Q8_0", "2.0 KiB a token, in f16", "measured now", " at 128 tokens", "\n\ncan be served\n"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, out)
		}
	}
	out, status = run(t, "", "model", "info", "--json", demo)
	var report struct {
		Model      struct{ Architecture string }
		Chat       bool
		Problems   []string
		Prediction struct {
			KVType   string  `json:"kv_type"`
			KVBytes  int     `json:"kv_bytes_a_token"`
			Rate     float64 `json:"read_bytes_a_second"`
			Contexts []struct {
				Tokens int
				Moved  int     `json:"moved_bytes"`
				Time   float64 `json:"seconds_a_token"`
			} `json:"at_context"`
			Default struct{ Bytes, ContextTokens int } `json:"in_default_kv_bytes"`
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || status != 0 {
		t.Fatalf("status %d, %v in\n%s", status, err, out)
	}
	p := report.Prediction
	if report.Model.Architecture != "llama" || !report.Chat || len(report.Problems) > 0 || p.KVType != "f16" || p.KVBytes != 2048 || len(p.Contexts) != 2 || p.Default.Bytes != 8*2048*2048 {
		t.Errorf("got %+v", report)
	}
	for _, at := range p.Contexts {
		if want := float64(at.Moved) / p.Rate; math.Abs(at.Time-want) > 1e-6 {
			t.Errorf("at %d tokens %g s, want %g", at.Tokens, at.Time, want)
		}
	}
	if p.Contexts[1].Moved-p.Contexts[0].Moved != (2048-128)*2048 {
		t.Errorf("moved at both contexts: %+v", p.Contexts)
	}
}

// Nothing that cannot be served looks like success.
func TestModelInfoOfUnservableModels(t *testing.T) {
	t.Parallel()
	vocabulary := shared(t, "conformance/tokenizers/gguf-qwen2/vocab.gguf")
	out, status := run(t, "", "model", "info", vocabulary)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; status != 1 || !strings.Contains(out, "array of string, 151936 elements") || !strings.HasPrefix(last, "forebay: cannot be served: "+vocabulary) {
		t.Errorf("status %d, the problem is not named in\n%s", status, out)
	}
	other := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(other, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		other:               other + ": is no model; a model is a GGUF file, or a folder",
		filepath.Dir(other): "has no *.gguf, no *.safetensors",
		"nowhere.gguf":      "nowhere.gguf",
	} {
		if out, status := run(t, "", "model", "info", path); status != 1 || !strings.Contains(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want %q", path, status, out, want)
		}
	}
}

func TestModelQuantize(t *testing.T) {
	t.Parallel()
	demo, dir := filepath.Join("engine", "demo", "forebay-demo-q8_0.gguf"), t.TempDir()
	out := filepath.Join(dir, "small.gguf")
	if words, status := run(t, "", "model", "quantize", demo, out, "--type", "Q4_K"); status != 0 || !strings.HasPrefix(words, out+": ") || !strings.HasSuffix(words, "MiB, of 3.7 MiB in "+demo+"\n") {
		t.Fatalf("status %d: %s", status, words)
	}
	if words, status := run(t, "", "model", "quantize", demo, filepath.Join(t.TempDir(), "same.gguf"), "--type", "q8_0"); status != 0 || !strings.Contains(words, "no weights are larger than q8_0") {
		t.Errorf("of a type that it has already: status %d, %s", status, words)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 1 {
		t.Errorf("left beside it: %q", names)
	}
	before, err := os.Stat(demo)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(out); err != nil || info.Size() > before.Size()*3/4 || info.Mode() != 0o644 {
		t.Errorf("it has %d bytes of %d, %v", info.Size(), before.Size(), info.Mode())
	}
	// What is written is what is computed without writing it.
	logits := func(path string, more ...string) string {
		at := filepath.Join(t.TempDir(), "out.f32")
		if words, status := run(t, "", append([]string{"model", "logits", path, "--ids", "5,6,7", "-o", at}, more...)...); status != 0 {
			t.Fatalf("status %d: %s", status, words)
		}
		return at
	}
	small, whole := logits(out), logits(demo)
	if nmse := compareFloats(t, logits(demo, "--quantize", "Q4_K"), small); nmse != 0 {
		t.Errorf("quantised in memory and on disk: NMSE %g", nmse)
	}
	if nmse := compareFloats(t, small, whole); !(nmse > 0 && nmse < 0.1) {
		t.Errorf("the quantised model is %g off", nmse)
	}
	if words, status := run(t, "", "model", "info", out); status != 0 || !strings.Contains(words, "of Q4_K, ") || !strings.HasSuffix(words, "\ncan be served\n") {
		t.Errorf("status %d: %s", status, words)
	}
	linked := filepath.Join(dir, "linked.gguf")
	if err := os.Symlink(out, linked); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{demo + " " + out + " --type q8_0", 1, out + ": is there already; --force replaces it"},
		{out + " " + out + " --type q4_0 --force", 1, out + ": is the model that is read"},
		{out + " " + linked + " --type q4_0 --force", 1, linked + ": is the model that is read"},
		{demo + " " + dir + " --type q4_0 --force", 1, dir + ": is there and is no regular file"},
		{demo + " " + filepath.Join(dir, "no", "x.gguf") + " --type q4_0", 1, "no such file or directory"},
		{demo + " " + filepath.Join(dir, "x.gguf") + " --type q9", 1, "q8_0"},
		{demo + " --type q4_0", 2, "model quantize needs IN, OUT and --type"},
		{demo + " " + out + " --type q4_0 --force", 0, out + ": "},
	} {
		words, status := run(t, "", append([]string{"model", "quantize"}, strings.Fields(c.args)...)...)
		if status != c.status || !strings.Contains(words, c.want) || strings.Count(words, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want %d, %q", c.args, status, words, c.status, c.want)
		}
	}
	folder := shared(t, "conformance/safetensors/qwen3")
	if words, status := run(t, "", "model", "quantize", folder, filepath.Join(dir, "f.gguf"), "--type", "q8_0"); status != 1 || !strings.Contains(words, "engine.quantize") {
		t.Errorf("a folder: status %d, %q", status, words)
	}
}

// TestErrorsStayShort: what a file says is cut where an error tells it.
func TestErrorsStayShort(t *testing.T) {
	t.Parallel()
	long, dir := strings.Repeat("\x01", 4<<20), t.TempDir()
	for key, command := range map[string]string{"general.architecture": "info", "tokenizer.ggml.model": "tokenize", "tokenizer.ggml.pre": "tokenize"} {
		path := filepath.Join(dir, key+".gguf")
		b := (&gguftest.Builder{}).Set(key, long)
		if key == "tokenizer.ggml.pre" {
			b.Set("tokenizer.ggml.model", "gpt2").Set("tokenizer.ggml.tokens", []string{"a"})
		}
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, status := run(t, "", "model", command, path); status != 1 || len(out) > 4000 || !strings.Contains(out, "not supported") {
			t.Errorf("%s: status %d, %d bytes: %.200s", key, status, len(out), out)
		}
	}
}
