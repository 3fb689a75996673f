/* What of the logits a sampler needs, so that they stay on the device: the token where every
 * kept one has its own weight (greedy, or no filter), or else the few candidates among which
 * the host draws, by the code that it has for its own logits.
 *
 * The vocabulary is cut into parts of PART tokens, as package sample cuts it; a block has a
 * part in sample_adjust and sample_weigh, and a draw in sample_pick. Sums are whole numbers of
 * 2^-ONE, so the order in which threads add them changes nothing. */
#include "batch.h"

#define PART 512
#define PART_THREADS 128
#define PICK_THREADS 512
#define PARTS_MAX PICK_THREADS
#define ONE 44            /* bits of the weight 1: 2^19 tokens of it still fit */
#define BINS 48           /* of weights, by their exponents: 2^0, 2^-1, … */
#define CANDIDATES_MAX 512
#define TOPS_MAX 128

/* What a draw asks for; package gpu writes the same. */
struct Draw {
	int row;      /* of the logits */
	int kind;     /* 0 greedy, 1 the draw, 2 candidates */
	int top_k;    /* of candidates: 0 for all */
	float scale;  /* of logits */
	float top_p;  /* of candidates: 1 for all */
	float min_p;
	int mask;     /* where its words begin, or -1 */
	int penalties, penalties_count, biases, biases_count; /* entries of changes */
	float repetition, presence, frequency;
	int tops;     /* likeliest tokens of the row as it is, or -1 for no log-probabilities */
	int unused;
	u64 share;    /* of the weights, in 2^-53, at which a draw stops */
};

/* A penalty: a token, and how often it was generated; or a bias: a token, and the number. */
struct Change {
	int token, count;
	float bias;
	int unused;
};

struct Candidate {
	float number;
	int token;
};

/* What a draw leaves. */
struct Rest {
	int status; /* 0 a token or candidates, 1 a number is not finite, 2 every token is masked */
	int token;
	int count, tops_count; /* beyond the most: there are too many */
	float top, row_top;    /* the largest logit, after changes and of the row as it is */
	float row_logit;       /* of token, of the row as it is */
	int row_finite;
	u64 sum, row_sum; /* of weights */
};
struct Lists {
	Candidate tops[TOPS_MAX], candidates[CANDIDATES_MAX];
	float logits[CANDIDATES_MAX]; /* of the candidates, of the row as it is */
};

DEVICE int parts_of(int vocab) { return (vocab + PART - 1) / PART; }

/* NaN counts as the largest. */
DEVICE float peak_of(float x) { return x != x ? INFINITE : x; }

/* Masks, penalties and biases: work[draw] is row with them. */
KERNEL sample_adjust(float *work, float *peaks, float *row_peaks, u64 *row_sums, u64 *bins, const float *logits, int stride,
	int vocab, const Draw *draws, const Change *changes, const u64 *masks) {
	const int part = block_x(), d = block_y(), parts = parts_of(vocab), first = part * PART;
	const Draw &draw = draws[d];
	float *x = (float *)shared(), *room = x + PART; /* room has a number for each warp */
	const float *row = logits + (long long)draw.row * stride;
	const int n = vocab - first < PART ? vocab - first : PART;
	if (part == 0)
		for (int i = thread(); i < BINS; i += threads()) bins[d * BINS + i] = 0;
	float most = -INFINITE;
	for (int i = thread(); i < n; i += threads()) {
		float y = row[first + i];
		most = fmaxf(most, peak_of(y));
		if (draw.mask >= 0 && !(masks[draw.mask + (first + i) / 64] >> (first + i) % 64 & 1)) y = -INFINITE;
		x[i] = y;
	}
	most = block_max(most, room); /* and a barrier */
	if (thread() == 0) row_peaks[d * parts + part] = most, row_sums[d * parts + part] = 0;
	for (int i = thread(); i < draw.penalties_count; i += threads()) {
		const Change c = changes[draw.penalties + i];
		int at = c.token - first;
		if (at < 0 || at >= n) continue;
		if (draw.repetition != 1) x[at] = x[at] > 0 ? x[at] / draw.repetition : mul_rounded(x[at], draw.repetition);
		if (c.count > 0) x[at] = add_rounded(x[at], -add_rounded(draw.presence, mul_rounded((float)c.count, draw.frequency)));
	}
	barrier();
	for (int i = thread(); i < draw.biases_count; i += threads()) {
		const Change c = changes[draw.biases + i];
		int at = c.token - first;
		if (at >= 0 && at < n) x[at] = add_rounded(x[at], c.bias);
	}
	barrier();
	most = -INFINITE;
	for (int i = thread(); i < n; i += threads()) {
		most = fmaxf(most, peak_of(x[i]));
		work[(long long)d * vocab + first + i] = x[i];
	}
	most = block_max(most, room);
	if (thread() == 0) peaks[d * parts + part] = most;
}
REGISTER(sample_adjust)

/* The largest of a draw's peaks. */
DEVICE float peak_of_all(const float *peaks, int parts, float *room) {
	float most = -INFINITE;
	for (int i = thread(); i < parts; i += threads()) most = fmaxf(most, peaks[i]);
	return block_max(most, room);
}
DEVICE bool finite(float x) { return x < INFINITE && x > -INFINITE; }
DEVICE float weight_of(float x, float top, float scale) { return expf(mul_rounded(add_rounded(x, -top), scale)); }
DEVICE u64 fixed(float weight) { return (u64)(weight * 17592186044416.0f); } /* 2^ONE */
/* The exponent of a weight up to 1. */
DEVICE int bin_of(float weight) { return 127 - (int)(float_to_bits(weight) >> 23); }

/* Weights in place of logits, and their sums, where the draw needs any; the sums of the row
 * as it is, where log-probabilities are asked for. */
KERNEL sample_weigh(float *work, u64 *sums, u64 *row_sums, u64 *bins, const float *peaks, const float *row_peaks, const float *logits,
	int stride, int vocab, const Draw *draws) {
	const int part = block_x(), d = block_y(), parts = parts_of(vocab), first = part * PART;
	const Draw &draw = draws[d];
	u64 *sum = (u64 *)shared(), *bin = sum + 2; /* of the weights, of the row's, and by bins */
	float *room = (float *)(bin + BINS);
	const int n = vocab - first < PART ? vocab - first : PART;
	for (int i = thread(); i < BINS + 2; i += threads()) sum[i] = 0;
	const float top = peak_of_all(peaks + d * parts, parts, room), row_top = peak_of_all(row_peaks + d * parts, parts, room);
	const bool weigh = draw.kind > 0 && draw.top_k == 0 && finite(top), row_too = draw.tops >= 0 && finite(row_top);
	u64 mine = 0, rows = 0;
	for (int i = thread(); i < n; i += threads()) {
		if (weigh) {
			float *x = work + (long long)d * vocab + first + i, w = weight_of(*x, top, draw.scale);
			u64 whole = fixed(w);
			*x = w;
			mine += whole;
			if (draw.kind == 2 && whole > 0) shared_add(bin + bin_of(w), whole);
		}
		if (row_too) rows += fixed(weight_of(logits[(long long)draw.row * stride + first + i], row_top, 1));
	}
	if (mine > 0) shared_add(sum, mine);
	if (rows > 0) shared_add(sum + 1, rows);
	barrier();
	if (thread() == 0) sums[d * parts + part] = sum[0], row_sums[d * parts + part] = sum[1];
	if (weigh && draw.kind == 2)
		for (int i = thread(); i < BINS; i += threads())
			if (bin[i] > 0) global_add(bins + d * BINS + i, bin[i]);
}
REGISTER(sample_weigh)

/* Replaces room[i] by the sum of all up to i; returns the sum of all. */
DEVICE u64 running_sums(u64 *room) {
	for (int step = 1; step < threads(); step *= 2) {
		barrier();
		u64 before = thread() >= step ? room[thread() - step] : 0;
		barrier();
		room[thread()] += before;
	}
	barrier();
	return room[threads() - 1];
}

/* The n-th largest of a draw's peaks: at least n tokens are no smaller. −∞ where there are
 * fewer peaks. */
DEVICE float nth_peak(const float *peaks, int parts, int n, float *room, float *found) {
	if (thread() < parts) room[thread()] = peaks[thread()];
	if (thread() == 0) *found = -INFINITE;
	barrier();
	if (thread() < parts) {
		int before = 0;
		for (int i = 0; i < parts; i++) before += room[i] > room[thread()] || (room[i] == room[thread()] && i < thread());
		if (before == n - 1) *found = room[thread()];
	}
	barrier();
	float x = *found;
	barrier();
	return x;
}

/* Lists the tokens whose number is at least least, in no order; *count is beyond most where
 * there is no room for all. logits, which may be absent, gets theirs of row. */
DEVICE void list_from(Candidate *to, float *logits, const float *row, int most, int *count, const float *numbers, const float *peaks, float least, int vocab, bool weights) {
	if (thread() == 0) *count = 0;
	barrier();
	for (int part = warp(); part < parts_of(vocab); part += threads() / WARP) {
		if (!weights && !(peaks[part] >= least)) continue;
		int end = (part + 1) * PART < vocab ? (part + 1) * PART : vocab;
		for (int i = part * PART + lane(); i < end; i += WARP) {
			float x = numbers[i];
			if (!(x >= least) || !(x > (weights ? 0 : -INFINITE))) continue;
			int at = shared_add(count, 1);
			if (at >= most) continue;
			to[at].number = x, to[at].token = i;
			if (logits) logits[at] = row[i];
		}
	}
	barrier();
}

/* Whole numbers in the order of the numbers, and back. */
DEVICE u32 key_of(float x) {
	u32 bits = float_to_bits(x);
	return bits >> 31 ? ~bits : bits | 0x80000000u;
}
DEVICE float number_of_key(u32 key) { return bits_to_float(key >> 31 ? key & 0x7fffffffu : ~key); }

/* A number that at least n and at most most tokens reach, by halving what is between the
 * smallest and the largest; where equal ones allow none, one that n reach. */
DEVICE float least_of(float top, int n, int most, const float *numbers, int vocab, int *count) {
	u32 low = key_of(-INFINITE), high = key_of(top);
	while (high - low > 1) {
		u32 middle = low + (high - low) / 2;
		if (thread() == 0) *count = 0;
		barrier();
		int mine = 0;
		for (int i = thread(); i < vocab; i += threads()) mine += numbers[i] >= number_of_key(middle);
		shared_add(count, mine);
		barrier();
		int reach = *count;
		barrier();
		if (reach < n) high = middle;
		else low = middle;
		if (reach >= n && reach <= most) break;
	}
	return number_of_key(low);
}

/* Lists the n likeliest tokens, and some more. */
DEVICE void list_likeliest(Candidate *to, float *logits, const float *row, int most, int *count, int n, float top, const float *numbers, const float *peaks, int vocab, float *room, float *one) {
	list_from(to, logits, row, most, count, numbers, peaks, nth_peak(peaks, parts_of(vocab), n, room, one), vocab, false);
	int listed = *count;
	barrier();
	if (listed <= most) return;
	list_from(to, logits, row, most, count, numbers, peaks, least_of(top, n, most, numbers, vocab, count), vocab, false);
}

/* The first token of those with the largest logit. */
DEVICE int first_of(float top, const float *numbers, const float *peaks, int vocab, int *found) {
	if (thread() == 0) *found = vocab;
	barrier();
	for (int part = warp(); part < parts_of(vocab); part += threads() / WARP) {
		if (peaks[part] != top) continue;
		int end = (part + 1) * PART < vocab ? (part + 1) * PART : vocab;
		for (int i = part * PART + lane(); i < end; i += WARP)
			if (numbers[i] == top) shared_min(found, i);
	}
	barrier();
	return *found;
}

/* The token at which the running sum of weights passes share of them all. */
DEVICE int drawn(u64 share, const float *weights, const u64 *sums, int vocab, u64 *room, int *found) {
	const int parts = parts_of(vocab);
	room[thread()] = thread() < parts ? sums[thread()] : 0;
	u64 all = running_sums(room), want = (u64)((double)share * (double)all / 9007199254740992.0);
	if (want >= all) want = all - 1;
	if (thread() == 0) *found = 0;
	barrier();
	if (thread() < parts && room[thread()] > want && (thread() == 0 || room[thread() - 1] <= want)) *found = thread();
	barrier();
	int part = *found, first = part * PART;
	if (part > 0) want -= room[part - 1];
	barrier();
	room[thread()] = first + thread() < vocab ? fixed(weights[first + thread()]) : 0;
	running_sums(room);
	if (room[thread()] > want && (thread() == 0 || room[thread() - 1] <= want)) *found = first + thread();
	barrier();
	return *found;
}

/* The least weight that a candidate may have: what min-p allows, or the power of two from which
 * on the weights reach what top-p keeps. */
DEVICE float least_weight(const Draw &draw, const u64 *bins, u64 sum) {
	float least = draw.top_p < 1 ? 0 : 0.999f * (draw.min_p < 1 ? draw.min_p : 1); /* the host compares again */
	if (draw.top_p < 1) {
		u64 reached = 0;
		/* A little more, so that no rounding of the host's finds too few. */
		double want = (double)sum * (double)draw.top_p * 1.000001;
		for (int i = 0; i < BINS; i++) {
			reached += bins[i];
			if ((double)reached >= want) {
				least = bits_to_float((u32)(127 - i) << 23);
				break;
			}
		}
	}
	return least;
}

/* Says what of a draw's row is left. */
KERNEL sample_pick(Rest *rests, Lists *lists, const float *work, const u64 *sums, const u64 *row_sums, const u64 *bins, const float *peaks,
	const float *row_peaks, const float *logits, int stride, int vocab, const Draw *draws) {
	const int d = block_x(), parts = parts_of(vocab);
	const Draw &draw = draws[d];
	Rest &rest = rests[d];
	u64 *room = (u64 *)shared();
	float *numbers = (float *)(room + PICK_THREADS), *one = numbers + PICK_THREADS;
	int *found = (int *)(one + WARP);
	const float *x = work + (long long)d * vocab, *row = logits + (long long)draw.row * stride;
	peaks += d * parts, row_peaks += d * parts, sums += d * parts, row_sums += d * parts, bins += d * BINS;
	const float top = peak_of_all(peaks, parts, one), row_top = peak_of_all(row_peaks, parts, one);
	room[thread()] = thread() < parts ? sums[thread()] : 0;
	const u64 sum = running_sums(room);
	barrier();
	room[thread()] = thread() < parts ? row_sums[thread()] : 0;
	const u64 row_sum = running_sums(room);
	barrier();
	int token = 0, status = finite(top) ? 0 : top > 0 ? 1 : 2;
	if (status == 0 && draw.kind == 0) token = first_of(top, x, peaks, vocab, found);
	if (status == 0 && draw.kind == 1) token = drawn(draw.share, x, sums, vocab, room, found);
	if (thread() == 0) {
		rest.status = status, rest.token = token, rest.top = top, rest.row_top = row_top, rest.sum = sum, rest.row_sum = row_sum;
		rest.row_finite = finite(row_top), rest.row_logit = row[token], rest.count = rest.tops_count = 0;
	}
	if (status == 0 && draw.kind == 2) {
		Lists &l = lists[d];
		if (draw.top_k > 0) list_likeliest(l.candidates, l.logits, row, CANDIDATES_MAX, found, draw.top_k, top, x, peaks, vocab, numbers, one);
		else list_from(l.candidates, l.logits, row, CANDIDATES_MAX, found, x, peaks, least_weight(draw, bins, sum), vocab, true);
		if (thread() == 0) rest.count = *found;
		barrier();
	}
	if (draw.tops > 0 && finite(row_top)) {
		list_likeliest(lists[d].tops, 0, 0, TOPS_MAX, found, draw.tops, row_top, row, row_peaks, vocab, numbers, one);
		if (thread() == 0) rest.tops_count = *found;
	}
}
REGISTER(sample_pick)
