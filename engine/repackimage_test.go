package engine

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

// cached is one start with a cache of images: the logits of a few tokens, whether an
// image was used, and the log. What is kept is written before it returns.
func cached(t *testing.T, cfg Config) (logits []float32, reused bool, log string) {
	t.Helper()
	var text bytes.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&text, nil))
	cfg.Threads, cfg.ContextTokens = 2, 64
	if err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	p, err := load(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.images.bytesMin = 0
	m := p.model.(*model.Model)
	_, reused = m.Packed()
	logits = logitsOf(m)
	if p.images.cache != nil {
		p.images.cache.Rest = 0
	}
	if p.keepImage(); p.images.written != nil {
		<-p.images.written
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	return logits, reused, text.String()
}

func logitsOf(m *model.Model) []float32 {
	tokens := []int32{1, 2, 3, 4, 5}
	return append([]float32(nil), m.Forward([]model.Chunk{{Tokens: tokens, Pages: []int32{0}, Logits: len(tokens)}})...)
}

func sameBits(a, b []float32) bool {
	for i := range a {
		if len(a) != len(b) || math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return len(a) == len(b) && len(a) > 0
}

// noImages skips where weights are read as the file has them.
func noImages(t *testing.T) {
	if kernels.Best().Name == "ref" {
		t.Skip("the only kernel set here is ref, which packs nothing")
	}
}

func TestRepackImage(t *testing.T) {
	noImages(t)
	dir := t.TempDir()
	path, cache := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "cache")
	tiny := gguftest.TinyModel(gguftest.Tiny{Name: "m"})
	if err := os.WriteFile(path, tiny, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Model: path, RepackCache: cache}
	want, _, _ := cached(t, Config{Model: path})
	check := func(name string, cfg Config, wantReused bool, wantLog string) {
		t.Helper()
		got, reused, log := cached(t, cfg)
		if reused != wantReused || !strings.Contains(log, wantLog) || (strings.Contains(log, "WARN") && !strings.Contains(wantLog, "WARN")) {
			t.Errorf("%s: image used: %v, log: %s", name, reused, log)
		}
		if cfg.Quantize == "" && !sameBits(got, want) {
			t.Errorf("%s: other logits", name)
		}
	}
	check("first", cfg, false, "is written")
	check("second", cfg, true, "used=true")
	quantized := cfg
	quantized.Quantize = "q4_0"
	check("quantized, first", quantized, false, "")
	check("quantized, second", quantized, true, "")
	for _, set := range kernels.Sets() {
		other := cfg
		if other.Kernels = set.Name; set != kernels.Best() && set.Name != "ref" {
			if _, reused, _ := cached(t, other); reused {
				t.Errorf("%s uses the image of %s", set.Name, kernels.Best().Name)
			}
		}
	}

	images, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(images) < 2 {
		t.Fatal(images, err)
	}
	for _, image := range images {
		f, err := os.OpenFile(image, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, _ := f.Stat()
		if _, err := f.WriteAt([]byte{1, 2, 3, 4, 5, 6, 7}, info.Size()-7); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	check("damaged", cfg, false, "level=WARN msg=\"the repack image is not used")
	check("written anew", cfg, true, "used=true")
	blocked := cfg
	blocked.RepackCache = filepath.Join(path, "cache")
	check("no directory", blocked, false, "level=WARN")
	p := loaded{}
	if p.keepImage(); len(p.closers) != 0 {
		t.Error("an engine without a cache keeps an image")
	}
}

// A file that was changed inside a tensor, where no digest looks, and got its time
// back, has another key.
func TestImageKeySeesEveryWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, gguftest.TinyModel(gguftest.Tiny{Name: "m"}), 0o600); err != nil {
		t.Fatal(err)
	}
	keyOf := func() string {
		f, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		key, err := imageKey(f.Files(), f.File, kernels.Best())
		if err != nil {
			t.Skip(err)
		}
		return key
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	first := keyOf()
	if again := keyOf(); again != first {
		t.Errorf("the same file has the keys %s and %s", first, again)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // a tick of coarse clocks of file systems
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if again := keyOf(); again == first {
		t.Error("a file that was written again has the same key")
	}
}
