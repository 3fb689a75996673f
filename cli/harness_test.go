package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
)

// program is the program under test, built once.
var program string

var buildFlags []string // for it

// TestMain works in the root of the repository: the tests read its docs and
// examples, and run the program where its user would.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "forebay-test-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "forebay")
	if out, err := exec.Command("go", slices.Concat([]string{"build", "-o", program}, buildFlags, []string{"."})...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// patience bounds every wait; it is no measure of speed.
const patience = 30 * time.Second

// process is one running forebay.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string // of its API
	key   string // that requests send, "" for none
	admin string
	ended chan struct{}

	mu  sync.Mutex
	log bytes.Buffer // both outputs
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start runs forebay with free ports, and kills it when the test ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := prepare(t, args...)
	p.begin()
	return p
}

// prepare is start without the begin, for a test that changes cmd.
func prepare(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{})}
	ports := freePorts(t, 2)
	p.url, p.admin = "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	if args[0] != "engine" {
		args = append(args, "--listen", "127.0.0.1:"+ports[0], "--admin", "127.0.0.1:"+ports[1])
	}
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.WaitDelay = 2 * time.Second // an orphan of a failed test may hold the pipes
	return p
}

func (p *process) begin() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.ended) }()
	p.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if p.t.Failed() {
			p.t.Logf("output of %s:\n%s", strings.Join(p.cmd.Args, " "), p.output())
		}
	})
}

// serve starts a whole Forebay and waits until it is ready.
func serve(t *testing.T, args ...string) *process {
	t.Helper()
	p := start(t, append([]string{"serve"}, args...)...)
	p.waitReady()
	return p
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	free, err := ports.Free(n)
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s", patience, what)
		}
	}
}

func (p *process) waitReady() {
	p.t.Helper()
	eventually(p.t, "it is ready", func() bool {
		select {
		case <-p.ended:
			p.t.Fatal("it ended before it was ready")
		default:
		}
		return p.status("/readyz") == http.StatusOK
	})
}

// status is the status code of a GET, 0 where nothing answers.
func (p *process) status(path string) int {
	response, err := http.Get(p.url + path)
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response.StatusCode
}

// exit waits for the end and returns the exit status, -1 for a signal.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("still running after %v", patience)
		return -1
	}
}

// children are the processes that p has started and that live.
func (p *process) children() (pids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	for _, name := range files {
		text, _ := os.ReadFile(name)
		for _, field := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(field)
			pids = append(pids, pid)
		}
	}
	return pids
}

// enginePid is the one engine of a serving process.
func (p *process) enginePid() int {
	p.t.Helper()
	pids := p.children()
	if len(pids) != 1 {
		p.t.Fatalf("%d children, want the engine alone", len(pids))
	}
	return pids[0]
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(text, []byte(") Z "))
}

// post sends a chat request on a connection of its own and returns the open
// response.
func (p *process) post(ctx context.Context, body map[string]any) (*http.Response, error) {
	return p.postTo(ctx, "/v1/chat/completions", body)
}

func (p *process) postTo(ctx context.Context, path string, body map[string]any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if p.key != "" {
		request.Header.Set("Authorization", "Bearer "+p.key)
	}
	transport := &http.Transport{IdleConnTimeout: time.Second} // a test of thousands of requests opens no more than the gateway allows
	p.t.Cleanup(transport.CloseIdleConnections)
	return (&http.Client{Transport: transport}).Do(request)
}

// chatBody is a greedy request; more adds or replaces fields.
func chatBody(text string, more map[string]any) map[string]any {
	body := map[string]any{
		"model": "forebay-demo", "temperature": 0,
		"messages": []map[string]string{{"role": "user", "content": text}},
	}
	for key, value := range more {
		body[key] = value
	}
	return body
}

// answer is what came back of a chat.
type answer struct {
	status     int
	retryAfter string
	group      string // of servers that answered
	closing    bool   // the server closes the connection
	text       string
	errors     int  // error events, or an error body
	done       bool // [DONE] came, or the plain body was whole
	raw        string
}

// ask sends a plain chat and reads the answer.
func (p *process) ask(body map[string]any) answer {
	p.t.Helper()
	response, err := p.post(p.t.Context(), body)
	if err != nil {
		p.t.Errorf("ask: %v", err)
		return answer{}
	}
	defer response.Body.Close()
	raw, _ := io.ReadAll(response.Body)
	a := answer{status: response.StatusCode, retryAfter: response.Header.Get("Retry-After"), group: response.Header.Get("X-Forebay-Group"), closing: response.Close, raw: string(raw)}
	var reply struct {
		Error   json.RawMessage
		Choices []struct{ Message struct{ Content string } }
	}
	a.done = json.Unmarshal(raw, &reply) == nil && len(reply.Choices) > 0
	if a.done {
		a.text = reply.Choices[0].Message.Content
	}
	if reply.Error != nil {
		a.errors = 1
	}
	return a
}

// long asks for an answer that takes as long as the context allows.
var long = map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 1900}

// stream starts a streamed chat. It returns once the first text has come; the
// rest arrives on the channel as one answer.
func (p *process) stream(body map[string]any) <-chan answer {
	p.t.Helper()
	response, err := p.post(p.t.Context(), body)
	if err != nil {
		p.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(response.Body)
		p.t.Fatalf("status %d: %s", response.StatusCode, raw)
	}
	first, rest := make(chan struct{}), make(chan answer, 1)
	go func() {
		defer response.Body.Close()
		rest <- readEvents(response.Body, sync.OnceFunc(func() { close(first) }))
	}()
	select {
	case <-first:
	case <-time.After(patience):
		p.t.Fatal("no first event")
	}
	return rest
}

// readEvents reads a stream to its end; begun is called at the first text, or
// at the end.
func readEvents(body io.Reader, begun func()) (a answer) {
	defer begun()
	a.status = http.StatusOK
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		a.raw += lines.Text() + "\n"
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if data == "[DONE]" {
			a.done = true
		} else if ok {
			var event struct {
				Error   json.RawMessage
				Choices []struct{ Delta struct{ Content string } }
			}
			json.Unmarshal([]byte(data), &event)
			if event.Error != nil {
				a.errors++
			}
			for _, c := range event.Choices {
				if a.text += c.Delta.Content; c.Delta.Content != "" {
					begun()
				}
			}
		}
	}
	return a
}

// run runs a command that ends by itself.
func run(t *testing.T, stdin string, args ...string) (output string, status int) {
	t.Helper()
	return runIn(t, "", stdin, args...)
}

func runIn(t *testing.T, dir, stdin string, args ...string) (output string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	text, _ := cmd.CombinedOutput()
	return string(text), cmd.ProcessState.ExitCode()
}

// shared finds a file of the test data that lies beside the checkout.
func shared(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "shared", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: no %s", path)
	}
	return path
}
