/* The tokens of one step, as every kernel that depends on them reads them. It lies in
 * the device's memory and changes from step to step, so that a launch with the same
 * parameters serves every step: blocks of rows that a step does not have leave. */
#ifndef FOREBAY_BATCH_H
#define FOREBAY_BATCH_H

#include "device.h"

struct Batch {
	int rows;        /* tokens */
	int logits_rows; /* tokens whose logits are asked for */
	int alone;       /* tokens that attention takes one by one, as in decoding */
	int tiles;       /* and groups of tokens of a prompt, that follow each other */
	int capacity;    /* length of each of the arrays that follow, one after another */
	int unused[3];
	/* int tokens[capacity], positions[capacity]
	 * int tables[capacity]: where the row's page table begins in pages
	 * int logits[capacity]: the rows whose logits are asked for
	 * int alone[capacity]: the rows that are taken one by one
	 * int tiles[capacity], tile_tokens[capacity]: the first row of each group, and its size
	 * int pages[] */
};

DEVICE const int *array_of(const Batch *b, int n) { return (const int *)(b + 1) + n * b->capacity; }
DEVICE const int *tokens_of(const Batch *b) { return array_of(b, 0); }
DEVICE const int *positions_of(const Batch *b) { return array_of(b, 1); }
DEVICE const int *tables_of(const Batch *b) { return array_of(b, 2); }
DEVICE const int *logits_of(const Batch *b) { return array_of(b, 3); }
DEVICE const int *alone_of(const Batch *b) { return array_of(b, 4); }
DEVICE const int *tiles_of(const Batch *b) { return array_of(b, 5); }
DEVICE const int *tile_tokens_of(const Batch *b) { return array_of(b, 6); }
DEVICE const int *pages_of(const Batch *b) { return array_of(b, 7); }

#endif
