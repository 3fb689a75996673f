// Package ref is the specification of every operation: one clear loop each, in
// plain Go on plain slices. Every other set is compared with it, and it is the
// set that runs where no other does.
//
// Sums are carried in float64, in index order, and rounded to float32 once, so
// a result depends only on its own inputs: the package keeps the promise of bit
// invariance that kernels.Set states.
//
// It is not fast, and it imports no other package of this module. Shapes are checked by package
// kernels; here a wrong one is an index out of range.
package ref
