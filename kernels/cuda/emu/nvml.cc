/* NVML without a GPU: numbers that do not change, for the GPU of driver.cc. */
#include <cstring>

#include "../../../internal/cudrv/include/v1/cuda.h"

#define API extern "C" __attribute__((visibility("default")))

struct Memory { unsigned long long total, free, used; };
constexpr int not_found = 6;

API int nvmlInit_v2() { return 0; }
API int nvmlShutdown() { return 0; }
API int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
	*device = nullptr;
	return strcmp(uuid, "GPU-00000000-0000-0000-0000-000000000000") ? not_found : 0;
}
API int nvmlDeviceGetPowerUsage(void *, unsigned *milliwatts) { return *milliwatts = 123000, 0; }
API int nvmlDeviceGetMemoryInfo(void *, Memory *m) {
	size_t free = 0, total = 0;
	cuMemGetInfo_v2(&free, &total);
	*m = {8ull << 30, free, (8ull << 30) - free};
	return 0;
}
API int nvmlDeviceGetClockInfo(void *, int which, unsigned *mhz) { return *mhz = which == 1 ? 1410 : 2619, 0; }
API int nvmlDeviceGetTemperature(void *, int, unsigned *celsius) { return *celsius = 61, 0; }
API int nvmlDeviceGetCurrentClocksThrottleReasons(void *, unsigned long long *reasons) { return *reasons = 0x24, 0; }
