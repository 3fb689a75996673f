// Package gpu computes a model's passes on an NVIDIA GPU: it is a model.Device.
//
// Goal: the logits of package model within the tolerance that its tests state, by the same
// description of the architecture, on a GPU or on the emulated driver. What a description asks
// for and the GPU lacks is refused by name when a model is placed. Non-goals: the arithmetic
// (kernels/cuda), sequences and the page pool (engine, cache).
//
// A row has the same bits in every batch, with any chunking, on any pages: each kernel adds a
// row's numbers in an order of its own. Steps of few rows are graphs, one for each of some
// numbers of rows, made when first needed; a step changes only the block of memory that says
// which tokens it has, so a graph serves all of them. Steady steps allocate nothing.
//
// Logits stay on the device where a sampler's draw can be found there; the filters' last word
// is package sample's.
//
// Without the build tag cuda, Open says that the binary has no GPU part.
package gpu
