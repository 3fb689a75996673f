/* Keys and values in pages.
 *
 * A layer has a pool of keys and one of values. A page of a pool has a block for each KV
 * head: the scales of its tokens, where the type has any, and then the numbers, [token]
 * [head_dim]. The sizes are those of the CPU's pools; there, keys lie otherwise. */
#include "batch.h"

#define KV_F32 0
#define KV_F16 1
#define KV_INT8 2
#define KV_BF16 3
#define KV_FP8 4 /* e4m3: four bits of exponent, three of fraction */

/* Whether a key or value of a token has a scale of its own. */
template <int K> DEVICE bool has_scale() { return K == KV_INT8 || K == KV_FP8; }
template <int K> DEVICE int scale_bytes(int page_tokens) { return has_scale<K>() ? 4 * page_tokens : 0; }
template <int K> DEVICE int number_bytes() { return K == KV_F32 ? 4 : K == KV_F16 || K == KV_BF16 ? 2 : 1; }

/* Between a float of e4m3's bits and its number. */
#define FP8_UP 0x1p120f
#define FP8_DOWN 0x1p-120f
#define FP8_MOST 448.0f
DEVICE float fp8_to_float(u32 code) { return bits_to_float((code & 127) << 20 | (code & 128) << 24) * FP8_UP; }
/* The nearest, ties to even, of up to ±FP8_MOST. */
DEVICE u32 float_to_fp8(float x) {
	const u32 bits = float_to_bits(fabsf(x) * FP8_DOWN), code = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
	return (code > 126 ? 126 : code) | (float_to_bits(x) >> 24 & 128);
}

/* Where the block of a sequence's page and KV head begins in a pool. */
DEVICE const u8 *block_of(const u8 *pool, const int *table, int page, int kv_head, int kv_heads, int block_bytes) {
	return pool + ((long long)table[page] * kv_heads + kv_head) * block_bytes;
}

/* Four numbers of a block from number i on, without the scale. */
template <int K> DEVICE Four four_of(const u8 *numbers, int i) {
	Four f;
	if (K == KV_F32) {
		f = load_four((const float *)numbers + i);
	} else if (K == KV_F16) {
		u64 x = load_u64(numbers + 2 * i);
		for (int j = 0; j < 4; j++) f.v[j] = half_to_float((u16)(x >> 16 * j));
	} else if (K == KV_BF16) {
		u64 x = load_u64(numbers + 2 * i);
		for (int j = 0; j < 4; j++) f.v[j] = bfloat_to_float((u16)(x >> 16 * j));
	} else {
		u32 x = load_u32(numbers + i);
		for (int j = 0; j < 4; j++) f.v[j] = K == KV_FP8 ? fp8_to_float(x >> 8 * j) : (float)(s8)(x >> 8 * j);
	}
	return f;
}
template <int K> DEVICE float scale_of(const u8 *block, int slot) { return has_scale<K>() ? ((const float *)block)[slot] : 1.0f; }

/* Norms a head; a thread reads and writes the same numbers. */
DEVICE void norm_head(float *x, int head_dim, const float *weight, float eps, float *room) {
	float squares = 0;
	for (int i = thread(); i < head_dim; i += threads()) squares += x[i] * x[i];
	float by = 1.0f / sqrtf(block_sum(squares, room) / (float)head_dim + eps);
	for (int i = thread(); i < head_dim; i += threads()) x[i] = x[i] * by * weight[i];
}

/* How heads are turned. */
#define TURN_NEIGHBOURS 1 /* pairs are neighbours, not half of the numbers apart */
#define TURN_NORM_LAST 2  /* the norm is after the rotation, not before */

/* Norms and rotates a head of a row's queries or keys, and writes keys and values to their
 * page. Block x is a head: the queries', then the keys', then the values'; block y a row.
 * qkv has [heads+2·kv_heads][head_dim] numbers a row. cos_sin has a row of dims numbers
 * for each position, as package model lays them; dims is 0 where nothing is rotated.
 * Where tempers are given, queries are multiplied with their position's. */
template <int K>
DEVICE void place(float *qkv, int heads, int kv_heads, int head_dim, int page_tokens, int block_bytes, u8 *keys, u8 *values,
	const float *q_norm, const float *k_norm, float eps, const float *cos_sin, int dims, int turn, const float *tempers,
	const Batch *batch) {
	int row = block_y(), head = block_x();
	if (row >= batch->rows) return;
	float *x = qkv + ((long long)row * (heads + 2 * kv_heads) + head) * head_dim;
	float *room = (float *)shared(), *out = room + WARP; /* head_dim numbers */
	bool is_value = head >= heads + kv_heads, is_key = !is_value && head >= heads;
	int position = positions_of(batch)[row];
	const float *norm = is_value ? 0 : is_key ? k_norm : q_norm;
	for (int i = thread(); i < head_dim; i += threads()) out[i] = x[i];
	if (norm && !(turn & TURN_NORM_LAST)) norm_head(out, head_dim, norm, eps, room);
	barrier();
	if (!is_value && dims > 0) {
		const float *angles = cos_sin + (long long)position * dims;
		for (int i = thread(); i < dims / 2; i += threads()) {
			int a = turn & TURN_NEIGHBOURS ? 2 * i : i, b = turn & TURN_NEIGHBOURS ? a + 1 : i + dims / 2;
			float p = out[a], q = out[b], c = angles[a], s = angles[b];
			out[a] = add_rounded(mul_rounded(p, c), -mul_rounded(q, s));
			out[b] = add_rounded(mul_rounded(p, s), mul_rounded(q, c));
		}
		barrier();
	}
	if (norm && turn & TURN_NORM_LAST) norm_head(out, head_dim, norm, eps, room);
	if (!is_key && !is_value) {
		for (int i = thread(); i < head_dim; i += threads()) x[i] = tempers ? mul_rounded(out[i], tempers[position]) : out[i];
		return;
	}
	int kv_head = is_value ? head - heads - kv_heads : head - heads, slot = position % page_tokens;
	const int *table = pages_of(batch) + tables_of(batch)[row];
	u8 *block = (u8 *)block_of(is_value ? values : keys, table, position / page_tokens, kv_head, kv_heads, block_bytes);
	u8 *numbers = block + scale_bytes<K>(page_tokens) + slot * head_dim * number_bytes<K>();
	float per = 0;
	if (has_scale<K>()) {
		const float largest = K == KV_FP8 ? FP8_MOST : 127.0f;
		float most = 0;
		for (int i = thread(); i < head_dim; i += threads()) {
			float size = fabsf(out[i]);
			most = size > most || size != size ? size : most;
		}
		most = block_max(most, room);
		float scale = most / largest;
		if (!(most <= 3.402823466e38f)) scale = bits_to_float(0x7fc00000);
		else if (most < 7.888609052210118e-31f) scale = 0; /* 2^-100: largest divided by it is still finite */
		else per = largest / most;
		if (thread() == 0) ((float *)block)[slot] = scale;
	}
	for (int i = thread(); i < head_dim; i += threads()) {
		if (K == KV_F32) ((float *)numbers)[i] = out[i];
		else if (K == KV_F16) ((u16 *)numbers)[i] = float_to_half(out[i]);
		else if (K == KV_BF16) ((u16 *)numbers)[i] = (u16)bfloat_pair(out[i], 0);
		else if (K == KV_FP8) numbers[i] = (u8)float_to_fp8(out[i] * per);
		else {
			int n = nearest_int(out[i] * per);
			((s8 *)numbers)[i] = (s8)(n > 127 ? 127 : n < -128 ? -128 : n);
		}
	}
}

#define PLACE(name, K)                                                                                                  \
	KERNEL place_##name(float *qkv, int heads, int kv_heads, int head_dim, int page_tokens, int block_bytes, u8 *keys,    \
		u8 *values, const float *q_norm, const float *k_norm, float eps, const float *cos_sin, int dims, int turn,          \
		const float *tempers, const Batch *batch) {                                                                         \
		place<K>(qkv, heads, kv_heads, head_dim, page_tokens, block_bytes, keys, values, q_norm, k_norm, eps, cos_sin,      \
			dims, turn, tempers, batch);                                                                                      \
	}                                                                                                                     \
	REGISTER(place_##name)
PLACE(f32, KV_F32)
PLACE(f16, KV_F16)
PLACE(int8, KV_INT8)
PLACE(bf16, KV_BF16)
PLACE(fp8, KV_FP8)
