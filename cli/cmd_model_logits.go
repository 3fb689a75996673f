package cli

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

func runModelLogits(c *console, args []string) error {
	set := newFlagSet("model logits MODEL --ids 1,2,3 -o OUT.f32 [--quantize TYPE] [--kv-type TYPE] [--kernels NAME] [--device cpu|cuda|auto] [--device-id N]")
	flags := addTokenFlags(set, "logits", "one row a token")
	quantize := set.String("quantize", "", "type that the weights get first: q8_0, q4_0, q4_k or q6_k; empty leaves them as they are")
	kvName := set.String("kv-type", kernels.KVF32.String(), "type in which keys and values are kept: f32, f16 (as served by default) or int8")
	device := addDeviceFlags(set)
	path, err := c.oneModel(set, args)
	if err != nil {
		return err
	}
	ids, kernelSet, err := flags.parse("model logits")
	if err != nil {
		return err
	}
	kvType, err := kernels.ParseKVType(*kvName)
	if err != nil {
		return usageError("--kv-type: " + err.Error())
	}
	f, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	weights, err := f.Quantized(strings.ToLower(*quantize))
	if err != nil {
		return err
	}
	d, err := device.open(c)
	if err != nil {
		return err
	}
	defer d.close()
	m, err := loadFor(ids, weights, kernelSet, model.Options{KVType: kvType, Device: d.device})
	if err != nil {
		return err
	}
	defer m.close()
	return c.putLogits(*flags.output, m.Model, ids, cmp.Or(d.name, kernelSet.Name))
}

// putLogits writes the logits to a file, or to standard output for "-", and
// prints a summary to the other.
func (c *console) putLogits(output string, m *model.Model, ids []int32, by string) (err error) {
	out, report := io.WriteCloser(c.out), io.Writer(c.err)
	if output != "-" {
		report = c.out
		if out, err = os.Create(output); err != nil {
			return err
		}
	}
	if err := writeLogits(out, m, ids); err != nil {
		if there, gone := os.Lstat(output); output != "-" && gone == nil && there.Mode().IsRegular() {
			err = errors.Join(err, os.Remove(output)) // part of the rows would pass for all
		}
		return err
	}
	_, err = fmt.Fprintf(report, "%s: %d rows of %d, by %s\n", output, len(ids), m.Config().Vocab, by)
	return err
}

// tokenFlags say of which tokens something is computed, by which kernels, and where it goes.
type tokenFlags struct{ ids, output, kernels *string }

func addTokenFlags(set *flag.FlagSet, what, layout string) *tokenFlags {
	return &tokenFlags{
		ids:     set.String("ids", "", "token ids, separated by commas"),
		output:  set.String("o", "", "file for the "+what+", - for standard output: raw little-endian float32, "+layout),
		kernels: set.String("kernels", "", "kernel set; empty takes the best one"),
	}
}

func (f *tokenFlags) parse(command string) (ids []int32, set *kernels.Set, err error) {
	if *f.ids == "" || *f.output == "" {
		return nil, nil, usageError(command + " needs --ids and -o")
	}
	if ids, err = parseIDs(*f.ids); err != nil || *f.kernels == "" {
		return ids, kernels.Best(), err
	}
	set, err = kernels.Lookup(*f.kernels)
	return ids, set, err
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

// logitsBatchTokens bounds how many rows of logits are in memory at a time.
const logitsBatchTokens = 64

// loadedModel is a model with its worker threads.
type loadedModel struct {
	*model.Model
	team *kernels.Team
}

func (m *loadedModel) close() {
	m.Close()
	m.team.Close()
}

// loadFor checks ids and loads the model of f with a context that holds them.
func loadFor(ids []int32, f *gguf.File, set *kernels.Set, o model.Options) (*loadedModel, error) {
	shape, err := checkIDs(ids, f)
	if err != nil {
		return nil, err
	}
	if shape.Pooling != model.PoolNone {
		return nil, fmt.Errorf("%s makes embeddings and has no logits; see forebay model embed", f.Name())
	}
	team := kernels.NewTeam(runtime.GOMAXPROCS(0))
	o.ContextTokens, o.BatchTokensMax = len(ids), logitsBatchTokens
	m, err := model.Load(f, set, team, o)
	if err != nil {
		team.Close()
		return nil, err
	}
	return &loadedModel{m, team}, nil
}

// checkIDs reads the model's description, and refuses ids that it cannot take.
func checkIDs(ids []int32, f *gguf.File) (shape model.Config, err error) {
	shape, err = model.ReadConfig(f)
	if err != nil {
		return shape, err
	}
	if len(ids) > shape.ContextTokens {
		return shape, fmt.Errorf("%d ids are more than the model's context of %d", len(ids), shape.ContextTokens)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= shape.Vocab {
			return shape, fmt.Errorf("--ids: %d at position %d is not in the vocabulary; its tokens are 0 to %d", id, i, shape.Vocab-1)
		}
	}
	return shape, nil
}

// writeLogits writes the logits of ids to out and closes it. It returns the
// first error only.
func writeLogits(out io.WriteCloser, m *model.Model, ids []int32) (err error) {
	w := bufio.NewWriter(out)
	err = forwardAll(w, m, ids)
	if err == nil {
		err = w.Flush()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}

// forwardAll writes the logits after each id.
func forwardAll(w io.Writer, m *model.Model, ids []int32) (err error) {
	defer func() {
		if fault, ok := recover().(*model.DeviceFault); ok {
			err = fault
		}
	}()
	pages := make([]int32, (len(ids)+m.Options().PageTokens-1)/m.Options().PageTokens)
	for i := range pages {
		pages[i] = int32(i)
	}
	for start := 0; start < len(ids); start += logitsBatchTokens {
		batch := ids[start:min(start+logitsBatchTokens, len(ids))]
		logits := m.Forward([]model.Chunk{{Tokens: batch, Start: start, Pages: pages, Logits: len(batch)}})
		if err := binary.Write(w, binary.LittleEndian, logits); err != nil {
			return err
		}
	}
	return nil
}
