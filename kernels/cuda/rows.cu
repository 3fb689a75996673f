/* What is done to rows of numbers: sums and norms, activations, caps, the choice of
 * experts. A block has a row, and nothing of another row enters its bits. */
#include "batch.h"

/* The root of the mean square of what x is beyond mean, inverted. */
DEVICE float rms_inverse(const float *x, float mean, int width, float eps) {
	float squares = 0;
	for (int i = thread(); i < width; i += threads()) squares += (x[i] - mean) * (x[i] - mean);
	return 1.0f / sqrtf(block_sum(squares, (float *)shared()) / (float)width + eps);
}

DEVICE float mean_of(const float *x, int width) {
	float sum = 0;
	for (int i = thread(); i < width; i += threads()) sum += x[i];
	return block_sum(sum, (float *)shared()) / (float)width;
}

/* x[row] += residual_scale · sum[row], after a norm where post is given; then
 * out[i] = norm(x[row])·weight + bias, or x[row] where there is no weight. sum, bias and out may be absent. The norm of
 * out, but not that of sum, takes the mean off first where centred says so. Where pick is given, row i of out is of row
 * pick[i] of x, else of row i. */
KERNEL add_norm(float *x, const float *sum, const float *post, const float *weight, const float *bias, float *out, int width,
	int centred, float eps, float residual_scale, const int *pick, const int *count) {
	int i = block_x();
	if (i >= *count) return;
	long long row = pick ? pick[i] : i;
	x += row * width;
	if (sum) {
		sum += row * width;
		float by = post ? rms_inverse(sum, 0, width, eps) : 1.0f;
		for (int k = thread(); k < width; k += threads()) {
			float s = sum[k];
			if (post) s = s * by * post[k];
			x[k] += s * residual_scale;
		}
	}
	if (!out) return;
	out += (long long)i * width;
	if (!weight) {
		for (int k = thread(); k < width; k += threads()) out[k] = x[k];
		return;
	}
	float mean = centred ? mean_of(x, width) : 0, by = rms_inverse(x, mean, width, eps); /* a thread reads what it has written itself */
	for (int k = thread(); k < width; k += threads()) {
		float y = (x[k] - mean) * by * weight[k];
		out[k] = bias ? add_rounded(y, bias[k]) : y;
	}
}
REGISTER(add_norm)

/* Norms a part of each row of x, of width numbers, in its place. */
KERNEL norm_part(float *x, int stride, int width, const float *weight, float eps, const int *count) {
	if (block_x() >= *count) return;
	x += (long long)block_x() * stride;
	float by = rms_inverse(x, 0, width, eps);
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

/* What experts are chosen by, and what they weigh. */
#define ROUTE_CHOSEN 0  /* the softmax of the chosen scores */
#define ROUTE_SOFTMAX 1 /* the softmax of all scores */
#define ROUTE_SIGMOID 2 /* the sigmoid of each score */
#define ROUTE_NORMED 4  /* added to one of these two: a token's weights add up to scale */
#define ROUTE_BY_TWO 8  /* added: a group is as good as its two best experts together, not as its best */
#define ROUTE_SPARSE 16 /* Phi's: the softmax of those left that are near the chosen score */

/* What a score weighs before any bias; top and total are the softmax's. */
DEVICE float weight_of(float score, int kind, float top, float total) {
	if (kind & ROUTE_SOFTMAX) return expf(score - top) / total;
	return kind & ROUTE_SIGMOID ? 1.0f / (1.0f + expf(-score)) : score;
}

/* What an expert is chosen by. */
DEVICE float rank_of(const float *scores, const float *bias, int e, int kind, float top, float total) {
	float s = weight_of(scores[e], kind, top, total);
	return bias ? add_rounded(s, bias[e]) : s;
}

/* Marks the groups_used best groups of experts, the first of equal ones, in kept. worth has room for a number of each. */
DEVICE void keep_groups(int *kept, float *worth, const float *scores, const float *bias, int experts, int kind, int groups,
	int groups_used, float top, float total) {
	const int size = experts / groups;
	for (int g = lane(); g < groups; g += WARP) {
		float best = -INFINITE, second = -INFINITE;
		for (int e = g * size; e < (g + 1) * size; e++) {
			float s = rank_of(scores, bias, e, kind, top, total);
			if (s > best) second = best, best = s;
			else if (s > second) second = s;
		}
		worth[g] = kind & ROUTE_BY_TWO ? add_rounded(best, second) : best;
	}
	barrier();
	for (int g = lane(); g < groups; g += WARP) {
		int better = 0;
		for (int h = 0; h < groups; h++) better += worth[h] > worth[g] || (worth[h] == worth[g] && h < g);
		kept[g] = better < groups_used;
	}
	barrier();
}

/* How near a score must be to the chosen one to count, relative to the larger size of the two: twice the jitter of
 * Phi-3.5-MoE's router, which its files do not give. */
#define SPARSE_REACH 0.02f

/* What the chosen expert has in the softmax over those near it, of the experts that are not chosen yet. */
DEVICE float sparse_share(const float *scores, int experts, float best, int at) {
	float sum = 0;
	for (int e = lane(); e < experts; e += WARP) {
		float s = scores[e], size = fabsf(s) > best ? fabsf(s) : best;
		bool left = s < best || (s == best && e >= at);
		if (left && !((best - s) / size > SPARSE_REACH)) sum += expf(s - best);
	}
	return 1.0f / warp_sum(sum);
}

/* The used experts with the highest weights, a bias for the choice added where it is given, the
 * first of equal ones, and their shares; where there are groups, of the best of these alone. One warp has a row.
 * Shared memory: two numbers for each group. */
KERNEL route(int *chosen, float *shares, const float *scores, const float *bias, int experts, int used, int kind, int groups,
	int groups_used, float sum_add, float scale, const int *count) {
	int row = block_x();
	if (row >= *count) return;
	scores += (long long)row * experts, chosen += (long long)row * used, shares += (long long)row * used;
	float most = -INFINITE, total = 0;
	if (kind & ROUTE_SOFTMAX) {
		for (int e = lane(); e < experts; e += WARP) most = scores[e] > most ? scores[e] : most;
		most = warp_max(most);
		for (int e = lane(); e < experts; e += WARP) total += expf(scores[e] - most);
		total = warp_sum(total);
	}
	int *kept = (int *)shared();
	if (groups > 0) keep_groups(kept, (float *)(kept + groups), scores, bias, experts, kind, groups, groups_used, most, total);
	float last = INFINITE, top = 0, sum = 0;
	int last_at = -1;
	for (int r = 0; r < used; r++) { /* the best that comes after the last one in the order */
		float best = -INFINITE;
		int at = experts;
		for (int e = lane(); e < experts; e += WARP) {
			if (groups > 0 && !kept[e / (experts / groups)]) continue;
			float s = rank_of(scores, bias, e, kind, most, total);
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
		float share = kind == ROUTE_CHOSEN ? expf(best - top) : weight_of(scores[at], kind, most, total);
		if (kind == ROUTE_SPARSE) share = sparse_share(scores, experts, best, at);
		sum += share;
		if (lane() == 0) chosen[r] = at, shares[r] = share;
		last = best, last_at = at;
	}
	const float by = kind & ROUTE_NORMED ? scale / (sum + sum_add) : kind == ROUTE_SPARSE ? 1.0f : scale;
	if (lane() == 0)
		for (int r = 0; r < used; r++) shares[r] = kind == ROUTE_CHOSEN ? shares[r] / sum : shares[r] * by;
}
REGISTER(route)

/* inputs[row·used+r] = shares[r] · x[row]. Block z is r. */
KERNEL share_inputs(float *inputs, const float *x, const float *shares, int width, int used, const int *count) {
	int row = block_y(), i = block_x() * threads() + thread(), choice = row * used + block_z();
	if (row >= *count || i >= width) return;
	inputs[(long long)choice * width + i] = shares[choice] * x[(long long)row * width + i];
}
REGISTER(share_inputs)

/* sum[row] = beside[row] + Σ_r shares[r] · outputs[row·used+r], in the order of the choice. Without shares all are 1.
 * beside may be absent; where gates are given, it is multiplied with the sigmoid of the row's. */
KERNEL gather_experts(float *sum, const float *outputs, const float *shares, const float *beside, const float *gates, int width,
	int used, const int *count) {
	int row = block_y(), i = block_x() * threads() + thread();
	if (row >= *count || i >= width) return;
	float total = beside ? beside[(long long)row * width + i] : 0;
	if (gates) total = total / (1.0f + expf(-gates[row]));
	for (int r = 0; r < used; r++) {
		const float y = outputs[((long long)row * used + r) * width + i];
		total += shares ? shares[row * used + r] * y : y;
	}
	sum[(long long)row * width + i] = total;
}
REGISTER(gather_experts)
