/* Decoded panels against activation rows, and weighted sums of value rows, for AVX2: kernels.h has the contracts. */
#ifndef BACKENDS_CPU_AVX2_TILE_H
#define BACKENDS_CPU_AVX2_TILE_H

struct tile;
struct mix;

enum { AVX2_TILE_ROWS = 3 };

void tile_avx2(const struct tile *tile);
void mix_avx2(const struct mix *mix);

#endif
