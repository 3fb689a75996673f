// Package safetensors reads tensors from *.safetensors files: one file, or the
// files that an index names.
//
// Goal: any file is either read exactly or refused with an error that names the
// file, the byte and the field. The rules are those of the format's own reader: the
// length of the header is bounded, and the tensors fill the file without gaps or
// overlaps. Opening uses memory for the directory only.
//
// Non-goals: the meaning of a tensor (engine/hf), writing, and number types beyond
// their size.
//
// Ownership: a File owns its mappings. Tensor.Data points into them and must not
// be used after Close. A File does not change after Open and is safe for
// concurrent reads.
package safetensors
