package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/kernels"
)

// This file keeps what steps cost from one start to the next, and which of two products the
// kernels run for many rows. The file helps and is never needed: what cannot be read is
// measured again, and what cannot be written is a line in the log.

// costFile is the contents.
type costFile struct {
	// Key says what the cost is of: another model, kernel set, type of keys and
	// values, number of threads or processor costs something else.
	Key  string    `json:"key"`
	Cost cost.Cost `json:"cost"`
	// ManyRows is the kernel set's way to multiply many rows that was the faster one, where
	// the set has two.
	ManyRows string `json:"many_rows,omitempty"`
}

const (
	costFileBytesMax = 4 << 10
	costFileNone     = "none"
	costFileInterval = time.Minute
)

// costKey is what a cost belongs to.
func costKey(digest, kernelSet string, cfg *Config) string {
	return fmt.Sprintf("%s %s %s %d %s %s", digest, kernelSet, cfg.KVType, cfg.Threads, runtime.GOARCH, processor())
}

// processor is the name of the machine's processor, or "" where nothing says it.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, costFileBytesMax)) // it stands in the first lines
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// costPath is where the cost is kept; "" is nowhere.
func costPath(configured, key string) (string, error) {
	switch configured {
	case costFileNone:
		return "", nil
	case "":
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		return filepath.Join(dir, "forebay", fmt.Sprintf("cost-%016x.json", xxh3.HashString(key))), nil
	}
	return configured, nil
}

// parseCost reads a file's contents. Its error says why they are no cost of key.
func parseCost(text []byte, key string) (costFile, error) {
	var f costFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	switch err := d.Decode(&f); {
	case err != nil:
		return costFile{}, err
	case d.More():
		return costFile{}, errors.New("something follows the cost")
	case f.Key != key:
		return costFile{}, fmt.Errorf("it is the cost of %q", f.Key)
	case !f.Cost.Valid() || !f.Cost.Known():
		return costFile{}, fmt.Errorf("the cost %+v is negative or nothing", f.Cost)
	}
	return f, nil
}

func readCost(path, key string) (costFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return costFile{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, costFileBytesMax))
	if err != nil {
		return costFile{}, err
	}
	return parseCost(text, key)
}

// writeCost replaces the file whole, so that a reader never sees half of one.
func writeCost(path string, c costFile) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".cost-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// keeper keeps the cost of one engine in its file. Without a path it keeps nothing.
type keeper struct {
	path, key string
	log       *slog.Logger
	kept      costFile // what the file holds
	manyRows  string   // what it will hold
	failed    bool     // and said so
}

// open finds the file and reads what an earlier start has kept there.
func (k *keeper) open(configured, key string, log *slog.Logger) {
	k.key, k.log = key, log
	var err error
	if k.path, err = costPath(configured, key); err != nil {
		log.Info("the cost of steps is kept nowhere: set engine.cost_file", "error", err)
	}
	if k.path == "" {
		return
	}
	if k.kept, err = readCost(k.path, key); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Info("the file with the cost of steps is not used", "path", k.path, "error", err)
	}
}

// chooseManyRows decides how the kernel set multiplies many rows with weights of type t where
// it has two ways: as an earlier start has found, else as it measures now. Where nothing may
// be measured it is the way that other processors have too.
func (p *loaded) chooseManyRows(t kernels.Type, measure bool) {
	find := func() *kernels.Set { return p.set.Alternative }
	if measure {
		find = func() *kernels.Set { return p.set.Faster(t) }
	}
	p.set = rememberedSet(p.set, p.keeper.kept.ManyRows, find)
	if p.keeper.manyRows = p.set.ManyRows; p.set.Alternative != nil {
		p.keeper.log.Info("how the kernels multiply many rows", "by", p.set.ManyRows, "not", p.set.Alternative.ManyRows)
	}
}

// rememberedSet is the set or its alternative, whichever multiplies many rows in the way that
// is remembered, or what find gives where that is neither.
func rememberedSet(s *kernels.Set, remembered string, find func() *kernels.Set) *kernels.Set {
	switch {
	case s.Alternative == nil || remembered == s.ManyRows:
		return s
	case remembered == s.Alternative.ManyRows:
		return s.Alternative
	}
	return find()
}

// warm learns what steps cost from an earlier run, or from a benchmark.
func (p *loaded) warm(cfg *Config) {
	switch c := p.keeper.kept.Cost; {
	case c.Known():
		p.fit.Restore(c)
	case !cfg.SelfBenchmarkOff:
		p.selfBenchmark(cfg)
	}
}

// keep writes the cost where it has changed.
func (k *keeper) keep(c cost.Cost) {
	now := costFile{Key: k.key, Cost: c, ManyRows: k.manyRows}
	if k.path == "" || now == k.kept || !c.Known() {
		return
	}
	if err := writeCost(k.path, now); err != nil {
		if !k.failed {
			k.log.Info("the cost of steps cannot be kept", "path", k.path, "error", err)
		}
		k.failed = true
		return
	}
	k.kept, k.failed = now, false
}

// keepCost keeps the cost now and then until the loop ends, and then once more.
func (e *Engine) keepCost() {
	tick := time.NewTicker(costFileInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.loaded.keeper.keep(e.State().Cost)
		case <-e.looped:
			e.loaded.keeper.keep(e.State().Cost)
			close(e.done)
			return
		}
	}
}
