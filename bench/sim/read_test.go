package sim

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReadFormats(t *testing.T) {
	want := []Request{{At: 0, Prompt: 374, Output: 44}, {At: 1500 * time.Millisecond, Prompt: 396, Output: 1}}
	for name, text := range map[string]string{
		"azure":             "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5000000,374,44\n2023-11-16 18:15:48.0000000,396,1\n",
		"azure 2024":        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.500000+00:00,374,44\n2024-05-10 00:00:02+00:00,396,1\n",
		"other order, CRLF": "GeneratedTokens,Extra,TIMESTAMP,ContextTokens\r\n44,x,10.5,374\r\n1,y,12,396\r\n",
		"burstgpt":          "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,374,44,418,API\n6.5,GPT-4,396,1,397,API\n",
		"vidur, quoted":     "\"arrived_at\",\"num_prefill_tokens\",\"num_decode_tokens\"\n\"0.5\",\"374\",\"44\"\n2,396.0,1\n",
		"no outputs":        "timestamp,input_length\n1.5,396\n0,374\n",
		"mooncake":          `{"timestamp": 500, "input_length": 374, "output_length": 44, "hash_ids": [1, 2]}` + "\n\n" + `{"timestamp": 2000.0, "input_length": 396, "output_length": 1, "more": 1}`,
		"mark of UTF-8":     "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\n1,374,44\n2.5,396,0\n",
	} {
		trace, err := Read(strings.NewReader(text), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, r := range trace.Requests {
			output := want[i].Output
			if name == "no outputs" {
				output = 1
			}
			if r.At != want[i].At || r.Prompt != want[i].Prompt || r.Output != output || r.Class != "interactive" || r.Asked < r.Output || len(r.Blocks) != 0 {
				t.Errorf("%s: request %d is %+v", name, i, r)
			}
		}
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	const header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	for text, want := range map[string]string{
		"":                      "it is empty",
		header:                  "it holds no request",
		"a,b\n1,2\n":            "line 1: it is neither JSON nor a header",
		header + "1,2,3\n\nx,2": `line 4: "x" is not a time`,
		header + "1,,3":         `line 2: prompt: "" is not a number`,
		header + "1,-2,3":       "line 2: a prompt of -2 tokens; allowed is 0 to",
		header + "1,9e9,3":      "line 2: a prompt of 9000000000 tokens",
		header + "NaN,2,3":      "line 2: a time of NaN s",
		header + "-1,2,3":       "line 2: a time of -1 s",
		header + "1,2," + strings.Repeat("3", lineBytesMax): "line 2: it is longer than 1024 KiB",
		"TIMESTAMP,Timestamp,ContextTokens\n1,2,3":          "line 1: two columns say the same",
		`{"timestamp": 1}`:                       "line 1: it needs timestamp (in milliseconds) and input_length",
		`{"timestamp": "soon"}`:                  "line 1: it is not a request in JSON",
		"timestamp,input_length,class\n1,2,gold": `line 2: class "gold"; allowed are`,
		"timestamp,input_length\n1,2\n4e9,2":     "its requests lie more than 100 years apart",
		"\x1f\x8bx":                              "EOF",
	} {
		if _, err := Read(strings.NewReader(text), "f"); err == nil || !strings.HasPrefix(err.Error(), "trace f: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// TestReadPublished reads the traces as published, and knows their sizes.
func TestReadPublished(t *testing.T) {
	for name, requests := range map[string]int{
		"azure-llm-2023-code.csv.gz": 8819, "azure-llm-2023-conv.csv.gz": 19366, "mooncake-conversation.jsonl.gz": 12031, "mooncake-synthetic.jsonl.gz": 3993,
	} {
		if trace := published(t, name); len(trace.Requests) != requests {
			t.Errorf("%s: %d requests, want %d", name, len(trace.Requests), requests)
		}
	}
}

func published(t *testing.T, name string) *Trace {
	t.Helper()
	f, err := os.Open(filepath.Join("../../../shared/traces", name))
	if err != nil {
		t.Skipf("SKIPPED: no trace to read: %v", err)
	}
	defer f.Close()
	trace, err := Read(f, name)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestCoarseClocksAreSpread(t *testing.T) {
	trace, err := Read(strings.NewReader("timestamp,input_length\n0,1\n0,1\n0,1\n3,1\n6,1\n6,1\n60,1\n60,1\n"), "f")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0, 1, 2, 3, 6, 7.5, 60, 61.5} {
		if got := trace.Requests[i].At.Seconds(); got != want {
			t.Errorf("request %d at %v s, want %v", i, got, want)
		}
	}
}

// fuzzRead demands that what was read is in order and in bounds, and that
// compression changes nothing.
func fuzzRead(t *testing.T, data []byte) {
	trace, err := Read(bytes.NewReader(data), "f")
	if err != nil {
		return
	}
	last := time.Duration(0)
	for _, r := range trace.Requests {
		if r.At < last || r.Prompt < 1 || r.Output < 1 || r.Asked < r.Output || len(r.Blocks)*BlockTokens > r.Prompt || r.Tenant == "" {
			t.Fatalf("%+v after %v", r, last)
		}
		last = r.At
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write(data)
	w.Close()
	if again, err := Read(&packed, "f"); !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) && (err != nil || len(again.Requests) != len(trace.Requests)) {
		t.Fatalf("packed: %v", err)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46.6805900,374,44")
	f.Add("timestamp,input_length,class", "1e3,5.0,batch")
	f.Fuzz(func(t *testing.T, header, row string) { fuzzRead(t, []byte(header+"\n"+row)) })
}

func FuzzJSON(f *testing.F) {
	f.Add(`"timestamp": 27000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]`)
	f.Add(`"timestamp": 5, "input_length": 70, "cached_length": 80, "asked_length": 3, "outcome": "ok", "client_first_ms": 5, "goal_ms": -1`)
	f.Add(`"timestamp": -0.5, "input_length": 1e3`)
	f.Fuzz(func(t *testing.T, fields string) { fuzzRead(t, []byte("{"+fields+"}")) })
}

func FuzzEngine(f *testing.F) {
	f.Add(`{"base_ms": 8, "kv_tokens": 100}`)
	f.Fuzz(func(t *testing.T, text string) {
		if e, err := ReadEngine(strings.NewReader(text)); err == nil && e.check() != nil {
			t.Fatal("an engine that is not valid")
		}
	})
}

func TestNamedEnginesAreValid(t *testing.T) {
	for _, name := range Engines() {
		if e := NamedEngine(name); e.check() != nil {
			t.Errorf("%s: %v", name, e.check())
		}
	}
	if NamedEngine("gpu") != nil {
		t.Error("there is an engine gpu")
	}
}
