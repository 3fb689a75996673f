package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// arrival is one request of the trace.
type arrival struct {
	at      time.Duration
	output  int
	blocks  []uint64
	rest    int    // tokens after the last whole block
	session uint64 // of requests that continue one another
}

// traceBlock is how many tokens of the trace one page stands for.
const traceBlock = 512

// scale is how many tokens of the trace one of ours stands for.
const scale = traceBlock / pageTokens

// readTrace reads the first n requests of Mooncake's conversations.
func readTrace(path string, n int) (all []arrival, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	sessions := map[uint64]uint64{} // by the last block of a prompt that was whole
	lines := bufio.NewScanner(unpacked)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && len(all) < n {
		var l struct {
			Timestamp int64    `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Blocks    []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, err
		}
		whole := l.Input / traceBlock
		a := arrival{at: time.Duration(l.Timestamp) * time.Millisecond, output: max(2, l.Output), blocks: l.Blocks[:whole], rest: max(1, l.Input%traceBlock/scale), session: uint64(len(all))}
		for i, b := range a.blocks {
			if s, ok := sessions[b]; ok && i > 0 {
				a.session = s
			}
		}
		if whole > 1 {
			sessions[a.blocks[whole-1]] = a.session
		}
		all = append(all, a)
	}
	if len(all) < 2 {
		return nil, fmt.Errorf("%s has no %d requests: %w", path, n, lines.Err())
	}
	return all, lines.Err()
}

// tokens is how long the prompt is here.
func (a *arrival) tokens() int { return len(a.blocks)*pageTokens + a.rest }

// request is the body of a request for so many tokens.
func (a *arrival) request(number, tokens int) []byte {
	b := a.appendPrompt([]byte(`{"model":"paced","stream":true,"stream_options":{"include_usage":true},"prompt":`), number)
	return fmt.Appendf(b, `,"max_tokens":%d}`, tokens)
}

// appendPrompt writes the prompt as a JSON array of token ids. Equal blocks of the trace are
// equal pages; the rest is nobody else's.
func (a *arrival) appendPrompt(b []byte, number int) []byte {
	b = append(b, '[')
	for _, block := range a.blocks {
		for i := range uint64(pageTokens) {
			b = append(strconv.AppendUint(b, (block*pageTokens+i)%pacedVocab, 10), ',')
		}
	}
	for i := range a.rest {
		b = append(strconv.AppendInt(b, int64((number*7919+i)%pacedVocab), 10), ',')
	}
	b[len(b)-1] = ']'
	return b
}

// prefill is the time of a whole prompt without any cache.
func (a *arrival) prefill(c *cost.Cost) time.Duration { return c.Prefill(a.tokens(), 0, stepTokens) }
