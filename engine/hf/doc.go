// Package hf opens a model's folder as Hugging Face lays it out: config.json and
// *.safetensors, with the tokenizer's files beside them.
//
// Goal: the folder becomes the gguf.File that llama.cpp's converter would have made
// of it, so that one description of architectures computes both. A key of
// config.json that is not known to be harmless is refused by name, as is a tensor
// that the model as configured would not use: a model is computed as its makers
// meant, or not at all. Where the converter drops what changes the numbers (the
// window of mistral, the scale of gemma 3's queries) the File has it.
//
// Model types: llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, gemma3_text, and
// gemma3 with its text part alone: images are not supported, and the tensors that
// see them are left out.
//
// Non-goals: reading tokenizers and templates (engine/tokenizer and engine/chat read
// the bytes that a Folder carries), weights in other files than safetensors, and
// weights that are quantised already.
//
// Ownership: closing Folder.File releases the weights' mappings. The other files'
// bytes are copies and stay.
package hf
