/* Runs kernels on the CPU, as strictly as a GPU might and more: a thread of a
 * block is a fiber, and the fibers change places where a warp or a block has to
 * meet. Shared memory begins as NaN, a vector at an odd address is a fault, and
 * so are lanes of a warp that meet at different words, or a barrier that part of
 * a block reaches. FOREBAY_EMU_ORDER (forward, reverse, random) says in which order
 * the threads run between two meetings: a missing barrier shows as other bits.
 *
 * It says nothing of speed, of banks, or of races between blocks. */
#ifndef FOREBAY_EMU_H
#define FOREBAY_EMU_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define KERNEL static void
#define DEVICE static inline
#define TABLE(name) static const u16 name[]
#define INFINITE HUGE_VALF

namespace emu {

constexpr int warp_size = 32;
constexpr size_t slot_bytes = 64;

/* What the lanes of a warp give each other. The slots of two meetings in turn
 * keep a fast lane from overwriting what a slow one still reads. */
struct Warp {
	int arrived, size;
	unsigned phase;
	const char *word;
	alignas(16) char slots[2][warp_size][slot_bytes];
};

/* The thread that runs, and its block. */
struct Place {
	int thread, threads, block[3];
	char *shared;
	Warp *warp;
};
extern Place here;

[[noreturn]] void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void meet_block();
/* Gives bytes to the other lanes and takes theirs: slot i is lane i's. word names the
 * operation: all lanes must meet at the same one. The lane that comes last runs last. */
typedef char Slots[warp_size][slot_bytes];
const Slots &exchange(const char *word, const void *mine, size_t bytes, void (*last)(Slots &) = nullptr);

constexpr int misaligned = 716;

template <class T> T load(const void *p) {
	if ((uintptr_t)p % sizeof(T)) fail(misaligned, "a load of %zu bytes at an address that is not a multiple of them", sizeof(T));
	T x;
	memcpy(&x, p, sizeof x);
	return x;
}

/* A kernel by name, and how its parameters lie in a launch's buffer. */
struct Kernel {
	const char *name;
	void (*call)(const char *parameters);
	const int *sizes; /* of each parameter, 0 at the end */
	Kernel *next;
};
extern Kernel *kernels;

template <class F> struct Signature;
template <class... P> struct Signature<void (*)(P...)> {
	static constexpr int sizes[] = {(int)sizeof(P)..., 0};
	template <size_t... I> static void call(void (*kernel)(P...), const char *parameters, std::index_sequence<I...>) {
		size_t at[sizeof...(P) + 1], end = 0;
		for (size_t i = 0; i < sizeof...(P); i++) { /* each is aligned to its size */
			end = (end + sizes[i] - 1) / sizes[i] * sizes[i];
			at[i] = end;
			end += sizes[i];
		}
		std::tuple<P...> values;
		(memcpy(&std::get<I>(values), parameters + at[I], sizeof(P)), ...);
		kernel(std::get<I>(values)...);
	}
	static constexpr auto all = std::index_sequence_for<P...>{};
};

} // namespace emu

#define REGISTER(kernel)                                                               \
	namespace {                                                                          \
	struct Register_##kernel {                                                           \
		using Of = emu::Signature<decltype(&kernel)>;                                      \
		static void call(const char *parameters) { Of::call(&kernel, parameters, Of::all); } \
		emu::Kernel entry = {#kernel, call, Of::sizes, emu::kernels};                      \
		Register_##kernel() { emu::kernels = &entry; }                                     \
	} register_##kernel;                                                                 \
	}

DEVICE int thread() { return emu::here.thread; }
DEVICE int threads() { return emu::here.threads; }
DEVICE int block_x() { return emu::here.block[0]; }
DEVICE int block_y() { return emu::here.block[1]; }
DEVICE int block_z() { return emu::here.block[2]; }
DEVICE char *shared() { return emu::here.shared; }
static inline void barrier() { emu::meet_block(); }

template <class T> static inline T emu_shuffle_xor(T x, int mask) {
	const emu::Slots &slots = emu::exchange("shuffle_xor", &x, sizeof x);
	T y;
	memcpy(&y, slots[(thread() % emu::warp_size) ^ mask], sizeof y);
	return y;
}
DEVICE float shuffle_xor(float x, int mask) { return emu_shuffle_xor(x, mask); }
DEVICE int shuffle_xor(int x, int mask) { return emu_shuffle_xor(x, mask); }

/* The sums over the lanes of N numbers, added as the tree of shuffles adds them. */
template <int N> static void emu_sum(emu::Slots &slots) {
	float x[emu::warp_size][N];
	for (int i = 0; i < emu::warp_size; i++) memcpy(x[i], slots[i], sizeof x[i]);
	for (int mask = emu::warp_size / 2; mask > 0; mask /= 2)
		for (int i = 0; i < mask; i++)
			for (int n = 0; n < N; n++) x[i][n] += x[i + mask][n];
	memcpy(slots[0], x[0], sizeof x[0]);
}
template <int N> static inline void warp_sums(float *x) {
	static_assert(N * sizeof *x <= emu::slot_bytes, "a slot holds 16 numbers");
	memcpy(x, emu::exchange("warp_sums", x, N * sizeof *x, emu_sum<N>)[0], N * sizeof *x);
}

DEVICE float bits_to_float(u32 bits) {
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}
DEVICE u32 float_to_bits(float x) {
	u32 bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}
DEVICE int nearest_int(float x) { return x != x ? 0 : (int)std::fmax(-2147483648.0f, std::fmin(2147483520.0f, std::nearbyint(x))); }

DEVICE float half_to_float(u16 h) {
	u32 sign = (u32)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
	if (exponent == 0) return bits_to_float(sign | float_to_bits((float)fraction * 0x1p-24f));
	if (exponent == 31) return bits_to_float(sign | 0x7f800000 | fraction << 13);
	return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
}
DEVICE u16 nearest_half(float x) {
	u32 bits = float_to_bits(x), size = bits & 0x7fffffff;
	u16 sign = bits >> 16 & 0x8000;
	if (size > 0x7f800000) return sign | 0x7fff;
	if (size >= 0x477ff000) return sign | 0x7c00;
	if (size < 0x38800000) return sign | (u16)std::nearbyint(bits_to_float(size) * 0x1p24f);
	size += 0xfff + (size >> 13 & 1);
	return sign | (u16)((size - 0x38000000) >> 13);
}

struct Four { float v[4]; };
DEVICE Four load_four(const float *p) {
	struct alignas(16) Aligned { float v[4]; };
	Aligned x = emu::load<Aligned>(p);
	return {{x.v[0], x.v[1], x.v[2], x.v[3]}};
}
struct Words { u32 w[4]; };
DEVICE Words load_words(const u32 *p) {
	struct alignas(16) Aligned { u32 w[4]; };
	Aligned x = emu::load<Aligned>(p);
	return {{x.w[0], x.w[1], x.w[2], x.w[3]}};
}
DEVICE void store_words(u32 *p, const Words &x) {
	if ((uintptr_t)p % sizeof x) emu::fail(emu::misaligned, "a store of %zu bytes at an address that is not a multiple of them", sizeof x);
	memcpy(p, &x, sizeof x);
}
DEVICE u32 load_u32(const void *p) { return emu::load<u32>(p); }
DEVICE u64 load_u64(const void *p) { return emu::load<u64>(p); }
DEVICE u16 load_u16(const void *p) { return emu::load<u16>(p); }

DEVICE u32 bfloat_bits(float x) {
	u32 bits = float_to_bits(x);
	if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
	return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
DEVICE u32 bfloat_pair(float a, float b) { return bfloat_bits(a) | bfloat_bits(b) << 16; }

/* What a lane gives to the product of two tiles. */
struct EmuTile {
	float c[4];
	u32 a[4], b[2];
};

/* The product, with the fragments of m16n8k16: lane 4·g+t has of A the rows g and g+8 and the
 * columns 2t, 2t+1, 2t+8, 2t+9; of B these as rows, and the column g; of C the rows g and g+8 and
 * the columns 2t and 2t+1. */
static void emu_multiply(emu::Slots &slots) {
	EmuTile lanes[emu::warp_size];
	for (int i = 0; i < emu::warp_size; i++) memcpy(&lanes[i], slots[i], sizeof lanes[i]);
	float a[16][16], b[16][8], c[16][8];
	for (int g = 0; g < 8; g++)
		for (int t = 0; t < 4; t++) {
			const EmuTile &l = lanes[4 * g + t];
			for (int i = 0; i < 4; i++)
				for (int h = 0; h < 2; h++) a[g + i % 2 * 8][2 * t + h + i / 2 * 8] = bits_to_float(l.a[i] >> 16 * h << 16);
			for (int i = 0; i < 2; i++)
				for (int h = 0; h < 2; h++) b[2 * t + h + i * 8][g] = bits_to_float(l.b[i] >> 16 * h << 16);
			for (int i = 0; i < 4; i++) c[g + i / 2 * 8][2 * t + i % 2] = l.c[i];
		}
	for (int row = 0; row < 16; row++)
		for (int k = 0; k < 16; k++)
			for (int column = 0; column < 8; column++) c[row][column] += a[row][k] * b[k][column];
	for (int i = 0; i < emu::warp_size; i++)
		for (int j = 0; j < 4; j++) memcpy(slots[i] + 4 * j, &c[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2], 4);
}
DEVICE void multiply_tile(float *c, const u32 *a, const u32 *b) {
	EmuTile mine;
	memcpy(mine.c, c, sizeof mine.c);
	memcpy(mine.a, a, sizeof mine.a);
	memcpy(mine.b, b, sizeof mine.b);
	memcpy(c, emu::exchange("multiply_tile", &mine, sizeof mine, emu_multiply)[thread() % emu::warp_size], sizeof mine.c);
}

DEVICE void shared_add(u64 *sum, u64 x) { *sum += x; }
DEVICE int shared_add(int *sum, int x) {
	int was = *sum;
	*sum += x;
	return was;
}
DEVICE void shared_min(int *least, int x) { *least = x < *least ? x : *least; }
DEVICE void global_add(u64 *sum, u64 x) { *sum += x; }

DEVICE float add_rounded(float a, float b) { return a + b; }
DEVICE float mul_rounded(float a, float b) { return a * b; }
DEVICE float multiply_add(float a, float b, float c) { return a * b + c; }

#endif
