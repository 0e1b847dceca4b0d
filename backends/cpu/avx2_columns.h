/* Dots of many activation rows that were laid out for it, for AVX2: kernels.h has the contracts. */
#ifndef BACKENDS_CPU_AVX2_COLUMNS_H
#define BACKENDS_CPU_AVX2_COLUMNS_H

#include <stddef.h>

struct tile;

enum { AVX2_COLUMN_ROWS = 4 };

void pack_avx2(const float *x, size_t ldx, size_t tokens, size_t cols, float *out);
void columns_avx2(const struct tile *tile);

#endif
