package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// faultyServer answers every chat with the bytes that next gives, and then closes the
// connection; in order, or with a reset.
func faultyServer(t *testing.T, next func() (text string, reset bool)) (url string) {
	t.Helper()
	const models = `{"data":[{"id":"big","owned_by":"vllm","max_model_len":4096}]}`
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		for from := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(from)
			if err != nil {
				return
			}
			switch {
			case r.URL.Path == "/v1/models" || r.URL.Path == "/health":
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(models), models)
				continue
			case !strings.HasPrefix(r.URL.Path, "/v1/chat"):
				fmt.Fprint(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
				continue
			}
			var body struct {
				Max int `json:"max_tokens"`
			}
			json.NewDecoder(r.Body).Decode(&body)
			if body.Max == 1 { // a canary
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"choices\":[{}]}")
				continue
			}
			text, reset := next()
			fmt.Fprint(c, text)
			if reset {
				c.(*net.TCPConn).SetLinger(0)
			}
			return
		}
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return "http://" + ln.Addr().String()
}

// wholeAnswer is an answer of two choices with a tool call, as bytes on a connection,
// and the text of its first choice.
func wholeAnswer() (raw, text string) {
	var body strings.Builder
	for _, data := range []string{
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"Once "}},{"index":1,"delta":{"role":"assistant"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"upon ä time"}}]}`,
		`{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}}`,
		`[DONE]`,
	} {
		line := "data: " + data + "\n\n"
		fmt.Fprintf(&body, "%x\r\n%s\r\n", len(line), line)
	}
	return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + body.String() + "0\r\n\r\n", "Once upon ä time"
}

// TestFaultsOfUpstreams: whatever a server's answer breaks by, at whichever byte, the
// client gets the whole answer or an error, and never a part that looks whole; every
// request ends once; and what is reserved of a budget is given back: in both modes of
// relaying. FOREBAY_FAULTS says how many faults, 10000 before a release.
func TestFaultsOfUpstreams(t *testing.T) {
	for _, relay := range []string{"envelope", "exact"} {
		t.Run(relay, func(t *testing.T) { testFaults(t, relay) })
	}
}

func testFaults(t *testing.T, relay string) {
	faults := 120
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_FAULTS")); err == nil {
		faults = n
	}
	raw, text := wholeAnswer()
	random := rand.New(rand.NewPCG(19, 35))
	var fault atomic.Pointer[func() (string, bool)]
	url := faultyServer(t, func() (string, bool) { return (*fault.Load())() })
	lines := filepath.Join(t.TempDir(), "usage.jsonl")
	p := serve(t, "--upstream", url, "--upstream.dialect", "openai", "--upstream.relay", relay, "--usage.file", lines, "--upstream.sequences_max", "8",
		"--admission.tenants", `[{name: a, keys: [k], limits: {concurrency: 4, tokens_per_month: 1000000000}}]`)
	p.key = "k"
	step := max(1, len(raw)/faults)
	broken := 0
	for i := range faults {
		at, kind := i*step%(len(raw)+1), random.IntN(4)
		cut := raw[:at]
		if kind == 3 && at < len(raw) { // another byte in its place, and the rest as it was
			cut = raw[:at] + string(rune(random.IntN(128))) + raw[at+1:]
		}
		send := func() (string, bool) { return cut, kind == 1 }
		fault.Store(&send)
		body := chatBody("go on", map[string]any{"model": "big", "n": 2, "stream": i%2 == 0})
		var got answer
		if i%2 == 1 {
			got = p.ask(body)
		} else if response, err := p.post(t.Context(), body); err != nil {
			t.Fatalf("fault %d: %v", i, err)
		} else {
			got = readEvents(response.Body, func() {})
			response.Body.Close()
			if got.status = response.StatusCode; got.status != http.StatusOK {
				got.errors = 1
			}
		}
		if got.done == (got.errors > 0) {
			t.Fatalf("fault %d, of kind %d at byte %d: it ended %v with %d errors: %s", i, kind, at, got.done, got.errors, got.raw)
		}
		if !got.done {
			broken++
		}
		// A byte that became another may be in the text, which nothing can tell.
		if got.done && kind != 3 && got.text != text {
			t.Fatalf("fault %d at byte %d: a part looks whole: %s", i, at, got.raw)
		}
	}
	if broken < faults/3 {
		t.Errorf("only %d of %d answers broke", broken, faults)
	}
	sum := settled(t, p, lines)
	if sum == 0 {
		t.Error("no tokens were billed")
	}
}

// settled waits until the budget's tokens are those of the usage file and its places
// are free, and returns the tokens.
func settled(t *testing.T, p *process, file string) (sum float64) {
	t.Helper()
	var page struct {
		Limits []struct {
			Limit string
			Used  float64
		}
	}
	defer func() {
		if t.Failed() {
			t.Logf("billed are %v tokens, used %+v", sum, page.Limits)
		}
	}()
	eventually(t, "the budget is what was billed", func() bool {
		sum = 0
		lines, _ := os.ReadFile(file)
		for line := range strings.Lines(string(lines)) {
			var u struct {
				Prompt     float64 `json:"prompt_tokens"`
				Completion float64 `json:"completion_tokens"`
				Charged    bool    `json:"charged"`
			}
			if json.Unmarshal([]byte(line), &u); u.Charged {
				sum += u.Prompt + u.Completion
			}
		}
		response, err := http.Get(p.admin + "/debug/budgets?format=json")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		json.NewDecoder(response.Body).Decode(&page)
		used := map[string]float64{}
		for _, l := range page.Limits {
			used[l.Limit] = l.Used
		}
		return used["concurrency"] == 0 && used["tokens_per_month"] == sum
	})
	return sum
}
