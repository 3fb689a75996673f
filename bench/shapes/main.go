// Shapes writes a GGUF file with the sizes of a published model and random weights.
//
//	go run ./bench/shapes [--type q4_k] [--layers N] [--embed N] [--ff N] [--vocab N] SHAPE OUT.gguf
//
// Speed and memory do not depend on the weights' values, so that engines can be compared on
// models that need not be downloaded. A file may be made smaller than the published model:
// keys and values depend on the layers and on the heads of attention, states on those of
// recurrent layers, and neither on the width, the feed-forward layers or the vocabulary.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// types are those that weights may have, by their names on the command line.
var types = map[string]kernels.Type{"q8_0": kernels.Q8_0, "q4_0": kernels.Q4_0, "q4_k": kernels.Q4_K}

func main() {
	typ := flag.String("type", "q4_k", "type of the matrices: q8_0, q4_0 or q4_k")
	layers := flag.Int("layers", 0, "layers; 0 takes the shape's")
	embed := flag.Int("embed", 0, "width; 0 takes the shape's")
	ff := flag.Int("ff", 0, "width of the feed-forward layers or experts; 0 takes the shape's")
	vocab := flag.Int("vocab", 4096, "tokens in the vocabulary, 300 or more")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: shapes [flags] SHAPE OUT.gguf\nSHAPE is one of", strings.Join(slices.Sorted(maps.Keys(shapes)), ", "))
		flag.PrintDefaults()
	}
	flag.Parse()
	s, known := shapes[flag.Arg(0)]
	t, typed := types[*typ]
	if flag.NArg() != 2 || !known || !typed || *vocab < 300 || min(*layers, *embed, *ff) < 0 {
		flag.Usage()
		os.Exit(2)
	}
	s.vocab = *vocab
	for to, n := range map[*int]int{&s.layers: *layers, &s.embed: *embed, &s.ff: *ff} {
		if n > 0 {
			*to = n
		}
	}
	if err := write(flag.Arg(1), flag.Arg(0), &s, t); err != nil {
		fmt.Fprintln(os.Stderr, "shapes:", err)
		os.Exit(1)
	}
}

func write(path, name string, s *shape, t kernels.Type) error {
	f, err := s.file(name, t)
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(gguf.Write(out, f, nil), out.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
