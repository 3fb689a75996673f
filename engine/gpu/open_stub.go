//go:build !cuda

package gpu

import (
	"fmt"

	"github.com/forebay-io/forebay/engine/model"
)

// Device is a GPU; a binary without CUDA has none.
type Device struct{ model.Device }

var errNotBuilt = fmt.Errorf("%w: this binary was built without CUDA; build with -tags cuda, as docs/gpu.md says", ErrNone)

// Open takes a device.
func Open(Options) (*Device, error) { return nil, errNotBuilt }

// Info describes the device.
func (*Device) Info() Info { return Info{} }

// Close gives the device back.
func (*Device) Close() error { return nil }
