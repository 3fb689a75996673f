package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
)

// server is a server under measurement.
type server struct {
	name   string // in the table
	base   string // its URL
	model  string // as it calls the model
	client *client
	log    *accessLog // nil for none
	text   tokenScale

	command *exec.Cmd // nil for one that ran already
	ended   chan struct{}
	folder  string // of its output, removed at the end
}

const (
	startLimit  = 2 * time.Minute // until a server answers
	stopLimit   = 15 * time.Second
	settleLimit = 2 * time.Minute // until a server has worked off what a run left
)

// startServers starts what the options ask for. Those it returns must be stopped,
// also after an error. A server that ends by itself cancels everything.
func startServers(ctx context.Context, o *options, cancel context.CancelCauseFunc) (all []*server, err error) {
	if o.url != "" {
		all = append(all, &server{name: "server", base: strings.TrimSuffix(o.url, "/"), log: openLog(o.log)})
	} else {
		s, err := startForebay(ctx, o, cancel)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if o.peer != "" {
		s, err := startPeer(ctx, o, cancel)
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	for _, s := range all {
		if err := s.prepare(ctx); err != nil {
			return all, fmt.Errorf("%s: %w\n%s", s.name, err, s.output())
		}
	}
	return all, nil
}

func startForebay(ctx context.Context, o *options, cancel context.CancelCauseFunc) (*server, error) {
	api, admin := ports.MustAddress(), ports.MustAddress()
	args := []string{"serve", "--listen", api, "--admin", admin}
	if o.model != "" {
		args = append(args, "--model", o.model)
	}
	s, err := begin(ctx, "forebay", api, cancel, append([]string{o.binary}, append(args, o.serve...)...))
	if err == nil {
		s.log = openLog(filepath.Join(s.folder, "stdout"))
	}
	return s, err
}

func startPeer(ctx context.Context, o *options, cancel context.CancelCauseFunc) (*server, error) {
	api := ports.MustAddress()
	_, port, _ := net.SplitHostPort(api)
	words := strings.Fields(o.peer)
	for i := range words {
		words[i] = strings.NewReplacer("{port}", port, "{model}", o.model).Replace(words[i])
	}
	if !strings.Contains(o.peer, "{port}") {
		return nil, fmt.Errorf("--peer %q has no {port}: it must say where the server takes its port", o.peer)
	}
	return begin(ctx, "peer", api, cancel, words)
}

// begin starts a server whose output goes to files. Variables that would change
// Forebay's defaults are not passed on.
func begin(ctx context.Context, name, address string, cancel context.CancelCauseFunc, words []string) (*server, error) {
	folder, err := os.MkdirTemp("", "overload-")
	if err != nil {
		return nil, err
	}
	s := &server{name: name, base: "http://" + address, folder: folder, ended: make(chan struct{})}
	s.command = exec.CommandContext(ctx, words[0], words[1:]...)
	s.command.Cancel = func() error { return s.command.Process.Signal(syscall.SIGTERM) }
	s.command.WaitDelay = stopLimit
	s.command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FOREBAY_") })
	stdout, err := os.Create(filepath.Join(folder, "stdout"))
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	stderr, err := os.Create(filepath.Join(folder, "stderr"))
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	s.command.Stdout, s.command.Stderr = stdout, stderr
	ownGroup(s.command)
	if err := s.command.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	go func() {
		err := s.command.Wait()
		cancel(fmt.Errorf("%s ended: %w\n%s", name, cmp.Or(err, errors.New("with status 0")), s.output()))
		close(s.ended)
	}()
	return s, nil
}

// stop ends the server, if it was started here.
func (s *server) stop() error {
	if s.client != nil {
		s.client.close()
	}
	s.log.close()
	if s.command == nil {
		return nil
	}
	s.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopLimit):
		s.command.Process.Kill()
		<-s.ended
	}
	return os.RemoveAll(s.folder)
}

// output returns the end of what the server wrote for people.
func (s *server) output() []byte {
	text, _ := os.ReadFile(filepath.Join(s.folder, "stderr"))
	return text[max(0, len(text)-2000):]
}

// prepare waits until the server answers, and learns the name of its model and how
// many tokens a word has.
func (s *server) prepare(ctx context.Context) error {
	u, err := url.Parse(s.base)
	if err != nil || u.Host == "" || u.Scheme != "http" {
		return fmt.Errorf("%q is not a URL such as http://127.0.0.1:8080", s.base)
	}
	ctx, stop := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("no answer within %v", startLimit))
	defer stop()
	var models struct {
		Data []struct {
			ID      string `json:"id"`
			Context int    `json:"max_model_len"`
		} `json:"data"`
	}
	for {
		err := s.call(ctx, "GET", "/v1/models", nil, &models)
		if err == nil && len(models.Data) > 0 {
			s.model, s.text.context = models.Data[0].ID, models.Data[0].Context
			break
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	s.client = newClient(u.Host, s.model)
	few, err := s.promptTokens(ctx, 20)
	if err != nil {
		return err
	}
	many, err := s.promptTokens(ctx, 120)
	if err != nil {
		return err
	}
	s.text.each = float64(many-few) / 100
	if s.text.base = float64(few) - 20*s.text.each; s.text.each <= 0 {
		return fmt.Errorf("a prompt of 120 words has %d tokens, one of 20 words %d: the server's usage cannot be right", many, few)
	}
	return nil
}

// promptTokens returns the tokens of a prompt of so many words. It tries until the
// server answers.
func (s *server) promptTokens(ctx context.Context, words int) (int, error) {
	r := request{words: words, asked: 1, seed: uint64(words)}
	body := bytes.Replace(r.appendBody(nil, s.model), []byte(`"stream":true,`), nil, 1)
	for {
		var answer struct {
			Usage struct {
				Prompt int `json:"prompt_tokens"`
			} `json:"usage"`
		}
		err := s.call(ctx, "POST", "/v1/chat/completions", body, &answer)
		if err == nil {
			return answer.Usage.Prompt, nil
		}
		if waitErr := pause(ctx, 100*time.Millisecond); waitErr != nil {
			return 0, errors.Join(waitErr, err)
		}
	}
}

// settle waits until the server has worked off what a run left: until it answers a
// small request within a second.
func (s *server) settle(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, settleLimit, fmt.Errorf("%s is still busy %v after a run", s.name, settleLimit))
	defer stop()
	for {
		began := time.Now()
		if _, err := s.promptTokens(ctx, 5); err != nil {
			return err
		}
		if time.Since(began) < time.Second {
			return pause(ctx, 500*time.Millisecond)
		}
	}
}

// call asks the server for JSON.
func (s *server) call(ctx context.Context, method, path string, body []byte, into any) error {
	q, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %.500s", method, path, r.Status, text)
	}
	return json.Unmarshal(text, into)
}

// pause waits, and returns why if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
