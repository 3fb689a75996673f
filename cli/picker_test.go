package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// How an Envoy comes by the picker.
const (
	bodiesBuffered = "bodies are buffered"
	bodiesStreamed = "bodies are streamed"
	controlled     = "a control plane leads to the picker"
)

// pickerEnvoy runs the example's Envoy before two gateways, the first of which picks.
// flags are for the gateway that picks.
func pickerEnvoy(t *testing.T, how string, flags ...string) (front *process, a, b replica) {
	t.Helper()
	envoy, redis := envoyProgram(t), startRedis(t)
	dir, ports := t.TempDir(), freePorts(t, 3)
	text, err := os.ReadFile("examples/mesh/envoy-picker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer("/run/forebay", dir, "port_value: 10000", "port_value: "+ports[0],
		"address: 10.0.0.5, port_value: 8080", "address: 127.0.0.1, port_value: "+ports[1],
		"address: 10.0.0.6, port_value: 8080", "address: 127.0.0.1, port_value: "+ports[2],
		"message_timeout: 0.2s", "message_timeout: 10s").Replace(string(text)) // this machine may be busy
	if how == bodiesStreamed {
		config = strings.Replace(config, "{request_body_mode: BUFFERED, response_header_mode: SKIP}",
			"{request_body_mode: FULL_DUPLEX_STREAMED, request_trailer_mode: SEND, response_header_mode: SEND, response_body_mode: FULL_DUPLEX_STREAMED, response_trailer_mode: SEND}", 1)
	}
	writePolicy(t, dir, "envoy.yaml", config)
	pool, err := os.ReadFile("examples/mesh/pool.yaml")
	if err != nil {
		t.Fatal(err)
	}
	writePolicy(t, dir, "pool.yaml", strings.Replace(string(pool), "{number: 8080}", fmt.Sprintf("{number: %s}, {number: %s}", ports[1], ports[2]), 1))
	member := func(name, port string, more ...string) replica {
		p := prepare(t, append([]string{
			"serve", "--siblings.store", "redis://127.0.0.1:" + redis.port, "--siblings.name", name, "--siblings.labels", "app=forebay", "--siblings.interval", "20ms",
			"--siblings.grain_tokens", "16", "--siblings.gain_min", "1m", // no hops: what is picked is what serves
		}, more...)...)
		p.cmd.Args = append(p.cmd.Args, "--listen", "127.0.0.1:"+port)
		p.url = "http://127.0.0.1:" + port
		p.begin()
		return replica{p, name}
	}
	a = member("a", ports[1], append(flags, "--envoy.listen", "unix:"+filepath.Join(dir, "proxies.sock"), "--envoy.picker.on", "--envoy.picker.pool", filepath.Join(dir, "pool.yaml"), "--envoy.picker.read_limit", "5s")...)
	b = member("b", ports[2])
	for _, r := range []replica{a, b} {
		r.waitReady()
		eventually(t, r.name+" knows the other", func() bool { return r.siblings() == 1 })
	}
	url := "http://127.0.0.1:" + ports[0]
	if how == controlled {
		policies, address := t.TempDir(), "127.0.0.1:"+freePorts(t, 1)[0]
		writePolicy(t, policies, "mesh.yaml", fmt.Sprintf(`mesh:
  listeners: [{name: front, address: "127.0.0.1:%s", picker: picker, picker_limit: 10s}]
  routes: [{name: all, cluster: gateways}]
  clusters:
  - {name: gateways, endpoints: ["127.0.0.1:%s", "127.0.0.1:%s"], balance: picker, health: /readyz}
  - {name: picker, endpoints: ["unix:%s"], http2: true}
`, ports[0], ports[1], ports[2], filepath.Join(dir, "proxies.sock")))
		startControl(t, policies, address)
		front = startEnvoy(t, address)
		front.url = url
	} else {
		front = &process{t: t, ended: make(chan struct{}), url: url}
		front.cmd = exec.Command(envoy, "-c", filepath.Join(dir, "envoy.yaml"), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn")
		front.cmd.Stdout, front.cmd.Stderr = front, front
		front.begin()
	}
	eventually(t, "Envoy leads to a gateway", func() bool { return front.status("/v1/models") == http.StatusOK })
	return front, a, b
}

// TestEnvoyPicksTheHolder: a real Envoy brings a conversation to the gateway that holds
// it, whoever computed its beginning, and a request elsewhere when that one has gone.
func TestEnvoyPicksTheHolder(t *testing.T) {
	for _, how := range []string{bodiesBuffered, bodiesStreamed, controlled} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			front, a, b := pickerEnvoy(t, how)
			edge := replica{front, "envoy"}
			short := map[string]any{"max_tokens": 2}
			// Both compute something, so that both know what it costs.
			for i, r := range []replica{a, b} {
				if by, _, _ := r.served(chatBody(prompt(i), short)); by != r.name {
					t.Fatalf("%s was asked, and %s answered", r.name, by)
				}
			}
			a.knows(b, true)
			for i, holder := range []replica{a, b} {
				by, cached, _ := edge.served(chatBody(prompt(i), short))
				if by != holder.name || cached < 1000 {
					t.Errorf("prompt %d: served by %s with %d cached tokens, and %s holds it", i, by, cached, holder.name)
				}
				next := chatBody(prompt(i), short)
				next["messages"] = append(next["messages"].([]map[string]string), map[string]string{"role": "assistant", "content": "ok"}, map[string]string{"role": "user", "content": "and then?"})
				if by, cached, _ := edge.served(next); by != holder.name || cached < 1000 {
					t.Errorf("prompt %d, next turn: served by %s with %d cached tokens", i, by, cached)
				}
			}
			if read, known := a.metric(`forebay_picks_total{result="read"}`), a.metric(`forebay_picks_total{result="known"}`); read != 2 || known != 2 {
				t.Errorf("%v picks by reading, %v by what is known; want 2 and 2", read, known)
			}
			if timed := a.metric(`forebay_proxy_answer_seconds_count{service="picker"}`); timed < 4 {
				t.Errorf("the time of %v picks was counted", timed)
			}
			// A stream comes through as it is made, and an objective gives its class.
			if s := <-front.stream(chatBody("Tell me a story.", map[string]any{"stream": true, "max_tokens": 20})); !s.done || s.errors > 0 {
				t.Errorf("the stream: %s", s.raw)
			}
			body, _ := json.Marshal(chatBody("Hello", short))
			r, _ := http.NewRequest("POST", front.url+"/v1/chat/completions", strings.NewReader(string(body)))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Gateway-Inference-Objective", "nightly")
			r.Header.Set("X-Gateway-Destination-Endpoint", "192.0.2.1:80") // a client may not choose
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("status %d", response.StatusCode)
			}
			// A request is counted once it has ended, which is after its client has read all.
			eventually(t, "it was served in the class of its objective", func() bool {
				batch := `forebay_requests_total{class="batch",outcome="ok",route="chat_completions"}`
				return a.metric(batch)+b.metric(batch) == 1
			})
			b.cmd.Process.Kill()
			<-b.ended
			eventually(t, "what b held is served by a", func() bool {
				text, _ := json.Marshal(chatBody(prompt(1), short))
				response, err := http.Post(front.url+"/v1/chat/completions", "application/json", strings.NewReader(string(text)))
				if err != nil {
					return false
				}
				defer response.Body.Close()
				io.Copy(io.Discard, response.Body)
				return response.StatusCode == http.StatusOK && response.Header.Get("x-forebay-served-by") == "a"
			})
		})
	}
}

// TestEnvoyGoesOnWithoutRoom: bodies for which the picker has no room go on by load, and
// are not sent to it, or not looked at where their length is not said.
func TestEnvoyGoesOnWithoutRoom(t *testing.T) {
	t.Parallel()
	front, a, _ := pickerEnvoy(t, bodiesBuffered, "--envoy.picker.body_bytes_max", "1KiB", "--envoy.picker.bodies_bytes_max", "1KiB")
	text, err := json.Marshal(chatBody(prompt(0)[:3000], map[string]any{"max_tokens": 2}))
	if err != nil {
		t.Fatal(err)
	}
	for i, body := range []io.Reader{strings.NewReader(string(text)), io.MultiReader(strings.NewReader(string(text)))} {
		r, _ := http.NewRequest("POST", front.url+"/v1/chat/completions", body)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || response.Header.Get("x-forebay-served-by") == "" {
			t.Errorf("case %d: status %d: %s", i, response.StatusCode, answer)
		}
	}
	if known, read := a.metric(`forebay_picks_total{result="known"}`), a.metric(`forebay_picks_total{result="read"}`); known+read != 0 || a.metric(`forebay_picks_total{result="load"}`) < 2 {
		t.Errorf("%v picks by what is known and %v by reading", known, read)
	}
}

// TestPickerSettings: what cannot work ends the start, with what to change.
func TestPickerSettings(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for want, args := range map[string][]string{
		"envoy.picker.on: needs envoy.listen": {"--envoy.picker.on"},
		"envoy.picker.bodies_bytes_max: 2048": {"--envoy.picker.bodies_bytes_max", "2KiB"},
		"siblings.labels: \"app\" is not KEY": {"--siblings.store", "redis://h", "--siblings.name", "a", "--siblings.labels", "app"},
		"pool.yaml: no such file":             {"--siblings.store", "redis://" + ln.Addr().String(), "--siblings.name", "a", "--envoy.listen", "127.0.0.1:0", "--envoy.picker.on", "--envoy.picker.pool", filepath.Join(t.TempDir(), "pool.yaml")},
	} {
		p := start(t, append([]string{"serve"}, args...)...)
		select {
		case <-p.ended:
		case <-time.After(30 * time.Second):
			t.Errorf("%q: it serves", args)
		}
		if !strings.Contains(p.output(), want) {
			t.Errorf("%q: %s", args, p.output())
		}
	}
}
