/* A block of threads, run to its end. */
#ifndef FOREBAY_EMU_BLOCK_H
#define FOREBAY_EMU_BLOCK_H

#include <cstddef>

namespace emu {

struct Kernel;

constexpr int threads_max = 1024;
constexpr int launch_failed = 719;

enum Order { forward, reverse, random_order };

/* Why a block could not run to its end; code 0 means that it did. */
struct Fault {
	int code;
	char message[400];
};

Fault run_block(const Kernel *, const char *parameters, const int block[3], int threads, size_t shared_bytes, Order);

} // namespace emu

#endif
