/* The vocabulary in which the kernels are written. On a GPU it is CUDA; in the
 * emulator the same words run on the CPU (emu/emu.h). A kernel uses nothing else,
 * so that what the tests run is what the GPU runs. */
#ifndef FOREBAY_DEVICE_H
#define FOREBAY_DEVICE_H

#ifdef FOREBAY_EMULATED
#include "emu/emu.h"
#else

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define REGISTER(kernel)
#define TABLE(name) static __device__ const u16 name[]

DEVICE int thread() { return threadIdx.x; }
DEVICE int threads() { return blockDim.x; }
DEVICE int block_x() { return blockIdx.x; }
DEVICE int block_y() { return blockIdx.y; }
DEVICE int block_z() { return blockIdx.z; }
DEVICE void barrier() { __syncthreads(); }

/* Shared memory of the block, as many bytes as the launch asked for. */
extern __shared__ __align__(16) char shared_memory[];
DEVICE char *shared() { return shared_memory; }

DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
DEVICE int shuffle_xor(int x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

/* The sums over the lanes of a warp of N numbers, each in the order of a tree: the same
 * bits in every lane. */
template <int N> DEVICE void warp_sums(float *x) {
	for (int n = 0; n < N; n++)
		for (int mask = 16; mask > 0; mask /= 2) x[n] += shuffle_xor(x[n], mask);
}

DEVICE float half_to_float(u16 h) {
	float x;
	asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
	return x;
}
DEVICE u16 nearest_half(float x) { /* |x| at most 65504, or NaN */
	u16 h;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
	return h;
}
DEVICE float bits_to_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 float_to_bits(float x) { return __float_as_uint(x); }
DEVICE int nearest_int(float x) { return __float2int_rn(x); }

/* Loads and stores of whole vectors; the address is a multiple of their size. */
struct Four { float v[4]; };
DEVICE Four load_four(const float *p) {
	float4 x = *(const float4 *)p;
	return {{x.x, x.y, x.z, x.w}};
}
struct Words { u32 w[4]; };
DEVICE Words load_words(const u32 *p) {
	uint4 x = *(const uint4 *)p;
	return {{x.x, x.y, x.z, x.w}};
}
DEVICE void store_words(u32 *p, const Words &x) { *(uint4 *)p = make_uint4(x.w[0], x.w[1], x.w[2], x.w[3]); }
DEVICE u32 load_u32(const void *p) { return *(const u32 *)p; }
DEVICE u64 load_u64(const void *p) {
	uint2 x = *(const uint2 *)p;
	return (u64)x.y << 32 | x.x;
}
DEVICE u16 load_u16(const void *p) { return *(const u16 *)p; }

/* The sum and the product that no compiler may fuse. */
DEVICE float add_rounded(float a, float b) { return __fadd_rn(a, b); }
DEVICE float mul_rounded(float a, float b) { return __fmul_rn(a, b); }
/* a·b+c, rounded once; the emulator rounds the product too. */
DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }

/* Two bfloat16, the nearest to a and b, a in the lower half. */
DEVICE u32 bfloat_pair(float a, float b) {
	u32 pair;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
	return pair;
}
/* Adds to a tile of 16 rows and 8 columns the product of 16×16 and 16×8 bfloat16, spread over
 * the lanes of a warp as the instruction m16n8k16 has them. */
DEVICE void multiply_tile(float *c, const u32 *a, const u32 *b) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#define INFINITE __int_as_float(0x7f800000)

/* Sums of whole numbers that threads add to in any order: the same result. A number in shared
 * memory belongs to a block, one elsewhere to all. */
DEVICE void shared_add(u64 *sum, u64 x) { atomicAdd(sum, x); }
DEVICE int shared_add(int *sum, int x) { return atomicAdd(sum, x); } /* what it was */
DEVICE void shared_min(int *least, int x) { atomicMin(least, x); }
DEVICE void global_add(u64 *sum, u64 x) { atomicAdd(sum, x); }
#endif

/* Words that are made of the others. */

#define WARP 32

DEVICE int lane() { return thread() % WARP; }
DEVICE int warp() { return thread() / WARP; }

DEVICE float warp_sum(float x) {
	warp_sums<1>(&x);
	return x;
}
DEVICE float warp_max(float x) {
	for (int mask = WARP / 2; mask > 0; mask /= 2) {
		float y = shuffle_xor(x, mask);
		x = y > x || y != y ? y : x;
	}
	return x;
}

/* The sum over a block, the same bits in every thread. room holds a number for each warp. */
DEVICE float block_sum(float x, float *room) {
	x = warp_sum(x);
	if (lane() == 0) room[warp()] = x;
	barrier();
	float sum = 0;
	for (int i = 0; i < threads() / WARP; i++) sum += room[i];
	barrier();
	return sum;
}
DEVICE float block_max(float x, float *room) {
	x = warp_max(x);
	if (lane() == 0) room[warp()] = x;
	barrier();
	float most = room[0];
	for (int i = 1; i < threads() / WARP; i++) most = room[i] > most || room[i] != room[i] ? room[i] : most;
	barrier();
	return most;
}

/* The nearest half, ties to even; what is beyond ±65504 becomes ±65504, NaN stays NaN. */
DEVICE u16 float_to_half(float x) {
	if (x > 65504.0f) x = 65504.0f;
	if (x < -65504.0f) x = -65504.0f;
	return nearest_half(x);
}
/* Two numbers as two bfloat16 each: their upper halves, and what these lack of the numbers. */
DEVICE void split(u32 *upper, u32 *lower, float a, float b) {
	*upper = bfloat_pair(a, b);
	*lower = bfloat_pair(add_rounded(a, -bits_to_float(*upper << 16)), add_rounded(b, -bits_to_float(*upper & 0xffff0000u)));
}
DEVICE float bfloat_to_float(u16 b) { return bits_to_float((u32)b << 16); }

#endif
