// Package kerneltest compares a kernel set with ref over all lengths and shapes, and
// checks the promises of kernels.Set: the same bits in any shape, no allocation, NaN and ∞
// where ref has them.
//
// The tolerance is on |got − ref|, with u = 2⁻²⁴ and sums over the terms of one output:
//
//	MatMul      16u·√cols·√Σ(w·x)² + 4u·Σ|w·x|; for types with minima, w is the largest of 16 weights
//	RMSNorm     4u·|ref|
//	Add, Rotate 0
//	Softmax     (16u + 2u·(max x − x))·ref + 2⁻¹⁴⁸: the second part is the rounding of the difference
//	Attend      (64u + 8u·max Scale·Σ|q·k|)·max|v|: the second part is the effect of a score's rounding
//	            with Round, if it changes anything: e·max|v| more, with b = 2⁻⁹,
//	            w = exp((2b+b²)·max Scale·Σ|q·k|)·(1+b) − 1, e = b + 2w/(1−w); and the tolerance
//	            above from plain arithmetic with rounded numbers
//	SoftCap     8u·|ref| + limit·2⁻¹⁴⁸
//	SiLUMul, GELUMul and ClampedSiLUMul, as gate/(1+exp(z))·up
//	            (8u + k·u·max(0, z))·|ref| + 2⁻¹⁴⁸, with k of 0, 4 and 2 for the roundings of z;
//	            from z = 87 on, where the quotient is subnormal, 8u·|ref| + 150·2⁻¹²⁶·max(1, |up|)
//
// Infinities must be equal, and NaN must be where ref has NaN; only a block whose scale is
// infinite may give either.
package kerneltest
