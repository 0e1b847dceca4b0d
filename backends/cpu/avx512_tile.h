/* Decoded panels against activation rows, and weighted sums of value rows, for AVX-512: kernels.h has the contracts. */
#ifndef BACKENDS_CPU_AVX512_TILE_H
#define BACKENDS_CPU_AVX512_TILE_H

struct tile;
struct mix;

#if defined(FERRY_EMULATE_AVX512)
#define tile_avx512 tile_avx512_emulated
#define mix_avx512 mix_avx512_emulated
#endif

enum { AVX512_TILE_ROWS = 6 };

void tile_avx512(const struct tile *tile);
void mix_avx512(const struct mix *mix);

#endif
