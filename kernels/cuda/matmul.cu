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

#define MATMUL(name, T, R, N)                                                                                    \
	KERNEL matmul_##name##_##N(float *dst, int dst_stride, const u8 *w, const float *bias, int rows, int cols,     \
		const float *x, int x_stride, const int *count) {                                                            \
		matmul<T, R, N>(dst, dst_stride, w, bias, rows, cols, x, x_stride, count);                                   \
	}                                                                                                              \
	REGISTER(matmul_##name##_##N)
#define MATMULS(name, T) MATMUL(name, T, 4, 1) MATMUL(name, T, 2, 4) MATMUL(name, T, 2, 8)
EACH_TYPE(MATMULS)

/* The products of each token with the experts that it has chosen: choice p is token
 * p/used with expert chosen[p]. x has a row for each token, or for each choice where
 * x_choices is 1. An expert's matrix is expert_bytes after the one before. */
template <int T>
DEVICE void experts(float *dst, int dst_stride, const u8 *w, long long expert_bytes, const float *bias, int rows, int cols,
	const float *x, int x_stride, int x_choices, const int *chosen, int used, const int *count) {
	int row = (block_x() * (threads() / WARP) + warp()) * 2, p = block_y();
	if (row >= rows || p >= *count * used) return;
	int e = chosen[p];
	const int R = 2;
	Row<T> from[R];
	for (int r = 0; r < R; r++) from[r] = row_of<T>(w + e * expert_bytes, rows, cols, row + r < rows ? row + r : rows - 1);
	float sums[R][1] = {};
	dots<T, R, 1>(sums, from, cols, x + (long long)(x_choices ? p : p / used) * x_stride, 0, 1);
	warp_sums<R>(&sums[0][0]);
	for (int r = 0; r < R; r++)
		if (lane() == r && row + r < rows) dst[(long long)p * dst_stride + row + r] = bias ? sums[r][0] + bias[(long long)e * rows + row + r] : sums[r][0];
}

#define EXPERTS(name, T)                                                                                            \
	KERNEL experts_##name(float *dst, int dst_stride, const u8 *w, u64 expert_bytes, const float *bias, int rows,     \
		int cols, const float *x, int x_stride, int x_choices, const int *chosen, int used, const int *count) {         \
		experts<T>(dst, dst_stride, w, expert_bytes, bias, rows, cols, x, x_stride, x_choices, chosen, used, count);    \
	}                                                                                                                 \
	REGISTER(experts_##name)
EACH_TYPE(EXPERTS)

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
