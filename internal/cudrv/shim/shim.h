/* What the shim offers beside the driver's names. */
#ifndef FOREBAY_SHIM_H
#define FOREBAY_SHIM_H

#include <stddef.h>

#define FOREBAY_CUDA_NO_LIBRARY (-1)

/* forebay_cuda_open loads the driver library at path and starts the driver. It
 * returns the driver's CUresult, or FOREBAY_CUDA_NO_LIBRARY with a reason in
 * problem. Until it has returned 0 every driver function returns
 * CUDA_ERROR_NO_DEVICE. Call it once. */
int forebay_cuda_open(const char *path, char *problem, size_t size);

#endif
