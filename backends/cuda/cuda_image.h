/* The kernels as nvcc made them, for cudaLibraryLoadData; the build writes it. */
#ifndef BACKENDS_CUDA_IMAGE_H
#define BACKENDS_CUDA_IMAGE_H

extern const unsigned char cuda_kernel_image[];

#endif
