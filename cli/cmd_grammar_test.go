package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGrammarTest(t *testing.T) {
	t.Parallel()
	vocabulary := shared(t, "conformance/tokenizers/gguf-gpt-2/vocab.gguf")
	file := filepath.Join(t.TempDir(), "schemas.jsonl")
	lines := `{"id":"a","schema":{"type":"object","properties":{"n":{"type":"integer","maximum":9}},"required":["n"]},"valid":[{"n":3}],"invalid":[{"n":12},[],{}]}
{"id":"b","schema":{"items":{"$ref":"http://example.org/x"}},"valid":[[1]]}
`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	out, status := run(t, "", "grammar", "test", file, "--tokenizer", vocabulary, "--json")
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	var a, b grammarVerdict
	first, second, _ := strings.Cut(out, "\n")
	if err := json.Unmarshal([]byte(first), &a); err != nil {
		t.Fatal(err, first)
	}
	if err := json.Unmarshal([]byte(second), &b); err != nil {
		t.Fatal(err, second)
	}
	if !a.Compiled || a.Refused != nil || len(a.Valid) != 1 || !a.Valid[0] || len(a.Invalid) != 3 || a.Invalid[0] || a.Invalid[1] || a.Invalid[2] || a.MaskUS.Max <= 0 {
		t.Errorf("%+v", a)
	}
	if a.Reordered != 0 {
		t.Errorf("%d reordered", a.Reordered)
	}
	if b.Compiled || b.Refused == nil || b.Refused.Keyword != "$ref" || b.Refused.Pointer != "/items/$ref" {
		t.Errorf("%s", second)
	}
	if out, status := run(t, "", "grammar", "test", file, "--tokenizer", vocabulary); status != 0 || !strings.Contains(out, "schemas   2, compiled 1, refused 1") {
		t.Errorf("status %d: %s", status, out)
	}
	orders := filepath.Join(t.TempDir(), "orders.jsonl")
	line := `{"id":"o","schema":{"properties":{"a":{"items":{"properties":{"x\\":{},"y":{"type":"number"}},"required":["x\\"]}},"b":{}},"patternProperties":{"^z":{"type":"string"}}},
		"valid":[{"b":[],"a":[{"y":-1.5e3, "x\\":"\"\\\\"},{"x\\":null}],"q":{"z":"","b":1}},{"a":[],"b":0}],"invalid":[{"z":1,"b":1},{"b":2,"a":[{"y":"x","x\\":1}]}]}`
	if err := os.WriteFile(orders, []byte(strings.ReplaceAll(line, "\n", " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = run(t, "", "grammar", "test", orders, "--tokenizer", vocabulary, "--json")
	var o grammarVerdict
	if err := json.Unmarshal([]byte(out), &o); err != nil || !o.Compiled || !o.Valid[0] || !o.Valid[1] || o.Invalid[0] || o.Invalid[1] || o.Reordered != 1 {
		t.Errorf("other orders: %s", out)
	}
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	if err := os.WriteFile(broken, []byte("{\"id\": \"a\", \"schema\": true}\nno line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, status := run(t, "", "grammar", "test", broken, "--tokenizer", vocabulary); status != 1 || !strings.Contains(out, "1 of 2 lines were not read") {
		t.Errorf("a summary over a line that is none: status %d\n%s", status, out)
	}
	if _, status := run(t, "", "grammar", "test", file); status != 2 {
		t.Errorf("without --tokenizer: status %d", status)
	}
}
