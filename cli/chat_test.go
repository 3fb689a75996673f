package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// talkTo returns a conversation with a server that answers as the handler says.
func talkTo(t *testing.T, handler http.HandlerFunc) (*chat, *bytes.Buffer) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	out := new(bytes.Buffer)
	return &chat{url: server.URL, out: out}, out
}

func sendText(w http.ResponseWriter, text string) {
	fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", text)
	w.(http.Flusher).Flush()
}

func TestChatInterruptStopsOneAnswer(t *testing.T) {
	interrupts := make(chan os.Signal, 1)
	left := make(chan struct{})
	talk, out := talkTo(t, func(w http.ResponseWriter, r *http.Request) {
		sendText(w, "Once upon ")
		interrupts <- os.Interrupt
		<-r.Context().Done() // the client leaves, else this never ends
		close(left)
	})
	if err := talk.answer("A story!", interrupts); err != nil {
		t.Fatal(err)
	}
	<-left
	want := []message{{"user", "A story!"}, {"assistant", strings.TrimSuffix(out.String(), "\n")}}
	if fmt.Sprint(talk.history) != fmt.Sprint(want) {
		t.Errorf("history %q, want %q", talk.history, want)
	}
}

func TestChatKeepsHistory(t *testing.T) {
	var bodies []string
	talk, _ := talkTo(t, func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		body.ReadFrom(r.Body)
		bodies = append(bodies, body.String())
		sendText(w, "Yes.")
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	for _, text := range []string{"One?", "Two?"} {
		if err := talk.answer(text, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := `[{"role":"user","content":"One?"},{"role":"assistant","content":"Yes."},{"role":"user","content":"Two?"}]`
	if len(bodies) != 2 || !strings.Contains(bodies[1], want) {
		t.Errorf("sent %q, want %s", bodies, want)
	}
}

func TestChatTellsFailures(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"refused": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, `{"error":{"message":"no room"}}`, http.StatusServiceUnavailable)
		}, "503 Service Unavailable: no room"},
		"error event": {func(w http.ResponseWriter, r *http.Request) {
			sendText(w, "Once")
			fmt.Fprint(w, "data: {\"error\":{\"message\":\"the engine went away\"}}\n\n")
		}, "the engine went away"},
		"no end": {func(w http.ResponseWriter, r *http.Request) { sendText(w, "Once") }, "the answer broke off"},
	} {
		t.Run(name, func(t *testing.T) {
			talk, _ := talkTo(t, c.handler)
			err := talk.answer("Hello!", nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if len(talk.history) != 0 {
				t.Errorf("a failed answer stays in the history: %q", talk.history)
			}
		})
	}
}

func TestChatSendsItsKey(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sk-1" {
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":{"message":"no tenant has this API key"}}`)
			return
		}
		io.WriteString(w, `{"data":[{"id":"m"}]}`)
	}))
	defer server.Close()
	if model, err := (&chat{url: server.URL, key: "sk-1"}).servedModel(); err != nil || model != "m" {
		t.Errorf("%q, %v", model, err)
	}
	if _, err := (&chat{url: server.URL}).servedModel(); err == nil || !strings.Contains(err.Error(), apiKeyVar) {
		t.Errorf("without a key: %v", err)
	}
}
