package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/forebay-io/forebay"

// arrows says which packages of ours a package imports, itself by the path
// under the module ("" is main): no other, and each. A new package or a new
// arrow is a new line or word here.
var arrows = map[string]string{
	"":                        "cli",
	"admission":               "admission/budget cache/hitmap internal/conf internal/cost",
	"admission/budget":        "",
	"admission/budget/shared": "admission/budget internal/store",
	"bench/compare":           "bench/speed",
	"bench/fleet":             "cache internal/cost internal/ports internal/wire",
	"bench/limits":            "internal/ports",
	"bench/longprompt":        "engine internal/wire",
	"bench/observing":         "internal/ports",
	"bench/relaying":          "internal/ports",
	"bench/overload":          "internal/ports",
	"bench/sim":               "admission cache/hitmap engine/step internal/cost",
	"bench/shapes":            "engine/gguf kernels",
	"bench/speed":             "engine/gguf engine/model kernels kernels/probe",
	"bench/startup":           "internal/ports",
	"bench/storm":             "internal/ports",
	"cache":                   "cache/hitmap",
	"cache/disk":              "",
	"cache/host":              "cache/disk",
	"cache/hitmap":            "",
	"cache/shared":            "cache/hitmap",
	"engine":                  "cache cache/disk cache/host engine/chat engine/chat/calls engine/checkpoint engine/demo engine/gguf engine/gpu engine/grammar engine/grammar/ebnf engine/grammar/schema engine/grammar/tools engine/lost engine/mask engine/model engine/repack engine/sample engine/step engine/text engine/tokenizer internal/chars internal/conf internal/cost internal/nvml internal/wire kernels",
	"engine/chat":             "engine/chat/calls engine/jinja engine/tokenizer",
	"engine/chat/calls":       "",
	"engine/checkpoint":       "engine/chat engine/gguf engine/hf engine/mapped engine/quant engine/tokenizer",
	"engine/demo":             "",
	"engine/gguf":             "engine/mapped kernels",
	"engine/gguf/gguftest":    "kernels",
	"engine/gpu":              "engine/model engine/sample internal/cudrv internal/nvml internal/nvtx kernels kernels/cuda",
	"engine/grammar":          "",
	"engine/grammar/ebnf":     "engine/grammar",
	"engine/grammar/schema":   "engine/grammar",
	"engine/grammar/tools":    "engine/chat/calls engine/grammar engine/grammar/schema",
	"engine/hf":               "engine/gguf engine/mapped engine/safetensors kernels",
	"engine/hub":              "",
	"engine/jinja":            "",
	"engine/lost":             "internal/cost internal/wire",
	"engine/machine":          "",
	"engine/mapped":           "",
	"engine/mask":             "engine/grammar",
	"engine/model":            "engine/gguf engine/sample kernels",
	"engine/perf":             "",
	"engine/quant":            "engine/gguf kernels",
	"engine/repack":           "engine/mapped kernels",
	"engine/safetensors":      "engine/mapped",
	"engine/sample":           "internal/wire kernels",
	"engine/step":             "internal/cost",
	"engine/text":             "internal/chars",
	"engine/tokenizer":        "engine/gguf",
	"gateway":                 "admission admission/budget cache/hitmap gateway/capture gateway/debug gateway/httpd gateway/identity gateway/siblings gateway/telemetry internal/certs internal/chars internal/conf internal/wire",
	"gateway/capture":         "gateway/spans gateway/telemetry internal/conf internal/wire",
	"gateway/debug":           "admission gateway/capture gateway/siblings gateway/spans gateway/telemetry internal/wire",
	"gateway/httpd":           "",
	"gateway/identity":        "admission admission/budget internal/conf",
	"gateway/siblings":        "admission cache/hitmap cache/shared gateway/telemetry internal/certs internal/store internal/wire",
	"gateway/spans":           "internal/conf internal/wire",
	"gateway/spans/spanstest": "internal/ports",
	"gateway/telemetry":       "cache/hitmap internal/conf internal/wire",
	"gateway/usage":           "gateway/telemetry internal/conf",
	"cli":                     "admission admission/budget admission/budget/shared bench/sim bench/speed engine engine/chat engine/chat/calls engine/checkpoint engine/gguf engine/gpu engine/grammar engine/grammar/schema engine/hub engine/machine engine/mask engine/model engine/perf engine/tokenizer gateway gateway/capture gateway/debug gateway/identity gateway/siblings gateway/spans gateway/telemetry gateway/usage internal/conf internal/supervise internal/wire kernels upstream xds xds/control xds/controlpb xds/picker xds/policy xds/ratelimit",
	"internal/certs":          "",
	"internal/chars":          "",
	"internal/conf":           "",
	"internal/cost":           "",
	"internal/cudrv":          "",
	"internal/nvml":           "",
	"internal/nvtx":           "",
	"internal/ports":          "",
	"internal/store":          "",
	"internal/storetest":      "internal/ports",
	"internal/supervise":      "internal/conf",
	"internal/wire":           "cache/hitmap internal/conf internal/cost",
	"internal/wire/wiretest":  "cache/hitmap internal/conf internal/wire",
	"kernels":                 "kernels/avx2 kernels/avx2int8 kernels/avx512 kernels/avx512amx kernels/avx512bf16 kernels/avx512vnni kernels/neon kernels/ref",
	"kernels/avx2":            "",
	"kernels/avx2int8":        "",
	"kernels/avx512":          "",
	"kernels/avx512amx":       "",
	"kernels/avx512bf16":      "",
	"kernels/avx512vnni":      "",
	"kernels/cuda":            "internal/cudrv kernels",
	"kernels/kerneltest":      "kernels kernels/ref",
	"kernels/neon":            "",
	"kernels/probe":           "",
	"kernels/ref":             "",
	"upstream":                "internal/conf internal/wire upstream/kvevents upstream/window",
	"upstream/kvevents":       "upstream/zmtp",
	"upstream/window":         "",
	"upstream/zmtp":           "",
	"upstream/zmtp/zmtptest":  "",
	"xds":                     "internal/conf xds/controlpb",
	"xds/control":             "internal/conf xds xds/controlpb xds/policy",
	"xds/controlpb":           "",
	"xds/picker":              "admission gateway/identity gateway/siblings internal/wire",
	"xds/policy":              "admission gateway/identity internal/conf",
	"xds/ratelimit":           "admission/budget gateway/identity",
}

// sourceFiles calls visit for every file that is not hidden, made or a test,
// with its slashed path under the root.
func sourceFiles(t *testing.T, visit func(name string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() && base != "." && base != ".ci" && (strings.HasPrefix(base, ".") || base == "node_modules" || base == "testdata" || name == "build") {
			return filepath.SkipDir
		}
		if !d.IsDir() && base != ".git" && !strings.HasSuffix(base, "_test.go") { // .git is a file in a worktree
			visit(filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goFiles visits those of the source files that go build reads.
func goFiles(t *testing.T, visit func(pkg, name string)) {
	t.Helper()
	sourceFiles(t, func(name string) {
		if strings.HasSuffix(name, ".go") && !strings.Contains(name, "/_") {
			visit(strings.TrimPrefix(path.Dir(name), "."), name)
		}
	})
}

func TestArrowsPointDown(t *testing.T) {
	seen, used := map[string]bool{}, map[string]bool{}
	goFiles(t, func(pkg, name string) {
		seen[pkg] = true
		allowed, ok := arrows[pkg]
		if !ok {
			t.Errorf("package %q is not in the table of arrows", pkg)
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		for _, imported := range f.Imports {
			target, ours := strings.CutPrefix(strings.Trim(imported.Path.Value, `"`), module+"/")
			used[pkg+" "+target] = true
			if ours && !slices.Contains(strings.Fields(allowed), target) {
				t.Errorf("%s: package %q may not import %s", name, pkg, target)
			}
		}
	})
	for pkg, allowed := range arrows {
		if !seen[pkg] {
			t.Errorf("the table names %q, which does not exist", pkg)
		}
		for _, target := range strings.Fields(allowed) {
			if !used[pkg+" "+target] {
				t.Errorf("the table allows package %q to import %s, which it does not: remove the word", pkg, target)
			}
		}
	}
}

// Templates find methods by name at run time. The linker then keeps every
// exported method of every type, which makes the binary half as large again.
func TestNoPackageImportsTemplates(t *testing.T) {
	goFiles(t, func(_, name string) {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		for _, imported := range f.Imports {
			if strings.HasSuffix(imported.Path.Value, `/template"`) {
				t.Errorf("%s imports %s", name, imported.Path.Value)
			}
		}
	})
}

func TestEveryPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{}
	goFiles(t, func(pkg, name string) {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		files := comments[pkg]
		if f.Doc != nil {
			files = append(files, name)
		}
		comments[pkg] = files // packages without one too
	})
	for pkg, files := range comments {
		if len(files) != 1 {
			t.Errorf("package %q has %d package comments, want one: %v", pkg, len(files), files)
		}
	}
}

var lineComment = regexp.MustCompile(`(?m)//.*$`)

// Only main reads arguments and environment, but for the kernels' off-switch, and the library that a profiler
// injects into every process it starts.
func TestOnlyMainReadsEnvironment(t *testing.T) {
	reads := regexp.MustCompile(`\b(os\.(Getenv|LookupEnv|Environ|Args)|flag\.(Parse|CommandLine))\b`)
	may := []string{"", "kernels", "internal/nvtx"}
	goFiles(t, func(pkg, name string) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			return
		}
		if found := reads.Find(lineComment.ReplaceAll(text, nil)); found != nil && !slices.Contains(may, pkg) && !strings.HasPrefix(pkg, "bench/") {
			t.Errorf("%s: uses %s; take it as an argument or in the Config", name, found)
		}
	})
}

// A path of the machine that something was made on means nothing to a reader.
var machinePath = regexp.MustCompile(`(^|[^A-Za-z0-9_.])/(work|root|home)/[A-Za-z0-9_.-]`)

func TestNoMachinePaths(t *testing.T) {
	sourceFiles(t, func(name string) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			return
		}
		if bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 {
			return // a model or another binary
		}
		if at := machinePath.FindIndex(text); at != nil {
			line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
			t.Errorf("%s:%d: holds the path of a machine: %q", name, line, text[at[0]:at[1]])
		}
	})
}
