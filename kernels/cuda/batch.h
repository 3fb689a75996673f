/* The tokens of one step, as every kernel that depends on them reads them. It lies in
 * the device's memory and changes from step to step, so that a launch with the same
 * parameters serves every step: blocks of rows that a step does not have leave. */
#ifndef FOREBAY_BATCH_H
#define FOREBAY_BATCH_H

#include "device.h"

struct Batch {
	int rows;        /* tokens */
	int logits_rows; /* tokens whose logits are asked for */
	int capacity;    /* length of each of the arrays that follow, one after another */
	int unused;
	/* int tokens[capacity], positions[capacity]
	 * int tables[capacity]: where the row's page table begins in pages
	 * int logits[capacity]: the rows whose logits are asked for
	 * int pages[] */
};

DEVICE const int *tokens_of(const Batch *b) { return (const int *)(b + 1); }
DEVICE const int *positions_of(const Batch *b) { return tokens_of(b) + b->capacity; }
DEVICE const int *tables_of(const Batch *b) { return tokens_of(b) + 2 * b->capacity; }
DEVICE const int *logits_of(const Batch *b) { return tokens_of(b) + 3 * b->capacity; }
DEVICE const int *pages_of(const Batch *b) { return tokens_of(b) + 4 * b->capacity; }

#endif
