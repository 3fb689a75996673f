package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// warmLineMax bounds one line of a warm-up file, in bytes.
const warmLineMax = 8 << 20

// warmed is what became of one prompt.
type warmed struct {
	prompt, cached, pinned int
	refused                string // why it is not pinned, where it should be
	by                     string
	took                   time.Duration
}

// warming is what is done with the prompts of a file.
type warming struct {
	class string
	pin   string // of the header, or ""
}

// runCacheWarm has a running Forebay compute prompts, so that they are cached when
// requests come that begin like them.
func runCacheWarm(c *console, args []string) error {
	return c.warmFile(newFlagSet("cache warm FILE [--url URL] [--class CLASS]"), args, func() string { return "" })
}

// runCachePin computes prompts too, and keeps them in memory.
func runCachePin(c *console, args []string) error {
	set := newFlagSet("cache pin FILE [--for TIME] [--url URL] [--class CLASS]")
	keep := set.Duration("for", time.Hour, "how long they stay, such as 8h; at most gateway.limits.pin_max")
	return c.warmFile(set, args, func() string { return keep.String() })
}

// runCacheUnpin ends the pins of prompts.
func runCacheUnpin(c *console, args []string) error {
	return c.warmFile(newFlagSet("cache unpin FILE [--url URL] [--class CLASS]"), args, func() string { return "0" })
}

// warmFile sends the prompts of the file that args name; pin is what becomes of them then.
func (c *console) warmFile(set *flag.FlagSet, args []string, pin func() string) error {
	url := set.String("url", "", "where Forebay listens; empty takes the configured address")
	class := set.String("class", "batch", "class of the requests, such as batch, so that nobody waits for them; empty leaves it to the server")
	files, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return usageError("one file is needed, with a request on each line, or - for standard input")
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
	return talk.warm(ctx, in, warming{*class, pin()}, c.out)
}

// warm sends the requests one after the other, and tells about each. Lines that cannot
// be warmed do not end it; they are counted.
func (t *chat) warm(ctx context.Context, in io.Reader, how warming, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LINE\tPROMPT TOKENS\tCACHED BEFORE\tPINNED\tTOOK\tHELD BY")
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
		w, err := t.warmOne(ctx, line, how)
		if err != nil {
			failed++
			fmt.Fprintf(table, "%d\t-\t-\t-\t-\t%v\n", number, err)
			continue
		}
		if w.refused != "" {
			failed++
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%s\t%v\t%s\n", number, w.prompt, w.cached, cmp.Or(w.refused, strconv.Itoa(w.pinned)), w.took.Round(time.Millisecond), w.by)
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

// refusedPins says what to do where a prompt is not pinned.
var refusedPins = map[string]string{
	"too_short":   "no: shorter than a page",
	"tenant_full": "no: over the tenant's pinned_tokens_max",
	"memory_full": "no: over engine.pinned_share, or no state is left",
	"too_many":    "no: over engine.pins_max",
}

// warmOne has one request computed, with an answer of one token.
func (t *chat) warmOne(ctx context.Context, line []byte, how warming) (w warmed, err error) {
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
	if how.class != "" {
		request.Header.Set("X-Forebay-Class", how.class)
	}
	if how.pin != "" {
		request.Header.Set("X-Forebay-Pin", how.pin)
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
				Cached  int    `json:"cached_tokens"`
				Pinned  int    `json:"pinned_tokens"`
				Refused string `json:"pin_refused"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
		return w, fmt.Errorf("the answer cannot be read: %w", err)
	}
	d := &reply.Usage.Details
	w = warmed{reply.Usage.Prompt, d.Cached, d.Pinned, refusedPins[d.Refused], response.Header.Get("X-Forebay-Served-By"), time.Since(began)}
	if w.refused == "" {
		w.refused = d.Refused
	}
	if w.by == "" {
		w.by = strings.TrimPrefix(strings.TrimPrefix(t.url, "http://"), "https://")
	}
	return w, nil
}
