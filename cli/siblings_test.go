package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// replica is one of several sidecars that share a Redis.
type replica struct {
	*process
	name string
}

// replicas starts one sidecar for each name, and waits until each knows the others.
func replicas(t *testing.T, redis *redisServer, names []string, more ...string) (all []replica) {
	t.Helper()
	for _, name := range names {
		args := append([]string{"serve", "--siblings.store", "redis://127.0.0.1:" + redis.port, "--siblings.name", name, "--siblings.interval", "20ms", "--siblings.grain_tokens", "16", "--siblings.gain_min", "1ms"}, more...)
		all = append(all, replica{start(t, args...), name})
	}
	for _, r := range all {
		r.waitReady()
	}
	for _, r := range all {
		eventually(t, r.name+" knows the others", func() bool { return r.siblings() == len(names)-1 })
	}
	return all
}

// cache is what a replica says of its siblings.
func (r replica) cache() (page struct {
	StoreUp  bool `json:"store_up"`
	Own      int  `json:"own_blocks"`
	Siblings []struct {
		Name   string
		Blocks int
		Synced bool
	}
}) {
	text, status := run(r.t, "", "cache", "--admin", strings.TrimPrefix(r.admin, "http://"), "--json")
	if status != 0 {
		r.t.Fatalf("forebay cache: %s", text)
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		r.t.Fatalf("%v: %s", err, text)
	}
	return page
}

// siblings counts those of which everything is known.
func (r replica) siblings() (n int) {
	for _, s := range r.cache().Siblings {
		if s.Synced {
			n++
		}
	}
	return n
}

// knows waits until r knows all that the holder holds: something, or nothing.
func (r replica) knows(holder replica, something bool) {
	r.t.Helper()
	eventually(r.t, r.name+" knows what "+holder.name+" holds", func() bool {
		own := holder.cache().Own
		for _, s := range r.cache().Siblings {
			if s.Name == holder.name {
				return s.Blocks == own && own > 0 == something
			}
		}
		return !something
	})
}

// served asks r and tells who answered, with how many tokens from a cache.
func (r replica) served(body map[string]any) (by string, cached int, a answer) {
	r.t.Helper()
	response, err := r.post(r.t.Context(), body)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, _ := io.ReadAll(response.Body)
	var reply struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(raw, &reply); err != nil || response.StatusCode != http.StatusOK || len(reply.Choices) == 0 {
		r.t.Fatalf("status %d: %s", response.StatusCode, raw)
	}
	return response.Header.Get("x-forebay-served-by"), reply.Usage.Details.Cached, answer{text: reply.Choices[0].Message.Content, raw: response.Header.Get("x-forebay-placement")}
}

// prompt is a long text that differs from others from its first word on.
func prompt(n int) string {
	return fmt.Sprintf("Number %d: ", n) + strings.Repeat("the quick brown fox jumps over the lazy dog near the river bank. ", 60)
}

// A prompt that one replica has computed is not computed again by another. The answer
// is the same, and says who computed it; the tenant's limit counts it once.
func TestSiblingsShareWhatTheyHold(t *testing.T) {
	redis := startRedis(t)
	all := replicas(t, redis, []string{"a", "b", "c"}, "--engine.tool_format", "hermes")
	a, b, c := all[0], all[1], all[2]
	body := chatBody(prompt(1), map[string]any{"max_tokens": 12})
	by, cached, first := a.served(body)
	if by != "a" || cached != 0 {
		t.Fatalf("the first was served by %q, %d cached", by, cached)
	}
	for _, r := range []replica{b, c} {
		r.knows(a, true)
		by, cached, got := r.served(body)
		if by != "a" || cached < 1000 || got.text != first.text || !strings.Contains(got.raw, "sooner_there") {
			t.Errorf("%s: served by %q (%s), %d cached, %q, want %q", r.name, by, got.raw, cached, got.text, first.text)
		}
	}
	// The same over a stream, with a sampled answer of two choices.
	sampled := chatBody(prompt(1), map[string]any{"max_tokens": 12, "temperature": 1, "seed": 7, "n": 2, "stream": true, "logprobs": true})
	stable := func(text string) (out []string) {
		for _, line := range strings.Split(text, "\n") {
			if i := strings.Index(line, `"choices"`); i >= 0 {
				out = append(out, line[i:])
			}
		}
		return out
	}
	here, there := <-a.stream(sampled), <-b.stream(sampled)
	if h, w := stable(there.raw), stable(here.raw); !there.done || !sameLines(h, w) {
		t.Errorf("b streamed\n%s\nand a\n%s", strings.Join(h, "\n"), strings.Join(w, "\n"))
	}
	// Answers in a form, and with tools, are the same too.
	for what, more := range map[string]map[string]any{
		"a schema": {"max_tokens": 40, "response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "s", "schema": map[string]any{
			"type": "object", "required": []string{"n", "s"}, "properties": map[string]any{"n": map[string]any{"type": "integer"}, "s": map[string]any{"enum": []string{"x", "yy"}}}, "additionalProperties": false}}}},
		"tools": {"max_tokens": 40, "tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "look", "parameters": map[string]any{"type": "object", "required": []string{"q"}, "properties": map[string]any{"q": map[string]any{"enum": []string{"a", "b"}}}}}}}, "tool_choice": "required"},
	} {
		body := chatBody(prompt(1), more)
		ask := func(r replica) (by, message string) {
			response, err := r.post(t.Context(), body)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var reply struct {
				Choices []struct {
					Message json.RawMessage
					Finish  string `json:"finish_reason"`
				}
			}
			raw, _ := io.ReadAll(response.Body)
			if json.Unmarshal(raw, &reply) != nil || len(reply.Choices) == 0 {
				t.Fatalf("%s: status %d: %s", what, response.StatusCode, raw)
			}
			return response.Header.Get("x-forebay-served-by"), string(reply.Choices[0].Message) + reply.Choices[0].Finish
		}
		_, want := ask(a)
		b.knows(a, true)
		if by, got := ask(b); by != "a" || callIDs.ReplaceAllString(got, "") != callIDs.ReplaceAllString(want, "") {
			t.Errorf("%s: %q answered %s, want %s", what, by, got, want)
		}
	}
	// Other prompts stay.
	if by, _, got := c.served(chatBody(prompt(2), map[string]any{"max_tokens": 2})); by != "c" {
		t.Errorf("a prompt that nobody holds was served by %q (%s)", by, got.raw)
	}
	page := func(r replica, path string) string {
		response, err := http.Get(r.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return string(text)
	}
	if text := page(b, "/metrics"); !strings.Contains(text, `forebay_hops_total{result="ok"} 4`) {
		t.Error("b's metrics do not have four hops")
	}
	if text := page(a, "/metrics"); !strings.Contains(text, `forebay_hops_total{result="taken"} 5`) || !strings.Contains(text, `forebay_requests_total{class="interactive",outcome="ok",route="sibling"} 5`) {
		t.Error("a's metrics do not have five hops, each a request of the route sibling")
	}
}

// callIDs finds the names of calls, which differ each time.
var callIDs = regexp.MustCompile(`"id":"[^"]*"`)

// sameLines tells that two streams have the same lines but for their order within a
// step, which the choices of a stream do not have.
func sameLines(a, b []string) bool {
	count := map[string]int{}
	for _, l := range a {
		count[l]++
	}
	for _, l := range b {
		count[l]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return len(a) == len(b)
}

// A sibling that dies, hangs or is told other secrets costs no request its answer,
// before the first token; after it the stream ends with an error.
func TestSiblingsFail(t *testing.T) {
	redis := startRedis(t)
	all := replicas(t, redis, []string{"a", "b"}, "--siblings.silence_limit", "1500ms", "--siblings.avoid_for", "50ms", "--siblings.lease", "20s")
	a, b := all[0], all[1]
	body := chatBody(prompt(1), map[string]any{"max_tokens": 4})
	a.served(body)
	b.knows(a, true)
	if by, _, _ := b.served(body); by != "a" {
		t.Fatalf("served by %q", by)
	}

	// A's engine dies: its claims end, and what it had is computed here.
	syscall.Kill(a.enginePid(), syscall.SIGKILL)
	b.knows(a, false)
	if by, cached, got := b.served(body); by != "b" || cached != 0 {
		t.Errorf("with a's engine dead: served by %q, %d cached (%s)", by, cached, got.raw)
	}
	a.waitReady()
	other := chatBody(prompt(2), map[string]any{"max_tokens": 4})
	eventually(t, "a's new engine serves", func() bool { _, cached, _ := a.served(other); return cached > 0 })
	b.knows(a, true)

	// A stream that has begun ends with an error when its sibling dies.
	stream := b.stream(chatBody(prompt(2), long))
	a.cmd.Process.Signal(syscall.SIGSTOP) // it hangs; its reports stay for the lease
	ended := <-stream
	if ended.done || ended.errors != 1 || !strings.Contains(ended.raw, "the sibling a") {
		t.Errorf("the stream ended with done %v, %d errors: %s", ended.done, ended.errors, ended.raw[max(0, len(ended.raw)-300):])
	}
	// A request that was sent to it and has no token yet is served here.
	time.Sleep(100 * time.Millisecond) // avoid_for is over
	began := time.Now()
	if by, _, got := b.served(other); by != "b" || !strings.HasPrefix(got.raw, "hop_failed") {
		t.Errorf("with a hanging: served by %q after %v (%s)", by, time.Since(began), got.raw)
	}
	a.cmd.Process.Signal(syscall.SIGCONT)

	// Redis dies: everything stays here, and nobody waits.
	redis.kill()
	eventually(t, "b has noticed", func() bool { return !b.cache().StoreUp })
	if _, _, got := b.served(chatBody(prompt(3), map[string]any{"max_tokens": 2})); got.text == "" {
		t.Error("no answer without Redis")
	}
	redis.start()
	eventually(t, "b knows a again", func() bool { return b.siblings() == 1 })
}

// Tenants: the sibling serves in the tenant's name and under its salt, and the limits
// of the gateway with the client count alone. A client can send no hop.
//
// Case D04, through a sibling.
func TestSiblingsAndTenants(t *testing.T) {
	redis := startRedis(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "forebay.yaml")
	text := `
budget: {store: "redis://127.0.0.1:` + redis.port + `", decision_limit: 1s}
admission:
  tenants:
    - {name: alice, keys: [alice-key], limits: {tokens_per_day: 100000}}
    - {name: bob, keys: [bob-key]}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all := replicas(t, redis, []string{"a", "b"}, "--config", config)
	a, b := all[0], all[1]
	a.key = "alice-key"
	body := chatBody(prompt(1), map[string]any{"max_tokens": 8})
	_, _, first := a.served(body)
	b.knows(a, true)

	b.key = "bob-key" // the same prompt of another tenant is not the same blocks
	if by, cached, got := b.served(body); by != "b" || cached != 0 {
		t.Errorf("bob: served by %q, %d cached (%s)", by, cached, got.raw)
	}
	b.key = "alice-key"
	by, cached, got := b.served(body)
	if by != "a" || cached == 0 || got.text != first.text {
		t.Errorf("alice: served by %q, %d cached (%s)", by, cached, got.raw)
	}
	// Of the day's tokens are used: the first prompt in full, the last page of the
	// others, and the answers.
	eventually(t, "the tenant was charged once", func() bool {
		response, err := a.post(t.Context(), body)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		left, _ := strconv.Atoi(response.Header.Get("X-Ratelimit-Remaining-Tokens"))
		return left > 100_000-2*1334
	})

	address := ""
	for _, line := range strings.Split(a.output(), "\n") {
		if _, after, ok := strings.Cut(line, " address="); ok && strings.Contains(line, "siblings:") {
			address = strings.TrimSpace(after)
		}
	}
	for _, path := range []string{"/siblings/hop", "/siblings/cancel", "/v1/models"} {
		response, err := http.Post("http://"+address+path, "application/octet-stream", strings.NewReader("rubbish"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if want := map[bool]int{true: http.StatusUnauthorized, false: http.StatusNotFound}[strings.HasPrefix(path, "/siblings")]; response.StatusCode != want {
			t.Errorf("rubbish to %s: status %d, want %d", path, response.StatusCode, want)
		}
	}
}
