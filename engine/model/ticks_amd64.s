//go:build !purego

#include "textflag.h"

// func ticks() int64
//
// Not fenced: an instruction or two may move past it, which is nothing beside
// a phase.
TEXT ·ticks(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
