package speed

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Head is the first line of an engine's output.
type Head struct {
	Peer     string  `json:"peer"`
	Version  string  `json:"version,omitempty"`
	Binding  string  `json:"binding,omitempty"` // the version, as llama.cpp's script calls it
	Features string  `json:"features"`
	LoadS    float64 `json:"load_s"`
	Model    string  `json:"model"`

	// of this engine alone
	Threads       int `json:"threads,omitempty"`
	ChunkTokens   int `json:"chunk_tokens,omitempty"`
	WeightBytes   int `json:"weight_bytes,omitempty"`
	ReadBytes     int `json:"weight_bytes_read_a_step,omitempty"` // of the file's types
	KVTokenBytes  int `json:"kv_bytes_a_token,omitempty"`
	ResidentBytes int `json:"resident_bytes,omitempty"` // after loading; 0 means unknown
}

// Prefill is the rate of one prompt length.
type Prefill struct {
	Tokens     int                `json:"prefill"`
	TokensPerS float64            `json:"tokens_per_s"` // median of All
	All        []float64          `json:"all,omitempty"`
	Shares     map[string]float64 `json:"shares,omitempty"` // of the time, by kernel class
}

// Decode is the rate of steps with one token for each stream, at a context of depth
// tokens.
type Decode struct {
	Depth      int       `json:"depth"`
	Streams    int       `json:"streams"`
	StepMS     float64   `json:"step_ms"`
	TokensPerS float64   `json:"tokens_per_s"` // of all streams; median of All
	All        []float64 `json:"all,omitempty"`

	// of this engine alone
	StepBytes int                `json:"step_bytes,omitempty"` // weights, keys and values that a step reads at least
	ReadGBs   float64            `json:"read_gb_s,omitempty"`  // of the machine, measured just before
	ReadShare float64            `json:"read_share,omitempty"` // StepBytes a step, of that rate
	Shares    map[string]float64 `json:"shares,omitempty"`
}

// Machine has the rates of the processor, all in 1e9 a second.
type Machine struct {
	Threads int     `json:"threads"`
	ReadGBs float64 `json:"read_gb_s"`
	// CacheGBs is the rate of reading a buffer that fits into the second-level cache.
	CacheGBs float64 `json:"cache_read_gb_s"`
	// GOPS has the rates of the arithmetic loops of kernels/probe. A multiplication
	// with an addition counts as two operations.
	GOPS map[string]float64 `json:"gops,omitempty"`
}

// machineLine is the form of a Machine as a line.
type machineLine struct {
	Machine *Machine `json:"machine"`
}

// Results holds the lines of one run.
type Results struct {
	Head     *Head     `json:"head,omitempty"`
	Machine  *Machine  `json:"machine,omitempty"`
	Prefills []Prefill `json:"prefills,omitempty"`
	Decodes  []Decode  `json:"decodes,omitempty"`
}

// lineBytesMax bounds a line of Parse.
const lineBytesMax = 1 << 20

// Parse reads the output of an engine's benchmark. It skips lines that are not JSON
// objects, such as warnings of a library. An object of a known kind with impossible
// values is an error, and so is a run without a head.
func Parse(r io.Reader) (*Results, error) {
	var all Results
	in := bufio.NewScanner(r)
	in.Buffer(nil, lineBytesMax)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		var kind map[string]json.RawMessage
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &kind) != nil {
			continue
		}
		if err := all.add(kind, []byte(line)); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if all.Head == nil {
		return nil, fmt.Errorf("no line has the key %q, the name of the engine", "peer")
	}
	return &all, nil
}

func (r *Results) add(kind map[string]json.RawMessage, line []byte) error {
	has := func(key string) bool { _, ok := kind[key]; return ok }
	switch {
	case has("peer"):
		r.Head = new(Head)
		return json.Unmarshal(line, r.Head)
	case has("machine"):
		return json.Unmarshal(line, &machineLine{optional(&r.Machine)})
	case has("prefill"):
		var p Prefill
		err := json.Unmarshal(line, &p)
		if err == nil && !(p.Tokens > 0 && p.TokensPerS > 0) {
			err = fmt.Errorf("%d tokens of prefill at %g a second: both must be over 0", p.Tokens, p.TokensPerS)
		}
		r.Prefills = append(r.Prefills, p)
		return err
	case has("depth"):
		var d Decode
		err := json.Unmarshal(line, &d)
		if err == nil && !(d.Depth >= 0 && d.Streams > 0 && d.TokensPerS > 0) {
			err = fmt.Errorf("%d streams at depth %d make %g tokens a second: streams and rate must be over 0", d.Streams, d.Depth, d.TokensPerS)
		}
		r.Decodes = append(r.Decodes, d)
		return err
	}
	return nil
}

// optional sets *p to a new value if it is nil, and returns it.
func optional[T any](p **T) *T {
	*p = new(T)
	return *p
}

// Median returns the median of v: the mean of the two middle values if their
// number is even, and 0 for none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// AsLine returns the value to encode for a result of Run.
func AsLine(of any) any {
	if m, ok := of.(*Machine); ok {
		return machineLine{m}
	}
	return of
}
