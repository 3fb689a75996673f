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
	int arrays;      /* how many of these arrays there are */
	int runs;        /* sequences, where they have states */
	int checkpoints; /* of states that are to be kept */
	/* int tokens[capacity], positions[capacity]
	 * int tables[capacity]: where the row's page table begins in pages
	 * int logits[capacity]: the rows whose logits are asked for
	 * int alone[capacity]: the rows that are taken one by one
	 * int tiles[capacity], tile_tokens[capacity]: the first row of each group, and its size
	 *
	 * where sequences have states
	 * int firsts[capacity], states[capacity]: of each row, the first of its sequence, and the slot of its state
	 * int runs[capacity], run_rows[capacity]: the first row of each sequence, and how many it has
	 * int checkpoint_rows[capacity], checkpoint_slots[capacity]: after which row a state is kept, and where
	 *
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
DEVICE const int *firsts_of(const Batch *b) { return array_of(b, 7); }
DEVICE const int *states_of(const Batch *b) { return array_of(b, 8); }
DEVICE const int *runs_of(const Batch *b) { return array_of(b, 9); }
DEVICE const int *run_rows_of(const Batch *b) { return array_of(b, 10); }
DEVICE const int *checkpoint_rows_of(const Batch *b) { return array_of(b, 11); }
DEVICE const int *checkpoint_slots_of(const Batch *b) { return array_of(b, 12); }
DEVICE const int *pages_of(const Batch *b) { return array_of(b, b->arrays); }

#endif
