package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// crowd is the clients. They are told what their answers used, and keep it.
type crowd struct {
	gateways []*gateway
	clients  int
	seed     uint64
	http     http.Client
	all      sync.WaitGroup

	mu    sync.Mutex
	told  map[string]told // by request, of answers that came whole
	ended map[string]int  // how requests ended, as their clients saw it
}

// told is the usage in an answer.
type told struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func newCrowd(s *scene, o *options) *crowd {
	return &crowd{
		gateways: s.gateways, clients: o.clients, seed: o.seed, told: map[string]told{}, ended: map[string]int{},
		http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.clients}},
	}
}

// begin has all clients ask until ctx ends. What they have asked then, they hear out.
func (c *crowd) begin(ctx context.Context) {
	for i := range c.clients {
		c.all.Go(func() {
			rnd := rand.New(rand.NewPCG(c.seed, uint64(i)+1))
			for ctx.Err() == nil {
				c.note(c.ask(rnd))
				pause(ctx, time.Duration(rnd.IntN(100))*time.Millisecond)
			}
		})
	}
}

func (c *crowd) wait() {
	c.all.Wait()
	c.http.CloseIdleConnections()
}

func (c *crowd) note(how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[how]++
}

// patience is the longest that a client waits; it is no measure of speed.
const patience = 90 * time.Second

// ask sends one request, leaves at some time or not, and says how it ended.
func (c *crowd) ask(rnd *rand.Rand) string {
	g := c.gateways[rnd.IntN(len(c.gateways))]
	tenant := tenants[rnd.IntN(len(tenants))]
	// Few beginnings, so that the cache has some of them.
	text := fmt.Sprint("story ", rnd.IntN(6), strings.Repeat(" and so on", rnd.IntN(120)), rnd.IntN(1000))
	stream := rnd.IntN(2) == 0
	request := map[string]any{
		"model": "forebay-demo", "messages": []any{map[string]any{"role": "user", "content": text}}, "ignore_eos": rnd.IntN(3) > 0,
		"max_tokens": 1 + rnd.IntN(80), "n": 1 + rnd.IntN(2), "user": fmt.Sprint("u", rnd.IntN(20)),
	}
	if rnd.IntN(3) == 0 {
		request["service_tier"] = "flex"
	}
	if stream {
		request["stream"], request["stream_options"] = true, map[string]any{"include_usage": true}
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	if rnd.IntN(20) == 0 {
		return leaveInBody(g, tenant, body)
	}
	ctx, leave := context.WithTimeout(context.Background(), patience)
	defer leave()
	switch rnd.IntN(5) {
	case 0, 1: // anywhere between the queue and the end
		defer time.AfterFunc(time.Duration(rnd.ExpFloat64()*80*float64(time.Millisecond)), leave).Stop()
	case 2:
		defer time.AfterFunc(time.Duration(rnd.IntN(8000))*time.Microsecond, leave).Stop()
	}
	return c.send(ctx, g, tenant, body, stream)
}

// leaveInBody closes the connection when half of the body is sent.
func leaveInBody(g *gateway, tenant string, body []byte) string {
	address, _ := url.Parse(g.api)
	conn, err := net.Dial("tcp", address.Host)
	if err != nil {
		return "not connected"
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", tenant, len(body))
	conn.Write(body[:len(body)/2])
	return "left in the body"
}

func (c *crowd) send(ctx context.Context, g *gateway, tenant string, body []byte, stream bool) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.api+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+tenant)
	response, err := c.http.Do(request)
	if err != nil {
		return leftOr(ctx, "before the answer", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		io.Copy(io.Discard, response.Body)
		return fmt.Sprint("status ", response.StatusCode)
	}
	id, used, err := readAnswer(response.Body, stream)
	if err != nil {
		return leftOr(ctx, "in the answer", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[id] = used
	return "whole"
}

// leftOr says that the client left, or what else ended its request.
func leftOr(ctx context.Context, where string, err error) string {
	if ctx.Err() == context.Canceled {
		return "left " + where
	}
	return err.Error()
}

// readAnswer reads an answer to its end. Of a stream the last object has the usage.
func readAnswer(from io.Reader, stream bool) (id string, used told, err error) {
	var last struct {
		ID    string
		Usage *told
		Error json.RawMessage
	}
	if !stream {
		err = json.NewDecoder(from).Decode(&last)
	} else {
		done := false
		lines := bufio.NewScanner(from)
		for lines.Scan() && err == nil {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if data == "[DONE]" {
				done = true
			} else if ok {
				err = json.Unmarshal([]byte(data), &last)
			}
		}
		if err == nil && last.Error != nil {
			return "", used, fmt.Errorf("an error event")
		}
		if err == nil && !done {
			err = fmt.Errorf("a stream without [DONE]: %v", lines.Err())
		}
	}
	if err == nil && last.Usage == nil {
		err = fmt.Errorf("an answer without usage")
	}
	if err != nil {
		return "", used, err
	}
	return strings.TrimPrefix(last.ID, "chatcmpl-"), *last.Usage, nil
}
