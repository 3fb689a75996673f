package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// chat is a conversation over the HTTP API.
type chat struct {
	url         string
	key         string // API key, or ""
	model       string
	temperature float64
	out         io.Writer
	history     []message
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// apiKeyVar is the environment variable with the API key. There is no flag for
// it, because other users can read the flags of a process.
const apiKeyVar = "FOREBAY_API_KEY"

// do sends request with the API key.
func (t *chat) do(request *http.Request) (*http.Response, error) {
	if t.key != "" {
		request.Header.Set("Authorization", "Bearer "+t.key)
	}
	return http.DefaultClient.Do(request)
}

// runChat sends the text of the arguments, or the whole piped input, or each
// line typed at a terminal.
func runChat(c *console, args []string) error {
	set := newFlagSet("chat [--url URL] [--system TEXT] [--temperature X] [TEXT]")
	url := set.String("url", "", "where Forebay listens; empty takes the configured address")
	temperature := set.Float64("temperature", 0.7, "randomness of the answers; 0 gives the likeliest words")
	system := set.String("system", "", "system message")
	text, err := c.parse(set, args)
	if err != nil {
		return err
	}
	talk := &chat{out: c.out, temperature: *temperature, key: c.getenv(apiKeyVar)}
	if talk.url, err = c.serverURL(*url); err != nil {
		return err
	}
	if talk.model, err = talk.servedModel(); err != nil {
		return err
	}
	if *system != "" {
		talk.history = append(talk.history, message{"system", *system})
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	if len(text) == 0 && term.IsTerminal(int(c.in.Fd())) {
		return talk.converse(c.in, interrupts)
	}
	if len(text) == 0 {
		piped, err := io.ReadAll(c.in)
		if err != nil {
			return err
		}
		text = []string{string(piped)}
	}
	said := strings.TrimSpace(strings.Join(text, " "))
	if said == "" {
		return errors.New("there is nothing to say: give the text as an argument or on standard input")
	}
	return talk.answer(said, interrupts)
}

// serverURL returns the given URL, or that of the configured address.
func (c *console) serverURL(given string) (string, error) {
	if given != "" {
		return strings.TrimSuffix(strings.TrimSuffix(given, "/"), "/v1"), nil
	}
	s, err := c.configure(newFlagSet(""), nil)
	if err != nil {
		return "", err
	}
	if s.Listen == addressOff {
		return "", usageError("the configuration has listen: off, so there is no address to talk to; give another")
	}
	return s.Gateway.TLS.Scheme() + reachable(s.Listen), nil
}

func (t *chat) converse(in io.Reader, interrupts <-chan os.Signal) error {
	fmt.Fprintln(t.out, "Ctrl-C stops an answer, /quit ends.")
	lines := make(chan string)
	go func() { // ends with the process: a read of the terminal cannot be called off
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for {
		fmt.Fprint(t.out, "> ")
		select {
		case <-interrupts:
			fmt.Fprintln(t.out)
			return nil
		case line, ok := <-lines:
			line = strings.TrimSpace(line)
			if !ok || line == "/quit" {
				return nil
			}
			if line == "" {
				continue
			}
			if err := t.answer(line, interrupts); err != nil {
				fmt.Fprintln(t.out, "error:", err)
			}
		}
	}
}

// answer sends the conversation with text added, and prints the answer as it
// comes. An interrupt stops the answer and keeps what came.
func (t *chat) answer(text string, interrupts <-chan os.Signal) error {
	if !utf8.ValidString(text) { // JSON would carry something else
		return errors.New("the text is not valid UTF-8")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	watcher := make(chan struct{})
	go func() {
		defer close(watcher)
		select {
		case <-interrupts:
			cancel()
		case <-done:
		}
	}()
	said, err := t.stream(ctx, append(t.history, message{"user", text}))
	close(done)
	<-watcher
	_, failed := fmt.Fprintln(t.out)
	if err == nil {
		err = failed
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	t.history = append(t.history, message{"user", text}, message{"assistant", said})
	return nil
}

// stream returns the whole answer. Text that came before an error is printed too.
func (t *chat) stream(ctx context.Context, messages []message) (said string, err error) {
	body, err := json.Marshal(map[string]any{"model": t.model, "stream": true, "temperature": t.temperature, "messages": messages})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := t.do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", refusal(response)
	}
	return t.print(response.Body)
}

// servedModel asks the server for the name of its model.
func (t *chat) servedModel() (string, error) {
	request, err := http.NewRequest(http.MethodGet, t.url+"/v1/models", nil)
	if err != nil {
		return "", err
	}
	response, err := t.do(request)
	if err != nil {
		return "", fmt.Errorf("nothing answers at %s (%w): start forebay first, or give --url", t.url, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", refusal(response)
	}
	var models struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(response.Body).Decode(&models); err != nil || len(models.Data) == 0 {
		return "", errors.Join(fmt.Errorf("%s lists no model: is it ready?", t.url), err)
	}
	return models.Data[0].ID, nil
}

// print shows the events of an answer until it ends: reasoning first, and after an empty
// line what is said.
func (t *chat) print(events io.Reader) (string, error) {
	var said strings.Builder
	thought := false
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return said.String(), nil
		}
		var event struct {
			Error   json.RawMessage
			Choices []struct {
				Delta struct{ Content, Reasoning string }
			}
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return said.String(), fmt.Errorf("an event is not JSON: %w", err)
		}
		if event.Error != nil {
			return said.String(), errors.New(errorMessage([]byte(data)))
		}
		for _, choice := range event.Choices {
			shown := choice.Delta.Reasoning + choice.Delta.Content
			if thought && choice.Delta.Content != "" {
				shown, thought = "\n\n"+shown, false
			}
			thought = thought || choice.Delta.Reasoning != ""
			said.WriteString(choice.Delta.Content)
			if _, err := fmt.Fprint(t.out, shown); err != nil {
				return said.String(), err
			}
		}
	}
	return said.String(), errors.Join(errors.New("the answer broke off"), lines.Err())
}
