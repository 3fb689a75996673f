package upstream

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestExactPassesOn: the server's own events come as they are, in order, the ends of
// choices and the usage when the answer is whole.
func TestExactPassesOn(t *testing.T) {
	role := `{"id":"theirs","choices":[{"index":0,"delta":{"role":"assistant"}}],"own":[1, 2]}`
	odd := `{"choices":[{"index":0,"delta":{"content":"Hi","reasoning":"so"},"own":true}] , "usage":{"prompt_tokens":3,"completion_tokens":1}}`
	progress := `{"choices":[],"prompt_progress":{"processed":7}}`
	stop, usage := deltaChunk(`{"content":"!"}`, "stop"), usageChunk(3, 2)
	two := `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"},{"index":1,"delta":{"content":"b"}}]}`
	for name, c := range map[string]struct {
		answer []string
		n      int
		lines  []string
		usage  string
		whole  bool
	}{
		"a whole answer":              {[]string{role, progress, odd, stop, usage, "[DONE]"}, 1, []string{role, progress, odd, stop}, usage, true},
		"what ends is held back":      {[]string{odd, stop, progress, "[DONE]"}, 1, []string{odd, progress, stop}, "", true},
		"and not passed on if broken": {[]string{role, odd, stop, `{"error":"no"}`}, 1, []string{role, odd}, "", false},
		"one reason for two":          {[]string{two, "[DONE]"}, 2, []string{two}, "", false},
		"two choices":                 {[]string{two, textChunk(1, "", "length"), usage, "[DONE]"}, 2, []string{two, textChunk(1, "", "length")}, usage, true},
		"no reason at the end":        {[]string{role, odd, "[DONE]"}, 1, []string{role, odd}, "", true},
		"an event that says nothing":  {[]string{"null", odd, stop, "[DONE]"}, 1, []string{odd, stop}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, events(c.answer...))
			e := open(t, Config{URL: p.URL, Relay: relayExact})
			got := chat(t, e, "", wire.Options{N: c.n})
			if whole := got.end.Err == nil; whole != c.whole || !slices.Equal(got.lines, c.lines) || got.usage != c.usage {
				t.Errorf("ended with %v, usage %q, events\n%s\nwant\n%s", got.end.Err, got.usage, strings.Join(got.lines, "\n"), strings.Join(c.lines, "\n"))
			}
		})
	}
}

// TestExactIsOneLine: events of several lines, and bytes that are no UTF-8, cannot break
// the stream of the client; and what is held back is bounded.
func TestExactIsOneLine(t *testing.T) {
	p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		stream(w)
		io.WriteString(w, "data: {\"choices\":\ndata: [{\"index\":0,\"delta\":{\"content\":\"a\xffb\"}}]}\n\ndata: "+deltaChunk(`{}`, "stop")+"\n\ndata: [DONE]\n\n")
	})
	e := open(t, Config{URL: p.URL, Relay: relayExact, EventBytesMax: 1 << 10})
	if got := chat(t, e, "", wire.Options{}); got.end.Err != nil || got.lines[0] != `{"choices":[{"index":0,"delta":{"content":"a`+"\ufffd"+`b"}}]}` || got.texts[0] != "a\ufffdb" {
		t.Errorf("%v, %q", got.end.Err, got.lines)
	}
	p.answer = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		stream(w)
		for range 100 {
			send(w, deltaChunk(`{"content":"a"}`, "stop"))
		}
		send(w, "[DONE]")
	}
	if got := chat(t, e, "", wire.Options{}); got.end.Err == nil || len(got.lines) > 0 {
		t.Errorf("a hundred ends: %v, %q", got.end.Err, got.lines)
	}
	p.answer = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"index":0,"message":{"content":"whole"},"finish_reason":"stop"}]}`)
	}
	if got := chat(t, e, "", wire.Options{}); got.end.Err != nil || got.texts[0] != "whole" || len(got.lines) > 0 {
		t.Errorf("a server that does not stream: %v, %+v", got.end.Err, got)
	}
}
