package cli

import (
	"errors"
	"flag"
	"fmt"

	"github.com/forebay-io/forebay/engine/gpu"
	"github.com/forebay-io/forebay/engine/model"
)

// cudaDriverVar is the environment variable with the path of the CUDA driver's library,
// where it is not the machine's own.
const cudaDriverVar = "FOREBAY_CUDA_DRIVER"

// deviceFlags are the flags by which a command chooses what computes.
type deviceFlags struct {
	kind *string
	id   *int
}

func addDeviceFlags(set *flag.FlagSet) deviceFlags {
	return deviceFlags{
		kind: set.String("device", "cpu", "what computes: cpu, cuda (an NVIDIA GPU), or auto (a GPU if there is one)"),
		id:   set.Int("device-id", 0, "which GPU, from 0"),
	}
}

// openDevice is a device that was taken; for the CPU it is empty.
type openDevice struct {
	device model.Device
	name   string
	close  func()
}

// open takes the device that the flags name.
func (f deviceFlags) open(c *console) (openDevice, error) {
	cpu := openDevice{close: func() {}}
	switch *f.kind {
	case "cpu":
		return cpu, nil
	case "cuda", "auto":
	default:
		return cpu, usageError(fmt.Sprintf("--device is %q; give cpu, cuda or auto", *f.kind))
	}
	d, err := gpu.Open(gpu.Options{ID: *f.id, Driver: c.getenv(cudaDriverVar)})
	if *f.kind == "auto" && errors.Is(err, gpu.ErrNone) {
		return cpu, nil
	}
	if err != nil {
		return cpu, fmt.Errorf("--device %s: %w", *f.kind, err)
	}
	i := d.Info()
	return openDevice{device: d, name: fmt.Sprintf("CUDA device %d, %s", i.ID, i.Name), close: func() { _ = d.Close() }}, nil
}
