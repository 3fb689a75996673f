package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/checkpoint"
)

// TestToolCallsRead takes two lines apart, as toolcalls test does.
func TestToolCallsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(path, []byte(`{"a":[{"type":"function","function":{"name":"ping","parameters":{}}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	sets, err := readToolSets(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ raw, want string }{
		{`Now. <tool_call>{"name":"ping","arguments":{"n":9007199254740993}}</tool_call>`,
			`{"id":"x","reasoning":null,"content":"Now.","calls":[{"name":"ping","arguments":{"n":9007199254740993},"id":"ID"}],"finish":"tool_calls","splits_equal":true}`},
		{`<think>Hm.</think><tool_call>{"name":"ping","arguments":{"n":`,
			`{"id":"x","reasoning":"Hm.","content":null,"calls":[{"name":"ping","arguments":"{\"n\":","id":"ID","partial":true}],"finish":"length","splits_equal":true}`},
	} {
		r := readToolCalls(calls.Lookup("hermes").Bind(nil), sets["a"], &toolCallLine{ID: "x", Raw: c.raw})
		for i := range r.Calls {
			if len(r.Calls[i].ID) != len("call_")+24 {
				t.Errorf("id %q", r.Calls[i].ID)
			}
			r.Calls[i].ID = "ID"
		}
		if got, _ := json.Marshal(r); string(got) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.raw, got, c.want)
		}
	}
}

// TestToolCallsByTokens: recorded answers give the same as tokens of a model whose
// vocabulary has the markers, which are then known by their ids alone.
func TestToolCallsByTokens(t *testing.T) {
	vocabulary, err := checkpoint.OpenTokenizer(shared(t, "conformance/tokenizers/gguf-deepseek-llm/vocab.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	sets, err := readToolSets(shared(t, "conformance/toolcalls/tools.json"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(shared(t, "conformance/toolcalls/cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	reader := callReader{tokenizer: vocabulary}
	for i, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if i%12 > 0 { // a part of them is enough here
			continue
		}
		var line toolCallLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if r := reader.read(calls.Lookup(line.Format), sets[line.Tools], &line); !r.SplitsEqual {
			t.Errorf("%s: %q", line.ID, line.Raw)
		}
	}
}
