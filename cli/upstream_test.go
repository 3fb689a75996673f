package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// relayTo is a scripted server for serve --upstream. The last message of a chat says
// what its answer is.
func relayTo(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"big","max_model_len":4096}]}`)
			return
		}
		var body struct {
			Messages []struct{ Content any }
		}
		if json.NewDecoder(r.Body).Decode(&body); r.Header.Get("Authorization") != "Bearer inner" || r.Header.Get("Traceparent") == "" {
			http.Error(w, `{"error":{"message":"who are you?"}}`, http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(choices string) { fmt.Fprintf(w, "data: {\"id\":\"theirs\",%s}\n\n", choices) }
		send(`"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]`)
		send(`"choices":[{"index":0,"delta":{"content":"Hé","reasoning_content":"so "}}]`)
		send(`"choices":[{"index":0,"delta":{"reasoning_content":"far","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":"}}]}}]`)
		if fmt.Sprint(body.Messages[0].Content) == "break" {
			return
		}
		send(`"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}]`)
		send(`"choices":[],"usage":{"prompt_tokens":900,"completion_tokens":33,"prompt_tokens_details":{"cached_tokens":64}}`)
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	return server
}

// TestServeUpstream: a gateway in front of another server gives what it gives in
// front of its own engine.
func TestServeUpstream(t *testing.T) {
	server := relayTo(t)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("inner"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--upstream", server.URL, "--upstream.key_file", key, "--upstream.model_id", "mine",
		"--admission.tenants", `[{name: a, keys: [outer], limits: {tokens_per_minute: 100000}}]`)
	p.key = "outer"
	eventually(t, "it says where it relays to", func() bool { return strings.Contains(p.output(), "relayed to openai at "+server.URL) })
	body := chatBody("hello", map[string]any{"model": "mine", "tool_choice": "required", "min_tokens": 3})

	whole := p.ask(body)
	var reply struct {
		ID      string
		Choices []struct {
			Finish  string `json:"finish_reason"`
			Message struct {
				Content   string
				Reasoning string          `json:"reasoning_content"`
				Tools     json.RawMessage `json:"tool_calls"`
			}
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(whole.raw), &reply); err != nil || len(reply.Choices) != 1 {
		t.Fatalf("%v: %s", err, whole.raw)
	}
	c := reply.Choices[0]
	const tools = `[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]`
	if c.Finish != "tool_calls" || c.Message.Content != "Hé" || c.Message.Reasoning != "so far" || string(c.Message.Tools) != tools || reply.Usage.Prompt != 900 || reply.Usage.Completion != 33 || strings.Contains(whole.raw, "theirs") {
		t.Errorf("answered %s", whole.raw)
	}

	body["stream"] = true
	response, err := p.post(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	streamed := readEvents(response.Body, func() {})
	response.Body.Close()
	if !streamed.done || streamed.errors > 0 || streamed.text != "Hé" || strings.Count(streamed.raw, `"role":"assistant"`) != 1 || !strings.Contains(streamed.raw, `"delta":{"reasoning_content":"far","tool_calls":[{"index":0,"id":"c1",`) || strings.Contains(streamed.raw, "theirs") {
		t.Errorf("streamed %s", streamed.raw)
	}
	if left := response.Header.Get("X-Ratelimit-Remaining-Tokens"); left == "" {
		t.Errorf("no budget in the head: %v", response.Header)
	}

	body["messages"] = []map[string]string{{"role": "user", "content": "break"}}
	if response, err = p.post(t.Context(), body); err != nil {
		t.Fatal(err)
	}
	broken := readEvents(response.Body, func() {})
	response.Body.Close()
	if broken.done || broken.errors != 1 || strings.Contains(broken.raw, `"finish_reason":"`) {
		t.Errorf("a broken answer became %s", broken.raw)
	}
	body["stream"] = false
	if broken := p.ask(body); broken.status != http.StatusInternalServerError || broken.done {
		t.Errorf("a broken answer became %d %s", broken.status, broken.raw)
	}
	for field, value := range map[string]any{"n_predict": 5, "use_beam_search": true} {
		if refused := p.ask(chatBody("hello", map[string]any{"model": "mine", field: value})); refused.status != http.StatusBadRequest || !strings.Contains(refused.raw, field) {
			t.Errorf("%s: %d %s", field, refused.status, refused.raw)
		}
	}
	page, err := http.Get(p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	text, _ := io.ReadAll(page.Body)
	if !strings.Contains(string(text), `forebay_engine_up 1`) {
		t.Error("the metrics say that there is no engine")
	}
	if strings.Contains(p.output(), "inner") {
		t.Error("the log has the upstream's key")
	}
}

func TestServeUpstreamRefusesAModel(t *testing.T) {
	p := start(t, "serve", "--upstream", "http://127.0.0.1:1", "--model", "x.gguf")
	if status := p.exit(); status != 1 || !strings.Contains(p.output(), "upstream.url names a server that has the model") {
		t.Errorf("exit %d: %s", status, p.output())
	}
}

// TestServeSeveralUpstreams: requests go on while one of two servers dies, and the
// operator sees which.
func TestServeSeveralUpstreams(t *testing.T) {
	answer := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				fmt.Fprint(w, `{"data":[{"id":"big","max_model_len":4096}]}`)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", name)
		}))
		t.Cleanup(s.Close)
		return s
	}
	a, b := answer("a"), answer("b")
	p := serve(t, "--upstream", a.URL+","+b.URL, "--upstream.check_interval", "50ms")
	states := func() string {
		response, err := http.Get(p.admin + "/debug/queue?format=json")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		var page struct {
			Upstreams []struct{ Upstream, State string }
		}
		json.NewDecoder(response.Body).Decode(&page)
		text := ""
		for _, u := range page.Upstreams {
			text += u.Upstream + " " + u.State + "\n"
		}
		return text
	}
	eventually(t, "both are up", func() bool { return strings.Count(states(), " up") == 2 })

	order := func(want string, args ...string) {
		t.Helper()
		out, status := run(t, "", append(append([]string{"upstream"}, args...), "--admin", strings.TrimPrefix(p.admin, "http://"))...)
		if !strings.Contains(out, want) || status == 0 && len(args) > 0 && args[len(args)-1] == "http://gone" {
			t.Errorf("forebay upstream %s: status %d, %q; want %q", strings.Join(args, " "), status, out, want)
		}
	}
	order(b.URL+" is drained", "drain", b.URL)
	for range 3 {
		if got := p.ask(chatBody("hello", map[string]any{"model": "big"})); got.text != "a" {
			t.Fatalf("answered %d %s", got.status, got.raw)
		}
	}
	order("openai  drained")
	order("there is no upstream http://gone", "drain", "http://gone")
	order(b.URL+" is open", "open", b.URL)
	order("needs an upstream's URL", "drain")
	for query, status := range map[string]int{"upstream=" + b.URL + "&mode=gone": 400, "mode=open": 400} {
		response, err := http.Post(p.admin+"/debug/upstreams?"+query, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != status {
			t.Errorf("%s: %d, want %d", query, response.StatusCode, status)
		}
	}

	a.CloseClientConnections()
	a.Close()
	for range 6 {
		if got := p.ask(chatBody("hello", map[string]any{"model": "big"})); got.text != "b" {
			t.Fatalf("answered %d %s", got.status, got.raw)
		}
	}
	eventually(t, "the dead one is seen", func() bool {
		return strings.Contains(states(), a.URL+" looking") && strings.Contains(states(), b.URL+" up")
	})
}

// TestOwnEngineBesideUpstreams: an engine of our own answers under the same name while
// the server it stands in for is away, gives way when that is back, and ends with the
// gateway.
func TestOwnEngineBesideUpstreams(t *testing.T) {
	port := freePorts(t, 1)[0]
	p := serve(t, "--upstream", "http://127.0.0.1:"+port, "--upstream.own_engine", "fallback", "--upstream.model_id", "chat", "--upstream.check_interval", "50ms")
	body := chatBody("Hello!", map[string]any{"model": "chat", "max_tokens": 3, "temperature": 0})
	if got := p.ask(body); got.status != http.StatusOK || got.text == "" || got.text == "theirs" {
		t.Fatalf("without the server: %d %s", got.status, got.raw)
	}
	if !strings.Contains(p.output(), "relayed to forebay ") {
		t.Error("the engine is not named in the greeting")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"big","max_model_len":4096}]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"theirs\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	})}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	eventually(t, "the server answers once it is back", func() bool { return p.ask(body).text == "theirs" })
	server.Close()
	if got := p.ask(body); got.status != http.StatusOK || got.text == "theirs" {
		t.Errorf("after it died: %d %s", got.status, got.raw)
	}
	if states := said(t, p, "upstream"); !strings.Contains(states, "\nown  ") || strings.Count(p.output(), " serves chat at ") != 1 {
		t.Errorf("the engine is shown as\n%s", states)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	if left, _ := filepath.Glob(filepath.Join(strings.TrimPrefix(p.cmd.Env[len(p.cmd.Env)-1], "XDG_RUNTIME_DIR="), "forebay-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestListenOnASocketAlone: without a TCP address the API is on the Unix socket.
func TestListenOnASocketAlone(t *testing.T) {
	server := relayTo(t)
	socket := filepath.Join(t.TempDir(), "api.sock")
	p := prepare(t, "serve", "--upstream", server.URL, "--listen_socket", socket)
	for i, arg := range p.cmd.Args {
		if arg == "--listen" {
			p.cmd.Args[i+1] = "off"
		}
	}
	p.begin()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	eventually(t, "it answers on the socket", func() bool {
		response, err := client.Get("http://forebay/readyz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	eventually(t, "it says how to ask", func() bool { return strings.Contains(p.output(), "curl -N --unix-socket "+socket) })
	if out, status := run(t, "", "serve", "--listen", "off"); status != 1 || !strings.Contains(out, `listen: "off" is not an address`) {
		t.Errorf("neither of both: status %d, %s", status, out)
	}
}
