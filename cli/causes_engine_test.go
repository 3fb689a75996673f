package cli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// More causes, planted in a whole Forebay as those of causes_test.go. Where programs
// beside the engine would be the cause on a busy machine, the engine looks for none.

// kvOf is the memory that keys and values of so many tokens of the demo model take.
func kvOf(t *testing.T, tokens int) string {
	t.Helper()
	const some = 16 << 20
	p := serve(t, "--engine.kv_bytes", fmt.Sprint(some))
	pages := int(p.metric("forebay_kv_pages"))
	p.cmd.Process.Kill()
	if pages == 0 {
		t.Fatal("the engine has no pages")
	}
	const pageTokens = 16
	return fmt.Sprint(some / pages * (tokens / pageTokens))
}

// TestMemoryIsTheCause: a request whose answer may become long waits for admission,
// since another holds the memory for its keys and values; its own answer is short.
func TestMemoryIsTheCause(t *testing.T) {
	p := serve(t, "--engine.step_records_off", "--engine.kv_bytes", kvOf(t, 2048))
	long := map[string]any{"ignore_eos": true, "max_tokens": 1500}
	for range 3 { // as all answers so far
		p.ask(chatBody("hold", long))
	}
	long["stream"] = true
	holder := p.stream(chatBody("hold", long))
	id := p.chatOf(chatBody("hi", map[string]any{"max_tokens": 1500}), func() {})
	<-holder
	p.expectCause(id, "queue", "not enough free memory", "engine.kv_bytes")
}

// TestASlowRedisIsTheCause: the store of budgets answers late, and the request waits for
// it, as budget.decision_limit allows.
func TestASlowRedisIsTheCause(t *testing.T) {
	r := startRedis(t)
	p := serve(t, "--config", sharing(t, r, "{requests_per_minute: 60}"))
	p.chatOf(chatBody("hi", map[string]any{"max_tokens": 1}), func() {})
	redis := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + r.port})
	defer redis.Close()
	if err := redis.Do(t.Context(), "CLIENT", "PAUSE", "1500", "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	id := p.chatOf(chatBody("hi", map[string]any{"max_tokens": 1}), func() {})
	p.expectCause(id, "reserve", "asking the store of budgets", "budget.decision_limit")
}

// TestASlowReaderIsTheCause: the client reads nothing until its answer has filled every
// buffer on the way and the engine waits for it, and then for several times as long.
func TestASlowReaderIsTheCause(t *testing.T) {
	p := serve(t, "--engine.step_records_off", "--gateway.timeouts.write_stall_limit", "10m")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(
		`{"model":"forebay-demo","messages":[{"role":"user","content":"tell me a long story"}],"stream":true,"ignore_eos":true,"max_tokens":1000,"n":8,"logprobs":true,"top_logprobs":20}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Forebay-Capture", "1")
	began := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	made := func() float64 { return p.metric(`forebay_engine_tokens_total{kind="decode"}`) }
	for before := -1.0; before != made() || before == 0; time.Sleep(200 * time.Millisecond) {
		before = made()
	}
	if n := made(); n >= 8*1000 {
		t.Skipf("SKIPPED: the buffers of this machine take all of the answer, %v tokens", n)
	}
	time.Sleep(4 * time.Since(began))
	io.Copy(io.Discard, response.Body)
	p.expectCause(response.Header.Get("X-Request-Id"), "slow_reader", "client", "network") // the wait may be seen by the engine or by the socket
}
