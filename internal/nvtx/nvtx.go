//go:build cuda

package nvtx

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stddef.h>
// #include <stdint.h>
// #include <stdlib.h>
//
// typedef void (*function)(void);
//
// // The places for a library's functions, of which two are called. All modules are there, since a
// // library may expect them.
// enum { MODULES = 7, CORE = 1, PUSH = 9, POP = 11, PLACES = 16 };
// static const unsigned sizes[MODULES] = {0, 16, 9, 15, 7, 16, 7};
// static function functions[MODULES][PLACES];
// static function *tables[MODULES][PLACES + 1]; // a place of each number but 0, and none at the end
//
// static int module_table(int module, function ***table, unsigned *size) {
// 	if (module <= 0 || module >= MODULES) return 0;
// 	if (size) *size = sizes[module];
// 	if (table) *table = tables[module];
// 	return 1;
// }
// static void set_version(uint32_t version) { (void)version; }
//
// static const struct {
// 	size_t size;
// 	int (*module_table)(int, function ***, unsigned *);
// } callbacks = {sizeof callbacks, module_table};
// static const struct {
// 	size_t size;
// 	uint32_t version, reserved;
// 	void (*set_version)(uint32_t);
// } version = {sizeof version, 3, 0, set_version};
//
// static const void *export_table(uint32_t id) { return id == 1 ? (const void *)&callbacks : id == 3 ? &version : NULL; }
//
// // Says why it fails, or returns NULL.
// static const char *attach(const char *path) {
// 	for (int m = 1; m < MODULES; m++)
// 		for (unsigned i = 1; i < sizes[m]; i++) tables[m][i] = &functions[m][i];
// 	void *library = dlopen(path, RTLD_LAZY);
// 	if (!library) return dlerror();
// 	int (*begin)(const void *(*)(uint32_t)) = (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2");
// 	if (!begin) return "it has no InitializeInjectionNvtx2";
// 	if (!begin(export_table)) return "its InitializeInjectionNvtx2 failed";
// 	return NULL;
// }
//
// static int takes_ranges(void) { return functions[CORE][PUSH] && functions[CORE][POP]; }
// static void push(const char *name) { ((int (*)(const char *))functions[CORE][PUSH])(name); }
// static void pop(void) { ((int (*)(void))functions[CORE][POP])(); }
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

const pathVariable = "NVTX_INJECTION64_PATH"

var on bool // fixed by Open

// Open attaches the profiler's library that the environment names. Without one it does nothing.
// It must be called before any range.
var Open = sync.OnceValue(func() error {
	path := os.Getenv(pathVariable)
	if path == "" {
		return nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if failed := C.attach(name); failed != nil {
		return fmt.Errorf("the profiler's library %s, which %s names, is not used: %s", path, pathVariable, C.GoString(failed))
	}
	on = C.takes_ranges() != 0
	return nil
})

// On reports whether a profiler takes ranges.
func On() bool { return on }

// Push begins a range of the calling thread, which its goroutine has locked. Pop ends the one that was begun last.
func Push(name string) {
	if !on {
		return
	}
	c := C.CString(name)
	C.push(c)
	C.free(unsafe.Pointer(c))
}

// Pop ends a range.
func Pop() {
	if on {
		C.pop()
	}
}
