package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"

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
	return describeFile(c.out, f)
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
	output := set.String("o", "", "file for the logits: raw little-endian float32, one row a token")
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
	rows, vocab, err := writeLogits(*output, f, kernelSet, ids)
	if err == nil {
		fmt.Fprintf(c.out, "%s: %d rows of %d, by %s\n", *output, rows, vocab, kernelSet.Name)
	}
	return err
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

func writeLogits(path string, f *gguf.File, set *kernels.Set, ids []int32) (rows, vocab int, err error) {
	team := kernels.NewTeam(runtime.GOMAXPROCS(0))
	defer team.Close()
	shape, err := model.ReadConfig(f)
	if err != nil {
		return 0, 0, err
	}
	if len(ids) > shape.ContextTokens {
		return 0, 0, fmt.Errorf("%d ids are more than the model's context of %d", len(ids), shape.ContextTokens)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= shape.Vocab {
			return 0, 0, fmt.Errorf("--ids: %d at position %d is not in the vocabulary; its tokens are 0 to %d", id, i, shape.Vocab-1)
		}
	}
	m, err := model.Load(f, set, team, model.Options{ContextTokens: len(ids), BatchTokensMax: logitsBatchTokens})
	if err != nil {
		return 0, 0, err
	}
	defer m.Close()
	file, err := os.Create(path)
	if err != nil {
		return 0, 0, err
	}
	w := bufio.NewWriter(file)
	err = forwardAll(w, m, ids)
	return len(ids), shape.Vocab, errors.Join(err, w.Flush(), file.Close())
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
