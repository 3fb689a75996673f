package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// TestALoneTenantBehindAFlood: on the real engine another tenant's request has its first
// token before nearly all of a flood that waits. The flood's own last request, which came
// before it, is the control: it has to wait for the others. All of it is an order of
// events, so the machine's speed does not matter.
func TestALoneTenantBehindAFlood(t *testing.T) {
	const flood, passedMost = 30, 6
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	config := `admission:
  running_sequences_max: 2
  quantum: 1ms
  classes: [{name: interactive, first_token_goal: 10m, wait_limit: 10m}]
  tenants: [{name: flood, keys: [flood]}, {name: lone, keys: [lone]}]
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--config", file)
	p.key = "flood"
	if a := p.ask(chatBody("the first", map[string]any{"max_tokens": 1})); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	var mu sync.Mutex
	var order []string // of first tokens
	begun := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(order)
	}
	var all sync.WaitGroup
	ask := func(tenant, name string) {
		all.Go(func() {
			text, err := json.Marshal(chatBody("Tell me about number "+name, map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 150}))
			if err != nil {
				t.Error(err)
				return
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions", bytes.NewReader(text))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Authorization", "Bearer "+tenant)
			request.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			a := readEvents(response.Body, sync.OnceFunc(func() {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			}))
			if response.StatusCode != 200 || !a.done {
				t.Errorf("%s: %d %+v", name, response.StatusCode, a)
			}
		})
	}
	waiting := func() float64 { return p.metric("forebay_requests_waiting") }
	for i := range flood {
		ask("flood", strconv.Itoa(i))
	}
	eventually(t, "the flood waits", func() bool { return waiting()+float64(len(begun())) >= flood-4 })
	ask("flood", "last")
	eventually(t, "the last of the flood waits", func() bool { return waiting()+float64(len(begun())) >= flood-1 })
	before := len(begun())
	ask("lone", "lone")
	all.Wait()

	lone, last := slices.Index(order, "lone"), slices.Index(order, "last")
	t.Logf("%d had begun when it came; the lone one is number %d, the flood's last %d", before, lone, last)
	if before > flood/2 {
		t.Skipf("%d of %d had begun before the lone one came: it was sent too late", before, flood)
	}
	if lone-before > passedMost {
		t.Errorf("the lone one had to wait for %d of the flood, of which %d had begun: %v", lone-before, before, order)
	}
	if last < lone+passedMost {
		t.Errorf("the flood's last is number %d, the lone one %d: %v", last, lone, order)
	}
}
