// Package safetensors reads tensors from *.safetensors files: one, or a set that
// an index names.
//
// Goal: a file that comes from anywhere is either read exactly or refused with an
// error that names the file, the byte and the field, as the format's own reader
// does: the header's length is bounded, tensors lie one after another without holes
// and overlaps, and fill the file. Opening costs memory for the directory alone.
//
// Non-goals: what a tensor means (engine/hf decides), writing, and types of numbers
// beyond their size.
//
// Ownership: a File owns its mappings. Tensor.Data points into them and dies with
// Close. A File does not change after Open and may be read by many goroutines.
package safetensors
