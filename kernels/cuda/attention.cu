/* Keys and values in pages, and attention over them.
 *
 * A layer has a pool of keys and one of values. A page of a pool has a block for each KV
 * head: the scales of its tokens, where the type has any, and then the numbers, [token]
 * [head_dim]. The sizes are those of the CPU's pools; there, keys lie otherwise. */
#include "batch.h"

#define KV_F32 0
#define KV_F16 1
#define KV_INT8 2


template <int K> DEVICE int scale_bytes(int page_tokens) { return K == KV_INT8 ? 4 * page_tokens : 0; }
template <int K> DEVICE int number_bytes() { return K == KV_F32 ? 4 : K == KV_F16 ? 2 : 1; }

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
	} else {
		u32 x = load_u32(numbers + i);
		for (int j = 0; j < 4; j++) f.v[j] = (float)(s8)(x >> 8 * j);
	}
	return f;
}
template <int K> DEVICE float number_of(const u8 *numbers, int i) {
	if (K == KV_F32) return ((const float *)numbers)[i];
	if (K == KV_F16) return half_to_float(((const u16 *)numbers)[i]);
	return (float)((const s8 *)numbers)[i];
}
template <int K> DEVICE float scale_of(const u8 *block, int slot) { return K == KV_INT8 ? ((const float *)block)[slot] : 1.0f; }

/* Norms and rotates a head of a row's queries or keys, and writes keys and values to their
 * page. Block x is a head: the queries', then the keys', then the values'; block y a row.
 * qkv has [heads+2·kv_heads][head_dim] numbers a row. cos_sin has a row of dims numbers
 * for each position, as package model lays them; dims is 0 where nothing is rotated. */
template <int K>
DEVICE void place(float *qkv, int heads, int kv_heads, int head_dim, int page_tokens, int block_bytes, u8 *keys, u8 *values,
	const float *q_norm, const float *k_norm, float eps, const float *cos_sin, int dims, int neighbours, const Batch *batch) {
	int row = block_y(), head = block_x();
	if (row >= batch->rows) return;
	float *x = qkv + ((long long)row * (heads + 2 * kv_heads) + head) * head_dim;
	float *room = (float *)shared(), *out = room + WARP; /* head_dim numbers */
	bool is_value = head >= heads + kv_heads, is_key = !is_value && head >= heads;
	int position = positions_of(batch)[row];
	const float *norm = is_value ? 0 : is_key ? k_norm : q_norm;
	float by = 1.0f;
	if (norm) {
		float squares = 0;
		for (int i = thread(); i < head_dim; i += threads()) squares += x[i] * x[i];
		by = 1.0f / sqrtf(block_sum(squares, room) / (float)head_dim + eps);
	}
	for (int i = thread(); i < head_dim; i += threads()) out[i] = norm ? x[i] * by * norm[i] : x[i];
	barrier();
	if (!is_value && dims > 0) {
		const float *angles = cos_sin + (long long)position * dims;
		for (int i = thread(); i < dims / 2; i += threads()) {
			int a = neighbours ? 2 * i : i, b = neighbours ? a + 1 : i + dims / 2;
			float p = out[a], q = out[b], c = angles[a], s = angles[b];
			out[a] = add_rounded(mul_rounded(p, c), -mul_rounded(q, s));
			out[b] = add_rounded(mul_rounded(p, s), mul_rounded(q, c));
		}
		barrier();
	}
	if (!is_key && !is_value) {
		for (int i = thread(); i < head_dim; i += threads()) x[i] = out[i];
		return;
	}
	int kv_head = is_value ? head - heads - kv_heads : head - heads, slot = position % page_tokens;
	const int *table = pages_of(batch) + tables_of(batch)[row];
	u8 *block = (u8 *)block_of(is_value ? values : keys, table, position / page_tokens, kv_head, kv_heads, block_bytes);
	u8 *numbers = block + scale_bytes<K>(page_tokens) + slot * head_dim * number_bytes<K>();
	float per = 0;
	if (K == KV_INT8) {
		float most = 0;
		for (int i = thread(); i < head_dim; i += threads()) {
			float size = fabsf(out[i]);
			most = size > most || size != size ? size : most;
		}
		most = block_max(most, room);
		float scale = most / 127.0f;
		if (!(most <= 3.402823466e38f)) scale = bits_to_float(0x7fc00000);
		else if (most < 7.888609052210118e-31f) scale = 0; /* 2^-100: 127 divided by it is still finite */
		else per = 127.0f / most;
		if (thread() == 0) ((float *)block)[slot] = scale;
	}
	for (int i = thread(); i < head_dim; i += threads()) {
		if (K == KV_F32) ((float *)numbers)[i] = out[i];
		else if (K == KV_F16) ((u16 *)numbers)[i] = float_to_half(out[i]);
		else {
			int n = nearest_int(out[i] * per);
			((s8 *)numbers)[i] = (s8)(n > 127 ? 127 : n < -128 ? -128 : n);
		}
	}
}

#define PLACE(name, K)                                                                                                  \
	KERNEL place_##name(float *qkv, int heads, int kv_heads, int head_dim, int page_tokens, int block_bytes, u8 *keys,    \
		u8 *values, const float *q_norm, const float *k_norm, float eps, const float *cos_sin, int dims, int neighbours,    \
		const Batch *batch) {                                                                                               \
		place<K>(qkv, heads, kv_heads, head_dim, page_tokens, block_bytes, keys, values, q_norm, k_norm, eps, cos_sin,      \
			dims, neighbours, batch);                                                                                         \
	}                                                                                                                     \
	REGISTER(place_##name)
PLACE(f32, KV_F32)
PLACE(f16, KV_F16)
PLACE(int8, KV_INT8)

/* Attention of one row and KV head, for up to G of the query heads that share it: block x
 * is the KV head and the part of its query heads, block y the row. The context is cut into
 * splits, and these into pieces, that begin at their multiples. A piece is added to its
 * split and a split to those before it, in their order, so a row's bits depend on its own
 * sequence alone: one block may take all splits (attend), or each a block of its own, whose
 * results are merged (attend_splits, attend_merge). Every product and sum that both have is
 * rounded as written.
 *
 * A thread has a position of a piece for the scores, and a number of the head for the values.
 * Shared memory: queries [G][head_dim], weights [G][PIECE], and room. */
#define PIECE 128
#define SPLIT 512

/* What a launch is told; all kernels have these in this order. */
#define ATTEND_PARAMETERS                                                                                        \
	const float *qkv, int heads, int kv_heads, int head_dim, int page_tokens, int block_bytes, const u8 *keys,     \
		const u8 *values, int window, float scale, float cap, const Batch *batch
#define ATTEND_ARGUMENTS qkv, heads, kv_heads, head_dim, page_tokens, block_bytes, keys, values, window, scale, cap, batch

/* Softmax so far, of G query heads: the largest score, the sum of the weights, and the sum of
 * the weighted values, of which a thread has two numbers. */
template <int G> struct Softmax {
	float top[G], sum[G], acc[2][G];
};
template <int G> DEVICE void clear(Softmax<G> &x) {
#pragma unroll
	for (int g = 0; g < G; g++) x.top[g] = -INFINITE, x.sum[g] = x.acc[0][g] = x.acc[1][g] = 0;
}

/* NaN is the largest. */
DEVICE float larger(float a, float b) { return b > a || b != b ? b : a; }
DEVICE float mixed(float a, float by_a, float b, float by_b) { return add_rounded(mul_rounded(a, by_a), mul_rounded(b, by_b)); }

/* One row's part of the work. */
template <int K, int G> struct Attention {
	const int *table;
	int kv_head, head, n; /* n query heads from head on */
	int begin, to;        /* positions that the row sees */
	float *q, *p, *room;
};

template <int K, int G> DEVICE bool aim(Attention<K, G> &a, ATTEND_PARAMETERS) {
	int row = block_y(), group = heads / kv_heads, parts = (group + G - 1) / G;
	if (row >= batch->rows) return false;
	int first = block_x() % parts * G;
	a.kv_head = block_x() / parts;
	a.n = group - first < G ? group - first : G;
	a.head = a.kv_head * group + first;
	a.q = (float *)shared(), a.p = a.q + G * head_dim, a.room = a.p + G * PIECE;
	a.table = pages_of(batch) + tables_of(batch)[row];
	a.to = positions_of(batch)[row] + 1;
	a.begin = window > 0 && a.to > window ? a.to - window : 0;
	const float *from = qkv + ((long long)row * (heads + 2 * kv_heads) + a.head) * head_dim;
	for (int i = thread(); i < a.n * head_dim; i += threads()) a.q[i] = from[i];
	barrier();
	return true;
}

/* The scores of position t, −∞ where the row does not see it. */
template <int K, int G>
DEVICE void score(float *s, const Attention<K, G> &a, int t, ATTEND_PARAMETERS) {
#pragma unroll
	for (int g = 0; g < G; g++) s[g] = 0;
	if (t < a.begin || t >= a.to) {
		for (int g = 0; g < G; g++) s[g] = -INFINITE;
		return;
	}
	int slot = t % page_tokens;
	const u8 *block = block_of(keys, a.table, t / page_tokens, a.kv_head, kv_heads, block_bytes);
	const u8 *numbers = block + scale_bytes<K>(page_tokens);
	for (int d = 0; d < head_dim; d += 4) {
		Four k = four_of<K>(numbers, slot * head_dim + d);
#pragma unroll
		for (int g = 0; g < G; g++)
			if (g < a.n) {
				Four x = load_four(a.q + g * head_dim + d);
				for (int j = 0; j < 4; j++) s[g] = multiply_add(x.v[j], k.v[j], s[g]);
			}
	}
	float by = mul_rounded(scale, scale_of<K>(block, slot));
#pragma unroll
	for (int g = 0; g < G; g++) {
		s[g] = mul_rounded(s[g], by);
		if (cap > 0) s[g] = mul_rounded(cap, tanhf(s[g] / cap));
	}
}

/* Adds the piece at base to x. */
template <int K, int G> DEVICE void add_piece(Softmax<G> &x, const Attention<K, G> &a, int base, ATTEND_PARAMETERS) {
	float s[G], rescale[G] = {};
	score<K, G>(s, a, base + thread(), ATTEND_ARGUMENTS);
#pragma unroll
	for (int g = 0; g < G; g++) {
		if (g >= a.n) break;
		float now = larger(x.top[g], block_max(s[g], a.room));
		float weight = s[g] == -INFINITE ? 0 : expf(add_rounded(s[g], -now));
		rescale[g] = expf(add_rounded(x.top[g], -now));
		x.sum[g] = add_rounded(mul_rounded(x.sum[g], rescale[g]), block_sum(weight, a.room));
		x.top[g] = now;
		a.p[g * PIECE + thread()] = weight;
	}
	barrier();
	int end = a.to - base < PIECE ? a.to - base : PIECE, start = a.begin > base ? a.begin - base : 0;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		int d = thread() + half * PIECE;
		if (d >= head_dim) break;
#pragma unroll
		for (int g = 0; g < G; g++)
			if (g < a.n) x.acc[half][g] = mul_rounded(x.acc[half][g], rescale[g]);
		for (int i = start; i < end; i++) {
			int at = base + i, slot = at % page_tokens;
			const u8 *block = block_of(values, a.table, at / page_tokens, a.kv_head, kv_heads, block_bytes);
			float v = mul_rounded(number_of<K>(block + scale_bytes<K>(page_tokens), slot * head_dim + d), scale_of<K>(block, slot));
#pragma unroll
			for (int g = 0; g < G; g++)
				if (g < a.n) x.acc[half][g] = multiply_add(a.p[g * PIECE + i], v, x.acc[half][g]);
		}
	}
	barrier();
}

/* The split at base, from its first piece that the row sees. */
template <int K, int G> DEVICE void one_split(Softmax<G> &x, const Attention<K, G> &a, int base, ATTEND_PARAMETERS) {
	clear(x);
	int from = a.begin > base ? a.begin / PIECE * PIECE : base, end = a.to - base < SPLIT ? a.to : base + SPLIT;
	for (int piece = from; piece < end; piece += PIECE) add_piece<K, G>(x, a, piece, ATTEND_ARGUMENTS);
}

/* Counts the sink, one more score without a value, and gives what the values are multiplied
 * with. */
DEVICE float finish(float top, float sum, const float *sinks, int head) {
	float by = 1.0f;
	if (sinks) {
		float now = larger(top, sinks[head]);
		by = expf(add_rounded(top, -now));
		sum = add_rounded(mul_rounded(sum, by), expf(add_rounded(sinks[head], -now)));
	}
	return by / sum;
}

/* All splits, one after another. */
template <int K, int G> DEVICE void attend(float *out, const float *sinks, ATTEND_PARAMETERS) {
	Attention<K, G> a;
	if (!aim<K, G>(a, ATTEND_ARGUMENTS)) return;
	Softmax<G> all, x;
	clear(all);
	for (int base = a.begin / SPLIT * SPLIT; base < a.to; base += SPLIT) {
		one_split<K, G>(x, a, base, ATTEND_ARGUMENTS);
#pragma unroll
		for (int g = 0; g < G; g++) {
			float now = larger(all.top[g], x.top[g]), before = expf(add_rounded(all.top[g], -now)), by = expf(add_rounded(x.top[g], -now));
			all.sum[g] = mixed(all.sum[g], before, x.sum[g], by);
			for (int half = 0; half < 2; half++) all.acc[half][g] = mixed(all.acc[half][g], before, x.acc[half][g], by);
			all.top[g] = now;
		}
	}
	out += ((long long)block_y() * heads + a.head) * head_dim;
#pragma unroll
	for (int g = 0; g < G; g++) {
		if (g >= a.n) break;
		float by = finish(all.top[g], all.sum[g], sinks, a.head + g);
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int d = thread() + half * PIECE;
			if (d < head_dim) out[g * head_dim + d] = mul_rounded(all.acc[half][g], by);
		}
	}
}

/* One split: block z is its number, from the first that the row sees. A row has room for
 * splits of them: for each head top, sum, and the numbers. */
template <int K, int G> DEVICE void attend_splits(float *partial, int splits, ATTEND_PARAMETERS) {
	Attention<K, G> a;
	if (!aim<K, G>(a, ATTEND_ARGUMENTS)) return;
	int base = (a.begin / SPLIT + block_z()) * SPLIT;
	if (base >= a.to) return;
	Softmax<G> x;
	one_split<K, G>(x, a, base, ATTEND_ARGUMENTS);
	partial += (((long long)block_y() * splits + block_z()) * heads + a.head) * (head_dim + 2);
#pragma unroll
	for (int g = 0; g < G; g++) {
		if (g >= a.n) break;
		float *to = partial + g * (head_dim + 2);
		if (thread() == 0) to[0] = x.top[g], to[1] = x.sum[g];
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int d = thread() + half * PIECE;
			if (d < head_dim) to[2 + d] = x.acc[half][g];
		}
	}
}

/* Adds the splits of a row and head, as attend does: block x is the head. */
KERNEL attend_merge(float *out, const float *partial, int splits, int heads, int head_dim, int window, const float *sinks, const Batch *batch) {
	int row = block_y(), head = block_x();
	if (row >= batch->rows) return;
	int to = positions_of(batch)[row] + 1, begin = window > 0 && to > window ? to - window : 0;
	int count = (to - 1) / SPLIT - begin / SPLIT + 1;
	for (int d = thread(); d < head_dim; d += threads()) {
		float top = -INFINITE, sum = 0, acc = 0;
		for (int z = 0; z < count; z++) {
			const float *x = partial + (((long long)row * splits + z) * heads + head) * (head_dim + 2);
			float now = larger(top, x[0]), before = expf(add_rounded(top, -now)), by = expf(add_rounded(x[0], -now));
			sum = mixed(sum, before, x[1], by), acc = mixed(acc, before, x[2 + d], by), top = now;
		}
		out[((long long)row * heads + head) * head_dim + d] = mul_rounded(acc, finish(top, sum, sinks, head));
	}
}
REGISTER(attend_merge)

#define ATTEND(name, K, G)                                                                                       \
	KERNEL attend_##name##_##G(float *out, const float *sinks, ATTEND_PARAMETERS) {                                \
		attend<K, G>(out, sinks, ATTEND_ARGUMENTS);                                                                  \
	}                                                                                                              \
	REGISTER(attend_##name##_##G)                                                                                  \
	KERNEL attend_splits_##name##_##G(float *partial, int splits, ATTEND_PARAMETERS) {                             \
		attend_splits<K, G>(partial, splits, ATTEND_ARGUMENTS);                                                      \
	}                                                                                                              \
	REGISTER(attend_splits_##name##_##G)
#define ATTENDS(name, K) ATTEND(name, K, 1) ATTEND(name, K, 4) ATTEND(name, K, 8)
ATTENDS(f32, KV_F32)
ATTENDS(f16, KV_F16)
ATTENDS(int8, KV_INT8)
