/* A profiler's library for NVTX: it takes ranges, and writes them to the file that FOREBAY_EMU_NVTX names. It asks for the
 * tables as the libraries of NVIDIA's profilers do (nvtxDetail/nvtxTypes.h of NVTX 3). */
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

typedef void (*Function)();
struct Callbacks {
	size_t size;
	int (*module_table)(int module, Function ***table, unsigned *size);
};

static FILE *ranges;
static int push(const char *name) { return fprintf(ranges, "( %s\n", name), fflush(ranges), 0; }
static int pop() { return fprintf(ranges, ")\n"), fflush(ranges), 0; }

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
	const Callbacks *callbacks = (const Callbacks *)export_table(1);
	const char *path = getenv("FOREBAY_EMU_NVTX");
	if (!path || !callbacks || callbacks->size < sizeof *callbacks || !export_table(3) || export_table(7)) return 0;
	Function **table;
	unsigned size;
	for (int module = 1; module < 7; module++)
		if (!callbacks->module_table(module, &table, &size) || size < 7 || table[0] || !table[1] || table[size]) return 0;
	if (callbacks->module_table(7, &table, &size) || !callbacks->module_table(1, &table, &size) || size != 16) return 0;
	if (!(ranges = fopen(path, "w"))) return 0;
	*table[9] = (Function)push;
	*table[11] = (Function)pop;
	return 1;
}
