package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/internal/conf"
)

func TestVersionFlags(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"version", "--version", "-v"} {
		if out, status := run(t, "", arg); status != 0 || !strings.HasPrefix(out, "forebay "+version) {
			t.Errorf("%s: status %d, %q", arg, status, out)
		}
	}
}

// TestCommands plays testdata/commands.txt: the first line of the input are
// the arguments, the rest is f.yaml in the working directory; then comes what
// the program prints, and its exit status.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	datadriven.RunTest(t, "cli/testdata/commands.txt", func(t *testing.T, d *datadriven.TestData) string {
		args, file, _ := strings.Cut(d.Input, "\n")
		if err := os.WriteFile(filepath.Join(dir, "f.yaml"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		out, status := runIn(t, dir, "", strings.Fields(args)...)
		return fmt.Sprintf("%sstatus %d\n", out, status)
	})
}

func TestConfigCheckKnowsKernels(t *testing.T) {
	t.Parallel()
	if out, status := run(t, "", "config", "check", "--engine.kernels", "zzz"); status != 1 || !strings.HasPrefix(out, `forebay: --engine.kernels: no kernel set "zzz" on this machine; available: `) {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestConfigurationPage(t *testing.T) {
	const begin, end = "<!-- made by: go test ./cli -run TestConfigurationPage -rewrite -->\n", "<!-- end -->"
	name := filepath.Join("docs", "configuration.md")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its markers", name)
	}
	want := "\n" + conf.Of(new(Config)).Table() + "\n"
	if flag.Lookup("rewrite").Value.String() == "true" { // datadriven defines it
		if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("docs/configuration.md differs from the structs; run go test ./cli -run TestConfigurationPage -rewrite:\n%s", diff)
	}
}
