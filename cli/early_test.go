package cli

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestClientsThatLeaveAreAuditedToTheToken: of a real engine's clients, some leave in
// the queue, in prefill, in decode and at the end. What its own counters say is what
// the requests are counted with, and what the tenant's quota has lost.
func TestClientsThatLeaveAreAuditedToTheToken(t *testing.T) {
	const quota = 1e9
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	config := fmt.Sprintf("admission:\n  running_sequences_max: 4\n  tenants:\n    - name: acme\n      keys: [\"*\"]\n      limits: {tokens_per_day: %.0f}\n", quota)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--config", file)
	var all sync.WaitGroup
	turns := make(chan struct{}, 12)
	for i := range 60 {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if i%4 > 0 {
				time.AfterFunc(time.Duration(rand.IntN(60))*time.Millisecond, leave)
			}
			text := strings.Repeat(fmt.Sprint("word ", i%5, " "), 10+rand.IntN(150))
			response, err := p.post(ctx, chatBody(text, map[string]any{"stream": i%2 == 0, "ignore_eos": true, "max_tokens": 1 + rand.IntN(40), "n": 1 + i%3}))
			if err != nil {
				return
			}
			io.Copy(io.Discard, response.Body)
			response.Body.Close()
		})
	}
	all.Wait()
	eventually(t, "all requests have ended", func() bool {
		return p.metric("forebay_requests_running")+p.metric("forebay_requests_waiting") == 0 && p.metric(`forebay_client_gone_total`) > 0
	})
	response, err := p.post(t.Context(), chatBody("the last", map[string]any{"max_tokens": 1}))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	left, err := strconv.ParseFloat(response.Header.Get("X-Ratelimit-Remaining-Tokens"), 64)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last request has ended", func() bool { return p.metric("forebay_requests_running") == 0 })
	engine := func(kind string) float64 { return p.metric(`forebay_engine_tokens_total{kind="` + kind + `"}`) }
	counted := func(kind string) float64 { return p.metric(`forebay_tokens_total{kind="` + kind + `"}`) }
	eventually(t, "the counters add up", func() bool {
		return counted("prompt") == engine("prefill")+engine("cached") && counted("cached") == engine("cached") && counted("completion") == engine("decode")
	})
	if used := quota - left; used != engine("prefill")+engine("decode") {
		t.Errorf("%v tokens of the quota are used; the engine computed %v and generated %v", used, engine("prefill"), engine("decode"))
	}
	t.Logf("%v tokens computed, %v cached, %v generated; %v clients left", engine("prefill"), engine("cached"), engine("decode"), p.metric("forebay_client_gone_total"))
}
