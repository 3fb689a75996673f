package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay-io/forebay/engine/demo"
	"github.com/forebay-io/forebay/engine/gguf"
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
	id := p.chatOf(chatBody("hi", map[string]any{"max_tokens": 1500, "service_tier": "flex"}), func() {}) // whose goal allows a slow machine
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

// TestPreemptionIsTheCause: answers were short so far, so two requests are let in
// whose answers together need more memory than there is. The less urgent one loses its
// pages until the other has ended.
func TestPreemptionIsTheCause(t *testing.T) {
	p := serve(t, "--engine.step_records_off", "--engine.kv_bytes", kvOf(t, 2048))
	for range 12 {
		p.ask(chatBody("hi", map[string]any{"max_tokens": 1500}))
	}
	const attempts, starved = 10, 2
	var id string
	for range attempts { // again where a busy machine slowed its own prompt: that may be the longest part then
		var holder <-chan answer
		id = p.chatOf(chatBody(strings.Repeat("the quick brown fox ", 280), map[string]any{"ignore_eos": true, "max_tokens": 300, "stream": true, "service_tier": "flex"}), func() {
			holder = p.stream(chatBody("tell me", long))
		})
		<-holder
		if v := p.view(id); v.PredictionRatio < starved {
			break
		}
	}
	v := p.expectCause(id, "preempted", "being preempted", "engine.kv_bytes")
	if v.Class != "batch" {
		t.Errorf("it is of the class %s", v.Class)
	}
}

// TestASlowTemplateIsTheCause: the chat template of the model counts to 100,000 before
// it writes anything; the work that it may do grows with the request.
func TestASlowTemplateIsTheCause(t *testing.T) {
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	const key = "tokenizer.chat_template"
	template, _, err := f.String(key)
	if err != nil {
		t.Fatal(err)
	}
	d := gguf.NewDraft("slow")
	d.Copy(f)
	for _, tensor := range f.Tensors {
		d.Add(tensor)
	}
	d.Set(key, "{%- for i in range(100000) -%}{%- set x = i * i -%}{%- endfor -%}"+template)
	slow, err := d.File("slow", false)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "slow.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := gguf.Write(out, slow, func(*gguf.Tensor) {}); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--engine.step_records_off", "--engine.model", out.Name(), "--engine.model_id", "forebay-demo")
	id := p.chatOf(chatBody("hi", map[string]any{"max_tokens": 1, "chat_template_kwargs": map[string]any{"unused": strings.Repeat("x", 10000)}}), func() {})
	p.expectCause(id, "prepare", "rendering its chat template", "engine.prompt_render_budget")
}

func TestALongPromptIsTheCause(t *testing.T) {
	p := serve(t, "--engine.step_records_off")
	id := p.chatOf(chatBody(strings.Repeat("the quick brown fox ", 300), map[string]any{"max_tokens": 1}), func() {})
	p.expectCause(id, "own_prefill", "computing its own prompt (1,8", "A shorter prompt")
}

// TestAFullBatchIsTheCause: the one place is taken by a long answer of its own class.
func TestAFullBatchIsTheCause(t *testing.T) {
	p := serve(t, "--engine.step_records_off", "--admission.running_sequences_max", "1")
	holder := p.stream(chatBody("hold", map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 1900, "service_tier": "flex"}))
	id := p.chatOf(chatBody("hi", map[string]any{"max_tokens": 1, "service_tier": "flex"}), func() {})
	<-holder
	p.expectCause(id, "queue", "every running place was taken", "admission.running_sequences_max")
}

// TestANeighboursPromptIsTheCause: the prompts of others are computed in the steps in
// which the answer should have its tokens.
func TestANeighboursPromptIsTheCause(t *testing.T) {
	const neighbours = 24
	p := serve(t, "--engine.step_records_off")
	var all sync.WaitGroup
	id := p.chatOf(longChat(300), func() {
		for i := range neighbours {
			all.Go(func() {
				p.ask(chatBody(strings.Repeat(fmt.Sprint(i, " brown fox "), 300), map[string]any{"max_tokens": 1}))
			})
		}
	})
	all.Wait()
	p.expectCause(id, "others_prefill", "other requests' prompts", "prompt_tokens_max")
}
