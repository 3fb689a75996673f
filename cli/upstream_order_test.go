package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forebay-io/forebay/gateway/debug"
)

// holding is a server with few places that answers only when it is told to.
type holding struct {
	*httptest.Server
	mu       sync.Mutex
	arrived  []string // the last message of each chat, in order
	inside   int
	most     int
	released map[string]chan struct{}
}

func hold(t *testing.T, names ...string) *holding {
	h := &holding{released: map[string]chan struct{}{}}
	for _, name := range names {
		h.released[name] = make(chan struct{})
	}
	h.Server = httptest.NewServer(h)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h
}

func (h *holding) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/models":
		fmt.Fprint(w, `{"data":[{"id":"m","max_model_len":4096,"owned_by":"vllm"}]}`)
		return
	case "/health":
		fmt.Fprint(w, `{}`)
		return
	case "/v1/chat/completions":
	default:
		http.NotFound(w, r)
		return
	}
	var body struct{ Messages []struct{ Content string } }
	json.NewDecoder(r.Body).Decode(&body)
	name := body.Messages[0].Content
	w.Header().Set("Content-Type", "text/event-stream")
	h.mu.Lock()
	h.arrived = append(h.arrived, name)
	h.inside++
	h.most = max(h.most, h.inside)
	h.mu.Unlock()
	fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n")
	w.(http.Flusher).Flush()
	select {
	case <-h.released[name]:
	case <-r.Context().Done():
	}
	h.mu.Lock()
	h.inside--
	h.mu.Unlock()
	fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

func (h *holding) seen() (arrived []string, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.arrived...), h.most
}

// waiting is how many requests wait in the gateway.
func (p *process) waiting() int {
	response, err := http.Get(p.admin + "/debug/queue?format=json")
	if err != nil {
		return -1
	}
	defer response.Body.Close()
	var page debug.QueuePage
	if json.NewDecoder(response.Body).Decode(&page) != nil {
		return -1
	}
	return len(page.Waiting)
}

// TestUrgentBeforeAFullServer: vllm-project/vllm#40004 and sgl-project/sglang#14872, where a
// server's own priorities do not displace what runs, or what waits there. No more is there
// than it computes at once, so the next free place is the urgent request's, whoever has
// waited longer, and the server need not know of priorities.
func TestUrgentBeforeAFullServer(t *testing.T) {
	names := []string{"offline-0", "offline-1", "offline-2", "offline-3", "offline-4", "urgent-0", "urgent-1"}
	server := hold(t, names...)
	p := serve(t, "--upstream", server.URL, "--upstream.sequences_max", "2")
	var asked sync.WaitGroup
	ask := func(name, class string) {
		asked.Go(func() {
			text, _ := json.Marshal(chatBody(name, map[string]any{"model": "m"}))
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(string(text)))
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("X-Forebay-Class", class)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", name, response.Status)
			}
		})
	}
	there := func() int { arrived, _ := server.seen(); return len(arrived) + p.waiting() }
	for i, name := range names {
		class, _, _ := strings.Cut(name, "-")
		ask(name, map[string]string{"offline": "offline", "urgent": "interactive"}[class])
		eventually(t, name+" is inside or waits", func() bool { return there() == i+1 })
	}
	running, _ := server.seen()
	running = slices.DeleteFunc(running, func(name string) bool { return strings.HasPrefix(name, "urgent") })
	for _, name := range running {
		close(server.released[name])
	}
	eventually(t, "both urgent ones are inside", func() bool {
		arrived, _ := server.seen()
		return slices.Contains(arrived, "urgent-0") && slices.Contains(arrived, "urgent-1")
	})
	if arrived, most := server.seen(); most != 2 || len(arrived) != len(running)+2 {
		t.Errorf("%d were at the server at once; %v came before the last urgent one", most, arrived)
	}
	for _, name := range names {
		if !slices.Contains(running, name) {
			close(server.released[name])
		}
	}
	asked.Wait()
	if arrived, most := server.seen(); most != 2 || len(arrived) != len(names) {
		t.Errorf("%d were at the server at once; %v", most, arrived)
	}
}
