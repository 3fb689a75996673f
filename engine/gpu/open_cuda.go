//go:build cuda

package gpu

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/internal/nvml"
	"github.com/forebay-io/forebay/internal/nvtx"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// Device is a GPU.
type Device struct {
	cuda         *cuda.Device
	options      Options
	checkedSteps int // steps left in which every kernel is waited for; they belong to who calls Forward
}

// Open takes a device.
func Open(o Options) (*Device, error) {
	d, err := cuda.Open(o.Driver, o.ID)
	if errors.Is(err, cudrv.ErrNone) {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	if err != nil {
		return nil, err
	}
	return &Device{cuda: d, options: o}, nil
}

// NameRanges has a profiler that was injected into this process see what the steps are.
func NameRanges() error { return nvtx.Open() }

// Info describes the device.
func (d *Device) Info() Info {
	c := d.cuda
	return Info{
		Name: c.Name, ID: c.ID, Capability: fmt.Sprintf("%d.%d", c.Capability[0], c.Capability[1]),
		Driver: fmt.Sprintf("%d.%d", c.Driver/1000, c.Driver%1000/10), MemoryBytes: c.MemoryBytes,
	}
}

// Place implements model.Device.
func (d *Device) Place(c *model.Config, w *model.DeviceWeights, o *model.Options) (model.Placed, error) {
	return place(d, c, w, o)
}

// CheckSteps has the kernels of so many next steps waited for, so that a fault names its kernel.
func (d *Device) CheckSteps(n int) { d.checkedSteps = n }

// Kernels names the arithmetic: it changes with the kernels' sources.
func (d *Device) Kernels() string { return "cuda-" + cuda.Version() }

// PagesRoom is the memory that a share of the device's free memory leaves for keys and values
// beside weights of so many bytes and the buffers of steps.
func (d *Device) PagesRoom(c *model.Config, o *model.Options, weights int, share float64) (int64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.cuda.Bind(); err != nil {
		return 0, err
	}
	free, err := d.cuda.FreeBytes()
	if err != nil {
		return 0, err
	}
	p := newPlaced(d, c, o)
	p.pools = nil
	steps := 0
	p.plan(func(_ *cuda.Address, bytes int) { steps += bytes })
	return int64(share*float64(free)) - int64(weights) - int64(steps), nil
}

// Monitor finds the GPU in NVML, in the library that is named or the driver's. read must not be
// called by two goroutines at once, nor after end.
func (d *Device) Monitor(library string) (read func() nvml.Reading, end func(), err error) {
	m, err := nvml.Open(library, d.cuda.UUID)
	if err != nil {
		return nil, nil, err
	}
	return m.Read, m.Close, nil
}

// Close gives the device back, with all that was placed on it.
func (d *Device) Close() error { return d.cuda.Close() }
