/* Products of weights with rows of numbers, and rows of weights as numbers.
 *
 * A warp computes R rows of weights with up to N rows of numbers. A lane takes eight
 * columns of every 256, adds them in their order, and the lanes' sums are added as a
 * tree. Neither R nor N changes that order: a token has the same bits in every batch. R
 * rows of weights share each number that is read, which counts where weights are narrow. */
#include "batch.h"
#include "types.h"

/* Adds to sums the products of R rows of weights with n rows of x. */
template <int T, int R, int N>
DEVICE void dots(float (*sums)[N], const Row<T> *rows, int cols, const float *x, int stride, int n) {
#pragma unroll 1
	for (int o = lane(); o < cols / 8; o += WARP) {
		Octet t[R];
#pragma unroll
		for (int r = 0; r < R; r++) Reader<T>::read(rows[r], o, &t[r]);
#pragma unroll
		for (int i = 0; i < N; i++) {
			if (i >= n) break;
			Four a = load_four(x + (long long)i * stride + t[0].k0), b = load_four(x + (long long)i * stride + t[0].k1);
#pragma unroll
			for (int r = 0; r < R; r++) {
				float sum = sums[r][i];
				for (int j = 0; j < 4; j++) sum = multiply_add(t[r].w[j], a.v[j], sum);
				for (int j = 0; j < 4; j++) sum = multiply_add(t[r].w[j + 4], b.v[j], sum);
				sums[r][i] = sum;
			}
		}
	}
}

/* dst[i·dst_stride+r] = Σ_c w[r,c]·x[i·x_stride+c] + bias[r], for the first *count rows. */
template <int T, int R, int N>
DEVICE void matmul(float *dst, int dst_stride, const u8 *w, const float *bias, int rows, int cols, const float *x, int x_stride, const int *count) {
	int row = (block_x() * (threads() / WARP) + warp()) * R, first = block_y() * N;
	int n = *count - first;
	if (row >= rows || n <= 0) return;
	if (n > N) n = N;
	Row<T> from[R]; /* past the last row: that row again, and its sums go nowhere */
	for (int r = 0; r < R; r++) from[r] = row_of<T>(w, rows, cols, row + r < rows ? row + r : rows - 1);
	float sums[R][N] = {};
	dots<T, R, N>(sums, from, cols, x + (long long)first * x_stride, x_stride, n);
	warp_sums<R * N>(&sums[0][0]);
#pragma unroll
	for (int r = 0; r < R; r++) {
		float add = bias && row + r < rows ? bias[row + r] : 0;
#pragma unroll
		for (int i = 0; i < N; i++)
			if (lane() == r * N + i && i < n && row + r < rows) dst[(long long)(first + i) * dst_stride + row + r] = bias ? sums[r][i] + add : sums[r][i];
	}
}

#define MATMUL(N, R)                                                                                             \
	KERNEL matmul_f32_##N(float *dst, int dst_stride, const u8 *w, const float *bias, int rows, int cols,          \
		const float *x, int x_stride, const int *count) {                                                            \
		matmul<F32, R, N>(dst, dst_stride, w, bias, rows, cols, x, x_stride, count);                                 \
	}                                                                                                              \
	REGISTER(matmul_f32_##N)
MATMUL(1, 4)
MATMUL(4, 2)
MATMUL(8, 2)

/* The same with tensor cores, for weights that are not float32. A number is two bfloat16, its
 * upper and its lower half, which together have 16 of its bits; of the four products all but
 * that of the lower halves are added. So the result is near float32's, whatever the range.
 *
 * A block has 16·R rows of weights and 8·N rows of numbers. Its warps take chunks of 32
 * columns in turn, each adds its own in their order, and the warps' sums are added in the
 * order of the warps: again R and N change nothing. A lane's eight weights of a chunk are
 * those that one Octet has; since numbers are taken from the same columns, it does not matter
 * that these are not neighbours. */
#define MATMUL_WARPS 8

/* Pairs of bfloat16, and what they lack of the numbers, for the two steps of a chunk. */
struct Pairs { u32 upper[2][2], lower[2][2]; };
DEVICE Pairs pairs_of(const float *eight) {
	Pairs p;
#pragma unroll
	for (int s = 0; s < 2; s++)
#pragma unroll
		for (int i = 0; i < 2; i++) split(&p.upper[s][i], &p.lower[s][i], eight[4 * s + 2 * i], eight[4 * s + 2 * i + 1]);
	return p;
}

/* Which rows of numbers a block has: n of them, from first on in order where that is given.
 * Row r of dst is for row r/shared of x. */
struct Tile {
	int n, first, shared;
	const int *order;
};
DEVICE int row_at(const Tile &t, int i) { return t.order ? t.order[t.first + i] : t.first + i; }

template <int T, int R, int N>
DEVICE void matmul_tiles(float *dst, int dst_stride, const u8 *w, const float *bias, int rows, int cols, const float *x, int x_stride, const Tile &tile) {
	const int row = block_x() * 16 * R, group = lane() / 4, n = tile.n;
	if (n <= 0) return;
	const float *from_x[N] = {}; /* of the lane's column in each tile */
#pragma unroll
	for (int j = 0; j < N; j++)
		if (8 * j + group < n) from_x[j] = x + (long long)(row_at(tile, 8 * j + group) / tile.shared) * x_stride;
	Row<T> from[2 * R]; /* past the last row: that row again, and its sums go nowhere */
#pragma unroll
	for (int r = 0; r < 2 * R; r++) from[r] = row_of<T>(w, rows, cols, row + 8 * r + group < rows ? row + 8 * r + group : rows - 1);
	float acc[R][N][4] = {};
#pragma unroll 1
	for (int chunk = warp(); chunk * 32 < cols; chunk += MATMUL_WARPS) {
		int o = chunk * 4 + lane() % 4;
		Octet t;
		Pairs a[2 * R];
		float none[8] = {};
#pragma unroll
		for (int r = 0; r < 2 * R; r++) {
			if (o < cols / 8) Reader<T>::read(from[r], o, &t);
			a[r] = pairs_of(o < cols / 8 ? t.w : none);
		}
#pragma unroll
		for (int j = 0; j < N; j++) {
			if (8 * j >= n) break;
			float eight[8] = {};
			if (o < cols / 8 && 8 * j + group < n) {
				Four lo = load_four(from_x[j] + t.k0), hi = load_four(from_x[j] + t.k1);
				for (int i = 0; i < 4; i++) eight[i] = lo.v[i], eight[i + 4] = hi.v[i];
			}
			Pairs b = pairs_of(eight);
#pragma unroll
			for (int s = 0; s < 2; s++)
#pragma unroll
				for (int r = 0; r < R; r++) {
					u32 upper[4] = {a[2 * r].upper[s][0], a[2 * r + 1].upper[s][0], a[2 * r].upper[s][1], a[2 * r + 1].upper[s][1]};
					multiply_tile(acc[r][j], upper, b.upper[s]);
					multiply_tile(acc[r][j], upper, b.lower[s]);
					if (T == BF16) continue; /* has no lower half */
					u32 lower[4] = {a[2 * r].lower[s][0], a[2 * r + 1].lower[s][0], a[2 * r].lower[s][1], a[2 * r + 1].lower[s][1]};
					multiply_tile(acc[r][j], lower, b.upper[s]);
				}
		}
	}
	/* A lane has the numbers of two rows of each tile, and of two columns. */
	float *sums = (float *)shared();
	const int all = 16 * R * 8 * N;
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int j = 0; j < N; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				sums[warp() * all + (8 * j + lane() % 4 * 2 + i % 2) * 16 * R + 16 * r + group + i / 2 * 8] = acc[r][j][i];
	barrier();
	for (int i = thread(); i < all; i += threads()) {
		int token = i / (16 * R), at = row + i % (16 * R);
		if (token >= n || at >= rows) continue;
		float sum = sums[i];
		for (int k = 1; k < MATMUL_WARPS; k++) sum = add_rounded(sum, sums[k * all + i]);
		dst[(long long)row_at(tile, token) * dst_stride + at] = bias ? add_rounded(sum, bias[at]) : sum;
	}
}

#define MATMUL_TILES(name, T, TOKENS, R, N)                                                                      \
	KERNEL matmul_##name##_##TOKENS(float *dst, int dst_stride, const u8 *w, const float *bias, int rows,          \
		int cols, const float *x, int x_stride, const int *count) {                                                  \
		const int first = block_y() * TOKENS;                                                                        \
		const Tile tile = {*count - first, first, 1, 0};                                                             \
		matmul_tiles<T, R, N>(dst, dst_stride, w, bias, rows, cols, x, x_stride, tile);                              \
	}                                                                                                              \
	REGISTER(matmul_##name##_##TOKENS)
#define MATMULS(name, T) MATMUL_TILES(name, T, 8, 1, 1) MATMUL_TILES(name, T, 32, 2, 4)
EACH_NARROW_TYPE(MATMULS)

/* The products of each token with the experts that it has chosen: choice p is token
 * p/used with expert chosen[p]. x has a row for each token, or for each choice where
 * x_choices is 1. An expert's matrix is expert_bytes after the one before.
 *
 * With float32 weights a choice is a block of its own. */
KERNEL experts_f32(float *dst, int dst_stride, const u8 *w, u64 expert_bytes, const float *bias, int rows, int cols,
	const float *x, int x_stride, int x_choices, const int *chosen, int used, const int *count) {
	int row = (block_x() * (threads() / WARP) + warp()) * 2, p = block_y();
	if (row >= rows || p >= *count * used) return;
	int e = chosen[p];
	const int R = 2;
	Row<F32> from[R];
	for (int r = 0; r < R; r++) from[r] = row_of<F32>(w + e * expert_bytes, rows, cols, row + r < rows ? row + r : rows - 1);
	float sums[R][1] = {};
	dots<F32, R, 1>(sums, from, cols, x + (long long)(x_choices ? p : p / used) * x_stride, 0, 1);
	warp_sums<R>(&sums[0][0]);
	for (int r = 0; r < R; r++)
		if (lane() == r && row + r < rows) dst[(long long)p * dst_stride + row + r] = bias ? sums[r][0] + bias[(long long)e * rows + row + r] : sums[r][0];
}
REGISTER(experts_f32)

/* Sorts choices by their experts, so that an expert's weights are read for several tokens at
 * once: order lists the choices, and a group is up to most of them with one expert. Which of a
 * group's tokens comes first changes nothing of its bits. One block. */
struct Group { int expert, first, n, unused; };
KERNEL group_experts(int *order, Group *groups, int *groups_count, const int *chosen, int experts, int used, int most, const int *count) {
	const int all = *count * used;
	int *counts = (int *)shared(), *begins = counts + experts, *at = begins + experts; /* of each expert; at: where its groups begin */
	for (int e = thread(); e < experts; e += threads()) counts[e] = 0;
	barrier();
	for (int p = thread(); p < all; p += threads()) shared_add(counts + chosen[p], 1);
	barrier();
	if (thread() == 0) {
		int begin = 0, group = 0;
		for (int e = 0; e < experts; e++) {
			begins[e] = begin, at[e] = group;
			begin += counts[e], group += (counts[e] + most - 1) / most;
		}
		*groups_count = group;
	}
	barrier();
	for (int e = thread(); e < experts; e += threads())
		for (int first = 0; first < counts[e]; first += most) {
			Group g = {e, begins[e] + first, counts[e] - first < most ? counts[e] - first : most, 0};
			groups[at[e] + first / most] = g;
		}
	barrier(); /* begins become the next free places */
	for (int p = thread(); p < all; p += threads()) order[shared_add(begins + chosen[p], 1)] = p;
}
REGISTER(group_experts)

/* With narrow weights a block has a group; or a choice, where there are no groups. */
#define EXPERTS_TILES(name, T, TOKENS, R, N)                                                                        \
	KERNEL experts_##name##_##TOKENS(float *dst, int dst_stride, const u8 *w, u64 expert_bytes, const float *bias,    \
		int rows, int cols, const float *x, int x_stride, int x_choices, const int *chosen, int used, const int *count, \
		const int *order, const Group *groups, const int *groups_count) {                                               \
		const int g = block_y();                                                                                        \
		if (g >= (groups ? *groups_count : *count * used)) return;                                                      \
		const int e = groups ? groups[g].expert : chosen[g];                                                            \
		const Tile tile = {groups ? groups[g].n : 1, groups ? groups[g].first : g, x_choices ? 1 : used, groups ? order : 0}; \
		matmul_tiles<T, R, N>(dst, dst_stride, w + e * expert_bytes, bias ? bias + (long long)e * rows : 0, rows, cols, \
			x, x_stride, tile);                                                                                           \
	}                                                                                                                 \
	REGISTER(experts_##name##_##TOKENS)
#define EXPERTS(name, T) EXPERTS_TILES(name, T, 8, 1, 1) EXPERTS_TILES(name, T, 32, 2, 4)
EACH_NARROW_TYPE(EXPERTS)

/* x[row] = scale · the embedding of the row's token. */
template <int T> DEVICE void embed(float *x, const u8 *w, int vocab, int width, float scale, const Batch *batch) {
	int row = block_x();
	if (row >= batch->rows) return;
	Row<T> r = row_of<T>(w, vocab, width, tokens_of(batch)[row]);
	x += (long long)row * width;
	for (int o = thread(); o < width / 8; o += threads()) {
		Octet t;
		Reader<T>::read(r, o, &t);
		for (int i = 0; i < 4; i++) x[t.k0 + i] = t.w[i] * scale, x[t.k1 + i] = t.w[i + 4] * scale;
	}
}

#define EMBED(name, T)                                                                                        \
	KERNEL embed_##name(float *x, const u8 *w, int vocab, int width, float scale, const Batch *batch) {         \
		embed<T>(x, w, vocab, width, scale, batch);                                                               \
	}                                                                                                           \
	REGISTER(embed_##name)
EACH_TYPE(EMBED)
