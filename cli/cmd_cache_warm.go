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
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"
)

// warmLineMax bounds one line of a warm-up file, in bytes.
const warmLineMax = 8 << 20

// warmed is what became of one prompt.
type warmed struct {
	prompt, cached int
	by             string
	took           time.Duration
}

// runCacheWarm has a running Forebay compute prompts, so that they are cached when
// requests come that begin like them.
func runCacheWarm(c *console, args []string) error {
	set := newFlagSet("cache warm FILE [--url URL] [--class CLASS]")
	url := set.String("url", "", "where Forebay listens; empty takes the configured address")
	class := set.String("class", "batch", "class of the requests, such as batch, so that nobody waits for them; empty leaves it to the server")
	files, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return usageError("cache warm needs a file with a request on each line, or - for standard input")
	}
	in := io.Reader(c.in)
	if files[0] != "-" {
		file, err := os.Open(files[0])
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	talk := &chat{key: c.getenv(apiKeyVar)}
	if talk.url, err = c.serverURL(*url); err != nil {
		return err
	}
	if talk.model, err = talk.servedModel(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return talk.warm(ctx, in, *class, c.out)
}

// warm sends the requests one after the other, and tells about each. Lines that cannot
// be warmed do not end it; they are counted.
func (t *chat) warm(ctx context.Context, in io.Reader, class string, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LINE\tPROMPT TOKENS\tCACHED BEFORE\tTOOK\tHELD BY")
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, warmLineMax)
	failed, sent, number := 0, 0, 0
	for lines.Scan() && ctx.Err() == nil {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		sent++
		w, err := t.warmOne(ctx, line, class)
		if err != nil {
			failed++
			fmt.Fprintf(table, "%d\t-\t-\t-\t%v\n", number, err)
			continue
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%v\t%s\n", number, w.prompt, w.cached, w.took.Round(time.Millisecond), w.by)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch err := lines.Err(); {
	case err != nil:
		return fmt.Errorf("line %d: %w; a line may have %d bytes", number+1, err, warmLineMax)
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted after %d requests", sent)
	case failed > 0:
		return fmt.Errorf("%d of %d requests failed", failed, sent)
	case sent == 0:
		return fmt.Errorf("the file has no request: each line is a request as the API takes it, such as %s", `{"messages": [{"role": "system", "content": "…"}]}`)
	}
	return nil
}

// warmOne has one request computed, with an answer of one token.
func (t *chat) warmOne(ctx context.Context, line []byte, class string) (w warmed, err error) {
	var body map[string]json.RawMessage
	if err := json.Unmarshal(line, &body); err != nil {
		return w, fmt.Errorf("it is no JSON object: %w", err)
	}
	path := "/v1/chat/completions"
	if _, ok := body["messages"]; !ok {
		if path = "/v1/completions"; body["prompt"] == nil {
			return w, fmt.Errorf("it has neither messages nor a prompt")
		}
	}
	for key, value := range map[string]any{"max_tokens": 1, "stream": false, "n": 1} {
		body[key], _ = json.Marshal(value)
	}
	delete(body, "max_completion_tokens")
	delete(body, "stream_options")
	if body["model"] == nil {
		body["model"], _ = json.Marshal(t.model)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return w, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+path, bytes.NewReader(text))
	if err != nil {
		return w, err
	}
	request.Header.Set("Content-Type", "application/json")
	if class != "" {
		request.Header.Set("X-Forebay-Class", class)
	}
	began := time.Now()
	response, err := t.do(request)
	if err != nil {
		return w, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return w, refusal(response)
	}
	var reply struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
		return w, fmt.Errorf("the answer cannot be read: %w", err)
	}
	w = warmed{reply.Usage.Prompt, reply.Usage.Details.Cached, response.Header.Get("X-Forebay-Served-By"), time.Since(began)}
	if w.by == "" {
		w.by = strings.TrimPrefix(strings.TrimPrefix(t.url, "http://"), "https://")
	}
	return w, nil
}
