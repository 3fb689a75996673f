/* Attention of the tokens of a prompt that follow each other: block x is the KV head and the
 * part of its query heads, block y which of the batch's groups of tokens. A row is a token and
 * a query head, and a warp has a tile of them; keys and values are split once for all warps.
 * A warp has the sums of 128 of the head's numbers: where there are more, half of the warps
 * have the same rows as the other half, and the other numbers.
 *
 * Shared memory: queries, what is staged, the piece's scales, and the sums of the splits
 * before. */
#define PROMPT_WARPS 4
#define PROMPT_GROUPS 4 /* of 32 numbers of the head, in a warp */
#define STAGED 16       /* positions whose keys or values are staged at a time */

/* Words between the values of two pairs of positions. */
DEVICE int value_words(int head_dim) { return (head_dim + 31) / 32 * 32 + 8; }

/* How many warps have rows of their own. */
DEVICE int row_warps(int head_dim) { return head_dim > 32 * PROMPT_GROUPS ? PROMPT_WARPS / 2 : PROMPT_WARPS; }

struct Prompt {
	const int *table;
	int kv_head, head, per; /* per query heads from head on */
	int first, rows;        /* of the batch's rows, and rows of all warps */
	int row, group;         /* the lane's first row, and the warp's first group of numbers */
	int begin, to;          /* positions that any row sees */
	int row_begin[2], row_to[2]; /* and the lane's rows */
	u32 *queries, *staged;
	float *key_scales, *value_scales, *before;
};

DEVICE bool aim_prompt(Prompt &a, ATTEND_PARAMETERS) {
	if (block_y() >= batch->tiles) return false;
	const int most = row_warps(head_dim) * TILE, group = heads / kv_heads, whole = group < most ? group : most, parts = (group + whole - 1) / whole;
	const int part = block_x() % parts * whole, stride = query_words(head_dim), quads = (head_dim + 15) / 16 * 4;
	a.kv_head = block_x() / parts;
	a.per = group - part < whole ? group - part : whole;
	a.head = a.kv_head * group + part;
	a.first = tiles_of(batch)[block_y()], a.rows = tile_tokens_of(batch)[block_y()] * a.per;
	a.table = pages_of(batch) + tables_of(batch)[a.first];
	int unused;
	sight(&a.begin, &unused, positions_of(batch)[a.first], window);
	sight(&unused, &a.to, positions_of(batch)[a.first + tile_tokens_of(batch)[block_y()] - 1], window);
	a.row = warp() % row_warps(head_dim) * TILE + lane() / 4;
	a.group = warp() / row_warps(head_dim) * PROMPT_GROUPS;
	for (int h = 0; h < 2; h++) {
		const int row = a.row + 8 * h;
		a.row_begin[h] = a.row_to[h] = 0;
		if (row < a.rows) sight(&a.row_begin[h], &a.row_to[h], positions_of(batch)[a.first + row / a.per], window);
	}
	a.queries = (u32 *)shared();
	a.staged = a.queries + most * stride;
	a.key_scales = (float *)(a.staged + STAGED * (stride > value_words(head_dim) ? stride : value_words(head_dim)));
	a.value_scales = a.key_scales + PIECE;
	a.before = a.value_scales + PIECE;
#pragma unroll 1
	for (int i = thread(); i < most * quads; i += threads()) {
		const int row = i / quads, d = i % quads * 4;
		Four x = {};
		if (row < a.rows && d < head_dim)
			x = load_four(qkv + ((long long)(a.first + row / a.per) * (heads + 2 * kv_heads) + a.head + row % a.per) * head_dim + d);
		store_words(a.queries + row * stride + d, halves_of(x));
	}
	return true;
}

/* Four numbers at a position of a pool; none where no row sees it. */
template <int K> DEVICE Four four_at(const u8 *pool, const Prompt &a, int at, int d, int head_dim, int kv_heads, int page_tokens, int block_bytes) {
	Four none = {};
	if (at < a.begin || at >= a.to || d >= head_dim) return none;
	return four_of<K>(block_of(pool, a.table, at / page_tokens, a.kv_head, kv_heads, block_bytes) + scale_bytes<K>(page_tokens), at % page_tokens * head_dim + d);
}

/* Halves of keys, a row of words for each position. */
template <int K> DEVICE void stage_keys(const Prompt &a, int base, ATTEND_PARAMETERS) {
	const int stride = query_words(head_dim), quads = (head_dim + 15) / 16 * 4;
	barrier();
#pragma unroll 1
	for (int i = thread(); i < STAGED * quads; i += threads()) {
		const int p = i / quads, d = i % quads * 4;
		store_words(a.staged + p * stride + d, halves_of(four_at<K>(keys, a, base + p, d, head_dim, kv_heads, page_tokens, block_bytes)));
	}
	barrier();
}

/* Halves of the values of pairs of positions: a row of words for the upper ones of each pair,
 * and after all these the lower ones. */
template <int K> DEVICE void stage_values(const Prompt &a, int base, ATTEND_PARAMETERS) {
	const int stride = value_words(head_dim), quads = (head_dim + 31) / 32 * 8, pairs = STAGED / 2;
	barrier();
#pragma unroll 1
	for (int i = thread(); i < pairs * quads; i += threads()) {
		const int p = i / quads, d = i % quads * 4;
		Words both[2];
		pair_values<K>(both, four_at<K>(values, a, base + 2 * p, d, head_dim, kv_heads, page_tokens, block_bytes),
			four_at<K>(values, a, base + 2 * p + 1, d, head_dim, kv_heads, page_tokens, block_bytes));
		store_words(a.staged + p * stride + d, both[0]);
		if (has_lower<K>()) store_words(a.staged + (pairs + p) * stride + d, both[1]);
	}
	barrier();
}

template <int K> DEVICE void stage_scales(const Prompt &a, int base, ATTEND_PARAMETERS) {
#pragma unroll 1
	for (int i = thread(); has_scale<K>() && i < 2 * PIECE; i += threads()) {
		const int p = base + i % PIECE;
		float by = 0;
		if (p >= a.begin && p < a.to) by = scale_of<K>(block_of(i < PIECE ? keys : values, a.table, p / page_tokens, a.kv_head, kv_heads, block_bytes), p % page_tokens);
		a.key_scales[i] = by;
	}
}

/* Adds the piece at base to x and acc. */
template <int K> DEVICE void add_prompt_piece(Softmax &x, float (*acc)[4][4], const Prompt &a, int base, ATTEND_PARAMETERS) {
	const int g = lane() / 4, t = lane() % 4, stride = query_words(head_dim);
	const u32 *rows = a.queries + a.row * stride;
	float s[PIECE / 8][4] = {}, by[PIECE / 8][2];
#pragma unroll
	for (int part = 0; part < PIECE / STAGED; part++) {
		stage_keys<K>(a, base + part * STAGED, ATTEND_ARGUMENTS);
		if (part == 0) stage_scales<K>(a, base, ATTEND_ARGUMENTS);
#pragma unroll 1
		for (int d = 4 * t; d < (head_dim + 15) / 16 * 16; d += 16) {
			const Words p = load_words(rows + d), q = load_words(rows + 8 * stride + d);
#pragma unroll
			for (int j = 0; j < STAGED / 8; j++)
				multiply_keys<K>(s[part * STAGED / 8 + j], p, q, load_words(a.staged + (8 * j + g) * stride + d));
		}
	}
	barrier(); /* the scales are there */
#pragma unroll
	for (int j = 0; j < PIECE / 8; j++)
		for (int i = 0; i < 4; i++) {
			const int column = 8 * j + 2 * t + i % 2, h = i / 2;
			s[j][i] = score_of<K>(s[j][i], base + column >= a.row_begin[h] && base + column < a.row_to[h], a.key_scales[column], scale, cap);
			if (i < 2) by[j][i] = a.value_scales[column];
		}
	Weights w;
	weigh<K>(x, w, s, by);
#pragma unroll
	for (int n = 0; n < PROMPT_GROUPS; n++)
		for (int j = 0; j < 4; j++) rescale_tile(acc[n][j], w.rescale);
#pragma unroll
	for (int part = 0; part < PIECE / STAGED; part++) {
		stage_values<K>(a, base + part * STAGED, ATTEND_ARGUMENTS);
#pragma unroll
		for (int k = 0; k < STAGED / 16; k++) {
			const u32 *from = a.staged + (8 * k + t) * value_words(head_dim) + 32 * a.group + 4 * g, *lower = from + STAGED / 2 * value_words(head_dim);
#pragma unroll
			for (int n = 0; n < PROMPT_GROUPS; n++) {
				if (32 * (a.group + n) >= head_dim) break;
				Words v[2][2] = {};
				for (int i = 0; i < 2; i++) {
					v[i][0] = load_words(from + 4 * i * value_words(head_dim) + 32 * n);
					if (has_lower<K>()) v[i][1] = load_words(lower + 4 * i * value_words(head_dim) + 32 * n);
				}
				multiply_values<K>(acc[n], w.upper[part * STAGED / 16 + k], w.lower[part * STAGED / 16 + k], v[0], v[1]);
			}
		}
	}
}

template <int K> DEVICE void attend_prompt(float *out, const float *sinks, ATTEND_PARAMETERS) {
	Prompt a;
	if (!aim_prompt(a, ATTEND_ARGUMENTS)) return;
	Softmax all, x;
	float acc[PROMPT_GROUPS][4][4];
	clear(all);
#pragma unroll
	for (int i = 0; i < PROMPT_GROUPS * 16; i++) a.before[i * threads() + thread()] = 0;
#pragma unroll 1
	for (int base = a.begin / SPLIT * SPLIT; base < a.to; base += SPLIT) {
		clear(x);
#pragma unroll
		for (int i = 0; i < PROMPT_GROUPS * 16; i++) acc[i / 16][i / 4 % 4][i % 4] = 0;
		const int from = a.begin > base ? a.begin / PIECE * PIECE : base, end = a.to - base < SPLIT ? a.to : base + SPLIT;
#pragma unroll 1
		for (int piece = from; piece < end; piece += PIECE) add_prompt_piece<K>(x, acc, a, piece, ATTEND_ARGUMENTS);
		float before[2], by[2];
		add_split(all, x, before, by);
#pragma unroll
		for (int i = 0; i < PROMPT_GROUPS * 16; i++) {
			float *sum = a.before + i * threads() + thread();
			*sum = mixed(*sum, before[i / 2 % 2], acc[i / 16][i / 4 % 4][i % 4], by[i / 2 % 2]);
		}
	}
#pragma unroll
	for (int h = 0; h < 2; h++) {
		const int row = a.row + 8 * h;
		if (row >= a.rows) continue;
		const int head = a.head + row % a.per;
		const float by = finish(all.top[h], all.sum[h], sinks, head);
		float *to = out + ((long long)(a.first + row / a.per) * heads + head) * head_dim;
#pragma unroll
		for (int i = 0; i < PROMPT_GROUPS * 8; i++) {
			const int n = i / 8, j = i / 2 % 4, d = column_of(a.group + n, j, i % 2);
			if (d < head_dim) to[d] = mul_rounded(a.before[(n * 16 + j * 4 + 2 * h + i % 2) * threads() + thread()], by);
		}
	}
}

#define ATTEND_PROMPT(name, K)                                                            \
	KERNEL attend_prompt_##name(float *out, const float *sinks, ATTEND_PARAMETERS) {        \
		attend_prompt<K>(out, sinks, ATTEND_ARGUMENTS);                                       \
	}                                                                                       \
	REGISTER(attend_prompt_##name)
ATTEND_PROMPT(f32, KV_F32)
ATTEND_PROMPT(f16, KV_F16)
ATTEND_PROMPT(int8, KV_INT8)
ATTEND_PROMPT(bf16, KV_BF16)
ATTEND_PROMPT(fp8, KV_FP8)
