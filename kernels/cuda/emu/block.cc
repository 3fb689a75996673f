/* The fibers of a block, and where they meet. */
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

#include "block.h"
#include "emu.h"

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emu {

Place here;
Kernel *kernels;

namespace {

constexpr size_t stack_bytes = 64 << 10;

#ifdef __x86_64__
extern "C" void emu_switch(void **from, void *to);
__asm__(R"(
	.text
	.globl emu_switch
	.type emu_switch, @function
emu_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
)");
typedef void *Context;
void change(Context *from, Context *to) { emu_switch(from, *to); }
void prepare(Context *c, char *stack, void (*entry)()) {
	void **top = (void **)(stack + stack_bytes) - 1; /* entry begins 8 below a multiple of 16, as after a call */
	*--top = (void *)entry;
	top -= 6; /* the registers that the switch takes back */
	*c = top;
}
#else
typedef ucontext_t Context;
void change(Context *from, Context *to) { swapcontext(from, to); }
void prepare(Context *c, char *stack, void (*entry)()) {
	getcontext(c);
	c->uc_stack.ss_sp = stack;
	c->uc_stack.ss_size = stack_bytes;
	c->uc_link = nullptr;
	makecontext(c, entry, 0);
}
#endif

enum State { ready, at_warp, at_barrier, gone };

struct Fiber {
	Context context;
	State state;
	unsigned phase; /* of the meeting that it waits for */
};

std::vector<Fiber> fibers;
std::vector<Warp> warps;
std::vector<char> room; /* shared memory, with space to align it */
char *stacks;
Context scheduler;
int running, arrived;
unsigned phase;
void (*call)(const char *);
const char *parameters;
const char *name;
Fault fault;

void pause() { change(&fibers[running].context, &scheduler); }

void entry() {
	call(parameters);
	fibers[running].state = gone;
	pause();
}

bool able(const Fiber &f, const Warp &w) {
	switch (f.state) {
	case ready: return true;
	case at_warp: return w.phase != f.phase;
	case at_barrier: return phase != f.phase;
	default: return false;
	}
}

/* Numbers that are the same in every run. */
u32 seed;
u32 next_random() { return seed = seed * 1664525u + 1013904223u; }

void order_threads(std::vector<int> &order, Order how) {
	int n = order.size();
	for (int i = 0; i < n; i++) order[i] = how == reverse ? n - 1 - i : i;
	if (how == random_order)
		for (int i = n - 1; i > 0; i--) std::swap(order[i], order[(next_random() >> 8) % (i + 1)]);
}

void report_stuck() {
	int waiting[4] = {};
	for (auto &f : fibers) waiting[f.state]++;
	if (!fault.code) {
		fault.code = launch_failed;
		snprintf(fault.message, sizeof fault.message,
			"kernel %s, block (%d,%d,%d): %d threads wait at a word of their warp, %d at a barrier, %d have left; none can go on",
			name, here.block[0], here.block[1], here.block[2], waiting[at_warp], waiting[at_barrier], waiting[gone]);
	}
}

} // namespace

void fail(int code, const char *format, ...) {
	if (!fault.code) {
		fault.code = code;
		int n = snprintf(fault.message, sizeof fault.message, "kernel %s, block (%d,%d,%d), thread %d: ",
			name, here.block[0], here.block[1], here.block[2], here.thread);
		va_list args;
		va_start(args, format);
		vsnprintf(fault.message + n, sizeof fault.message - n, format, args);
		va_end(args);
	}
	for (;;) pause();
}

void meet_block() {
	Fiber &f = fibers[running];
	if (++arrived == (int)fibers.size()) {
		arrived = 0;
		phase++;
		return;
	}
	f.phase = phase;
	f.state = at_barrier;
	pause();
}

const Slots &exchange(const char *word, const void *mine, size_t bytes, void (*last)(Slots &)) {
	Warp &w = *here.warp;
	unsigned now = w.phase;
	int lane = here.thread % warp_size;
	if (w.arrived == 0) w.word = word;
	else if (strcmp(w.word, word)) fail(launch_failed, "the lane is at %s while others of its warp are at %s", word, w.word);
	memcpy(w.slots[now & 1][lane], mine, bytes);
	if (++w.arrived == w.size) {
		if (last) last(w.slots[now & 1]);
		w.arrived = 0;
		w.phase++;
	} else {
		Fiber &f = fibers[running];
		f.phase = now;
		f.state = at_warp;
		pause();
	}
	return w.slots[now & 1];
}

Fault run_block(const Kernel *kernel, const char *with, const int block[3], int threads, size_t shared_bytes, Order how) {
	if (!stacks) {
		stacks = (char *)mmap(nullptr, stack_bytes * threads_max, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (stacks == MAP_FAILED) abort();
	}
	call = kernel->call, parameters = with, name = kernel->name;
	fault = {};
	arrived = 0, phase = 0;
	fibers.resize(threads);
	warps.resize((threads + warp_size - 1) / warp_size);
	room.assign(shared_bytes + 16, (char)0xff); /* NaN */
	here.threads = threads;
	here.shared = (char *)(((uintptr_t)room.data() + 15) / 16 * 16);
	memcpy(here.block, block, sizeof here.block);
	for (size_t i = 0; i < warps.size(); i++) {
		warps[i].arrived = 0, warps[i].phase = 0;
		warps[i].size = std::min(warp_size, threads - (int)i * warp_size);
	}
	static std::vector<int> order;
	order.resize(threads);
	for (int i = 0; i < threads; i++) {
		fibers[i].state = ready;
		prepare(&fibers[i].context, stacks + stack_bytes * i, entry);
	}
	seed = block[0] * 31 + block[1] * 17 + block[2] + 1;
	order_threads(order, how);
	for (int left = threads; left > 0;) {
		bool moved = false;
		for (int i : order) {
			Fiber &f = fibers[i];
			if (f.state == gone || !able(f, warps[i / warp_size])) continue;
			f.state = ready;
			running = here.thread = i;
			here.warp = &warps[i / warp_size];
			change(&scheduler, &f.context);
			moved = true;
			if (fault.code) return fault;
			if (f.state == gone) left--;
		}
		if (!moved) {
			report_stuck();
			return fault;
		}
		if (how == random_order) order_threads(order, how);
	}
	return fault;
}

} // namespace emu
