// Package hf opens a Hugging Face model folder: config.json and *.safetensors,
// with the tokenizer's files.
//
// Goal: the folder becomes the gguf.File that llama.cpp's converter would make, so
// that one description of each architecture serves both formats. A key of
// config.json that is not known to be harmless is refused by name, and so is a
// tensor that the configured model would not use: a model is computed exactly or
// not at all. If the converter drops a value that changes the numbers (the window
// of mistral, the scale of gemma 3's queries), the File has it.
//
// Model types are the rows of families, and the text parts of the wrappers.
// Images are not supported, and their tensors are left out.
//
// Non-goals: reading tokenizers and templates (engine/tokenizer and engine/chat
// read the bytes in a Folder), weights in other files than safetensors, and
// quantised weights but FP8 (e4m3) and NVFP4, which become bfloat16, and the MXFP4 of gpt-oss.
//
// Ownership: closing Folder.File releases the weights' mappings. The bytes of the
// other files are copies and stay valid.
package hf
