// Relaying measures what a gateway in front of another server adds: to the first byte
// of an answer, and to each of its tokens, with 1, 64 and 512 streams at once. The
// server is a scripted one in this process, asked directly, through nginx where that is
// installed, and through Forebay, by turns in one run. The processor time of the gateways
// says the same on a busy machine.
//
//	go build -o /tmp/forebay . && go run ./bench/relaying /tmp/forebay [FLAGS OF SERVE]
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
)

// way is one way to the server.
type way struct {
	name   string
	url    string
	firsts []float64 // seconds until the first token
	tokens []float64 // seconds from the server's writing of a token to its reading
	pid    int       // of the gateway, 0 for none
	spent  float64   // seconds of processor time
}

func main() {
	rounds := flag.Int("rounds", 5, "turns of each way")
	requests := flag.Int("requests", 64, "requests of a turn, at least one for each stream")
	tokens := flag.Int("tokens", 8, "tokens of an answer")
	step := flag.Duration("step", 5*time.Millisecond, "time between two tokens")
	streams := flag.String("streams", "1,64,512", "streams at once")
	flag.Parse()
	if flag.NArg() < 1 {
		fmt.Fprintln(os.Stderr, "usage: relaying [--rounds N] [--requests N] [--tokens N] [--step D] [--streams N,N] FOREBAY_BINARY [FLAGS OF SERVE]")
		os.Exit(2)
	}
	if err := run(*rounds, *requests, *tokens, *step, *streams); err != nil {
		fmt.Fprintln(os.Stderr, "relaying:", err)
		os.Exit(1)
	}
}

func run(rounds, requests, tokens int, step time.Duration, list string) error {
	server := serve(tokens, step)
	all := []*way{{name: "direct", url: server}}
	if nginx, err := exec.LookPath("nginx"); err == nil {
		w, stop, err := startNginx(nginx, server)
		if err != nil {
			return err
		}
		defer stop()
		all = append(all, w)
	} else {
		fmt.Println("nginx is not installed, so it is not among the ways")
	}
	w, stop, err := startForebay(server)
	if err != nil {
		return err
	}
	defer stop()
	all = append(all, w)
	fmt.Println("streams  way      first byte p50   p99        a token p50   p99   processor time of an answer")
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("--streams: %q is no number of streams", text)
		}
		for round := range rounds + 1 {
			for _, w := range all {
				if err := w.turn(n, max(1, requests/n)); err != nil {
					return fmt.Errorf("%s: %w", w.name, err)
				}
				if round == 0 { // which warms up
					w.firsts, w.tokens, w.spent = nil, nil, 0
				}
			}
		}
		for _, w := range all {
			fmt.Printf("%7d  %-8s %14s %10s %12s %10s %14s\n", n, w.name, at(w.firsts, 0.5), at(w.firsts, 0.99), at(w.tokens, 0.5), at(w.tokens, 0.99),
				time.Duration(w.spent/float64(len(w.firsts))*1e9).Round(time.Microsecond))
		}
	}
	return nil
}

func at(v []float64, q float64) time.Duration {
	s := slices.Sorted(slices.Values(v))
	return time.Duration(s[int(q*float64(len(s)-1))] * 1e9).Round(time.Microsecond)
}

// serve starts the scripted server. Each token is the time at which it was written.
func serve(tokens int, step time.Duration) (url string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/chat/completions") {
			fmt.Fprint(w, `{"data":[{"id":"m","max_model_len":4096}]}`)
			return
		}
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range tokens {
			if i > 0 {
				time.Sleep(step)
			}
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"@%d;\"},\"finish_reason\":null}]}\n\n", time.Now().UnixNano())
			w.(http.Flusher).Flush()
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", tokens)
	}))
	return "http://" + ln.Addr().String()
}

// turn asks for answers on so many streams at once.
func (w *way) turn(streams, each int) (failed error) {
	spent := processorTime(w.pid)
	defer func() { w.spent += processorTime(w.pid) - spent }()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	var mu sync.Mutex
	for range streams {
		all.Go(func() {
			for range each {
				first, tokens, err := ask(client, w.url)
				mu.Lock()
				w.firsts, w.tokens = append(w.firsts, first), append(w.tokens, tokens...)
				failed = cmp.Or(failed, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed
}

// ask reads one answer. The delay of its first token is not among those of tokens.
func ask(client *http.Client, url string) (first float64, tokens []float64, err error) {
	began := time.Now()
	request, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello"}]}`))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return 0, nil, fmt.Errorf("%s: %s", response.Status, text)
	}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		_, rest, ok := strings.Cut(lines.Text(), `"@`)
		text, _, _ := strings.Cut(rest, ";")
		written, bad := strconv.ParseInt(text, 10, 64)
		if !ok || bad != nil {
			continue
		}
		if now := time.Now(); first == 0 {
			first = now.Sub(began).Seconds()
		} else {
			tokens = append(tokens, float64(now.UnixNano()-written)/1e9)
		}
	}
	return first, tokens, lines.Err()
}

// startForebay relays to server.
func startForebay(server string) (w *way, stop func(), err error) {
	dir, err := os.MkdirTemp("", "relaying")
	if err != nil {
		return nil, nil, err
	}
	config := filepath.Join(dir, "forebay.yaml") // nobody is refused for being late
	if err := os.WriteFile(config, []byte("admission:\n  classes: [{name: interactive, first_token_goal: 1h, wait_limit: 1h}]\n"), 0o600); err != nil {
		return nil, nil, err
	}
	address := ports.MustAddress()
	args := append([]string{"serve", "--config", config, "--listen", address, "--admin", "off", "--upstream", server, "--upstream.sequences_max", "1024", "--upstream.idle_connections", "1024",
		"--admission.running_sequences_max", "1024", "--telemetry.access_log_off", "--log.level", "error"}, flag.Args()[1:]...)
	w, end, err := start("forebay", "http://"+address, exec.Command(flag.Arg(0), args...))
	return w, func() { end(); os.RemoveAll(dir) }, err
}

// startNginx relays to server, as one would set it up for streams.
func startNginx(program, server string) (w *way, stop func(), err error) {
	dir, err := os.MkdirTemp("", "relaying")
	if err != nil {
		return nil, nil, err
	}
	address := ports.MustAddress()
	conf := fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log /dev/null; worker_processes auto;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
  upstream peer { server %[2]s; keepalive 1024; }
  server { listen %[3]s; location / { proxy_pass http://peer; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }
`, dir, strings.TrimPrefix(server, "http://"), address)
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return nil, nil, err
	}
	w, end, err := start("nginx", "http://"+address, exec.Command(program, "-p", dir, "-c", path))
	return w, func() { end(); os.RemoveAll(dir) }, err
}

// start runs a gateway until stop, and waits until it relays.
func start(name, url string, cmd *exec.Cmd) (_ *way, stop func(), err error) {
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, _, err = ask(http.DefaultClient, url); err == nil {
			return &way{name: name, url: url, pid: cmd.Process.Pid}, stop, nil
		}
	}
	stop()
	return nil, nil, err
}

// processorTime is the seconds that a process and its children have run, 0 where the
// system does not tell.
func processorTime(pid int) (seconds float64) {
	if pid == 0 {
		return 0
	}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil { // it has just ended
			continue
		}
		line := string(text)
		own, _, _ := strings.Cut(line, " ")
		fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:]) // state, parent, …
		if len(fields) < 13 || own != strconv.Itoa(pid) && fields[1] != strconv.Itoa(pid) {
			continue
		}
		for _, ticks := range fields[11:13] { // as user, and in the kernel
			n, _ := strconv.ParseFloat(ticks, 64)
			seconds += n / 100
		}
	}
	return seconds
}
