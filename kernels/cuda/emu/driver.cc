/* A CUDA driver without a GPU: the part of the driver API that Forebay uses, over
 * the fibers of block.cc. Device memory is host memory whose end is the end of a
 * page that may not be touched; it begins as NaN.
 *
 * Work in a stream runs when it is given (FOREBAY_EMU_STREAM=eager) or when
 * somebody waits for it (late, the default), so that a wait that is missing
 * shows. FOREBAY_EMU_FAULT=KERNEL makes that kernel fault, as a bad address
 * would; while the file that FOREBAY_EMU_FAULT_FILE names has a kernel's name, the
 * next launch of that kernel faults, and the file is removed. After a fault every
 * call returns it, as a driver does. */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "../../../internal/cudrv/include/v1/cuda.h"
#include "block.h"
#include "emu.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

typedef std::function<CUresult()> Work;

struct Module { std::map<std::string, std::vector<int>> entries; };
struct Function {
	const emu::Kernel *kernel;
	int shared_max;
};
struct Stream {
	bool capturing, broken;
	std::vector<Work> captured;
};
struct Event { int64_t at; };
struct Graph { std::vector<Work> work; };

std::recursive_mutex lock;
CUresult sticky = CUDA_SUCCESS;
std::deque<Work> waiting; /* of all streams, in the order in which it was given */
struct Allocation {
	char *mapped;
	size_t bytes, mapped_bytes;
};
std::map<CUdeviceptr, Allocation> allocations;
std::map<void *, size_t> pinned;
size_t used;
Stream null_stream;
std::deque<Function> functions;

constexpr size_t memory_bytes = (size_t)8 << 30;
constexpr int shared_default = 48 << 10, shared_most = 227 << 10;

int64_t now() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool is(const char *variable, const char *value) {
	const char *set = getenv(variable);
	return set && !strcmp(set, value);
}

/* Whether this launch of a kernel is to fault. */
bool faults(const char *kernel) {
	if (is("FOREBAY_EMU_FAULT", kernel)) return true;
	const char *path = getenv("FOREBAY_EMU_FAULT_FILE");
	FILE *file = path ? fopen(path, "r") : nullptr;
	if (!file) return false;
	char name[100] = "";
	bool mine = fscanf(file, "%99s", name) == 1 && !strcmp(name, kernel);
	fclose(file);
	return mine && !unlink(path);
}

/* Runs all that waits. */
CUresult settle() {
	while (!waiting.empty() && sticky == CUDA_SUCCESS) {
		Work w = std::move(waiting.front());
		waiting.pop_front();
		if (CUresult r = w()) sticky = r;
	}
	return sticky;
}

Stream *stream_of(CUstream s) { return s ? (Stream *)s : &null_stream; }

/* Puts work into a stream, or into the graph that it captures. */
CUresult give(CUstream s, Work w) {
	if (sticky) return sticky;
	Stream *stream = stream_of(s);
	if (stream->capturing) {
		stream->captured.push_back(std::move(w));
		return CUDA_SUCCESS;
	}
	waiting.push_back(std::move(w));
	return is("FOREBAY_EMU_STREAM", "eager") ? settle() : CUDA_SUCCESS;
}

/* Every call that waits for the device is an error while a stream captures. */
Stream *capturing;
CUresult wait_for_all() {
	if (capturing) {
		capturing->broken = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return settle();
}

size_t page_bytes() { return sysconf(_SC_PAGESIZE); }

bool within(CUdeviceptr p, size_t n) {
	auto it = allocations.upper_bound(p);
	if (it == allocations.begin()) return false;
	--it;
	return p + n <= it->first + it->second.bytes;
}

CUresult check_range(CUdeviceptr p, size_t n) { return n == 0 || within(p, n) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

struct Launch {
	const emu::Kernel *kernel;
	int grid[3], threads;
	size_t shared;
	std::vector<char> parameters;

	CUresult operator()() const {
		const char *order = getenv("FOREBAY_EMU_ORDER");
		emu::Order how = !order || !strcmp(order, "forward") ? emu::forward : !strcmp(order, "reverse") ? emu::reverse : emu::random_order;
		if (faults(kernel->name)) {
			fprintf(stderr, "emulated driver: kernel %s: a fault that was asked for\n", kernel->name);
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		}
		int block[3];
		for (block[2] = 0; block[2] < grid[2]; block[2]++)
			for (block[1] = 0; block[1] < grid[1]; block[1]++)
				for (block[0] = 0; block[0] < grid[0]; block[0]++) {
					emu::Fault f = emu::run_block(kernel, parameters.data(), block, threads, shared, how);
					if (f.code) {
						fprintf(stderr, "emulated driver: %s\n", f.message);
						return (CUresult)f.code;
					}
				}
		return CUDA_SUCCESS;
	}
};

size_t parameter_bytes(const emu::Kernel *k) {
	size_t end = 0;
	for (const int *size = k->sizes; *size; size++) end = (end + *size - 1) / *size * *size + *size;
	return end;
}

/* The entries of a PTX text, each with the sizes of its parameters. */
std::map<std::string, std::vector<int>> entries_of(const char *ptx) {
	std::map<std::string, std::vector<int>> found;
	for (const char *at = ptx; (at = strstr(at, ".entry "));) {
		at += 7;
		const char *open = at + strcspn(at, "( \n"), *end = strchr(at, ')');
		if (!end) break;
		std::vector<int> sizes;
		for (const char *p = at; (p = strstr(p, ".param .")) && p < end;) {
			p += 8;
			int bits = atoi(p + strcspn(p, "0123456789"));
			sizes.push_back(bits / 8);
		}
		found[std::string(at, open)] = sizes;
		at = end;
	}
	return found;
}

} // namespace

#define LOCKED std::lock_guard<std::recursive_mutex> hold(lock)
#define LIVE         \
	LOCKED;            \
	if (sticky) return sticky

API CUresult cuInit(unsigned) { return is("FOREBAY_EMU_DEVICES", "0") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }
API CUresult cuDriverGetVersion(int *v) { return *v = CUDA_VERSION, CUDA_SUCCESS; }
API CUresult cuDeviceGetCount(int *n) { return *n = 1, CUDA_SUCCESS; }
API CUresult cuDeviceGet(CUdevice *d, int i) { return i == 0 ? *d = 0, CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
API CUresult cuDeviceGetName(char *name, int n, CUdevice) { return snprintf(name, n, "Emulated GPU"), CUDA_SUCCESS; }
API CUresult cuDeviceGetUuid(CUuuid *u, CUdevice) { return memset(u, 0, sizeof *u), CUDA_SUCCESS; }
API CUresult cuDeviceTotalMem(size_t *n, CUdevice) { return *n = memory_bytes, CUDA_SUCCESS; }
API CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
	switch ((int)a) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = 9; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = 0; break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = 2; break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *v = emu::warp_size; break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = emu::threads_max; break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *v = shared_default; break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = shared_most; break;
	default: *v = 0;
	}
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice) { return *c = (CUcontext)&null_stream, CUDA_SUCCESS; }
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
API CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
API CUresult cuCtxSynchronize() {
	LIVE;
	return wait_for_all();
}

API CUresult cuModuleLoadData(CUmodule *m, const void *image) {
	LIVE;
	auto entries = entries_of((const char *)image);
	if (entries.empty()) return CUDA_ERROR_INVALID_IMAGE;
	for (const emu::Kernel *k = emu::kernels; k; k = k->next) {
		auto it = entries.find(k->name);
		std::vector<int> sizes;
		for (const int *s = k->sizes; *s; s++) sizes.push_back(*s);
		if (it == entries.end() || it->second != sizes) {
			fprintf(stderr, "emulated driver: kernel %s is in the sources, and the PTX has none with its parameters; generate the PTX\n", k->name);
			return CUDA_ERROR_INVALID_PTX;
		}
	}
	*m = (CUmodule) new Module{entries};
	return CUDA_SUCCESS;
}
API CUresult cuModuleUnload(CUmodule m) { return delete (Module *)m, CUDA_SUCCESS; }
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	LIVE;
	if (!((Module *)m)->entries.count(name)) return CUDA_ERROR_NOT_FOUND;
	for (const emu::Kernel *k = emu::kernels; k; k = k->next)
		if (!strcmp(k->name, name)) {
			functions.push_back({k, shared_default});
			*f = (CUfunction)&functions.back();
			return CUDA_SUCCESS;
		}
	fprintf(stderr, "emulated driver: kernel %s is in the PTX and not in the sources\n", name);
	return CUDA_ERROR_NOT_FOUND;
}
API CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction) { return *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? emu::threads_max : 0, CUDA_SUCCESS; }
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
	if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || v > shared_most) return CUDA_ERROR_INVALID_VALUE;
	((Function *)f)->shared_max = v;
	return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	LIVE;
	if (n == 0) return CUDA_ERROR_INVALID_VALUE;
	size_t rounded = (n + 255) / 256 * 256, page = page_bytes();
	size_t mapped = (rounded + page - 1) / page * page + page;
	if (used + rounded > memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
	char *at = (char *)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
	mprotect(at + mapped - page, page, PROT_NONE);
	char *begin = at + mapped - page - rounded;
	if (rounded <= (size_t)64 << 20) memset(begin, 0xff, rounded);
	*p = (CUdeviceptr)begin;
	allocations[*p] = {at, n, mapped};
	used += rounded;
	return CUDA_SUCCESS;
}
API CUresult cuMemFree_v2(CUdeviceptr p) {
	LOCKED;
	auto it = allocations.find(p);
	if (it == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
	if (!sticky) settle();
	munmap(it->second.mapped, it->second.mapped_bytes);
	used -= (it->second.bytes + 255) / 256 * 256;
	allocations.erase(it);
	return CUDA_SUCCESS;
}
API CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
	LIVE;
	*free = memory_bytes - used, *total = memory_bytes;
	return CUDA_SUCCESS;
}
API CUresult cuMemHostAlloc(void **p, size_t n, unsigned) {
	LIVE;
	*p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (*p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
	pinned[*p] = n;
	return CUDA_SUCCESS;
}
API CUresult cuMemFreeHost(void *p) {
	LOCKED;
	auto it = pinned.find(p);
	if (it == pinned.end()) return CUDA_ERROR_INVALID_VALUE;
	munmap(p, it->second);
	pinned.erase(it);
	return CUDA_SUCCESS;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s) {
	LIVE;
	if (CUresult r = check_range(to, n)) return r;
	return give(s, [=] { return memcpy((void *)to, from, n), CUDA_SUCCESS; });
}
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s) {
	LIVE;
	if (CUresult r = check_range(from, n)) return r;
	return give(s, [=] { return memcpy(to, (void *)from, n), CUDA_SUCCESS; });
}
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
	LIVE;
	if (CUresult r = check_range(to, n)) return r;
	if (CUresult r = check_range(from, n)) return r;
	return give(s, [=] { return memmove((void *)to, (void *)from, n), CUDA_SUCCESS; });
}
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) {
	LIVE;
	if (CUresult r = check_range(to, n)) return r;
	if (CUresult r = wait_for_all()) return r;
	return memcpy((void *)to, from, n), CUDA_SUCCESS;
}
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) {
	LIVE;
	if (CUresult r = check_range(from, n)) return r;
	if (CUresult r = wait_for_all()) return r;
	return memcpy(to, (void *)from, n), CUDA_SUCCESS;
}
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream s) {
	LIVE;
	if (CUresult r = check_range(to, n)) return r;
	return give(s, [=] { return memset((void *)to, value, n), CUDA_SUCCESS; });
}

API CUresult cuStreamCreate(CUstream *s, unsigned) { return *s = (CUstream) new Stream{}, CUDA_SUCCESS; }
API CUresult cuStreamDestroy_v2(CUstream s) {
	LOCKED;
	if (!sticky) settle();
	delete (Stream *)s;
	return CUDA_SUCCESS;
}
API CUresult cuStreamSynchronize(CUstream s) {
	LIVE;
	if (stream_of(s)->capturing) return stream_of(s)->broken = true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return settle();
}
API CUresult cuStreamQuery(CUstream) {
	LIVE;
	return settle();
}
API CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode) {
	LIVE;
	if (!s || capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	capturing = stream_of(s);
	capturing->capturing = true, capturing->broken = false;
	capturing->captured.clear();
	return CUDA_SUCCESS;
}
API CUresult cuStreamEndCapture(CUstream s, CUgraph *g) {
	LIVE;
	Stream *stream = stream_of(s);
	if (!stream->capturing) return CUDA_ERROR_ILLEGAL_STATE;
	stream->capturing = false, capturing = nullptr;
	if (stream->broken) return *g = nullptr, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*g = (CUgraph) new Graph{std::move(stream->captured)};
	return CUDA_SUCCESS;
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long) { return *e = (CUgraphExec) new Graph(*(Graph *)g), CUDA_SUCCESS; }
API CUresult cuGraphDestroy(CUgraph g) { return delete (Graph *)g, CUDA_SUCCESS; }
API CUresult cuGraphExecDestroy(CUgraphExec e) {
	LOCKED;
	if (!sticky) settle();
	delete (Graph *)e;
	return CUDA_SUCCESS;
}
API CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n) {
	if (nodes) return CUDA_ERROR_NOT_SUPPORTED;
	return *n = ((Graph *)g)->work.size(), CUDA_SUCCESS;
}
API CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
API CUresult cuGraphLaunch(CUgraphExec e, CUstream s) {
	LIVE;
	for (const Work &w : ((Graph *)e)->work)
		if (CUresult r = give(s, w)) return r;
	return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *e, unsigned) { return *e = (CUevent) new Event{}, CUDA_SUCCESS; }
API CUresult cuEventDestroy_v2(CUevent e) {
	LOCKED;
	if (!sticky) settle();
	delete (Event *)e;
	return CUDA_SUCCESS;
}
API CUresult cuEventRecord(CUevent e, CUstream s) {
	LIVE;
	return give(s, [=] { return ((Event *)e)->at = now(), CUDA_SUCCESS; });
}
API CUresult cuEventSynchronize(CUevent) {
	LIVE;
	return wait_for_all();
}
API CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
	LIVE;
	return *ms = (((Event *)to)->at - ((Event *)from)->at) * 1e-6f, CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, void **parameters, void **extra) {
	LIVE;
	Function *function = (Function *)f;
	if (!gx || !gy || !gz || gx > 0x7fffffff || gy > 65535 || gz > 65535 || !bx || by != 1 || bz != 1 || bx > emu::threads_max || (int)shared > function->shared_max) {
		fprintf(stderr, "emulated driver: kernel %s: a launch of %ux%ux%u blocks of %ux%ux%u threads with %u bytes of shared memory\n", function->kernel->name, gx, gy, gz, bx, by, bz, shared);
		return CUDA_ERROR_INVALID_VALUE;
	}
	const void *buffer = nullptr;
	size_t bytes = 0;
	for (void **e = extra; e && *e != CU_LAUNCH_PARAM_END; e += 2) {
		if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = e[1];
		if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(size_t *)e[1];
	}
	if (parameters || !buffer || bytes != parameter_bytes(function->kernel)) {
		fprintf(stderr, "emulated driver: kernel %s takes %zu bytes of parameters in a buffer; %zu were given\n", function->kernel->name, parameter_bytes(function->kernel), bytes);
		return CUDA_ERROR_INVALID_VALUE;
	}
	return give(s, Launch{function->kernel, {(int)gx, (int)gy, (int)gz}, (int)bx, shared, std::vector<char>((const char *)buffer, (const char *)buffer + bytes)});
}

API CUresult cuGetErrorString(CUresult r, const char **text) {
	switch ((int)r) {
	case CUDA_SUCCESS: *text = "no error"; break;
	case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
	case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "an illegal memory access was encountered"; break;
	case CUDA_ERROR_MISALIGNED_ADDRESS: *text = "misaligned address"; break;
	case CUDA_ERROR_LAUNCH_FAILED: *text = "unspecified launch failure"; break;
	case CUDA_ERROR_INVALID_VALUE: *text = "invalid argument"; break;
	case CUDA_ERROR_NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
	default: *text = "unknown"; return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}
