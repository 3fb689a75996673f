package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// reply is what a client saw of one request.
type reply struct {
	first  time.Duration // from when it should have been sent to the first token; 0 is none
	cached int
	by     int // replica
	moved  bool
	err    error
}

// outcome is how a way of placement fared. Times are the trace's, not those of the run.
type outcome struct {
	name      string
	good      float64 // of the requests, those with a first token within 5 s and twice their own prefill
	mean, p95 time.Duration
	hits      float64 // of the prompt tokens
	busiest   float64 // work of the replica that did the most, over the mean
	moved     float64 // requests that a sibling computed
	failed    int
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}

// ask sends one request and reads its answer to the end.
func ask(ctx context.Context, url string, body []byte, due time.Time) (r reply) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return reply{err: err}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return reply{err: fmt.Errorf("status %d", response.StatusCode)}
	}
	by := response.Header.Get("X-Forebay-Served-By")
	r.by = -1
	if n := len(by); n > 0 {
		r.by, _ = strconv.Atoi(by[n-1:])
	}
	r.moved = strings.HasPrefix(response.Header.Get("X-Forebay-Placement"), "sooner_there")
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || bytes.HasPrefix(data, []byte("[DONE]")) {
			continue
		}
		if r.first == 0 {
			r.first = time.Since(due)
		}
		var chunk struct {
			Error *struct{ Message string }
			Usage *struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			return reply{err: err}
		}
		if chunk.Error != nil {
			return reply{err: fmt.Errorf("%s", chunk.Error.Message)}
		}
		if chunk.Usage != nil {
			r.cached = chunk.Usage.Details.Cached
		}
	}
	r.err = lines.Err()
	return r
}

// play sends the trace to a fleet, and says how it fared.
func (o *options) play(ctx context.Context, f *fleet, trace []arrival, began time.Time, pace float64) outcome {
	replies := make([]reply, len(trace))
	var running sync.WaitGroup
	for i := range trace {
		a := &trace[i]
		due := began.Add(time.Duration(float64(a.at-trace[0].at) * pace))
		at := i % len(f.urls) // the balancer before the gateways
		if f.name == "sticky" {
			at = int(mix(a.session) % uint64(len(f.urls)))
		}
		body := a.request(i, a.output)
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(due)):
		}
		running.Go(func() {
			r := ask(ctx, f.urls[at], body, due)
			if r.by < 0 {
				r.by = at
			}
			replies[i] = r
		})
	}
	running.Wait()
	return o.fared(f, trace, replies)
}

func (o *options) fared(f *fleet, trace []arrival, replies []reply) outcome {
	out := outcome{name: f.name}
	c, k := o.cost(), time.Duration(o.speed)
	work := make([]float64, len(f.urls))
	var waits []time.Duration
	var prompt, cached, all, most float64
	for i, r := range replies {
		if r.err != nil || r.first == 0 {
			out.failed++
			continue
		}
		a := &trace[i]
		waits = append(waits, r.first*k)
		prompt, cached = prompt+float64(a.tokens()), cached+float64(r.cached)
		took := c.Prefill(a.tokens()-r.cached, r.cached, stepTokens) + time.Duration(a.output)*o.token()
		work[r.by%len(work)] += took.Seconds()
		if r.first*k <= 5*time.Second+2*k*a.prefill(&c) {
			out.good++
		}
		if r.moved {
			out.moved++
		}
	}
	if len(waits) == 0 {
		return out
	}
	for _, w := range work {
		all, most = all+w, max(most, w)
	}
	var sum time.Duration
	for _, w := range waits {
		sum += w
	}
	slices.Sort(waits)
	n := float64(len(replies))
	out.good, out.moved, out.hits, out.busiest = out.good/n, out.moved/n, cached/prompt, most*float64(len(work))/all
	out.mean, out.p95 = sum/time.Duration(len(waits)), waits[len(waits)*95/100]
	return out
}

func mix(x uint64) uint64 {
	x = (x + 1) * 0x9e3779b97f4a7c15
	return x ^ x>>29
}
