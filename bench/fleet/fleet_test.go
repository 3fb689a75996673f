package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// A paced engine takes the time that its cost says: less for what is cached, one prompt after
// the other, and its schedule keeps no gaps.
func TestPacedEnginesTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{speed: 10}
		e, err := newPaced(100, o.cost(), o.token())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			e.run(ctx)
			close(ended)
		}()
		defer func() {
			stop()
			<-ended
		}()
		tokens := make([]int32, 161)
		began := time.Now()
		ask := func() (*wire.Stream, chan struct{}) {
			p, err := e.Prepare(ctx, &wire.Request{Tokens: tokens})
			if err != nil {
				t.Fatal(err)
			}
			notify := make(chan struct{}, 1)
			return e.Generate(&wire.Generation{Prompt: p, Options: wire.Options{N: 1, MaxTokens: 40}, Notify: notify}), notify
		}
		first, notify := ask()
		second, then := ask()
		read := func(s *wire.Stream, notify chan struct{}) (first, end time.Duration, usage wire.Usage) {
			for {
				<-notify
				for _, event := range s.Take(nil) {
					switch {
					case event.End != nil:
						return first, time.Since(began), event.End.Usage
					case first == 0:
						first = time.Since(began)
					}
				}
			}
		}
		c := o.cost()
		cold, warm, answer := c.Prefill(161, 0, stepTokens), c.Prefill(1, 160, stepTokens), 40*o.token()
		at, end, usage := read(first, notify)
		if at != cold || end != cold+answer || usage.Cached != 0 || usage.Completion != 40 {
			t.Errorf("the first: token after %v, end after %v, %+v; want %v and %v", at, end, usage, cold, cold+answer)
		}
		_, end, usage = read(second, then)
		if want := cold + warm + 2*answer; end != want || usage.Cached != 160 {
			t.Errorf("the second: end after %v, %+v; want %v", end, usage, want)
		}
		if s := e.State(); len(s.Blocks.Changes) != 10 || s.PrefillTokens != 162 || s.Waiting != 0 {
			t.Errorf("state %+v", s)
		}
		third, _ := ask()
		third.Cancel()
		third.Close()
	})
}

func TestTraceBecomesPrompts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(file)
	packed.Write([]byte(`{"timestamp": 0, "input_length": 1100, "output_length": 7, "hash_ids": [1, 2, 3]}
{"timestamp": 3000, "input_length": 1600, "output_length": 1, "hash_ids": [1, 2, 4, 5]}
`))
	packed.Close()
	file.Close()
	trace, err := readTrace(path, 10)
	if err != nil || len(trace) != 2 {
		t.Fatalf("%d requests, %v", len(trace), err)
	}
	var bodies [2]struct {
		Prompt    []int32
		MaxTokens int `json:"max_tokens"`
	}
	for i := range trace {
		if err := json.Unmarshal(trace[i].request(i, trace[i].output), &bodies[i]); err != nil {
			t.Fatal(err)
		}
		if len(bodies[i].Prompt) != trace[i].tokens() {
			t.Errorf("request %d has %d tokens, not %d", i, len(bodies[i].Prompt), trace[i].tokens())
		}
	}
	a, b := bodies[0].Prompt, bodies[1].Prompt
	same := 0
	for same < len(a) && a[same] == b[same] {
		same++
	}
	if len(a) != 34 || same < 32 || same > 33 || trace[1].session != trace[0].session || bodies[0].MaxTokens != 7 {
		t.Errorf("%d and %d tokens, %d in common; sessions %d and %d", len(a), len(b), same, trace[0].session, trace[1].session)
	}
	if _, err := readTrace(path, 0); err == nil {
		t.Error("a trace of no requests")
	}
}
