/* How weights of each type lie in the device's memory, and how eight of them are read.
 *
 * A block of a GGUF file has fields: quants, scales, the scales' scale. On the device
 * each field of all blocks of a matrix lies together, in a plane, so that a warp reads
 * whole lines. The planes follow each other, each at a multiple of 256 bytes. The
 * numbers are ggml's, bit for bit. */
#ifndef FOREBAY_TYPES_H
#define FOREBAY_TYPES_H

#include "device.h"
#include "codebooks.h"

/* The types, numbered as in GGUF files. */
#define F32 0
#define F16 1
#define Q4_0 2
#define Q4_1 3
#define Q5_0 6
#define Q5_1 7
#define Q8_0 8
#define Q2_K 10
#define Q3_K 11
#define Q4_K 12
#define Q5_K 13
#define Q6_K 14
#define IQ2_XXS 16
#define IQ2_XS 17
#define IQ3_XXS 18
#define IQ1_S 19
#define IQ4_NL 20
#define IQ3_S 21
#define IQ2_S 22
#define IQ4_XS 23
#define IQ1_M 29
#define BF16 30
#define TQ1_0 34
#define TQ2_0 35
#define MXFP4 39

/* A block: its elements, and the bytes of its fields in the order of the planes. */
template <int T> struct Block;
#define BLOCK(type, n, a, b, c, d) \
	template <> struct Block<type> { static const int elements = n, p0 = a, p1 = b, p2 = c, p3 = d; };
BLOCK(F32, 1, 4, 0, 0, 0)
BLOCK(F16, 1, 2, 0, 0, 0)
BLOCK(BF16, 1, 2, 0, 0, 0)
BLOCK(Q8_0, 32, 32, 2, 0, 0)   /* quants, d */
BLOCK(Q4_0, 32, 16, 2, 0, 0)   /* nibbles, d */
BLOCK(Q4_1, 32, 16, 4, 0, 0)   /* nibbles, d and m */
BLOCK(Q5_0, 32, 16, 4, 2, 0)   /* nibbles, high bits, d */
BLOCK(Q5_1, 32, 16, 4, 4, 0)   /* nibbles, high bits, d and m */
BLOCK(IQ4_NL, 32, 16, 2, 0, 0) /* nibbles, d */
BLOCK(MXFP4, 32, 16, 1, 0, 0)  /* nibbles, e */
BLOCK(Q2_K, 256, 64, 16, 4, 0)    /* pairs of bits, scales, d and dmin */
BLOCK(Q3_K, 256, 64, 32, 12, 2)   /* pairs of bits, high bits, scales, d */
BLOCK(Q4_K, 256, 128, 12, 4, 0)   /* nibbles, scales, d and dmin */
BLOCK(Q5_K, 256, 128, 32, 12, 4)  /* nibbles, high bits, scales, d and dmin */
BLOCK(Q6_K, 256, 128, 64, 16, 2)  /* nibbles, pairs of high bits, scales, d */
BLOCK(IQ4_XS, 256, 128, 8, 0, 0)  /* nibbles, d and scales */
BLOCK(IQ1_S, 256, 32, 16, 2, 0)   /* low bytes of codes, the rest of them with scales, d */
BLOCK(IQ1_M, 256, 32, 16, 8, 0)   /* low bytes of codes, the rest of them, scales with d */
BLOCK(IQ2_XXS, 256, 64, 2, 0, 0)  /* codes, signs and scales; d */
BLOCK(IQ2_XS, 256, 64, 8, 2, 0)   /* codes and signs, scales, d */
BLOCK(IQ2_S, 256, 64, 16, 2, 0)   /* low bytes of codes and signs, high bits and scales, d */
BLOCK(IQ3_XXS, 256, 64, 32, 2, 0) /* codes, signs and scales, d */
BLOCK(IQ3_S, 256, 64, 44, 2, 0)   /* low bytes of codes; high bits, signs and scales; d */
BLOCK(TQ1_0, 256, 52, 2, 0, 0)    /* digits in base 3, d */
BLOCK(TQ2_0, 256, 64, 2, 0, 0)    /* pairs of bits, d */

/* A matrix of rows×cols: where the fields of a row's first block are. */
template <int T> struct Row {
	const u8 *p0, *p1, *p2, *p3;
};
template <int T> DEVICE Row<T> row_of(const u8 *data, long long rows, int cols, long long row) {
	typedef Block<T> B;
	const long long blocks = cols / B::elements, all = rows * blocks, at = row * blocks;
	const u8 *p0 = data, *p1 = p0 + (all * B::p0 + 255) / 256 * 256, *p2 = p1 + (all * B::p1 + 255) / 256 * 256,
			*p3 = p2 + (all * B::p2 + 255) / 256 * 256;
	Row<T> r = {p0 + at * B::p0, p1 + at * B::p1, p2 + at * B::p2, p3 + at * B::p3};
	return r;
}

/* Eight weights of a row: four from column k0 on, and four from column k1 on. */
struct Octet {
	float w[8];
	int k0, k1;
};

DEVICE int nibble(u32 bytes, int i, int high) { return bytes >> (8 * i + 4 * high) & 15; }
DEVICE u32 byte_of(u32 bytes, int i) { return bytes >> (8 * i) & 255; }
DEVICE float low_half(u32 x) { return half_to_float((u16)x); }
DEVICE float high_half(u32 x) { return half_to_float((u16)(x >> 16)); }

/* A table of sixteen signed bytes. */
DEVICE float of_table(u64 low, u64 high, int n) { return (float)(s8)((n < 8 ? low : high) >> (8 * (n & 7))); }
DEVICE float iq4(int n) { return of_table(0xf6eaddcfbfad9881ull, 0x7159453526190d01ull, n); }
DEVICE float e2m1(int n) { return of_table(0x0c08060403020100ull, 0xf4f8fafcfdfeff00ull, n); }
DEVICE float half_power(int e) { return bits_to_float(e < 2 ? 0x00200000u << e : (u32)(e - 1) << 23); }

/* Scale and minimum of sub-block j, of the twelve bytes that Q4_K and Q5_K have. */
DEVICE void scale_min(const u8 *packed, int j, int *scale, int *min) {
	if (j < 4) {
		*scale = packed[j] & 63, *min = packed[j + 4] & 63;
	} else {
		*scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
		*min = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
	}
}

template <int T> struct Reader;

template <> struct Reader<F32> {
	DEVICE void read(const Row<F32> &r, int o, Octet *t) {
		Four a = load_four((const float *)r.p0 + 8 * o), b = load_four((const float *)r.p0 + 8 * o + 4);
		for (int i = 0; i < 4; i++) t->w[i] = a.v[i], t->w[i + 4] = b.v[i];
		t->k0 = 8 * o, t->k1 = 8 * o + 4;
	}
};

template <> struct Reader<F16> {
	DEVICE void read(const Row<F16> &r, int o, Octet *t) {
		u64 a = load_u64(r.p0 + 16 * o), b = load_u64(r.p0 + 16 * o + 8);
		for (int i = 0; i < 4; i++) t->w[i] = half_to_float((u16)(a >> 16 * i)), t->w[i + 4] = half_to_float((u16)(b >> 16 * i));
		t->k0 = 8 * o, t->k1 = 8 * o + 4;
	}
};

template <> struct Reader<BF16> {
	DEVICE void read(const Row<BF16> &r, int o, Octet *t) {
		u64 a = load_u64(r.p0 + 16 * o), b = load_u64(r.p0 + 16 * o + 8);
		for (int i = 0; i < 4; i++) t->w[i] = bfloat_to_float((u16)(a >> 16 * i)), t->w[i + 4] = bfloat_to_float((u16)(b >> 16 * i));
		t->k0 = 8 * o, t->k1 = 8 * o + 4;
	}
};

template <> struct Reader<Q8_0> {
	DEVICE void read(const Row<Q8_0> &r, int o, Octet *t) {
		u64 q = load_u64(r.p0 + 8 * o);
		float d = half_to_float(load_u16(r.p1 + o / 4 * 2));
		for (int i = 0; i < 8; i++) t->w[i] = d * (float)(s8)(q >> 8 * i);
		t->k0 = 8 * o, t->k1 = 8 * o + 4;
	}
};

/* In the types with nibbles a byte has the elements j and j+16 of a block. */
DEVICE u32 nibbles_at(const u8 *p, int o, Octet *t) {
	int block = o / 4, c = o % 4 * 4;
	t->k0 = 32 * block + c, t->k1 = t->k0 + 16;
	return load_u32(p + 16 * block + c);
}

template <> struct Reader<Q4_0> {
	DEVICE void read(const Row<Q4_0> &r, int o, Octet *t) {
		u32 q = nibbles_at(r.p0, o, t);
		float d = half_to_float(load_u16(r.p1 + o / 4 * 2));
		for (int i = 0; i < 8; i++) t->w[i] = d * (float)(nibble(q, i % 4, i / 4) - 8);
	}
};

template <> struct Reader<Q4_1> {
	DEVICE void read(const Row<Q4_1> &r, int o, Octet *t) {
		u32 q = nibbles_at(r.p0, o, t), dm = load_u32(r.p1 + o / 4 * 4);
		float d = low_half(dm), m = high_half(dm);
		for (int i = 0; i < 8; i++) t->w[i] = add_rounded(mul_rounded(d, (float)nibble(q, i % 4, i / 4)), m);
	}
};

/* The nibble of element i of eight with the fifth bit that high has for it. */
DEVICE int five_bits(u32 q, u32 high, int o, int i) {
	int element = o % 4 * 4 + i % 4 + i / 4 * 16;
	return nibble(q, i % 4, i / 4) | (int)(high >> element & 1) << 4;
}

template <> struct Reader<Q5_0> {
	DEVICE void read(const Row<Q5_0> &r, int o, Octet *t) {
		u32 q = nibbles_at(r.p0, o, t), high = load_u32(r.p1 + o / 4 * 4);
		float d = half_to_float(load_u16(r.p2 + o / 4 * 2));
		for (int i = 0; i < 8; i++) t->w[i] = d * (float)(five_bits(q, high, o, i) - 16);
	}
};

template <> struct Reader<Q5_1> {
	DEVICE void read(const Row<Q5_1> &r, int o, Octet *t) {
		u32 q = nibbles_at(r.p0, o, t), high = load_u32(r.p1 + o / 4 * 4), dm = load_u32(r.p2 + o / 4 * 4);
		float d = low_half(dm), m = high_half(dm);
		for (int i = 0; i < 8; i++) t->w[i] = add_rounded(mul_rounded(d, (float)five_bits(q, high, o, i)), m);
	}
};

template <> struct Reader<IQ4_NL> {
	DEVICE void read(const Row<IQ4_NL> &r, int o, Octet *t) {
		u32 q = nibbles_at(r.p0, o, t);
		float d = half_to_float(load_u16(r.p1 + o / 4 * 2));
		for (int i = 0; i < 8; i++) t->w[i] = d * iq4(nibble(q, i % 4, i / 4));
	}
};

template <> struct Reader<MXFP4> {
	DEVICE void read(const Row<MXFP4> &r, int o, Octet *t) {
		u32 q = nibbles_at(r.p0, o, t);
		float d = half_power(r.p1[o / 4]);
		for (int i = 0; i < 8; i++) t->w[i] = d * e2m1(nibble(q, i % 4, i / 4));
	}
};

template <> struct Reader<IQ4_XS> {
	DEVICE void read(const Row<IQ4_XS> &r, int o, Octet *t) {
		u32 q = nibbles_at(r.p0, o, t);
		const u8 *head = r.p1 + o / 32 * 8;
		int j = o / 4 % 8;
		int scale = ((head[4 + j / 2] >> (j % 2 * 4) & 15) | (load_u16(head + 2) >> (2 * j) & 3) << 4) - 32;
		float d = mul_rounded(half_to_float(load_u16(head)), (float)scale);
		for (int i = 0; i < 8; i++) t->w[i] = d * iq4(nibble(q, i % 4, i / 4));
	}
};

/* In Q4_K and Q5_K the low nibbles of 32 bytes are a sub-block, the high ones the next. */
DEVICE u32 pair_at(const u8 *p, int o, Octet *t) {
	int block = o / 32, pair = o % 32 / 8, c = o % 8 * 4;
	t->k0 = 256 * block + 64 * pair + c, t->k1 = t->k0 + 32;
	return load_u32(p + 128 * block + 32 * pair + c);
}

template <> struct Reader<Q4_K> {
	DEVICE void read(const Row<Q4_K> &r, int o, Octet *t) {
		u32 q = pair_at(r.p0, o, t), dd = load_u32(r.p2 + o / 32 * 4);
		for (int h = 0; h < 2; h++) {
			int scale, min;
			scale_min(r.p1 + o / 32 * 12, o % 32 / 8 * 2 + h, &scale, &min);
			float d = mul_rounded(low_half(dd), (float)scale), m = mul_rounded(high_half(dd), (float)min);
			for (int i = 0; i < 4; i++) t->w[4 * h + i] = add_rounded(mul_rounded(d, (float)nibble(q, i, h)), -m);
		}
	}
};

template <> struct Reader<Q5_K> {
	DEVICE void read(const Row<Q5_K> &r, int o, Octet *t) {
		u32 q = pair_at(r.p0, o, t), dd = load_u32(r.p3 + o / 32 * 4), high = load_u32(r.p1 + o / 32 * 32 + o % 8 * 4);
		for (int h = 0; h < 2; h++) {
			int scale, min, j = o % 32 / 8 * 2 + h;
			scale_min(r.p2 + o / 32 * 12, j, &scale, &min);
			float d = mul_rounded(low_half(dd), (float)scale), m = mul_rounded(high_half(dd), (float)min);
			for (int i = 0; i < 4; i++) {
				int n = nibble(q, i, h) | (int)(byte_of(high, i) >> j & 1) << 4;
				t->w[4 * h + i] = add_rounded(mul_rounded(d, (float)n), -m);
			}
		}
	}
};

template <> struct Reader<Q6_K> {
	DEVICE void read(const Row<Q6_K> &r, int o, Octet *t) {
		int block = o / 32, half = o % 32 / 16, k = o % 16 / 8, c = o % 8 * 4;
		u32 low = load_u32(r.p0 + 128 * block + 64 * half + 32 * k + c), high = load_u32(r.p1 + 64 * block + 32 * half + c);
		float d = half_to_float(load_u16(r.p3 + 2 * block));
		int first = 128 * half + 32 * k + c; /* in the block; the second four are 64 further */
		t->k0 = 256 * block + first, t->k1 = t->k0 + 64;
		for (int h = 0; h < 2; h++) {
			float by = mul_rounded(d, (float)(s8)r.p2[16 * block + (first + 64 * h) / 16]);
			for (int i = 0; i < 4; i++) {
				int q = nibble(low, i, h) | (int)(byte_of(high, i) >> (2 * (k + 2 * h)) & 3) << 4;
				t->w[4 * h + i] = by * (float)(q - 32);
			}
		}
	}
};

template <> struct Reader<Q2_K> {
	DEVICE void read(const Row<Q2_K> &r, int o, Octet *t) {
		int block = o / 32, half = o % 32 / 16, pair = o % 16 / 8 * 2, c = o % 8 * 4;
		u32 q = load_u32(r.p0 + 64 * block + 32 * half + c), dd = load_u32(r.p2 + 4 * block);
		int first = 128 * half + 32 * pair + c;
		t->k0 = 256 * block + first, t->k1 = t->k0 + 32;
		for (int h = 0; h < 2; h++) {
			int s = r.p1[16 * block + (first + 32 * h) / 16];
			float d = mul_rounded(low_half(dd), (float)(s & 15)), m = mul_rounded(high_half(dd), (float)(s >> 4));
			for (int i = 0; i < 4; i++) {
				int n = byte_of(q, i) >> (2 * (pair + h)) & 3;
				t->w[4 * h + i] = add_rounded(mul_rounded(d, (float)n), -m);
			}
		}
	}
};

template <> struct Reader<Q3_K> {
	DEVICE void read(const Row<Q3_K> &r, int o, Octet *t) {
		int block = o / 32, half = o % 32 / 16, pair = o % 16 / 8 * 2, c = o % 8 * 4;
		u32 q = load_u32(r.p0 + 64 * block + 32 * half + c), high = load_u32(r.p1 + 32 * block + c);
		const u8 *packed = r.p2 + 12 * block;
		float d = half_to_float(load_u16(r.p3 + 2 * block));
		int first = 128 * half + 32 * pair + c;
		t->k0 = 256 * block + first, t->k1 = t->k0 + 32;
		for (int h = 0; h < 2; h++) {
			int s = (first + 32 * h) / 16;
			int scale = (packed[s % 8] >> (s / 8 * 4) & 15) | (packed[8 + s % 4] >> (s / 4 * 2) & 3) << 4;
			float by = mul_rounded(d, (float)(scale - 32));
			for (int i = 0; i < 4; i++) {
				int n = byte_of(q, i) >> (2 * (pair + h)) & 3;
				if (!(byte_of(high, i) >> (4 * half + pair + h) & 1)) n -= 4;
				t->w[4 * h + i] = by * (float)n;
			}
		}
	}
};

/* In the types with codes, eight weights that follow each other are octet i of a block. */
DEVICE int in_block(int o, Octet *t) {
	t->k0 = 8 * o, t->k1 = 8 * o + 4;
	return o % 32;
}
DEVICE float half_at(const u8 *p, int block) { return half_to_float(load_u16(p + 2 * block)); }
DEVICE int nibble_of(const u8 *p, int i) { return p[i / 2] >> (i % 2 * 4) & 15; }

/* What the types IQ2 and IQ3 multiply a code's numbers with. */
DEVICE float code_scale(float d, int s, float by) { return mul_rounded(mul_rounded(d, 0.5f + (float)s), by); }
/* Seven signs, and an eighth that makes the number of minus signs even. */
DEVICE u32 even_signs(u32 bits) {
	u32 parity = bits ^ bits >> 4;
	parity ^= parity >> 2;
	parity ^= parity >> 1;
	return bits | (parity & 1) << 7;
}
DEVICE float signed_by(float x, u32 signs, int i) { return bits_to_float(float_to_bits(x) ^ (signs >> i & 1) << 31); }

/* Eight numbers of 8, 25 and 43, whose code has two bits for each. */
DEVICE void read_code2(Octet *t, float d, u32 code, u32 signs) {
	for (int i = 0; i < 8; i++) t->w[i] = signed_by(mul_rounded(d, (float)(0x2b1908u >> (8 * (code >> 2 * i & 3)) & 255)), signs, i);
}
/* Four numbers of eight, whose code has three bits for each. numbers has them in its bytes. */
DEVICE void read_code3(float *w, float d, u64 numbers, u32 code, u32 signs) {
	for (int i = 0; i < 4; i++) w[i] = signed_by(mul_rounded(d, (float)(numbers >> (8 * (code >> 3 * i & 7)) & 255)), signs, i);
}
/* Eight numbers of −1, 0 and 1, moved by an eighth up, or down. */
DEVICE void read_code1(Octet *t, float d, u32 code, bool down) {
	for (int i = 0; i < 8; i++) t->w[i] = mul_rounded(d, (float)((int)(code >> 2 * i & 3) - 1) + (down ? -0.125f : 0.125f));
}

template <> struct Reader<IQ2_XXS> {
	DEVICE void read(const Row<IQ2_XXS> &r, int o, Octet *t) {
		const int i = in_block(o, t);
		const u8 *codes = r.p0 + o / 4 * 8;
		const u32 word = load_u32(codes + 4);
		read_code2(t, code_scale(half_at(r.p1, o / 32), word >> 28, 0.25f), iq2xxs_codes[codes[i % 4]], even_signs(word >> 7 * (i % 4) & 127));
	}
};

template <> struct Reader<IQ2_XS> {
	DEVICE void read(const Row<IQ2_XS> &r, int o, Octet *t) {
		const int i = in_block(o, t), code = load_u16(r.p0 + 2 * o);
		read_code2(t, code_scale(half_at(r.p2, o / 32), nibble_of(r.p1 + o / 32 * 8, i / 2), 0.25f), iq2xs_codes[code & 511], even_signs(code >> 9));
	}
};

template <> struct Reader<IQ2_S> {
	DEVICE void read(const Row<IQ2_S> &r, int o, Octet *t) {
		const int i = in_block(o, t);
		const u8 *low = r.p0 + o / 32 * 64, *high = r.p1 + o / 32 * 16;
		const int code = low[i] | (high[i / 4] >> (i % 4 * 2) & 3) << 8;
		read_code2(t, code_scale(half_at(r.p2, o / 32), nibble_of(high + 8, i / 2), 0.25f), iq2s_codes[code], low[32 + i]);
	}
};

template <> struct Reader<IQ3_XXS> {
	DEVICE void read(const Row<IQ3_XXS> &r, int o, Octet *t) {
		const int i = in_block(o, t);
		const u8 *codes = r.p0 + 2 * o;
		const u32 word = load_u32(r.p1 + o / 4 * 4), signs = even_signs(word >> 7 * (i % 4) & 127);
		const float d = code_scale(half_at(r.p2, o / 32), word >> 28, 0.5f);
		for (int h = 0; h < 2; h++) read_code3(t->w + 4 * h, d, 0x3e342c241c140c04ull, iq3xxs_codes[codes[h]], signs >> 4 * h);
	}
};

template <> struct Reader<IQ3_S> {
	DEVICE void read(const Row<IQ3_S> &r, int o, Octet *t) {
		const int i = in_block(o, t);
		const u8 *low = r.p0 + 2 * o, *high = r.p1 + o / 32 * 44, *signs = high + 8, *scales = high + 40;
		const float d = mul_rounded(half_at(r.p2, o / 32), (float)(1 + 2 * nibble_of(scales, i / 4)));
		for (int h = 0; h < 2; h++) {
			const int code = low[h] | (high[i / 4] >> (i % 4 * 2 + h) & 1) << 8;
			read_code3(t->w + 4 * h, d, 0x0f0d0b0907050301ull, iq3s_codes[code], signs[i] >> 4 * h);
		}
	}
};

template <> struct Reader<IQ1_S> {
	DEVICE void read(const Row<IQ1_S> &r, int o, Octet *t) {
		const int i = in_block(o, t), word = load_u16(r.p1 + o / 4 * 2), code = r.p0[o] | (word >> (i % 4 * 3) & 7) << 8;
		read_code1(t, mul_rounded(half_at(r.p2, o / 32), (float)(2 * (word >> 12 & 7) + 1)), iq1_codes[code], word >> 15);
	}
};

template <> struct Reader<IQ1_M> {
	DEVICE void read(const Row<IQ1_M> &r, int o, Octet *t) {
		const int i = in_block(o, t), high = nibble_of(r.p1 + o / 32 * 16, i), code = r.p0[o] | (high & 7) << 8;
		const u64 words = load_u64(r.p2 + o / 32 * 8); /* four, each with three bits for each of four scales, and four of d */
		const float d = half_to_float((u16)((words >> 12 & 15) | (words >> 28 & 15) << 4 | (words >> 44 & 15) << 8 | words >> 60 << 12));
		const int s = (int)(words >> (16 * (i / 8) + 3 * (i / 2 % 4))) & 7;
		read_code1(t, mul_rounded(d, (float)(2 * s + 1)), iq1_codes[code], high >> 3);
	}
};

/* A byte is a fraction of 256, whose digits in base 3 are the weights plus one: 32 bytes have
 * five digits each, of elements 32 apart; 16 bytes five, 16 apart; four bytes four, 4 apart. */
template <> struct Reader<TQ1_0> {
	DEVICE void read(const Row<TQ1_0> &r, int o, Octet *t) {
		const int i = in_block(o, t), e = 8 * i;
		const u8 *bytes = r.p0 + o / 32 * 52;
		const float d = half_at(r.p1, o / 32);
		for (int k = 0; k < 8; k++) {
			int at = e % 32 + k, digit = e / 32;
			if (e >= 160) at = 32 + (e - 160) % 16 + k, digit = (e - 160) / 16;
			if (e >= 240) at = 48 + k % 4, digit = (e - 240 + k) / 4;
			const int power = digit < 2 ? 1 + 2 * digit : digit == 2 ? 9 : digit == 3 ? 27 : 81;
			t->w[k] = mul_rounded(d, (float)(((bytes[at] * power & 255) * 3 >> 8) - 1));
		}
	}
};

template <> struct Reader<TQ2_0> {
	DEVICE void read(const Row<TQ2_0> &r, int o, Octet *t) {
		const int i = in_block(o, t);
		const u64 q = load_u64(r.p0 + o / 32 * 64 + i / 16 * 32 + i % 4 * 8) >> (i / 4 % 4 * 2);
		const float d = half_at(r.p1, o / 32);
		for (int k = 0; k < 8; k++) t->w[k] = mul_rounded(d, (float)((int)(q >> 8 * k & 3) - 1));
	}
};

/* Every type once: X(name, TYPE). */
#define EACH_TYPE(X) X(f32, F32) EACH_NARROW_TYPE(X)
#define EACH_NARROW_TYPE(X)                                                                   \
	X(f16, F16) X(bf16, BF16) X(q8_0, Q8_0) X(q4_0, Q4_0) X(q4_1, Q4_1) X(q5_0, Q5_0) \
	X(q5_1, Q5_1) X(q2_k, Q2_K) X(q3_k, Q3_K) X(q4_k, Q4_K) X(q5_k, Q5_K) X(q6_k, Q6_K)           \
	X(iq4_nl, IQ4_NL) X(iq4_xs, IQ4_XS) X(mxfp4, MXFP4) X(iq1_s, IQ1_S) X(iq1_m, IQ1_M)           \
	X(iq2_xxs, IQ2_XXS) X(iq2_xs, IQ2_XS) X(iq2_s, IQ2_S) X(iq3_xxs, IQ3_XXS) X(iq3_s, IQ3_S)     \
	X(tq1_0, TQ1_0) X(tq2_0, TQ2_0)

#endif
