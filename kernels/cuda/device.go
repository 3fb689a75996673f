//go:build cuda

package cuda

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/forebay-io/forebay/internal/cudrv"
)

//go:embed kernels.ptx.gz
var packedPTX []byte

// Device is one GPU with the kernels loaded, and the stream in which they run.
type Device struct {
	ID          int
	Name        string
	UUID        string // as NVML names it
	Capability  [2]int // compute capability
	MemoryBytes int64
	Driver      int // the CUDA version that the driver has, such as 12040

	device  cu.Device
	context cu.CUContext
	module  cu.Module
	stream  cu.Stream
	kernels map[string]*Kernel
}

// Kernel is a loaded kernel.
type Kernel struct {
	Name   string
	f      cu.Function
	shared int // bytes that its launches may have
}

// capabilityMin is that of the PTX: Ampere.
const capabilityMin = 8

// Open starts the driver at library, or the machine's own where it is empty, and takes device
// number id. The error is cudrv.ErrNone where there is no driver or no device.
func Open(library string, id int) (*Device, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cudrv.Open(library); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, fmt.Errorf("count the CUDA devices: %w", err)
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: the driver has none", cudrv.ErrNone)
	}
	if id < 0 || id >= n {
		return nil, fmt.Errorf("there is no CUDA device %d; this machine has %d, numbered from 0", id, n)
	}
	d := &Device{ID: id, Driver: cu.Version(), kernels: map[string]*Kernel{}}
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("CUDA device %d: %w", id, err), d.Close())
	}
	return d, nil
}

func (d *Device) open() (err error) {
	if d.device, err = cu.GetDevice(d.ID); err != nil {
		return err
	}
	if d.Name, err = d.device.Name(); err != nil {
		return err
	}
	id, err := d.device.UUID()
	if err != nil {
		return err
	}
	d.UUID = "GPU-" + id.String()
	for i, a := range []cu.DeviceAttribute{cu.ComputeCapabilityMajor, cu.ComputeCapabilityMinor} {
		if d.Capability[i], err = d.device.Attribute(a); err != nil {
			return err
		}
	}
	if d.Capability[0] < capabilityMin {
		return fmt.Errorf("%s has compute capability %d.%d; at least %d.0 is needed, which Ampere and later GPUs have", d.Name, d.Capability[0], d.Capability[1], capabilityMin)
	}
	if d.MemoryBytes, err = d.device.TotalMem(); err != nil {
		return err
	}
	if d.context, err = d.device.RetainPrimaryCtx(); err != nil {
		return fmt.Errorf("take the device: %w", err)
	}
	if err := d.Bind(); err != nil {
		return err
	}
	ptx, err := PTX()
	if err != nil {
		return err
	}
	if d.module, err = cu.LoadData(ptx); err != nil {
		return fmt.Errorf("load the kernels (the driver is of CUDA %d.%d; 12.0 is the oldest that can): %w", d.Driver/1000, d.Driver%1000/10, err)
	}
	d.stream, err = cu.MakeStream(cu.NonBlocking)
	return err
}

// PTX is the kernels as the driver compiles them.
func PTX() (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(packedPTX))
	if err != nil {
		return "", fmt.Errorf("unpack the kernels: %w", err)
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

// Version names the kernels: it changes with their sources.
func Version() string {
	ptx, err := PTX()
	if err != nil {
		return ""
	}
	hash, _, _ := strings.Cut(strings.TrimPrefix(ptx, sourcesMark), "\n")
	return hash[:min(len(hash), 12)]
}

// sourcesMark begins the PTX's first line, which has the hash of its sources.
const sourcesMark = "// sources "

// Bind makes the device that of the calling thread, which its goroutine has locked.
func (d *Device) Bind() error {
	if err := cu.SetCurrentContext(d.context); err != nil {
		return fmt.Errorf("use CUDA device %d: %w", d.ID, err)
	}
	return nil
}

// FreeBytes is the memory that nobody uses.
func (d *Device) FreeBytes() (int64, error) {
	free, _, err := cu.MemInfo()
	return free, err
}

// Kernel finds a kernel by its name. sharedBytes is the most that its launches have.
func (d *Device) Kernel(name string, sharedBytes int) (*Kernel, error) {
	k := d.kernels[name]
	if k == nil {
		f, err := d.module.Function(name)
		if err != nil {
			return nil, fmt.Errorf("find kernel %s: %w", name, err)
		}
		k = &Kernel{Name: name, f: f}
		d.kernels[name] = k
	}
	const always = 48 << 10 // what a launch may have without being allowed
	if sharedBytes > max(k.shared, always) {
		if err := cudrv.AllowShared(k.f, sharedBytes); err != nil {
			return nil, fmt.Errorf("%d bytes of shared memory for kernel %s: %w", sharedBytes, name, err)
		}
		k.shared = sharedBytes
	}
	return k, nil
}

// Launch puts a kernel into the device's stream.
func (d *Device) Launch(k *Kernel, grid cudrv.Grid, threads, sharedBytes int, a *Args) error {
	if err := cudrv.Launch(k.f, grid, threads, sharedBytes, d.stream, a.bytes); err != nil {
		return fmt.Errorf("launch kernel %s: %w", k.Name, err) // also where one before it has failed
	}
	return nil
}

// Alloc takes memory of the device until Free.
func (d *Device) Alloc(bytes int) (Address, error) {
	p, err := cu.MemAlloc(int64(max(1, bytes)))
	if err != nil {
		free, _ := d.FreeBytes()
		return 0, fmt.Errorf("%d bytes of the memory of CUDA device %d (%s), of which %d are free: %w", bytes, d.ID, d.Name, free, err)
	}
	return Address(p), nil
}

// Free gives memory back.
func (d *Device) Free(p Address) error { return cu.MemFree(cu.DevicePtr(p)) }

// Put copies host memory to the device, and waits.
func (d *Device) Put(to Address, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return cu.MemcpyHtoD(cu.DevicePtr(to), unsafe.Pointer(unsafe.SliceData(from)), int64(len(from)))
}

// Get copies the device's memory to the host, and waits for what was put into the stream.
func (d *Device) Get(to []byte, from Address) error {
	if err := d.GetLater(to, from); err != nil {
		return err
	}
	return d.Wait()
}

// PutLater copies pinned memory to the device in the order of the stream; from must not change
// before Wait.
func (d *Device) PutLater(to Address, from []byte) error {
	return cu.MemcpyHtoDAsync(cu.DevicePtr(to), unsafe.Pointer(unsafe.SliceData(from)), int64(len(from)), d.stream)
}

// GetLater copies to pinned memory in the order of the stream; it is there after Wait.
func (d *Device) GetLater(to []byte, from Address) error {
	return cu.MemcpyDtoHAsync(unsafe.Pointer(unsafe.SliceData(to)), cu.DevicePtr(from), int64(len(to)), d.stream)
}

// MoveLater copies within the device in the order of the stream.
func (d *Device) MoveLater(to, from Address, bytes int) error {
	return cu.MemcpyDtoDAsync(cu.DevicePtr(to), cu.DevicePtr(from), int64(bytes), d.stream)
}

// Wait waits for all that was put into the stream. Its error may be of any launch before.
func (d *Device) Wait() error { return d.stream.Synchronize() }

// Event is an instant of the stream.
type Event struct{ e cu.Event }

// NewEvent makes an event.
func (d *Device) NewEvent() (Event, error) {
	e, err := cu.MakeEvent(cu.DefaultEvent)
	return Event{e}, err
}

// Mark makes e the instant at which all that was put into the stream before is done.
func (d *Device) Mark(e Event) error { return e.e.Record(d.stream) }

// Wait waits for the instant.
func (e Event) Wait() error { return e.e.Synchronize() }

// Since is the milliseconds from an event to e, after Wait.
func (e Event) Since(from Event) (float64, error) { return from.e.Elapsed(e.e) }

// Close frees the event.
func (e *Event) Close() error { return cu.DestroyEvent(&e.e) }

// Capture makes a graph of the launches of give.
func (d *Device) Capture(give func() error) (*cudrv.Graph, error) {
	return cudrv.Capture(d.stream, give)
}

// Run puts a graph into the stream.
func (d *Device) Run(g *cudrv.Graph) error { return g.Launch(d.stream) }

// Close gives the device back. After a fault it says so again.
func (d *Device) Close() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if d.context == (cu.CUContext{}) {
		return nil
	}
	err := d.Bind()
	if d.stream != (cu.Stream{}) {
		err = errors.Join(err, d.stream.Destroy())
	}
	if d.module != (cu.Module{}) {
		err = errors.Join(err, d.module.Unload())
	}
	d.context = cu.CUContext{}
	return errors.Join(err, d.device.ReleasePrimaryCtx())
}
