package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/conf"
)

// modelReport is the output of model info, as JSON or as text.
type modelReport struct {
	File      string `json:"file"`
	Format    string `json:"format"`
	SizeBytes int    `json:"size_bytes"`
	Digest    string `json:"digest"`

	Shape      *modelShape  `json:"model,omitempty"`
	Parameters int          `json:"parameters"`
	Tensors    []tensorUse  `json:"tensors"`
	Prediction *prediction  `json:"prediction,omitempty"`
	Keys       []keyAndText `json:"keys"`

	Chat     bool     `json:"chat"`     // the model has a template that works
	Problems []string `json:"problems"` // why it cannot be served, or not for chat
	// Tools names the format in which the model calls tools, or says why it cannot.
	Tools    string   `json:"tools,omitempty"`
	Warnings []string `json:"warnings"` // what its tokenizer lacks, where a default takes its place
}

type modelShape struct {
	Name          string `json:"name"`
	Architecture  string `json:"architecture"`
	ContextTokens int    `json:"context_tokens"`
	VocabTokens   int    `json:"vocabulary_tokens"`
	Layers        int    `json:"layers"`
	Embed         int    `json:"width"`
	FF            int    `json:"feed_forward"`
	Heads         int    `json:"heads"`
	HeadDim       int    `json:"head_width"`
	KVHeads       int    `json:"kv_heads"`
	Experts       int    `json:"experts,omitempty"`
	ExpertsUsed   int    `json:"experts_used,omitempty"`
}

type tensorUse struct {
	Type      string `json:"type"`
	Tensors   int    `json:"tensors"`
	Bytes     int    `json:"bytes"`
	Supported bool   `json:"supported"`
}

type keyAndText struct {
	Key  string `json:"key"`
	Text string `json:"value"`
}

// errUnservable ends model info for a model that cannot be served.
var errUnservable = errors.New("cannot be served")

func runModelInfo(c *console, args []string) error {
	set := newFlagSet("model info MODEL [--quantize TYPE] [--json]")
	asJSON := set.Bool("json", false, "print JSON")
	quantize := set.String("quantize", "", "predict for weights of this type: q8_0, q4_0, q4_k or q6_k")
	path, err := c.oneModel(set, args)
	if err != nil {
		return err
	}
	r, unservable, err := report(path, strings.ToLower(*quantize))
	if err != nil {
		return err
	}
	if *asJSON {
		encoder := json.NewEncoder(c.out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(r)
	} else {
		err = r.print(c.out)
	}
	if err == nil && unservable {
		return fmt.Errorf("%w: %s", errUnservable, r.Problems[0])
	}
	return err
}

// report describes a model, tries to load it, and predicts its speed.
func report(path, quantize string) (r *modelReport, unservable bool, err error) {
	f, err := checkpoint.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	weights, err := f.Quantized(quantize)
	if err != nil {
		return nil, false, err
	}
	r = &modelReport{
		File: f.Name(), Format: "safetensors", SizeBytes: f.SizeBytes(), Digest: f.Digest(),
		Parameters: f.Parameters(), Problems: []string{}, Warnings: []string{},
	}
	if v := f.Version(); v > 0 {
		r.Format = fmt.Sprintf("GGUF %d", v)
	}
	for _, use := range weights.TypeUses() {
		r.Tensors = append(r.Tensors, tensorUse{use.Type.String(), use.Tensors, use.Bytes, use.Type.Known()})
	}
	for _, key := range f.Keys() {
		r.Keys = append(r.Keys, keyAndText{key, f.Text(key)})
	}
	if m, err := model.ReadConfig(weights); err == nil {
		r.describe(&m, weights)
	}
	if unservable = !r.try(path); !unservable {
		t, err := f.Tokenizer()
		if err != nil {
			return nil, false, err
		}
		r.Warnings = append(r.Warnings, t.Doubts()...)
	}
	return r, unservable, nil
}

func (r *modelReport) describe(m *model.Config, f *gguf.File) {
	r.Shape = &modelShape{
		Name: m.Name, Architecture: m.Architecture, ContextTokens: m.ContextTokens, VocabTokens: m.Vocab,
		Layers: len(m.Layers), Embed: m.Embed, FF: m.FF(), Heads: m.Heads, HeadDim: m.HeadDim, KVHeads: m.KVHeads,
		Experts: m.Experts, ExpertsUsed: m.ExpertsUsed,
	}
	var cfg engine.Config
	conf.Fill(&cfg)
	r.Prediction = predict(modelSizes(m, f, &cfg), &cfg)
}

// try loads the model as serve would, but with almost no memory for keys and
// values, and with kernels that use weights as the file holds them. So it reads
// little of a large file.
func (r *modelReport) try(path string) (serves bool) {
	e, err := engine.New(engine.Config{Model: path, ContextTokens: 1, Kernels: "ref", Threads: 1})
	if err != nil {
		r.Problems = append(r.Problems, strings.TrimPrefix(err.Error(), "engine: load model: "))
		return false
	}
	defer e.Close()
	m := e.State().Model
	if r.Chat = m.Chat; !m.Chat {
		r.Problems = append(r.Problems, "not for chat: "+m.ChatError)
	} else if r.Tools = m.ToolFormat; m.ToolsError != "" {
		r.Tools = "none: " + m.ToolsError + "; engine.tool_format gives it one"
	}
	return true
}

func (r *modelReport) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("file", "%s", r.File)
	row("format", "%s, %s, digest %s", r.Format, size(r.SizeBytes), r.Digest)
	if s := r.Shape; s != nil {
		row("name", "%s", s.Name)
		row("architecture", "%s", s.Architecture)
		row("context", "%d tokens", s.ContextTokens)
		row("vocabulary", "%d tokens", s.VocabTokens)
		row("shape", "%d layers, width %d, feed-forward %d, %d heads of %d, %d KV heads", s.Layers, s.Embed, s.FF, s.Heads, s.HeadDim, s.KVHeads)
		if s.Experts > 0 {
			row("experts", "%d, of which a token uses %d", s.Experts, s.ExpertsUsed)
		}
	}
	row("parameters", "%d", r.Parameters)
	for _, use := range r.Tensors {
		note := ""
		if !use.Supported {
			note = ": this type is not supported"
		}
		row("tensors", "%d of %s, %s%s", use.Tensors, use.Type, size(use.Bytes), note)
	}
	if r.Prediction != nil {
		r.Prediction.print(row)
	}
	for _, k := range r.Keys {
		row(k.Key, "%s", k.Text)
	}
	if r.Tools != "" {
		row("tool calls", "%s", r.Tools)
	}
	for _, warning := range r.Warnings {
		row("warning", "%s", warning)
	}
	if err := w.Flush(); err != nil || len(r.Problems) > 0 && !r.Chat && !strings.HasPrefix(r.Problems[0], "not for chat") {
		return err // the error that follows says the rest
	}
	verdict := "can be served"
	if !r.Chat {
		verdict = "can be served for completions, " + r.Problems[0]
	}
	_, err := fmt.Fprintln(out, "\n"+verdict)
	return err
}
