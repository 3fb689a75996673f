package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/hub"
	"github.com/forebay-io/forebay/engine/model"
)

// untilInterrupted returns a context that Ctrl-C ends, for commands that end by
// themselves.
func untilInterrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

func runModelPull(c *console, args []string) error {
	set := newFlagSet("model pull REF [--quiet]")
	quiet := set.Bool("quiet", false, "show no progress")
	rest, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return usageError("model pull needs one reference, such as hf:OWNER/REPO:Q4_K_M")
	}
	progress := newPullLine(c.err).show
	if *quiet {
		progress = nil
	}
	ctx, stop := untilInterrupted()
	defer stop()
	m, err := c.pull(ctx, rest[0], progress)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out, m.Path)
	return err
}

// listedModel is one line of model list.
type listedModel struct {
	Ref          string `json:"ref"`
	SizeBytes    int64  `json:"size_bytes"`
	Format       string `json:"format,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	Quantisation string `json:"quantisation,omitempty"`
	Commit       string `json:"commit,omitempty"`
	Path         string `json:"path"`
	Problem      string `json:"problem,omitempty"`
}

func runModelList(c *console, args []string) error {
	set := newFlagSet("model list [--json]")
	asJSON := set.Bool("json", false, "print JSON")
	rest, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError(fmt.Sprintf("%q is not expected here", rest[0]))
	}
	h, err := c.openHub(nil)
	if err != nil {
		return err
	}
	defer h.Close()
	cached, err := h.List()
	if err != nil {
		return err
	}
	models := make([]listedModel, len(cached))
	for i, one := range cached {
		models[i] = describeCached(one)
	}
	if *asJSON {
		encoder := json.NewEncoder(c.out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(models)
	}
	if len(models) == 0 {
		fmt.Fprintln(c.err, "there are no models in the cache; forebay model pull hf:OWNER/REPO gets one")
		return nil
	}
	return printModels(c.out, models)
}

// describeCached reads the model's header. A model that cannot be read is listed
// with the reason.
func describeCached(one hub.Cached) listedModel {
	m := listedModel{Ref: one.Ref.String(), SizeBytes: one.Bytes, Commit: one.Commit, Path: one.Path, Problem: one.Problem}
	if m.Problem != "" {
		return m
	}
	f, err := checkpoint.Open(one.Path)
	if err != nil {
		m.Problem = err.Error()
		return m
	}
	defer f.Close()
	m.Format = "safetensors"
	if v := f.Version(); v > 0 {
		m.Format = fmt.Sprintf("GGUF %d", v)
	}
	if uses := f.TypeUses(); len(uses) > 0 {
		m.Quantisation = uses[0].Type.String()
	}
	cfg, err := model.ReadConfig(f.File)
	if m.Architecture = cfg.Architecture; err != nil {
		m.Problem = err.Error()
	}
	return m
}

func printModels(out io.Writer, models []listedModel) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MODEL\tSIZE\tFORMAT\tARCHITECTURE\tMOSTLY\tPROBLEM")
	for _, m := range models {
		problem := strings.ReplaceAll(m.Problem, "\n", "; ")
		fmt.Fprintln(w, strings.TrimRight(strings.Join([]string{m.Ref, hub.Bytes(m.SizeBytes), m.Format, m.Architecture, m.Quantisation, problem}, "\t"), "\t"))
	}
	return w.Flush()
}

func runModelRemove(c *console, args []string) error {
	set := newFlagSet("model rm REF")
	rest, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return usageError("model rm needs one reference, such as hf:OWNER/REPO:Q4_K_M; forebay model list shows what there is")
	}
	ref, err := hub.ParseRef(rest[0])
	if err != nil {
		return usageError(err.Error())
	}
	h, err := c.openHub(nil)
	if err != nil {
		return err
	}
	defer h.Close()
	removed, err := h.Remove(ref)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "removed %d files of %s, %s freed\n", removed.Files, ref, hub.Bytes(removed.Bytes))
	return err
}
