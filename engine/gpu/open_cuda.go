//go:build cuda

package gpu

import (
	"errors"
	"fmt"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// Device is a GPU.
type Device struct{ cuda *cuda.Device }

// Open takes a device.
func Open(o Options) (*Device, error) {
	d, err := cuda.Open(o.Driver, o.ID)
	if errors.Is(err, cudrv.ErrNone) {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	if err != nil {
		return nil, err
	}
	return &Device{d}, nil
}

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
	return place(d.cuda, c, w, o)
}

// Close gives the device back, with all that was placed on it.
func (d *Device) Close() error { return d.cuda.Close() }
