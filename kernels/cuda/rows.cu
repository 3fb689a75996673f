/* What is done to rows of numbers: sums and norms, activations, caps, the choice of
 * experts. A block has a row, and nothing of another row enters its bits. */
#include "batch.h"

/* The root of the mean square, inverted. */
DEVICE float rms_inverse(const float *x, int width, float eps) {
	float squares = 0;
	for (int i = thread(); i < width; i += threads()) squares += x[i] * x[i];
	return 1.0f / sqrtf(block_sum(squares, (float *)shared()) / (float)width + eps);
}

/* x[row] += residual_scale · sum[row], after a norm where post is given; then
 * out[i] = norm(x[row])·weight, or x[row] where there is no weight. sum may be absent. Where pick is given, row i of out
 * is of row pick[i] of x, else of row i. */
KERNEL add_norm(float *x, const float *sum, const float *post, const float *weight, float *out, int width, float eps,
	float residual_scale, const int *pick, const int *count) {
	int i = block_x();
	if (i >= *count) return;
	long long row = pick ? pick[i] : i;
	x += row * width;
	if (sum) {
		sum += row * width;
		float by = post ? rms_inverse(sum, width, eps) : 1.0f;
		for (int k = thread(); k < width; k += threads()) {
			float s = sum[k];
			if (post) s = s * by * post[k];
			x[k] += s * residual_scale;
		}
	}
	out += (long long)i * width;
	if (!weight) {
		for (int k = thread(); k < width; k += threads()) out[k] = x[k];
		return;
	}
	float by = rms_inverse(x, width, eps); /* a thread reads what it has written itself */
	for (int k = thread(); k < width; k += threads()) out[k] = x[k] * by * weight[k];
}
REGISTER(add_norm)

/* Norms a part of each row of x, of width numbers, in its place. */
KERNEL norm_part(float *x, int stride, int width, const float *weight, float eps, const int *count) {
	if (block_x() >= *count) return;
	x += (long long)block_x() * stride;
	float by = rms_inverse(x, width, eps);
	for (int k = thread(); k < width; k += threads()) x[k] = x[k] * by * weight[k];
}
REGISTER(norm_part)

/* out[row] = activation(gate)·up of a row that has gate and then up. kind: 0 is SiLU, 1
 * GELU in the tanh form, 2 the clamped SiLU of gpt-oss. A token has per_token rows. */
KERNEL activate(float *out, const float *gate_up, int width, int kind, float limit, int per_token, const int *count) {
	int row = block_y();
	if (row >= *count * per_token) return;
	const float *gate = gate_up + (long long)row * 2 * width, *up = gate + width;
	int i = block_x() * threads() + thread();
	if (i >= width) return;
	float g = gate[i], u = up[i], y;
	if (kind == 1) {
		float z = 0.7978845608028654f * (g + 0.044715f * g * g * g);
		y = g / (1.0f + expf(-2.0f * z)) * u;
	} else if (kind == 2) {
		g = g > limit ? limit : g;
		u = u > limit ? limit : u < -limit ? -limit : u;
		y = g / (1.0f + expf(-1.702f * g)) * (u + 1.0f);
	} else {
		y = g / (1.0f + expf(-g)) * u;
	}
	out[(long long)row * width + i] = y;
}
REGISTER(activate)

/* logits · scale, and no further from 0 than cap, where there is one. */
KERNEL scale_cap(float *logits, int width, float scale, float cap, const int *count) {
	int row = block_y(), i = block_x() * threads() + thread();
	if (row >= *count || i >= width) return;
	float *x = logits + (long long)row * width + i;
	float y = *x * scale;
	*x = cap > 0 ? cap * tanhf(y / cap) : y;
}
REGISTER(scale_cap)

/* The used experts with the highest scores, the first of equal ones, and their shares:
 * the softmax of these scores. One warp has a row. */
KERNEL route(int *chosen, float *shares, const float *scores, int experts, int used, const int *count) {
	int row = block_x();
	if (row >= *count) return;
	scores += (long long)row * experts, chosen += (long long)row * used, shares += (long long)row * used;
	float last = INFINITE, top = 0, sum = 0;
	int last_at = -1;
	for (int r = 0; r < used; r++) { /* the best that comes after the last one in the order */
		float best = -INFINITE;
		int at = experts;
		for (int e = lane(); e < experts; e += WARP) {
			float s = scores[e];
			bool after = s < last || (s == last && e > last_at);
			if (after && (s > best || (s == best && e < at))) best = s, at = e;
		}
		for (int mask = WARP / 2; mask > 0; mask /= 2) {
			float s = shuffle_xor(best, mask);
			int e = shuffle_xor(at, mask);
			if (s > best || (s == best && e < at)) best = s, at = e;
		}
		if (at == experts) at = 0; /* scores that are no numbers: any choice is as wrong */
		if (r == 0) top = best;
		float share = expf(best - top);
		sum += share;
		if (lane() == 0) chosen[r] = at, shares[r] = share;
		last = best, last_at = at;
	}
	if (lane() == 0)
		for (int r = 0; r < used; r++) shares[r] /= sum;
}
REGISTER(route)

/* sum[row] = Σ_r shares[r] · outputs[row·used+r], in the order of the choice. */
KERNEL gather_experts(float *sum, const float *outputs, const float *shares, int width, int used, const int *count) {
	int row = block_y(), i = block_x() * threads() + thread();
	if (row >= *count || i >= width) return;
	float total = 0;
	for (int r = 0; r < used; r++) total += shares[row * used + r] * outputs[((long long)row * used + r) * width + i];
	sum[(long long)row * width + i] = total;
}
REGISTER(gather_experts)
