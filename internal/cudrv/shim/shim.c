/* A library of the CUDA driver's names that holds no driver: each name jumps
 * through a slot, and the slots point to the driver once forebay_cuda_open has
 * found it. So a program that links it starts where there is no driver.
 *
 * gorgonia.org/cu calls cuInit when the program starts and ends the program if
 * that fails; here cuInit only answers, and forebay_cuda_open calls the driver's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../include/v1/cuda.h"
#include "shim.h"

static CUresult no_driver(void) { return CUDA_ERROR_NO_DEVICE; }
static CUresult not_exported(void) { return CUDA_ERROR_NOT_FOUND; }

#if defined(__x86_64__)
#define JUMP(name) "\tjmp *forebay_slot_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name)                           \
	"\tadrp x16, forebay_slot_" #name "\n"     \
	"\tldr x16, [x16, :lo12:forebay_slot_" #name "]\n" \
	"\tbr x16\n"
#else
#error "the CUDA part is built for x86-64 and arm64 alone"
#endif

#define X(name)                                                                  \
	__attribute__((visibility("hidden"))) void *forebay_slot_##name = (void *)no_driver; \
	__asm__(".text\n\t.globl " #name "\n\t.type " #name ", %function\n" #name ":\n" JUMP(name));
#include "names.h"
#undef X

static const struct {
	const char *name;
	void **slot;
} slots[] = {
#define X(name) {#name, &forebay_slot_##name},
#include "names.h"
#undef X
};

CUresult cuInit(unsigned int flags) {
	(void)flags;
	return CUDA_SUCCESS;
}

int forebay_cuda_open(const char *path, char *problem, size_t size) {
	void *driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!driver) {
		snprintf(problem, size, "%s", dlerror());
		return FOREBAY_CUDA_NO_LIBRARY;
	}
	CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))dlsym(driver, "cuInit");
	if (!init) {
		snprintf(problem, size, "%s has no function cuInit", path);
		dlclose(driver);
		return FOREBAY_CUDA_NO_LIBRARY;
	}
	CUresult result = init(0);
	if (result != CUDA_SUCCESS) {
		dlclose(driver);
		return result;
	}
	for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
		void *found = dlsym(driver, slots[i].name);
		*slots[i].slot = found ? found : (void *)not_exported;
	}
	return CUDA_SUCCESS;
}
