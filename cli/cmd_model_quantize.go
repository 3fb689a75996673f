package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/gguf"
)

// runModelQuantize writes a model with weights of another type as one GGUF file.
// It never leaves an incomplete OUT.
func runModelQuantize(c *console, args []string) error {
	set := newFlagSet("model quantize IN OUT --type TYPE [--force]")
	kind := set.String("type", "", "type of the weights: q8_0, q4_0, q4_k or q6_k")
	force := set.Bool("force", false, "replace OUT if it is there")
	paths, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(paths) != 2 || *kind == "" {
		return usageError("model quantize needs IN, OUT and --type")
	}
	ctx, stop := untilInterrupted()
	defer stop()
	path, err := c.modelPath(ctx, paths[0])
	if err != nil {
		return err
	}
	in, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := in.Portable(); err != nil {
		return err
	}
	if err := mayReplace(paths[1], in, *force); err != nil {
		return err
	}
	out, err := in.Quantized(strings.ToLower(*kind))
	if err == nil {
		out, err = out.WithoutPadding()
	}
	if err != nil {
		return err
	}
	written, err := c.writeModel(ctx, paths[1], out, *force)
	if err != nil {
		return err
	}
	note := ""
	if !slices.ContainsFunc(out.Tensors, func(t gguf.Tensor) bool { return t.Make != nil }) {
		note = "; no weights are larger than " + strings.ToLower(*kind) + ", so all stayed as they are"
	}
	_, err = fmt.Fprintf(c.out, "%s: %s, of %s in %s%s\n", paths[1], size(written), size(in.SizeBytes()), in.Name(), note)
	return err
}

// mayReplace refuses to overwrite the input model, and any file without --force.
func mayReplace(path string, in *checkpoint.Checkpoint, force bool) error {
	there, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !there.Mode().IsRegular():
		return fmt.Errorf("%s: is there and is no regular file; name another", path)
	}
	for _, name := range in.Files() {
		if own, err := os.Stat(name); err == nil && os.SameFile(own, there) {
			return fmt.Errorf("%s: is the model that is read; name another file", path)
		}
	}
	if !force {
		return errThere(path)
	}
	return nil
}

// writeModel writes a temporary file beside path and renames it. It removes the
// temporary file if it fails or is interrupted.
func (c *console) writeModel(ctx context.Context, path string, f *gguf.File, replace bool) (written int, err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	defer func() {
		if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
			failed.Path = path // the user knows this name, not the temporary one
		}
	}()
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			temp.Close()
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	counted := &countingWriter{to: temp, ctx: ctx}
	p := c.newProgress(f)
	err = gguf.Write(counted, f, func(t *gguf.Tensor) { p.add(t.Elements()) })
	p.end()
	if err != nil {
		return 0, err
	}
	// Only the owner may read a temporary file; a model gets the usual permissions.
	if err := errors.Join(temp.Chmod(0o644), temp.Sync()); err != nil {
		return 0, err
	}
	if err := temp.Close(); err != nil {
		return 0, err
	}
	return counted.n, place(temp.Name(), path, replace)
}

// place renames temp to path. Without replace it does not overwrite a file that
// has appeared meanwhile, if the file system has hard links.
func place(temp, path string, replace bool) error {
	if !replace {
		switch err := os.Link(temp, path); {
		case err == nil:
			return os.Remove(temp)
		case errors.Is(err, fs.ErrExist):
			return errThere(path)
		}
	}
	return os.Rename(temp, path)
}

func errThere(path string) error {
	return fmt.Errorf("%s: is there already; --force replaces it", path)
}

// countingWriter counts bytes, and fails after ctx has ended.
type countingWriter struct {
	to  io.Writer
	ctx context.Context
	n   int
}

func (w *countingWriter) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, errors.New("interrupted; nothing was written")
	}
	n, err := w.to.Write(b)
	w.n += n
	return n, err
}

// progress shows how much is done, on a terminal only.
type progress struct {
	to          io.Writer
	done, total int
	shown       int // per cent
}

func (c *console) newProgress(f *gguf.File) *progress {
	p := &progress{total: f.Parameters(), shown: -1}
	if file, ok := c.err.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.to = file
	}
	return p
}

func (p *progress) add(n int) {
	p.done += n
	if percent := 100 * p.done / max(1, p.total); p.to != nil && percent != p.shown {
		p.shown = percent
		fmt.Fprintf(p.to, "\r%3d %%", percent)
	}
}

func (p *progress) end() {
	if p.to != nil {
		fmt.Fprint(p.to, "\r     \r")
	}
}
