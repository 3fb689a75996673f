package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gpu"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// DeviceConfig says what computes.
type DeviceConfig struct {
	Kind         string        `yaml:"kind" default:"cpu" oneof:"cpu cuda auto" help:"What computes: cpu; cuda, an NVIDIA GPU, which needs a binary that was built with CUDA; or auto, a GPU if there is one that computes the model."`
	ID           int           `yaml:"id" range:"..1023" help:"Which GPU, from 0."`
	Driver       string        `yaml:"driver" help:"Library of the CUDA driver; empty takes what FOREBAY_CUDA_DRIVER names, or the machine's own."`
	MemoryShare  float64       `yaml:"memory_share" default:"0.9" range:"0.05..1" help:"Share of the GPU's free memory that the engine takes where engine.kv_bytes is 0: what weights and steps leave of it holds keys and values."`
	SwapBytes    int64         `yaml:"swap_bytes" default:"2GiB" range:"1..1024TiB" help:"On a GPU, memory of this machine for keys and values that leave the GPU's: they are copied back where that takes less time than computing them. It is taken as it is needed. With engine.disk_cache they go to the disk instead. Less than a page, such as 1, keeps none."`
	NVML         string        `yaml:"nvml" help:"Library from which power, memory, clocks and temperature of the GPU are read; empty takes the driver's, libnvidia-ml.so.1. Without it they are not in the metrics."`
	ReadingEvery time.Duration `yaml:"reading_every" default:"1s" range:"100ms..1h" help:"How often they are read."`
	TimingEvery  int           `yaml:"timing_every" default:"64" range:"1..1048576" help:"On a GPU, one of so many steps is timed kernel by kernel. It is launched kernel by kernel, with events between them."`
	Checked      bool          `yaml:"checked" help:"On a GPU, wait for every kernel, so that a fault names the kernel that caused it. Several times slower."`
	CheckedSteps int           `yaml:"checked_steps" default:"256" range:"0..1048576" help:"In forebay serve, after a fault of the GPU, the first steps of the next engine in which every kernel is waited for: a fault that comes again names its kernel. 0 is none."`

	// AfterFault says that the engine before this one ended since its GPU failed.
	AfterFault bool `yaml:"-"`
}

// cpuDevice is the device's kind for this machine's processor.
const cpuDevice = "cpu"

// openDevice takes the device that the configuration names, or none for the CPU. Which of them
// is left open by auto: the CPU computes models that the GPU refuses.
func (p *loaded) openDevice(cfg *Config, f *gguf.File) error {
	p.info.Device = cpuDevice
	if cfg.Device.Kind == cpuDevice {
		return nil
	}
	d, err := gpu.Open(gpu.Options{ID: cfg.Device.ID, Driver: cfg.Device.Driver, Checked: cfg.Device.Checked, TimingEvery: cfg.Device.TimingEvery, Loaded: logLoading(cfg.Log)})
	switch {
	case cfg.Device.Kind == "auto" && errors.Is(err, gpu.ErrNone):
		p.info.Device = fmt.Sprintf("%s, since %v", cpuDevice, err)
		cfg.Log.Info("the CPU computes", "why", err)
		return nil
	case err != nil:
		return fmt.Errorf("engine.device.kind is %s: %w", cfg.Device.Kind, err)
	}
	if cfg.Device.Kind == "auto" {
		refusal, err := refusalOf(d, f)
		if err != nil {
			return errors.Join(err, d.Close())
		}
		if refusal != nil {
			p.info.Device = fmt.Sprintf("%s, since %v", cpuDevice, refusal)
			cfg.Log.Info("the CPU computes", "why", refusal)
			return d.Close()
		}
	}
	p.gpu = d
	p.closers = append(p.closers, d.Close)
	p.watchGPU(cfg)
	if err := gpu.NameRanges(); err != nil {
		cfg.Log.Warn("steps have no ranges", "why", err)
	}
	i := d.Info()
	p.info.Device = fmt.Sprintf("CUDA device %d, %s", i.ID, i.Name)
	cfg.Log.Info("a GPU computes", "device", i.ID, "name", i.Name, "compute_capability", i.Capability, "driver", i.Driver, "memory_bytes", i.MemoryBytes)
	return nil
}

// loadingEvery is how often the copying of weights to a device is logged.
const loadingEvery = 5 * time.Second

// logLoading says how far the copying of weights is, where it takes long.
func logLoading(log *slog.Logger) func(done, total int) {
	last := time.Now()
	return func(done, total int) {
		if now := time.Now(); now.Sub(last) >= loadingEvery {
			last = now
			log.Info("weights are copied to the GPU", "bytes", done, "of", total)
		}
	}
}

// refusalOf is why the GPU does not compute a model.
func refusalOf(d *gpu.Device, f *gguf.File) (refusal, err error) {
	c, err := model.ReadConfig(f)
	if err != nil {
		return nil, err
	}
	var types []kernels.Type
	for _, use := range f.TypeUses() {
		types = append(types, use.Type)
	}
	return d.Refusal(&c, types), nil
}

// computes names the arithmetic: the kernel set, or the GPU's kernels.
func (p *loaded) computes() string {
	if p.gpu != nil {
		return p.gpu.Kernels()
	}
	return p.set.Name
}

// cachePages is how many pages the pool has: on a GPU by its memory, where kv_bytes does not
// say it.
func (p *loaded) cachePages(cfg *Config, c *model.Config, f *gguf.File, o model.Options) (int, error) {
	if p.gpu == nil || cfg.KVBytes != 0 {
		contextPages := p.windows.PagesFor(o.ContextTokens, o.PageTokens)
		return cfg.pageCount(contextPages, 1+p.windows.Pages, p.pageBytes)
	}
	weights := 0
	for _, use := range f.TypeUses() {
		weights += use.Bytes
	}
	room, err := p.gpu.PagesRoom(c, &o, weights, cfg.Device.MemoryShare)
	if err != nil {
		return 0, err
	}
	pages := room / int64(p.pageBytes)
	if least := int64((o.ContextTokens-1)/o.PageTokens + 1); pages < least {
		return 0, fmt.Errorf("on the GPU, weights of %d bytes leave %d bytes for keys and values within engine.device.memory_share of %g; one context of %d tokens needs %d pages and there is room for %d: give a shorter engine.context_tokens, a narrower engine.kv_type, or smaller weights by engine.quantize",
			weights, room, cfg.Device.MemoryShare, o.ContextTokens, least, max(0, pages))
	}
	return int(min(pages, pagesMax)), nil
}

// deviceOption is the device as package model takes it.
func (p *loaded) deviceOption() model.Device {
	if p.gpu == nil {
		return nil
	}
	return p.gpu
}

// onFault ends all generations when a device has failed, and tells who runs the engine: only a new
// process can use the device again. It runs deferred in the loop's goroutine.
func (l *loop) onFault(tell func(error)) {
	failure := recover()
	if failure == nil {
		return
	}
	fault, ok := failure.(*model.DeviceFault)
	if !ok || tell == nil {
		panic(failure)
	}
	l.ahead.stop()
	l.inbox.shut(errDeviceFailed(fault), true)
	l.takeArrivals()
	l.supply.disk.abandon()
	l.supply.disk = nil
	l.end()
	tell(fault)
}

// errDeviceFailed is the end of all generations when a device has failed.
func errDeviceFailed(fault *model.DeviceFault) *wire.Error {
	return &wire.Error{
		Kind: wire.DeviceFailed, RetryAfter: time.Second, Kernel: fault.Kernel(),
		Message: fmt.Sprintf("the GPU failed: %v; the engine starts again: try again", fault.Err),
	}
}

// withoutFault runs what computes before there is a loop.
func withoutFault(run func()) (err error) {
	defer func() {
		failure := recover()
		if fault, ok := failure.(*model.DeviceFault); ok {
			err = fault
		} else if failure != nil {
			panic(failure)
		}
	}()
	run()
	return nil
}
