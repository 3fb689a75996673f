package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A file of prompts is computed before anybody asks; what is wrong in it is told by
// its line, and the rest is computed.
func TestCacheWarm(t *testing.T) {
	p := serve(t)
	file := filepath.Join(t.TempDir(), "prompts.jsonl")
	system := strings.Repeat("You answer in one short word. ", 30)
	text := `{"messages": [{"role": "system", "content": "` + system + `"}], "max_completion_tokens": 500, "stream": true, "stream_options": {"include_usage": true}}` + "\n\n" +
		`{"prompt": "` + system + `", "n": 3}` + "\n" + `{"input": 1}` + "\n" + "rubbish\n" + `{"prompt": "x", "temperature": "hot"}` + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, status := run(t, "", "cache", "warm", file, "--url", p.url)
	for _, want := range []string{"LINE  PROMPT TOKENS", "4     -", "neither messages nor a prompt", "no JSON object", "temperature", "3 of 5 requests failed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if status != 1 {
		t.Errorf("status %d", status)
	}
	r := replica{process: p}
	body := map[string]any{"model": "forebay-demo", "max_tokens": 2, "messages": []map[string]string{{"role": "system", "content": system}, {"role": "user", "content": "Hello!"}}}
	if _, cached, _ := r.served(body); cached < 100 {
		t.Errorf("%d tokens were cached", cached)
	}
	if out, status := run(t, `{"prompt": "`+system+`"}`, "cache", "warm", "-", "--url", p.url, "--class", ""); status != 0 || !strings.Contains(out, "127.0.0.1") {
		t.Errorf("status %d: %s", status, out)
	}
	for _, args := range [][]string{{"cache", "warm"}, {"cache", "warm", filepath.Join(t.TempDir(), "none"), "--url", p.url}} {
		if out, status := run(t, "", args...); status == 0 {
			t.Errorf("%v: status 0: %s", args, out)
		}
	}
	if out, status := run(t, "\n", "cache", "warm", "-", "--url", p.url); status != 1 || !strings.Contains(out, "the file has no request") {
		t.Errorf("status %d: %s", status, out)
	}
	out, status = run(t, "", "cache", "--admin", strings.TrimPrefix(p.admin, "http://"))
	if status != 0 || !strings.Contains(out, "HIT RATE") || !strings.Contains(out, "batch") || strings.Contains(out, "SIBLING") {
		t.Errorf("status %d: %s", status, out)
	}
}

// What is pinned outlives a storm of other prompts, and is shown; a prompt that is not pinned
// does not. Case D16: the size of a page is shown too.
func TestCachePin(t *testing.T) {
	p := serve(t, "--engine.kv_bytes", "6MiB")
	r := replica{process: p}
	pinned, plain := strings.Repeat("You keep your promises. ", 12), strings.Repeat("You forget all you hear. ", 12)
	line := func(text string) string {
		return `{"messages": [{"role": "system", "content": "` + text + `"}]}` + "\n"
	}
	out, status := run(t, line(pinned)+`{"prompt": "x"}`, "cache", "pin", "-", "--for", "2h", "--url", p.url)
	if status != 1 || !strings.Contains(out, "shorter than a page") || !strings.Contains(out, "1 of 2 requests failed") {
		t.Errorf("status %d: %s", status, out)
	}
	run(t, line(plain), "cache", "warm", "-", "--url", p.url)
	ask := func(text string) (cached int) {
		_, cached, _ = r.served(map[string]any{"model": "forebay-demo", "max_tokens": 1, "messages": []map[string]string{{"role": "system", "content": text}, {"role": "user", "content": "Now?"}}})
		return cached
	}
	for i := range 40 {
		ask(strings.Repeat("Storm number "+string(rune('A'+i))+" blows. ", 30))
	}
	if a, b := ask(pinned), ask(plain); a < 32 || b != 0 {
		t.Errorf("of the pinned prompt %d tokens were found, of the other one %d", a, b)
	}
	out, status = run(t, "", "cache", "--admin", strings.TrimPrefix(p.admin, "http://"))
	for _, want := range []string{"ENDS IN", "(1h59m|2h0m)", "MEMORY", "BEGINNING", "TOKENS EACH"} {
		if status != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("status %d, without %s: %s", status, want, out)
		}
	}
	if out, status := run(t, line(pinned), "cache", "unpin", "-", "--url", p.url); status != 0 {
		t.Errorf("status %d: %s", status, out)
	}
	if out, _ := run(t, "", "cache", "--admin", strings.TrimPrefix(p.admin, "http://")); strings.Contains(out, "ENDS IN") {
		t.Errorf("a pin that was ended is shown: %s", out)
	}
}
