/* Attention over keys and values in pages, with tensor cores.
 *
 * The context is cut into splits of SPLIT positions, and these into pieces of PIECE, that
 * begin at their multiples. A piece is added to its split and a split to those before it, in
 * their order. Within a piece the scores are products in steps of 16 numbers of the head, the
 * weights are relative to the largest score so far, and the values are added in steps of 16
 * positions. What a row does not see has the weight 0 and changes nothing. So a row's bits
 * depend on its own sequence alone: a block may have one row, all of its splits or one of them,
 * or many rows of a prompt.
 *
 * A tile is 16 rows of queries. As in matmul.cu, a number is two bfloat16, and of the four
 * products all but that of the lower halves are added. Lane 4·g+t of a warp has the rows g and
 * g+8 of a tile, and four neighbouring numbers of the head in each step of 16: both factors
 * are taken so, and the order within a step is the instruction's own. */
#include "pages.cu"

#define PIECE 64
#define SPLIT 512
#define TILE 16

/* What a launch is told; all kernels have these in this order. */
#define ATTEND_PARAMETERS                                                                                        \
	const float *qkv, int heads, int kv_heads, int head_dim, int page_tokens, int block_bytes, const u8 *keys,     \
		const u8 *values, int window, float scale, float cap, const Batch *batch
#define ATTEND_ARGUMENTS qkv, heads, kv_heads, head_dim, page_tokens, block_bytes, keys, values, window, scale, cap, batch

/* NaN is the largest. */
DEVICE float larger(float a, float b) { return b > a || b != b ? b : a; }
/* e^(a−top), where a may be −∞, and top too. */
DEVICE float faded(float a, float top) { return a == -INFINITE ? 0 : expf(add_rounded(a, -top)); }
DEVICE float mixed(float a, float by_a, float b, float by_b) { return add_rounded(mul_rounded(a, by_a), mul_rounded(b, by_b)); }

/* Whether numbers of a type have a lower half. An int8 or an e4m3 is a bfloat16. */
template <int K> DEVICE bool has_lower() { return K == KV_F32 || K == KV_F16; }

/* Four numbers: two pairs of upper halves, and two of lower ones. */
DEVICE Words halves_of(const Four &x) {
	Words h;
	split(&h.w[0], &h.w[2], x.v[0], x.v[1]);
	split(&h.w[1], &h.w[3], x.v[2], x.v[3]);
	return h;
}
template <int K> DEVICE void multiply_halves(float *c, const u32 *upper, const u32 *lower, const u32 *b_upper, const u32 *b_lower) {
	multiply_tile(c, upper, b_upper);
	multiply_tile(c, lower, b_upper);
	if (has_lower<K>()) multiply_tile(c, upper, b_lower);
}
/* One step of scores: a and b are the lane's numbers of its rows of the tile, k those of its key. */
template <int K> DEVICE void multiply_keys(float *c, const Words &a, const Words &b, const Words &k) {
	u32 upper[4] = {a.w[0], b.w[0], a.w[1], b.w[1]}, lower[4] = {a.w[2], b.w[2], a.w[3], b.w[3]};
	multiply_halves<K>(c, upper, lower, k.w, k.w + 2);
}
/* One step of values, of four tiles of columns. p and q are the halves of two pairs of
 * positions, each of four numbers of the head, of which every tile has one. */
template <int K> DEVICE void multiply_values(float (*acc)[4], const u32 *upper, const u32 *lower, const Words *p, const Words *q) {
#pragma unroll
	for (int j = 0; j < 4; j++) {
		u32 v_upper[2] = {p[0].w[j], q[0].w[j]}, v_lower[2] = {p[1].w[j], q[1].w[j]};
		multiply_halves<K>(acc[j], upper, lower, v_upper, v_lower);
	}
}
/* The halves of the same four numbers of the values at two positions. */
template <int K> DEVICE void pair_values(Words *both, const Four &a, const Four &b) {
#pragma unroll
	for (int j = 0; j < 4; j++) {
		if (has_lower<K>()) split(&both[0].w[j], &both[1].w[j], a.v[j], b.v[j]);
		else both[0].w[j] = bfloat_pair(a.v[j], b.v[j]), both[1].w[j] = 0;
	}
}

/* Softmax so far of a lane's two rows: the largest score, and the sum of the weights. */
struct Softmax { float top[2], sum[2]; };
DEVICE void clear(Softmax &x) {
	for (int h = 0; h < 2; h++) x.top[h] = -INFINITE, x.sum[h] = 0;
}

/* The weights of a piece, in steps of 16 positions, and what was added before them is
 * multiplied with. */
struct Weights {
	u32 upper[PIECE / 16][4], lower[PIECE / 16][4];
	float rescale[2];
};

/* Makes weights of the scores of a piece, and adds their sums. value_scales are those of the
 * lane's positions, where the type has scales. */
template <int K> DEVICE void weigh(Softmax &x, Weights &w, float (*s)[4], const float (*value_scales)[2]) {
#pragma unroll
	for (int h = 0; h < 2; h++) {
		float most = -INFINITE, sum = 0;
#pragma unroll
		for (int j = 0; j < PIECE / 8; j++) most = larger(larger(most, s[j][2 * h]), s[j][2 * h + 1]);
		for (int mask = 1; mask < 4; mask *= 2) most = larger(most, shuffle_xor(most, mask));
		const float now = larger(x.top[h], most);
		w.rescale[h] = faded(x.top[h], now);
#pragma unroll
		for (int j = 0; j < PIECE / 8; j++)
			for (int i = 0; i < 2; i++) {
				float weight = faded(s[j][2 * h + i], now);
				sum = add_rounded(sum, weight);
				if (has_scale<K>() && weight != 0) weight = mul_rounded(weight, value_scales[j][i]);
				s[j][2 * h + i] = weight;
			}
		for (int mask = 1; mask < 4; mask *= 2) sum = add_rounded(sum, shuffle_xor(sum, mask));
		x.sum[h] = add_rounded(mul_rounded(x.sum[h], w.rescale[h]), sum);
		x.top[h] = now;
	}
#pragma unroll
	for (int j = 0; j < PIECE / 8; j++)
		for (int h = 0; h < 2; h++) split(&w.upper[j / 2][j % 2 * 2 + h], &w.lower[j / 2][j % 2 * 2 + h], s[j][2 * h], s[j][2 * h + 1]);
}

/* Scales and caps a score of a position with this scale of its key; −∞ where it is not seen. */
template <int K> DEVICE float score_of(float product, bool seen, float key_scale, float scale, float cap) {
	if (!seen) return -INFINITE;
	float s = mul_rounded(product, has_scale<K>() ? mul_rounded(scale, key_scale) : scale);
	return cap > 0 ? mul_rounded(cap, tanhf(s / cap)) : s;
}

/* Multiplies a tile with what each row's numbers so far are multiplied with. */
DEVICE void rescale_tile(float *c, const float *by) {
	for (int i = 0; i < 4; i++) c[i] = mul_rounded(c[i], by[i / 2]);
}

/* Adds a split to those before it: gives what both are multiplied with. */
DEVICE void add_split(Softmax &all, const Softmax &x, float *before, float *by) {
#pragma unroll
	for (int h = 0; h < 2; h++) {
		float now = larger(all.top[h], x.top[h]);
		before[h] = faded(all.top[h], now), by[h] = faded(x.top[h], now);
		all.sum[h] = mixed(all.sum[h], before[h], x.sum[h], by[h]);
		all.top[h] = now;
	}
}

/* Counts the sink, one more score without a value, and gives what the values are multiplied
 * with. */
DEVICE float finish(float top, float sum, const float *sinks, int head) {
	float by = 1.0f;
	if (sinks) {
		float now = larger(top, sinks[head]);
		by = faded(top, now);
		sum = add_rounded(mul_rounded(sum, by), faded(sinks[head], now));
	}
	return by / sum;
}

/* Where a row of queries lies in shared memory: the halves of its numbers, four by four. The
 * words between rows keep lanes out of each other's banks. */
DEVICE int query_words(int head_dim) { return (head_dim + 15) / 32 * 32 + 16; }

/* The column of the head that a lane's number i of tile j of a group of 32 columns has. */
DEVICE int column_of(int group, int j, int i) { return 32 * group + 4 * (lane() % 4 * 2 + i % 2) + j; }

/* The first and the last position, and one more, that a row sees: itself and those before it, window in all; where window
 * is negative, those of its own chunk of −window; where it is 0, all. */
DEVICE void sight(int *begin, int *to, int position, int window) {
	*to = position + 1;
	*begin = window < 0 ? position - position % -window : window > 0 && *to > window ? *to - window : 0;
}

#include "attention_row.cu"
#include "attention_prompt.cu"
