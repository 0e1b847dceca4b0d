/* Tiles of dots, and weighted sums of rows.
 *
 * With 16 registers a tile of 3 x 4 dots keeps half of its lanes at a time: lanes 0..7 over all columns, then 8..15.
 * Few dots a row are the decoding's, whose keys and values come from memory: they are prefetched. */
#include "backends/cpu/avx2_tile.h"

#include <immintrin.h>

#include "backends/cpu/avx2_columns.h"
#include "backends/cpu/avx2_stream.h"
#include "backends/cpu/inline.h"
#include "backends/cpu/kernels.h"

enum {
    HALF = 8, /* floats in a vector */
    TILE_TOKENS = 4,
    FEW_ROWS = 4,
    AHEAD_BYTES = 4096 /* prefetched before they are wanted */
};

/* ---- Decoded panels against several activation rows ---- */

/* -1 in the first count of eight lanes, for masked loads; count may be negative or above eight. */
INLINE __m256i first_lanes(long count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* H halves of the lanes, from the first one on, of R weight rows from r on against T activation rows from t on.  H, R
 * and T are constants. */
INLINE void tile_pass(const struct tile *tile, size_t r, size_t t, int first, int H, int R, int T,
                      __m256 lanes[2][AVX2_TILE_ROWS][TILE_TOKENS])
{
    const float *w = tile->panel + r * tile->stride;
    const float *x = tile->x + t * tile->ldx;
    size_t whole = tile->cols / LANES * LANES;

    for (size_t k = 0; k < whole; k += LANES) {
        UNROLL
        for (int h = first; h < first + H; h++) {
            __m256 wv[AVX2_TILE_ROWS];

            /* Few dots a row, as in decoding: then the panel comes from memory, row behind row. */
            if (T < TILE_TOKENS && h == 0) {
                UNROLL
                for (int i = 0; i < R; i++)
                    _mm_prefetch((const char *)(w + (size_t)i * tile->stride + k) + AHEAD_BYTES, _MM_HINT_T0);
            }
            UNROLL
            for (int i = 0; i < R; i++)
                wv[i] = _mm256_loadu_ps(w + (size_t)i * tile->stride + k + h * HALF);
            UNROLL
            for (int j = 0; j < T; j++) {
                __m256 xv = _mm256_loadu_ps(x + (size_t)j * tile->ldx + k + h * HALF);

                UNROLL
                for (int i = 0; i < R; i++)
                    lanes[h][i][j] = _mm256_fmadd_ps(wv[i], xv, lanes[h][i][j]);
            }
        }
    }
    if (whole == tile->cols)
        return;
    UNROLL
    for (int h = first; h < first + H; h++) {
        __m256i rest = first_lanes((long)(tile->cols - whole) - h * HALF);

        UNROLL
        for (int j = 0; j < T; j++) {
            __m256 xv = _mm256_maskload_ps(x + (size_t)j * tile->ldx + whole + h * HALF, rest);

            UNROLL
            for (int i = 0; i < R; i++) {
                __m256 wv = _mm256_loadu_ps(w + (size_t)i * tile->stride + whole + h * HALF);

                lanes[h][i][j] = _mm256_fmadd_ps(wv, xv, lanes[h][i][j]);
            }
        }
    }
}

/* The sums of the dots, R of them a row of activations, to where they belong. */
INLINE void tile_finish(const struct tile *tile, size_t r, size_t t, int R, int T,
                        __m256 lanes[2][AVX2_TILE_ROWS][TILE_TOKENS])
{
    UNROLL
    for (int i = 0; i < R; i++) {
        float sums[TILE_TOKENS];
        __m256 sum[TILE_TOKENS];

        UNROLL
        for (int j = 0; j < TILE_TOKENS; j++)
            sum[j] = j < T ? _mm256_add_ps(lanes[0][i][j], lanes[1][i][j]) : sum[0];
        _mm_storeu_ps(sums, sum_four(sum[0], sum[1], sum[2], sum[3]));
        UNROLL
        for (int j = 0; j < T; j++)
            tile->y[(t + (size_t)j) * tile->ldy + r + (size_t)i] = sums[j];
    }
}

INLINE void tile_dots(const struct tile *tile, size_t r, size_t t, int R, int T)
{
    float *kept = tile->lanes ? tile->lanes + (r * tile->tokens + t) * LANES : NULL;
    __m256 lanes[2][AVX2_TILE_ROWS][TILE_TOKENS];

    UNROLL
    for (int h = 0; h < 2; h++) {
        UNROLL
        for (int i = 0; i < R; i++) {
            UNROLL
            for (int j = 0; j < T; j++)
                lanes[h][i][j] = kept && !tile->first
                                     ? _mm256_loadu_ps(kept + ((size_t)i * tile->tokens + (size_t)j) * LANES + h * HALF)
                                     : _mm256_setzero_ps();
        }
        /* Few enough dots keep all their lanes at once. */
        if (T > 2)
            tile_pass(tile, r, t, h, 1, R, T, lanes);
        else if (h == 1)
            tile_pass(tile, r, t, 0, 2, R, T, lanes);
    }
    if (!kept || tile->last) {
        tile_finish(tile, r, t, R, T, lanes);
        return;
    }
    UNROLL
    for (int h = 0; h < 2; h++) {
        UNROLL
        for (int i = 0; i < R; i++) {
            UNROLL
            for (int j = 0; j < T; j++)
                _mm256_storeu_ps(kept + ((size_t)i * tile->tokens + (size_t)j) * LANES + h * HALF, lanes[h][i][j]);
        }
    }
}

INLINE void tile_rows(const struct tile *tile, size_t r, int R)
{
    size_t t = 0;

    for (; t + TILE_TOKENS <= tile->tokens; t += TILE_TOKENS)
        tile_dots(tile, r, t, R, TILE_TOKENS);
    if (tile->tokens - t == 3)
        tile_dots(tile, r, t, R, 3);
    else if (tile->tokens - t == 2)
        tile_dots(tile, r, t, R, 2);
    else if (tile->tokens - t == 1)
        tile_dots(tile, r, t, R, 1);
}

/* ---- The same for fewer activation rows than a tile's, as decoding's: four sums are four panel rows' ---- */

/* T activation rows, a constant. */
INLINE void few_dots(const struct tile *tile, size_t r, int T)
{
    const float *w = tile->panel + r * tile->stride;
    __m256 lanes[2][FEW_ROWS][TILE_TOKENS];

    UNROLL
    for (int h = 0; h < 2; h++) {
        UNROLL
        for (int i = 0; i < FEW_ROWS; i++) {
            UNROLL
            for (int j = 0; j < T; j++)
                lanes[h][i][j] = _mm256_setzero_ps();
        }
        for (size_t k = (size_t)h * HALF; k < tile->cols; k += LANES) {
            __m256 xv[TILE_TOKENS];

            UNROLL
            for (int j = 0; j < T; j++)
                xv[j] = _mm256_loadu_ps(tile->x + (size_t)j * tile->ldx + k);
            UNROLL
            for (int i = 0; i < FEW_ROWS; i++) {
                const float *at = w + (size_t)i * tile->stride + k;
                __m256 wv = _mm256_loadu_ps(at);

                /* The panel comes from memory, row behind row. */
                if (h == 0)
                    _mm_prefetch((const char *)at + AHEAD_BYTES, _MM_HINT_T0);
                UNROLL
                for (int j = 0; j < T; j++)
                    lanes[h][i][j] = _mm256_fmadd_ps(wv, xv[j], lanes[h][i][j]);
            }
        }
    }
    UNROLL
    for (int j = 0; j < T; j++) {
        __m256 sum[FEW_ROWS];

        UNROLL
        for (int i = 0; i < FEW_ROWS; i++)
            sum[i] = _mm256_add_ps(lanes[0][i][j], lanes[1][i][j]);
        _mm_storeu_ps(tile->y + (size_t)j * tile->ldy + r, sum_four(sum[0], sum[1], sum[2], sum[3]));
    }
}

/* Whole groups of panel rows; the number of rows done.  Chains that end or begin elsewhere are not for it. */
static size_t tile_few(const struct tile *tile)
{
    size_t rows = tile->rows / FEW_ROWS * FEW_ROWS;

    if (tile->tokens >= TILE_TOKENS || tile->lanes || tile->cols % LANES)
        return 0;
    for (size_t r = 0; r < rows; r += FEW_ROWS) {
        if (tile->tokens == 3)
            few_dots(tile, r, 3);
        else if (tile->tokens == 2)
            few_dots(tile, r, 2);
        else if (tile->tokens == 1)
            few_dots(tile, r, 1);
    }
    return rows;
}

void tile_avx2(const struct tile *tile)
{
    size_t r;

    if (tile->packed) {
        columns_avx2(tile);
        return;
    }
    r = tile_few(tile);
    for (; r + AVX2_TILE_ROWS <= tile->rows; r += AVX2_TILE_ROWS)
        tile_rows(tile, r, AVX2_TILE_ROWS);
    for (; r < tile->rows; r++)
        tile_rows(tile, r, 1);
}

/* ---- Weighted sums of value rows ---- */

/* R rows from r on, D vectors of channels from d on; constants. */
INLINE void mix_sums(const struct mix *mix, size_t r, size_t d, int R, int D)
{
    const float *weight = mix->weight + r * mix->ldw;
    const float *value = mix->value + d;
    float *out = mix->out + r * mix->ldo + d;
    __m256 sum[3][8];

    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < D; v++)
            sum[i][v] = _mm256_loadu_ps(out + (size_t)i * mix->ldo + (size_t)v * HALF);
    }
    for (size_t j = 0; j < mix->count; j++) {
        __m256 w[3];

        UNROLL
        for (int i = 0; i < R; i++)
            w[i] = _mm256_broadcast_ss(weight + (size_t)i * mix->ldw + j);
        UNROLL
        for (int v = 0; v < D; v += 2)
            _mm_prefetch((const char *)(value + j * mix->ldv + (size_t)v * HALF) + AHEAD_BYTES, _MM_HINT_T0);
        UNROLL
        for (int v = 0; v < D; v++) {
            __m256 row = _mm256_loadu_ps(value + j * mix->ldv + (size_t)v * HALF);

            UNROLL
            for (int i = 0; i < R; i++)
                sum[i][v] = _mm256_fmadd_ps(w[i], row, sum[i][v]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < D; v++)
            _mm256_storeu_ps(out + (size_t)i * mix->ldo + (size_t)v * HALF, sum[i][v]);
    }
}

void mix_avx2(const struct mix *mix)
{
    size_t r = 0;

    for (; r + 3 <= mix->rows; r += 3) {
        size_t d = 0;

        for (; d + (size_t)4 * HALF <= mix->width; d += (size_t)4 * HALF)
            mix_sums(mix, r, d, 3, 4);
        if (d < mix->width)
            mix_sums(mix, r, d, 3, 2);
    }
    for (; r < mix->rows; r++) {
        size_t d = 0;

        for (; d + (size_t)8 * HALF <= mix->width; d += (size_t)8 * HALF)
            mix_sums(mix, r, d, 1, 8);
        for (; d < mix->width; d += LANES)
            mix_sums(mix, r, d, 1, 2);
    }
}
