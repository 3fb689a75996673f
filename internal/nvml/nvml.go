//go:build cuda

package nvml

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
//
// typedef struct { unsigned long long total, free, used; } forebay_nvml_memory;
// typedef struct {
// 	void *library, *device;
// 	int (*shutdown)(void);
// 	int (*power)(void *, unsigned *);
// 	int (*memory)(void *, forebay_nvml_memory *);
// 	int (*clock)(void *, int, unsigned *);
// 	int (*temperature)(void *, int, unsigned *);
// 	int (*reasons)(void *, unsigned long long *);
// } forebay_nvml;
//
// /* 0, a result of NVML, or −1 where the library or a function that is needed is not there. */
// static int forebay_nvml_open(forebay_nvml *n, const char *path, const char *uuid) {
// 	n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
// 	if (!n->library) return -1;
// 	int (*init)(void) = (int (*)(void))dlsym(n->library, "nvmlInit_v2");
// 	int (*find)(const char *, void **) = (int (*)(const char *, void **))dlsym(n->library, "nvmlDeviceGetHandleByUUID");
// 	n->shutdown = (int (*)(void))dlsym(n->library, "nvmlShutdown");
// 	n->power = (int (*)(void *, unsigned *))dlsym(n->library, "nvmlDeviceGetPowerUsage");
// 	n->memory = (int (*)(void *, forebay_nvml_memory *))dlsym(n->library, "nvmlDeviceGetMemoryInfo");
// 	n->clock = (int (*)(void *, int, unsigned *))dlsym(n->library, "nvmlDeviceGetClockInfo");
// 	n->temperature = (int (*)(void *, int, unsigned *))dlsym(n->library, "nvmlDeviceGetTemperature");
// 	n->reasons = (int (*)(void *, unsigned long long *))dlsym(n->library, "nvmlDeviceGetCurrentClocksThrottleReasons");
// 	if (!init || !find || !n->shutdown) return -1;
// 	int code = init();
// 	if (code) return code;
// 	if ((code = find(uuid, &n->device))) n->shutdown();
// 	return code;
// }
//
// static void forebay_nvml_read(forebay_nvml *n, unsigned long long *to) {
// 	forebay_nvml_memory memory = {0, 0, 0};
// 	unsigned power = 0, graphics = 0, bus = 0, celsius = 0;
// 	unsigned long long reasons = 0;
// 	if (n->power && n->power(n->device, &power)) power = 0;
// 	if (n->memory && n->memory(n->device, &memory)) memory.used = memory.total = 0;
// 	if (n->clock && n->clock(n->device, 1, &graphics)) graphics = 0; /* the streaming multiprocessors' */
// 	if (n->clock && n->clock(n->device, 2, &bus)) bus = 0;
// 	if (n->temperature && n->temperature(n->device, 0, &celsius)) celsius = 0;
// 	if (n->reasons && n->reasons(n->device, &reasons)) reasons = 0;
// 	to[0] = power, to[1] = memory.used, to[2] = memory.total, to[3] = graphics, to[4] = bus, to[5] = celsius, to[6] = reasons;
// }
//
// static void forebay_nvml_close(forebay_nvml *n) {
// 	n->shutdown();
// 	dlclose(n->library);
// }
import "C"

import (
	"fmt"
	"unsafe"
)

// Device is a GPU whose library is open.
type Device struct{ n C.forebay_nvml }

// Open finds a GPU by its UUID, such as GPU-0123…, in the library at path, or in the driver's
// where path is empty.
func Open(path, uuid string) (*Device, error) {
	if path == "" {
		path = Library
	}
	library, name := C.CString(path), C.CString(uuid)
	defer C.free(unsafe.Pointer(library))
	defer C.free(unsafe.Pointer(name))
	d := new(Device)
	switch code := C.forebay_nvml_open(&d.n, library, name); code {
	case 0:
		return d, nil
	case -1:
		return nil, fmt.Errorf("%s is not there, or is not NVML", path)
	default:
		return nil, fmt.Errorf("%s does not know the GPU %s: error %d", path, uuid, int(code))
	}
}

// Read reads the GPU. It takes up to some milliseconds.
func (d *Device) Read() Reading {
	var x [7]C.ulonglong
	C.forebay_nvml_read(&d.n, &x[0])
	return Reading{uint64(x[0]), uint64(x[1]), uint64(x[2]), uint64(x[3]), uint64(x[4]), uint64(x[5]), uint64(x[6])}
}

// Close closes the library.
func (d *Device) Close() { C.forebay_nvml_close(&d.n) }
