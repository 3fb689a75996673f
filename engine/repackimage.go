package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/repack"
	"github.com/forebay-io/forebay/kernels"
)

// This file keeps packed weights from one start to the next, where the
// configuration names a directory for them. An image only saves time: one that
// cannot be used is packed anew, and one that cannot be written is a line in the
// log.

const (
	// imageBytesMin is the least bytes of weights for an image: fewer are packed
	// in the time that a process takes to start.
	imageBytesMin = 64 << 20
	// imageRest leaves nine tenths of a processor to the requests.
	imageRest = 9
)

// imageKeeper keeps the image of one engine's weights. Without a cache it does
// nothing.
type imageKeeper struct {
	cache    *repack.Cache
	key      string
	bytesMin int
	source   func() (string, error) // computes the key of the files as they are now
	log      *slog.Logger
	written  chan struct{} // closed when the writing has ended; nil where there is none
}

// openImage finds the image of the weights, or nil. Where there is one and it is
// not used, the log says why.
func (p *loaded) openImage(cfg *Config, f *checkpoint.Checkpoint, weights *gguf.File, team *kernels.Team) *repack.Image {
	if cfg.RepackCache == "" || cfg.Model == "" || p.gpu != nil || p.set.Name == "ref" { // a GPU and ref read the file as it is
		return nil
	}
	k := &p.images
	k.log, k.bytesMin = cfg.Log, imageBytesMin
	k.source = func() (string, error) { return imageKey(f.Files(), weights, p.set) }
	var err error
	if k.key, err = k.source(); err != nil {
		k.log.Warn("no repack image is used", "error", err)
		return nil
	}
	k.cache = &repack.Cache{Dir: cfg.RepackCache, BytesMax: cfg.RepackCacheBytesMax, Rest: imageRest}
	im, err := k.cache.Open(k.key)
	if err == nil {
		if err = im.Check(team); err == nil {
			p.closers = append(p.closers, im.Close)
			return im
		}
		_ = im.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("the repack image is not used: the weights are packed anew", "error", err)
	}
	return nil
}

// imageKey identifies the source of packed weights. The digest covers all but the
// contents of the tensors; the status of a file tells whether these have changed.
// Where this program makes the weights, its own file is part of their source.
func imageKey(files []string, weights *gguf.File, set *kernels.Set) (string, error) {
	if slices.ContainsFunc(weights.Tensors, func(t gguf.Tensor) bool { return t.Make != nil }) {
		exe, err := os.Executable()
		if err != nil {
			return "", err
		}
		files = append(slices.Clone(files), exe)
	}
	h := xxh3.New()
	for _, path := range files {
		status, err := fileStatus(path)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintln(h, status)
	}
	return fmt.Sprintf("%s %016x %s %d", weights.Digest(), h.Sum64(), set.Name, kernels.LayoutVersion), nil
}

// keepImage writes the image in the background, until the model is closed.
func (p *loaded) keepImage() {
	m, ok := p.model.(*model.Model)
	if !ok || p.images.cache == nil {
		return
	}
	matrices, reused := m.Packed()
	images := make([]repack.Part, len(matrices))
	bytes := 0
	for i, m := range matrices {
		images[i] = repack.Part(m)
		bytes += len(m.Data)
	}
	k := &p.images
	if reused || bytes < k.bytesMin {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	k.written = done
	p.closers = append(p.closers, func() error { cancel(); <-done; return nil })
	go func(k imageKeeper) { // a copy: the model moves
		defer close(done)
		k.write(ctx, images, bytes)
	}(*k)
}

// write writes the image and logs the result, unless the engine closed or
// another process is writing it.
func (k *imageKeeper) write(ctx context.Context, images []repack.Part, bytes int) {
	began := time.Now()
	key, err := k.source()
	if err == nil && key != k.key {
		err = errors.New("the model's files were changed after they were loaded")
	}
	if err == nil {
		err = k.cache.Write(ctx, key, images)
	}
	switch {
	case err == nil:
		k.log.Info("the repack image for the next start is written", "bytes", bytes, "took", time.Since(began).Round(time.Millisecond))
	case !errors.Is(err, context.Canceled) && !errors.Is(err, repack.ErrBusy):
		k.log.Warn("no repack image is kept: check engine.repack_cache", "error", err)
	}
}
