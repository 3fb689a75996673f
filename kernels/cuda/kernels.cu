/* All kernels, as one module. */
#include "attention.cu"
#include "matmul.cu"
#include "rows.cu"
#include "sample.cu"
