/* Layers with a state in the place of attention: each channel is convolved with the tokens before, the last of which the
 * state of the sequence has. A row of projected has three numbers for each channel: what multiplies the input of the
 * convolution, what multiplies its output, and the input. A slot of states has taps−1 inputs for each channel, the oldest
 * token's first, at the beginning of a part of state_len numbers. */
#include "batch.h"

/* The input of the convolution at a place of a sequence, counted from its first row of the batch; before that, from its
 * state. */
DEVICE float convolved(const float *projected, const float *state, int first, int at, int channels, int taps, int c) {
	if (at < 0) return state[(at + taps - 1) * channels + c];
	const float *x = projected + (long long)(first + at) * 3 * channels + c;
	return mul_rounded(x[0], x[2 * channels]);
}

/* out[row] = gate · Σ weights[tap] · input, the oldest token's first. Block x has some channels, block y is the row. */
KERNEL convolve(float *out, const float *projected, const float *weights, const float *states, int state_len, int channels,
	int taps, const Batch *batch) {
	const int row = block_y(), c = block_x() * threads() + thread();
	if (row >= batch->rows || c >= channels) return;
	const int first = firsts_of(batch)[row];
	const float *state = states + (long long)states_of(batch)[row] * state_len;
	float sum = 0;
	for (int tap = 0; tap < taps; tap++) {
		const float x = convolved(projected, state, first, row - first + tap - taps + 1, channels, taps, c);
		sum = add_rounded(sum, mul_rounded(x, weights[tap * channels + c]));
	}
	out[(long long)row * channels + c] = mul_rounded(sum, projected[((long long)row * 3 + 1) * channels + c]);
}
REGISTER(convolve)

/* Moves the states on, once all rows have read them: first what is to be kept of them on their way. Block x has some
 * channels, block y is the run of rows of a sequence. */
KERNEL keep_inputs(float *states, const float *projected, int state_len, int channels, int taps, const Batch *batch) {
	const int run = block_y(), c = block_x() * threads() + thread();
	if (run >= batch->runs || c >= channels) return;
	const int first = runs_of(batch)[run], rows = run_rows_of(batch)[run];
	float *state = states + (long long)states_of(batch)[first] * state_len;
	for (int k = 0; k < batch->checkpoints; k++) {
		const int after = checkpoint_rows_of(batch)[k] - first + 1;
		if (after < 1 || after > rows) continue;
		float *to = states + (long long)checkpoint_slots_of(batch)[k] * state_len;
		for (int j = 0; j < taps - 1; j++) to[j * channels + c] = convolved(projected, state, first, after - taps + 1 + j, channels, taps, c);
	}
	for (int j = 0; j < taps - 1; j++) /* each moves towards the front */
		state[j * channels + c] = convolved(projected, state, first, rows - taps + 1 + j, channels, taps, c);
}
REGISTER(keep_inputs)
