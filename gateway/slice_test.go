package gateway

import (
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

type wireGeneration = wire.Generation

func TestChatPlain(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Pieces: []string{"Hello", " world"}})
	resp := r.chat("")
	if resp.status != 200 {
		t.Fatalf("status %d: %s", resp.status, resp.body)
	}
	m := object(t, resp.body)
	choice := m["choices"].([]any)[0].(map[string]any)
	if got := choice["message"].(map[string]any)["content"]; got != "Hello world" {
		t.Errorf("content %q", got)
	}
	if resp.header.Get("X-Request-Id") == "" || resp.header.Get("Openai-Processing-Ms") == "" {
		t.Errorf("headers %v", resp.header)
	}
}

func TestChatStreamKeepsConnection(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Pieces: []string{"Hello", " world"}})
	request := rawPost("/v1/chat/completions", chatBody(`"stream":true`))
	got := r.raw(request + request + rawPost("/v1/models", "", "Connection: close"))
	if n := strings.Count(got, "HTTP/1.1 200 OK"); n != 2 {
		t.Errorf("%d streams answered:\n%s", n, got)
	}
	if n := strings.Count(got, "data: [DONE]"); n != 2 {
		t.Errorf("%d streams ended:\n%s", n, got)
	}
	if !strings.Contains(got, "HTTP/1.1 405 ") {
		t.Errorf("the third request was not answered:\n%s", got)
	}
}
