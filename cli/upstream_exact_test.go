package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestExactRelay: with upstream.relay exact a client of a stream gets the server's own
// events, its usage where it asked for it, and an end only of a whole answer. All that is
// not a stream of one prompt is written here, as in the other mode.
func TestExactRelay(t *testing.T) {
	events := []string{
		`{"id":"theirs","model":"/models/big","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
		`{"id":"theirs", "choices":[{"index":0,"delta":{"content":"Hé","own":{"a":1}}}]}`,
		`{"id":"theirs","choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":7}]}`,
	}
	const usage = `{"id":"theirs","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"own":2}}`
	breaks, silent := make(chan bool, 1), make(chan bool, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"big","max_model_len":4096}]}`)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/v1/chat") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(data string) { fmt.Fprintf(w, "data: %s\n\n", data) }
		sent := events
		select {
		case <-breaks:
			sent = append(events[:3:3], `{"error":{"message":"out of memory"}}`)
		case <-silent:
			sent = events[:2] // no reason at the end
		default:
		}
		for _, data := range sent {
			send(data)
		}
		send(usage)
		send("[DONE]")
	}))
	t.Cleanup(server.Close)
	p := serve(t, "--upstream", server.URL, "--upstream.relay", "exact")
	ask := func(path string, more map[string]any) string {
		t.Helper()
		body := chatBody("hello", map[string]any{"model": "big", "stream": true})
		for name, value := range more {
			body[name] = value
		}
		response, err := p.postTo(t.Context(), path, body)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		raw, _ := io.ReadAll(response.Body)
		return string(raw)
	}
	lines := func(all ...string) string { return "data: " + strings.Join(all, "\n\ndata: ") + "\n\n" }
	const chats = "/v1/chat/completions"
	if got, want := ask(chats, nil), lines(append(events[:3:3], "[DONE]")...); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := ask(chats, map[string]any{"stream_options": map[string]any{"include_usage": true}}), lines(append(events[:3:3], usage, "[DONE]")...); got != want {
		t.Errorf("with usage\n%s\nwant\n%s", got, want)
	}
	breaks <- true
	if got := ask(chats, nil); !strings.HasPrefix(got, lines(events[:2]...)+"data: {\"error\":") || strings.Contains(got, "stop_reason") || strings.Contains(got, "[DONE]") {
		t.Errorf("a broken answer:\n%s", got)
	}
	silent <- true
	if got := ask(chats, nil); !strings.HasPrefix(got, lines(events[:2]...)) || strings.Count(got, `"finish_reason":"stop"`) != 1 || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("without the reason of its end:\n%s", got)
	}
	if got := ask(chats, map[string]any{"stream": false}); strings.Contains(got, "theirs") || !strings.Contains(got, `"content":"Hé"`) || !strings.Contains(got, `"total_tokens":4`) {
		t.Errorf("not streamed: %s", got)
	}
	if got := ask("/v1/responses", map[string]any{"messages": nil, "input": "hello"}); strings.Contains(got, "theirs") || !strings.Contains(got, "response.completed") {
		t.Errorf("of the Responses API:\n%s", got)
	}
}
