package cli

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"

	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

func runModelEmbed(c *console, args []string) error {
	set := newFlagSet("model embed MODEL --ids 1,2,3 -o OUT.f32 [--kernels NAME]")
	flags := addTokenFlags(set, "vector", "one vector")
	path, err := c.oneModel(set, args)
	if err != nil {
		return err
	}
	ids, kernelSet, err := flags.parse("model embed")
	if err != nil {
		return err
	}
	f, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	vector, err := embed(ids, f.File, kernelSet)
	if err != nil {
		return err
	}
	raw, report := make([]byte, 0, 4*len(vector)), c.err
	raw, _ = binary.Append(raw, binary.LittleEndian, vector)
	if *flags.output == "-" {
		_, err = c.out.Write(raw)
	} else {
		report, err = c.out, os.WriteFile(*flags.output, raw, 0o666)
	}
	if err == nil {
		_, err = fmt.Fprintf(report, "%s: %d numbers, by %s\n", *flags.output, len(vector), kernelSet.Name)
	}
	return err
}

// embed computes the vector of a text of these tokens.
func embed(ids []int32, f *gguf.File, set *kernels.Set) ([]float32, error) {
	shape, err := checkIDs(ids, f)
	if err != nil {
		return nil, err
	}
	if shape.Pooling == model.PoolNone {
		return nil, fmt.Errorf("%s generates text and makes no embeddings: its file has no key %s.pooling_type; see forebay model logits", f.Name(), shape.Architecture)
	}
	team := kernels.NewTeam(runtime.GOMAXPROCS(0))
	defer team.Close()
	m, err := model.Load(f, set, team, model.Options{ContextTokens: len(ids), BatchTokensMax: len(ids)})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	pages := make([]int32, m.Options().Pages)
	for i := range pages {
		pages[i] = int32(i)
	}
	pool := m.NewPooler()
	pool.Add(m.Forward([]model.Chunk{{Tokens: ids, Pages: pages, Logits: pool.Rows(0, len(ids), true)}}))
	return pool.Vector(), nil
}
