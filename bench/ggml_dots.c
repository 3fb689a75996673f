// Times the products of llama.cpp's weights on one core, beside BenchmarkDecodeBesideQ4_K of
// package kernels: rows of 4,096 columns, of a matrix larger than the caches, with one row of
// activations. The quickest 256 rows count.
//
//	gcc -O2 ggml_dots.c -o ggml_dots -ldl
//	LD_LIBRARY_PATH=DIR ./ggml_dots DIR/libggml-cpu-zen4.so
//
// DIR has the libraries of llama.cpp, for instance those of the npm package @node-llama-cpp/linux-x64.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
	void *from_float;
	void (*dot)(int n, float *s, size_t, const void *x, size_t, const void *y, size_t, int rows);
} traits;

enum { COLS = 4096, PIECE = 256, TURNS = 3, MATRIX = 48 << 20, Q8_K = 292 };

static const struct { const char *name; int type, block; } types[] = {
	{"Q4_K", 12, 144}, {"Q2_K", 10, 84}, {"Q3_K", 11, 110}, {"IQ4_XS", 23, 136},
	{"IQ2_XXS", 16, 66}, {"IQ2_XS", 17, 74}, {"IQ2_S", 22, 82}, {"IQ3_XXS", 18, 98}, {"IQ3_S", 21, 110},
	{"IQ1_S", 19, 50}, {"IQ1_M", 29, 56}, {"TQ1_0", 34, 54}, {"TQ2_0", 35, 66},
};

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
	void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!lib) {
		fprintf(stderr, "ggml_dots: give the path of a libggml-cpu: %s\n", argc == 2 ? dlerror() : "none");
		return 1;
	}
	void (*init)(void) = dlsym(lib, "ggml_cpu_init");
	const traits *(*of)(int) = dlsym(lib, "ggml_get_type_traits_cpu");
	if (!init || !of) {
		fprintf(stderr, "ggml_dots: %s has no ggml_cpu_init or no ggml_get_type_traits_cpu\n", argv[1]);
		return 1;
	}
	init();
	static unsigned char x[Q8_K * COLS / 256];
	for (size_t i = 0; i < sizeof x; i++) x[i] = rand();
	for (size_t i = 0; i < sizeof x; i += Q8_K) memcpy(x + i, &(float){0.01f}, 4);
	double q4 = 0;
	for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
		size_t row = COLS / 256 * types[k].block, rows = MATRIX / row / PIECE * PIECE;
		unsigned char *w = malloc(row * rows);
		if (!w) return 1;
		for (size_t i = 0; i < row * rows; i++) w[i] = rand() >> 7;
		double best = 1e18;
		for (int turn = 0; turn < TURNS; turn++) {
			for (size_t r = 0; r < rows; r += PIECE) {
				float s;
				double start = now();
				for (size_t i = r; i < r + PIECE; i++) of(types[k].type)->dot(COLS, &s, 0, w + i * row, 0, x, 0, 1);
				double took = now() - start;
				if (took < best) best = took;
			}
		}
		double each = best / ((double)PIECE * COLS);
		if (k == 0) q4 = each;
		printf("%-8s %5.1f weights/ns, %.2f of Q4_K's time\n", types[k].name, 1 / each, each / q4);
		free(w);
	}
}
