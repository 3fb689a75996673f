package tokenizer

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// slowTables reads vocab and merges with encoding/json alone.
type slowTables struct {
	Model struct {
		Vocab  map[string]int32
		Merges []slowMerge
	}
}

type slowMerge mergeParts

func (m *slowMerge) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		parts, err := cutMerge(text)
		*m = slowMerge(parts)
		return err
	}
	var parts []string
	if err := json.Unmarshal(b, &parts); err != nil || len(parts) != 2 {
		return errJSONEnd
	}
	*m = slowMerge(parts)
	return nil
}

// checkTables reports whether both readers take text, and what differs.
func checkTables(t *testing.T, text string) bool {
	t.Helper()
	var fast jsonModel
	rest, err := fast.readTables(text)
	var left struct{ Model struct{} } // fromJSON reads more of it, and as strictly
	ok := err == nil && json.Unmarshal(rest, &left) == nil
	var slow slowTables
	if slowOK := json.Unmarshal([]byte(text), &slow) == nil; ok && !slowOK {
		t.Fatalf("%q is taken, but is wrong", text)
	} else if !ok {
		return false
	}
	vocab := map[string]int32{}
	for _, e := range fast.Vocab {
		vocab[e.text] = e.id
	}
	same := slices.EqualFunc(fast.Merges, slow.Model.Merges, func(a mergeParts, b slowMerge) bool { return a == mergeParts(b) })
	if !maps.Equal(vocab, slow.Model.Vocab) || !same {
		t.Fatalf("%q: %v %q, want %v %q", text, vocab, fast.Merges, slow.Model.Vocab, slow.Model.Merges)
	}
	return true
}

var tableTexts = map[string]bool{
	`{"model":{"vocab":{"a":0,"b" : 12 },"merges":["a b",["b","a"]]}}`:                                             true,
	"{\"x\":[{\"vocab\":{\"}\":1}},\"]\"],\n \"model\" : {\"type\":\"BPE\", \"vocab\" :\t{ } ,\"merges\": [ ] } }": true,
	`{"model":{"vocab":{"\u0120\"\\":3,"é\ud83d\ude42":4},"merges":["\u0120\" a"]}}`:                               true,
	"{\"model\":{\"vocab\":{\"\xff\":3}}}":                                                                         true,
	`{"model":{"vocab":null,"merges":null}}`:                                                                       true,
	`{"model":null}`:                                                                                               true,
	`{"model":{"vocab":{"a":0}},"model":{"vocab":{"b":1},"merges":["a b"]}}`:                                       true,
	`{"mo\u0064el":{"vocab":{"a":0,"a":-1}}}`:                                                                      true,
	`{"vocab":{"a":"b"},"model":{"x":{"vocab":[1e5,true,null,-0.5]}}}`:                                             true,
	`{"model":{"vocab":{"a":01}}}`:                                                                                 false, `{"model":{"vocab":{"a":1.0}}}`: false, `{"model":{"vocab":{"a":"1"}}}`: false,
	`{"model":{"vocab":{"a":+1}}}`: false, `{"model":{"vocab":{"a":1 2}}}`: false, `{"model":{"vocab":{"a":2147483648}}}`: false,
	`{"model":{"vocab":{"a":1,}}}`: false, `{"model":{"vocab":["a"]}}`: false, `{"model":{"vocab":{"a":}}}`: false,
	`{"model":{"vocab":{a:1}}}`: false, `{"model":{"vocab":{"a":1}`: false, `{"model":{"vocab":{"a`: false,
	`{"model":{"merges":["a b",]}}`: false, `{"model":{"merges":["ab"]}}`: false, `{"model":{"merges":[["a"]]}}`: false,
	`{"model":{"merges":[["a","b","c"]]}}`: false, `{"model":{"merges":[["a",1]]}}`: false, `{"model":{"merges":["a b"}}`: false,
	`{"model":{"merges":[7]}}`: false, `{"model":{"merges":"a b"}}`: false, `{"model":{"vocab":{"a` + "\n" + `":1}}}`: false,
	`{"model":{"vocab":{"\x":1}}}`: false, `{"model":{"vocab":{"a":1}x}}`: false, `{"model":{"vocab":{"a":1}}}x`: false,
	`{"model":{"x":[1 2],"vocab":{"a":1}}}`: false, `{"model":{"x":[},"vocab":{"a":1}}}`: false, ``: false, `[]`: false,
	`{"model":{"vocab":{"\`: false, `{"model":{"merges":["\`: false, `{"\`: false, `{"model":0} `: false, `{"model":[]}`: false, `{"model":"x"}`: false,
}

func TestTablesAsEncodingJSONReadsThem(t *testing.T) {
	for text, want := range tableTexts {
		if got := checkTables(t, text); got != want {
			t.Errorf("%q: taken %v, want %v", text, got, want)
		}
	}
	if !checkTables(t, string(smallJSON(nil))) {
		t.Error("a whole file is refused")
	}
	_, err := new(jsonModel).readTables(`{"model":{"vocab":{"a":1;`)
	if err == nil || err.Error() != `at byte 24 is ';' where '}' should be` {
		t.Errorf("error %v", err)
	}
}

func FuzzTablesAsEncodingJSONReadsThem(f *testing.F) {
	for text := range tableTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		// encoding/json takes keys in any case.
		for _, key := range []string{"model", "vocab", "merges"} {
			if low := strings.ToLower(text); strings.Count(low, key) != strings.Count(text, key) || strings.Contains(text, `\u`) || strings.Contains(text, "\u017f") {
				return
			}
		}
		checkTables(t, text)
	})
}

// TestTwoTokensOfOneID are refused: one of them would be lost.
func TestTwoTokensOfOneID(t *testing.T) {
	f := smallJSON(map[string]any{"added_tokens": nil, "model": map[string]any{"type": "BPE", "vocab": map[string]any{"a": 0, "b": 0}}})
	if _, err := FromJSON("f", JSONSource{Tokenizer: f}); err == nil || !strings.Contains(err.Error(), `model: vocab: "a" and "b" both have the id 0`) {
		t.Errorf("error %v", err)
	}
}
