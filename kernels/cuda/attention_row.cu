/* Attention of one row and KV head, for up to 16 of the query heads that share it: block x is
 * the KV head and the part of its query heads, block y the row, of those that are alone. The
 * four warps have a quarter of a piece's positions each for the scores, and a quarter of the
 * head's numbers for the values.
 *
 * Shared memory: queries, and the scores of two pieces in turn. */
#define ROW_WARPS 4
#define ROW_GROUPS 2       /* of 32 numbers of the head, in a warp: heads have up to 256 */
#define SCORES (PIECE + 8) /* words between the scores of two rows */

struct Sequence {
	const int *table;
	int kv_head, head, n; /* n query heads from head on */
	int begin, to;        /* positions that the row sees */
	u32 *queries;
	float *scores;
};

template <int K> DEVICE bool aim(Sequence &a, ATTEND_PARAMETERS) {
	if (block_y() >= batch->alone) return false;
	const int row = alone_of(batch)[block_y()], group = heads / kv_heads, parts = (group + TILE - 1) / TILE;
	const int first = block_x() % parts * TILE, stride = query_words(head_dim), quads = (head_dim + 15) / 16 * 4;
	a.kv_head = block_x() / parts;
	a.n = group - first < TILE ? group - first : TILE;
	a.head = a.kv_head * group + first;
	a.queries = (u32 *)shared(), a.scores = (float *)(a.queries + TILE * stride);
	a.table = pages_of(batch) + tables_of(batch)[row];
	sight(&a.begin, &a.to, positions_of(batch)[row], window);
	const float *from = qkv + ((long long)row * (heads + 2 * kv_heads) + a.head) * head_dim;
	for (int i = thread(); i < TILE * quads; i += threads()) {
		Four x = {};
		if (i / quads < a.n && i % quads * 4 < head_dim) x = load_four(from + i / quads * head_dim + i % quads * 4);
		store_words(a.queries + i / quads * stride + i % quads * 4, halves_of(x));
	}
	barrier();
	return true;
}

/* The scores of the piece at base, by all warps, into its half of a.scores. */
template <int K> DEVICE void score_piece(const Sequence &a, int base, float *scores, ATTEND_PARAMETERS) {
	const int g = lane() / 4, t = lane() % 4, stride = query_words(head_dim);
	for (int j = warp(); j < PIECE / 8; j += ROW_WARPS) {
		float c[4] = {};
		const int at = base + 8 * j + g, slot = at % page_tokens;
		if (base + 8 * j < a.to && base + 8 * j + 8 > a.begin) {
			const bool seen = at >= a.begin && at < a.to;
			const u8 *block = seen ? block_of(keys, a.table, at / page_tokens, a.kv_head, kv_heads, block_bytes) : 0;
			for (int d = 4 * t; d < (head_dim + 15) / 16 * 16; d += 16) {
				Words k = {};
				if (seen && d < head_dim) k = halves_of(four_of<K>(block + scale_bytes<K>(page_tokens), slot * head_dim + d));
				multiply_keys<K>(c, load_words(a.queries + g * stride + d), load_words(a.queries + (g + 8) * stride + d), k);
			}
		}
		for (int i = 0; i < 2; i++) {
			const int column = 8 * j + 2 * t + i, p = base + column;
			const bool seen = p >= a.begin && p < a.to;
			float by = 1.0f;
			if (has_scale<K>() && seen) by = scale_of<K>(block_of(keys, a.table, p / page_tokens, a.kv_head, kv_heads, block_bytes), p % page_tokens);
			scores[g * SCORES + column] = score_of<K>(c[i], seen, by, scale, cap);
			scores[(g + 8) * SCORES + column] = score_of<K>(c[2 + i], seen, by, scale, cap);
		}
	}
}

/* Four numbers of the values at a position; none where it is not seen. */
template <int K> DEVICE Four value_at(const Sequence &a, int at, int d, ATTEND_PARAMETERS) {
	Four none = {};
	if (at < a.begin || at >= a.to || d >= head_dim) return none;
	const u8 *block = block_of(values, a.table, at / page_tokens, a.kv_head, kv_heads, block_bytes);
	return four_of<K>(block + scale_bytes<K>(page_tokens), at % page_tokens * head_dim + d);
}

/* Adds the piece at base to x and acc. */
template <int K> DEVICE void add_piece(Softmax &x, float (*acc)[4][4], const Sequence &a, int base, ATTEND_PARAMETERS) {
	const int g = lane() / 4, t = lane() % 4;
	float *scores = a.scores + base / PIECE % 2 * TILE * SCORES, s[PIECE / 8][4], by[PIECE / 8][2] = {};
	score_piece<K>(a, base, scores, ATTEND_ARGUMENTS);
	barrier();
#pragma unroll
	for (int j = 0; j < PIECE / 8; j++) {
		for (int i = 0; i < 4; i++) s[j][i] = scores[(g + i / 2 * 8) * SCORES + 8 * j + 2 * t + i % 2];
		for (int i = 0; has_scale<K>() && i < 2; i++) {
			const int p = base + 8 * j + 2 * t + i;
			if (p >= a.begin && p < a.to) by[j][i] = scale_of<K>(block_of(values, a.table, p / page_tokens, a.kv_head, kv_heads, block_bytes), p % page_tokens);
		}
	}
	Weights w;
	weigh<K>(x, w, s, by);
#pragma unroll
	for (int n = 0; n < ROW_GROUPS; n++) {
		const int group = warp() + n * ROW_WARPS, d = 32 * group + 4 * g;
		if (32 * group >= head_dim) break;
		for (int j = 0; j < 4; j++) rescale_tile(acc[n][j], w.rescale);
#pragma unroll
		for (int k = 0; k < PIECE / 16; k++) {
			const int p = base + 16 * k + 2 * t;
			if (base + 16 * k >= a.to || base + 16 * k + 16 <= a.begin) continue;
			Words v[2][2];
			for (int i = 0; i < 2; i++)
				pair_values<K>(v[i], value_at<K>(a, p + 8 * i, d, ATTEND_ARGUMENTS), value_at<K>(a, p + 8 * i + 1, d, ATTEND_ARGUMENTS));
			multiply_values<K>(acc[n], w.upper[k], w.lower[k], v[0], v[1]);
		}
	}
}

/* The split at base, from its first piece that the row sees. */
template <int K> DEVICE void one_split(Softmax &x, float (*acc)[4][4], const Sequence &a, int base, ATTEND_PARAMETERS) {
	clear(x);
	for (int n = 0; n < ROW_GROUPS; n++)
		for (int j = 0; j < 4; j++)
			for (int i = 0; i < 4; i++) acc[n][j][i] = 0;
	const int from = a.begin > base ? a.begin / PIECE * PIECE : base, end = a.to - base < SPLIT ? a.to : base + SPLIT;
#pragma unroll 1
	for (int piece = from; piece < end; piece += PIECE) add_piece<K>(x, acc, a, piece, ATTEND_ARGUMENTS);
}

/* All splits, one after another. */
template <int K> DEVICE void attend(float *out, const float *sinks, ATTEND_PARAMETERS) {
	Sequence a;
	if (!aim<K>(a, ATTEND_ARGUMENTS)) return;
	Softmax all, x;
	float sums[ROW_GROUPS][4][4] = {}, acc[ROW_GROUPS][4][4];
	clear(all);
#pragma unroll 1
	for (int base = a.begin / SPLIT * SPLIT; base < a.to; base += SPLIT) {
		one_split<K>(x, acc, a, base, ATTEND_ARGUMENTS);
		float before[2], by[2];
		add_split(all, x, before, by);
#pragma unroll
		for (int n = 0; n < ROW_GROUPS; n++)
			for (int j = 0; j < 4; j++)
				for (int i = 0; i < 4; i++) sums[n][j][i] = mixed(sums[n][j][i], before[i / 2], acc[n][j][i], by[i / 2]);
	}
	out += ((long long)alone_of(batch)[block_y()] * heads + a.head) * head_dim;
#pragma unroll
	for (int h = 0; h < 2; h++) {
		const int head = lane() / 4 + 8 * h;
		if (head >= a.n) continue;
		const float by = finish(all.top[h], all.sum[h], sinks, a.head + head);
#pragma unroll
		for (int n = 0; n < ROW_GROUPS; n++)
			for (int j = 0; j < 4; j++)
				for (int i = 0; i < 2; i++) {
					const int d = column_of(warp() + n * ROW_WARPS, j, i);
					if (d < head_dim) out[head * head_dim + d] = mul_rounded(sums[n][j][2 * h + i], by);
				}
	}
}

/* One split: block z is its number, from the first that the row sees. A row has room for
 * splits of them: for each head top, sum, and the numbers. */
template <int K> DEVICE void attend_splits(float *partial, int splits, ATTEND_PARAMETERS) {
	Sequence a;
	if (!aim<K>(a, ATTEND_ARGUMENTS)) return;
	const int base = (a.begin / SPLIT + block_z()) * SPLIT;
	if (base >= a.to) return;
	Softmax x;
	float acc[ROW_GROUPS][4][4];
	one_split<K>(x, acc, a, base, ATTEND_ARGUMENTS);
	partial += (((long long)block_y() * splits + block_z()) * heads + a.head) * (head_dim + 2);
#pragma unroll
	for (int h = 0; h < 2; h++) {
		const int head = lane() / 4 + 8 * h;
		if (head >= a.n) continue;
		float *to = partial + head * (head_dim + 2);
		if (thread() < WARP && lane() % 4 == 0) to[0] = x.top[h], to[1] = x.sum[h];
#pragma unroll
		for (int n = 0; n < ROW_GROUPS; n++)
			for (int j = 0; j < 4; j++)
				for (int i = 0; i < 2; i++) {
					const int d = column_of(warp() + n * ROW_WARPS, j, i);
					if (d < head_dim) to[2 + d] = acc[n][j][2 * h + i];
				}
	}
}

/* Adds the splits of a row and head, as attend does: block x is the head. */
KERNEL attend_merge(float *out, const float *partial, int splits, int heads, int head_dim, int window, const float *sinks, const Batch *batch) {
	if (block_y() >= batch->alone) return;
	const int row = alone_of(batch)[block_y()], head = block_x();
	int begin, to;
	sight(&begin, &to, positions_of(batch)[row], window);
	const int count = (to - 1) / SPLIT - begin / SPLIT + 1;
	for (int d = thread(); d < head_dim; d += threads()) {
		float top = -INFINITE, sum = 0, acc = 0;
		for (int z = 0; z < count; z++) {
			const float *x = partial + (((long long)block_y() * splits + z) * heads + head) * (head_dim + 2);
			float now = larger(top, x[0]), before = faded(top, now), by = faded(x[0], now);
			sum = mixed(sum, before, x[1], by), acc = mixed(acc, before, x[2 + d], by), top = now;
		}
		out[((long long)row * heads + head) * head_dim + d] = mul_rounded(acc, finish(top, sum, sinks, head));
	}
}
REGISTER(attend_merge)

#define ATTEND(name, K)                                                                                          \
	KERNEL attend_##name(float *out, const float *sinks, ATTEND_PARAMETERS) {                                      \
		attend<K>(out, sinks, ATTEND_ARGUMENTS);                                                                     \
	}                                                                                                              \
	REGISTER(attend_##name)                                                                                        \
	KERNEL attend_splits_##name(float *partial, int splits, ATTEND_PARAMETERS) {                                   \
		attend_splits<K>(partial, splits, ATTEND_ARGUMENTS);                                                         \
	}                                                                                                              \
	REGISTER(attend_splits_##name)
ATTEND(f32, KV_F32)
ATTEND(f16, KV_F16)
ATTEND(int8, KV_INT8)
ATTEND(bf16, KV_BF16)
ATTEND(fp8, KV_FP8)
