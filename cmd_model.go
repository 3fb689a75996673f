package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

func runModelInfo(c *console, args []string) error {
	set := newFlagSet("model info FILE")
	files, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return usageError("model info needs one model file")
	}
	f, err := gguf.Open(files[0])
	if err != nil {
		return err
	}
	defer f.Close()
	if err := describeFile(c.out, f); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out, "\n"+verdict(files[0]))
	return err
}

// verdict tries what serve would do, with next to no room for keys and values.
func verdict(path string) string {
	e, err := engine.New(engine.Config{Model: path, ContextTokens: 16})
	if err != nil {
		return "cannot be served: " + err.Error()
	}
	defer e.Close()
	if m := e.State().Model; !m.Chat {
		return "can be served for completions, not for chat: " + m.ChatError
	}
	return "can be served"
}

// describeFile prints what the file says, and what we cannot run of it.
func describeFile(out io.Writer, f *gguf.File) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\n", name, value) }
	row("file", f.Name())
	row("format", fmt.Sprintf("GGUF %d, %d bytes, %s", f.Version(), f.SizeBytes(), f.Digest()))
	if m, err := model.ReadConfig(f); err != nil {
		row("problem", err)
	} else {
		row("name", m.Name)
		row("architecture", m.Architecture)
		row("context", fmt.Sprintf("%d tokens", m.ContextTokens))
		row("vocabulary", fmt.Sprintf("%d tokens", m.Vocab))
		row("shape", fmt.Sprintf("%d layers, width %d, feed-forward %d, %d heads of %d, %d KV heads", m.Layers, m.Embed, m.FF, m.Heads, m.HeadDim, m.KVHeads))
		row("KV cache", fmt.Sprintf("%d bytes a token, in float32", m.Layers*2*4*m.KVHeads*m.HeadDim))
	}
	row("parameters", f.Parameters())
	for _, use := range f.TypeUses() {
		row("tensors", fmt.Sprintf("%d of %v, %d bytes", use.Tensors, use.Type, use.Bytes))
		if !use.Type.Known() {
			row("problem", fmt.Sprintf("the tensor type %v is not supported", use.Type))
		}
	}
	for _, key := range f.Keys() {
		row(key, f.Text(key))
	}
	return w.Flush()
}

func runModelLogits(c *console, args []string) error {
	set := newFlagSet("model logits FILE --ids 1,2,3 -o OUT.f32 [--kernels NAME]")
	idList := set.String("ids", "", "token ids, separated by commas")
	output := set.String("o", "", "file for the logits, - for standard output: raw little-endian float32, one row a token")
	name := set.String("kernels", "", "kernel set; empty takes the best one")
	files, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(files) != 1 || *idList == "" || *output == "" {
		return usageError("model logits needs one model file, --ids and -o")
	}
	ids, err := parseIDs(*idList)
	if err != nil {
		return err
	}
	kernelSet := kernels.Best()
	if *name != "" {
		if kernelSet, err = kernels.Lookup(*name); err != nil {
			return err
		}
	}
	f, err := gguf.Open(files[0])
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := loadFor(ids, f, kernelSet)
	if err != nil {
		return err
	}
	defer m.close()
	out, report := io.WriteCloser(c.out), io.Writer(c.err)
	if *output != "-" {
		report = c.out
		if out, err = os.Create(*output); err != nil {
			return err
		}
	}
	if err := writeLogits(out, m.Model, ids); err != nil {
		return err
	}
	fmt.Fprintf(report, "%s: %d rows of %d, by %s\n", *output, len(ids), m.Config().Vocab, kernelSet.Name)
	return nil
}

func parseIDs(list string) ([]int32, error) {
	var ids []int32
	for text := range strings.SplitSeq(list, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil {
			return nil, usageError(fmt.Sprintf("--ids: %q is not a token id", text))
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// logitsBatchTokens bounds the logits held at a time.
const logitsBatchTokens = 64

// loadedModel is a model with the threads that it computes on.
type loadedModel struct {
	*model.Model
	team *kernels.Team
}

func (m *loadedModel) close() {
	m.Close()
	m.team.Close()
}

// loadFor loads the model of f with room for ids, which it checks.
func loadFor(ids []int32, f *gguf.File, set *kernels.Set) (*loadedModel, error) {
	shape, err := model.ReadConfig(f)
	if err != nil {
		return nil, err
	}
	if len(ids) > shape.ContextTokens {
		return nil, fmt.Errorf("%d ids are more than the model's context of %d", len(ids), shape.ContextTokens)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= shape.Vocab {
			return nil, fmt.Errorf("--ids: %d at position %d is not in the vocabulary; its tokens are 0 to %d", id, i, shape.Vocab-1)
		}
	}
	team := kernels.NewTeam(runtime.GOMAXPROCS(0))
	m, err := model.Load(f, set, team, model.Options{ContextTokens: len(ids), BatchTokensMax: logitsBatchTokens})
	if err != nil {
		team.Close()
		return nil, err
	}
	return &loadedModel{m, team}, nil
}

// writeLogits closes out, and returns the first error alone.
func writeLogits(out io.WriteCloser, m *model.Model, ids []int32) error {
	w := bufio.NewWriter(out)
	err := forwardAll(w, m, ids)
	if err == nil {
		err = w.Flush()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}

// forwardAll writes the logits of every id.
func forwardAll(w io.Writer, m *model.Model, ids []int32) error {
	pages := make([]int32, (len(ids)+m.Options().PageTokens-1)/m.Options().PageTokens)
	for i := range pages {
		pages[i] = int32(i)
	}
	for start := 0; start < len(ids); start += logitsBatchTokens {
		batch := ids[start:min(start+logitsBatchTokens, len(ids))]
		logits := m.Forward([]model.Span{{Tokens: batch, Start: start, Pages: pages, Logits: len(batch)}})
		if err := binary.Write(w, binary.LittleEndian, logits); err != nil {
			return err
		}
	}
	return nil
}
