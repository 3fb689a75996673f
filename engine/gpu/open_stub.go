//go:build !cuda

package gpu

import (
	"fmt"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/nvml"
	"github.com/forebay-io/forebay/kernels"
)

// Device is a GPU; a binary without CUDA has none.
type Device struct{ model.Device }

var errNotBuilt = fmt.Errorf("%w: this binary was built without CUDA; build with -tags cuda, as docs/gpu.md says", ErrNone)

// Open takes a device.
func Open(Options) (*Device, error) { return nil, errNotBuilt }

// NameRanges has a profiler see what the steps are.
func NameRanges() error { return nil }

// Info describes the device.
func (*Device) Info() Info { return Info{} }

// CheckSteps has the kernels of so many next steps waited for.
func (*Device) CheckSteps(int) {}

// Kernels names the arithmetic.
func (*Device) Kernels() string { return "" }

// Refusal says why no GPU computes a model.
func (*Device) Refusal(*model.Config, []kernels.Type) error { return errNotBuilt }

// PagesRoom is the memory for keys and values.
func (*Device) PagesRoom(*model.Config, *model.Options, int, float64) (int64, error) {
	return 0, errNotBuilt
}

// Monitor finds the GPU in NVML.
func (*Device) Monitor(string) (read func() nvml.Reading, end func(), err error) {
	return nil, nil, errNotBuilt
}

// Close gives the device back.
func (*Device) Close() error { return nil }
