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
)

// This file keeps what steps cost from one start to the next. The file helps
// and is never needed: what cannot be read is measured again, and what cannot
// be written is a line in the log.

// costFile is the contents.
type costFile struct {
	// Key says what the cost is of: another model, kernel set, type of keys and
	// values, number of threads or processor costs something else.
	Key  string    `json:"key"`
	Cost cost.Cost `json:"cost"`
}

const (
	costFileBytesMax = 4 << 10
	costFileNone     = "none"
	costFileInterval = time.Minute
)

// costKey is what a cost belongs to.
func costKey(p *parts, cfg *Config) string {
	return fmt.Sprintf("%s %s %s %d %s %s", p.info.Digest, p.info.Kernels, cfg.KVType, cfg.Threads, runtime.GOARCH, processor())
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
func parseCost(text []byte, key string) (cost.Cost, error) {
	var f costFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	switch err := d.Decode(&f); {
	case err != nil:
		return cost.Cost{}, err
	case d.More():
		return cost.Cost{}, errors.New("something follows the cost")
	case f.Key != key:
		return cost.Cost{}, fmt.Errorf("it is the cost of %q", f.Key)
	case !f.Cost.Valid() || !f.Cost.Known():
		return cost.Cost{}, fmt.Errorf("the cost %+v is negative or nothing", f.Cost)
	}
	return f.Cost, nil
}

func readCost(path, key string) (cost.Cost, error) {
	f, err := os.Open(path)
	if err != nil {
		return cost.Cost{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, costFileBytesMax))
	if err != nil {
		return cost.Cost{}, err
	}
	return parseCost(text, key)
}

// writeCost replaces the file whole, so that a reader never sees half of one.
func writeCost(path, key string, c cost.Cost) error {
	text, err := json.Marshal(costFile{key, c})
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
	kept      cost.Cost
	failed    bool // and said so
}

// warm learns what steps cost from an earlier run, or from a benchmark.
func (p *parts) warm(cfg *Config) {
	k := &p.keeper
	k.key, k.log = costKey(p, cfg), cfg.Log
	var err error
	if k.path, err = costPath(cfg.CostFile, k.key); err != nil {
		k.log.Info("the cost of steps is kept nowhere: set engine.cost_file", "error", err)
	}
	if k.path != "" {
		c, err := readCost(k.path, k.key)
		if err == nil {
			k.kept = c
			p.fit.Restore(c)
			return
		}
		if !errors.Is(err, os.ErrNotExist) {
			k.log.Info("the file with the cost of steps is not used", "path", k.path, "error", err)
		}
	}
	if !cfg.SelfBenchmarkOff {
		p.selfBenchmark(cfg)
	}
}

// keep writes the cost where it has changed.
func (k *keeper) keep(c cost.Cost) {
	if k.path == "" || c == k.kept || !c.Known() {
		return
	}
	if err := writeCost(k.path, k.key, c); err != nil {
		if !k.failed {
			k.log.Info("the cost of steps cannot be kept", "path", k.path, "error", err)
		}
		k.failed = true
		return
	}
	k.kept, k.failed = c, false
}

// keepCost keeps the cost now and then until the loop ends, and then once more.
func (e *Engine) keepCost() {
	tick := time.NewTicker(costFileInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.parts.keeper.keep(e.State().Cost)
		case <-e.looped:
			e.parts.keeper.keep(e.State().Cost)
			close(e.done)
			return
		}
	}
}
