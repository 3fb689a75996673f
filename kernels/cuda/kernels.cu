/* All kernels, as one module. */
#include "attention.cu"
#include "matmul.cu"
#include "rows.cu"
#include "recurrent.cu"
#include "sample.cu"
