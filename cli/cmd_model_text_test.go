package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// answers runs a command that answers line by line, and reads what it says.
func answers[T any](t *testing.T, lines []any, args ...string) (list []T) {
	t.Helper()
	var in strings.Builder
	encoder := json.NewEncoder(&in)
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	out, status := run(t, in.String(), args...)
	if status != 0 {
		t.Fatalf("%q: status %d: %.500s", args, status, out)
	}
	for text := range strings.Lines(out) {
		var one T
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatalf("%q: %v: %.200q", args, err, text)
		}
		list = append(list, one)
	}
	if len(list) != len(lines) {
		t.Fatalf("%q: %d answers to %d lines", args, len(list), len(lines))
	}
	return list
}

type encoded struct {
	IDs   []int32
	Error string
}

type rendered struct {
	Text  *string
	Error string
}

type textCase struct {
	Text         string  `json:"text"`
	AddSpecial   bool    `json:"add_special"`
	ParseSpecial bool    `json:"parse_special"`
	UserText     bool    `json:"user_text"`
	IDs          []int32 `json:"ids"`
}

func readCases(t *testing.T, path string) (cases []textCase) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for decoder := json.NewDecoder(file); ; {
		var c textCase
		if err := decoder.Decode(&c); err == io.EOF {
			return cases
		} else if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
}

// Every reference tokenizer, through the program.
func TestModelTokenizeEqualsReference(t *testing.T) {
	t.Parallel()
	folders, _ := filepath.Glob(filepath.Join(shared(t, "conformance/tokenizers"), "*"))
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			path, parses := filepath.Join(folder, "vocab.gguf"), false
			if _, err := os.Stat(path); err != nil {
				path, parses = filepath.Join(folder, "tokenizer.json.gz"), true
			}
			cases := readCases(t, filepath.Join(folder, "cases.jsonl"))
			var lines []any
			for _, c := range cases {
				c.ParseSpecial = parses && !c.UserText
				lines = append(lines, c)
			}
			bad := 0
			for i, got := range answers[encoded](t, lines, "model", "tokenize", path) {
				if !slices.Equal(got.IDs, cases[i].IDs) {
					if bad++; bad < 4 {
						t.Errorf("%.60q: got %.20v %s, want %.20v", cases[i].Text, got.IDs, got.Error, cases[i].IDs)
					}
				}
			}
			if bad > 0 || len(cases) < 100 {
				t.Errorf("%d of %d cases differ", bad, len(cases))
			}
		})
	}
}

func TestModelTokenizeLines(t *testing.T) {
	t.Parallel()
	demo := filepath.Join("engine", "demo", "forebay-demo-q8_0.gguf")
	out, status := run(t, "\ufeff"+strings.Join([]string{
		`{"text": "<|im_end|>"}`, `{"text": "<|im_end|>", "parse_special": true, "more": 1}`, "", " \t\r",
		`{"text": ""}`, `{"text": 5}`, `{}`, `no JSON`, "{\"text\": \"\xff\"}", `{"text": "a", "add_special": "yes"}`,
		`{"text": "a"} {"text": "b"}`, "{\"text\": \"\ufdd0<|im_end|>\ufdd1\", \"parse_special\": true}", "{\"text\": \"\ufdd0\"}", "{\"text\": \"\ufdd1\"}",
		`5`, `[]`, `{"text": "last, without an end of line"}`,
	}, "\n"), "model", "tokenize", demo)
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if status != 0 || len(got) != 15 {
		t.Fatalf("status %d, %d answers:\n%s", status, len(got), out)
	}
	for i, want := range []string{
		`{"ids":[`, `{"ids":[2]}`, `{"ids":[]}`, `{"error":"text: is a JSON number`, `{"error":"text is missing`, `{"error":"invalid character`,
		`{"error":"the line is not valid UTF-8"}`, `{"error":"add_special: is a JSON string, not true or false`, `{"error":"invalid character`,
		`{"ids":[`, `{"ids":[`, `{"ids":[`, `{"error":"the line is a JSON number, not an object`, `{"error":"the line is a JSON array, not an object`, `{"ids":[`,
	} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("answer %d is %s; want %s…", i, got[i], want)
		}
	}
	if strings.Contains(got[0], "[2]") {
		t.Errorf("without parse_special a control string is %s", got[0])
	}
	// The characters that guard users' text elsewhere are characters here.
	trim := func(answer string) string { return strings.TrimSuffix(strings.TrimPrefix(answer, `{"ids":[`), "]}") }
	if want := trim(got[10]) + ",2," + trim(got[11]); trim(got[9]) != want {
		t.Errorf("noncharacters beside a control token are %s, want %s", trim(got[9]), want)
	}
	for path, want := range map[string]string{"arch_test.go": "is neither a GGUF file nor a tokenizer.json", "nowhere": "nowhere", "gateway": "no model's folder"} {
		if out, status := run(t, "", "model", "tokenize", path); status != 1 || !strings.Contains(out, want) {
			t.Errorf("%s: status %d, %q; want %q", path, status, out, want)
		}
	}
	if out, status := run(t, "", "model", "tokenize"); status != 2 || !strings.Contains(out, "model tokenize needs one model; it got 0 arguments; write forebay model tokenize MODEL < LINES") {
		t.Errorf("without a model: status %d, %q", status, out)
	}
}

// A program may ask, read the answer, and ask again.
func TestModelTokenizeAnswersAtOnce(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), program, "model", "tokenize", filepath.Join("engine", "demo", "forebay-demo-q8_0.gguf"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewReader(out)
	long := strings.Repeat("word ", 1<<18)
	for _, text := range []string{"a", "b", long} {
		if _, err := io.WriteString(in, `{"text": "`+text+"\"}\n"); err != nil {
			t.Fatal(err)
		}
		if answer, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(answer, `{"ids":[`) {
			t.Fatalf("answer %.100q, %v", answer, err)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestLinesThatAreTooLong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", lineBytesMax)
	in := bufio.NewReader(strings.NewReader("a\n" + long + "\n" + long[1:] + "\n\n" + long + "y"))
	for i, want := range []struct {
		bytes int
		err   error
	}{{2, nil}, {0, errLongLine}, {lineBytesMax, nil}, {1, nil}, {0, errLongLine}, {0, io.EOF}} {
		if line, err := readLine(in); len(line) != want.bytes || err != want.err {
			t.Errorf("line %d has %d bytes, %v; want %d, %v", i, len(line), err, want.bytes, want.err)
		}
	}
}

// conversations are a reference template's, as another implementation renders them.
type conversations struct {
	Template string `json:"template"`
	BOS      string `json:"bos_token"`
	EOS      string `json:"eos_token"`
	Now      string `json:"now"`
	Cases    []struct {
		Case          string
		Messages      json.RawMessage
		Tools, Kwargs json.RawMessage
		Text, Raises  *string
		Fails         *string
	} `json:"cases"`
}

// Every reference conversation, through the program, byte for byte.
func TestModelRenderEqualsReference(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob(filepath.Join(shared(t, "conformance/templates"), "*.json"))
	if len(files) < 40 {
		t.Errorf("only %d templates", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var r conversations
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			r.compare(t)
		})
	}
}

func (r *conversations) compare(t *testing.T) {
	dir := t.TempDir()
	config, _ := json.Marshal(map[string]any{"chat_template": r.Template, "bos_token": r.BOS, "eos_token": map[string]string{"content": r.EOS}})
	for name, text := range map[string]string{"tokenizer_config.json": string(config), "own.jinja": r.Template} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var lines []any
	for _, c := range r.Cases {
		lines = append(lines, map[string]any{"messages": c.Messages, "tools": c.Tools, "chat_template_kwargs": c.Kwargs, "now": r.Now})
	}
	for _, args := range [][]string{
		{"model", "render", filepath.Join(dir, "tokenizer_config.json")},
		{"model", "render", filepath.Join(dir, "own.jinja"), "--bos", r.BOS, "--eos", r.EOS},
	} {
		for i, got := range answers[rendered](t, lines, args...) {
			switch c := &r.Cases[i]; {
			case c.Fails != nil: // the reference broke down: nothing to compare with
			case c.Raises != nil && got.Error != *c.Raises:
				t.Errorf("%s: got %+v, want the refusal %q", c.Case, got, *c.Raises)
			case c.Text != nil && (got.Text == nil || *got.Text != *c.Text):
				t.Errorf("%s: got %+v\nwant %.300q", c.Case, got, *c.Text)
			}
		}
	}
}

func TestModelRenderLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "t.jinja")
	const source = "{{ bos_token }}{% for m in messages %}{{ m.role + ':' + m.content }};{% endfor %}{{ add_generation_prompt }} {{ word }} {{ strftime_now('%d %H') }}"
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	hi := `"messages": [{"role": "user", "content": "<é>\ufdd0"}], "now": "2024-02-29"`
	out, status := run(t, strings.Join([]string{
		`{` + hi + `}`,
		`{` + hi + `, "add_generation_prompt": false, "chat_template_kwargs": {"word": "</w>"}}`,
		`{` + hi + `, "add_generation_prompt": false, "chat_template_kwargs": {"add_generation_prompt": true}}`,
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "now": "2024-02-29T23:59:00Z"}`,
		`{"messages": [{"role": "user", "content": 5}]}`, `{"messages": [], "now": "yesterday"}`, `{"now": ""}`, `[]`,
	}, "\n"), "model", "render", path, "--bos", "<s>")
	want := []string{
		"{\"text\":\"<s>user:<é>\ufdd0;True  29 00\"}",
		"{\"text\":\"<s>user:<é>\ufdd0;False </w> 29 00\"}",
		"{\"text\":\"<s>user:<é>\ufdd0;True  29 00\"}",
		`{"text":"<s>user:ab;True  29 23"}`, // joined, as in serving
		`{"error":"`, `{"error":"now: \"yesterday\" is not a time`, `{"error":"messages is missing`, `{"error":"`,
	}
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if status != 0 || len(got) != len(want) {
		t.Fatalf("status %d:\n%s", status, out)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("answer %d is %s; want %s", i, got[i], want[i])
		}
	}
	if out, status := run(t, "", "model", "render", shared(t, "conformance/tokenizers/gguf-gpt-2/vocab.gguf")); status != 1 || !strings.Contains(out, "has no chat template") {
		t.Errorf("a model without a template: status %d, %q", status, out)
	}
}
