/* AVX-512: a tile of dots is a grid of vectors, each the lanes of one dot.
 *
 * Few dots a row are the decoding's, whose keys and values come from memory: they are prefetched. */
#include "backends/cpu/avx512_tile.h"

#include "backends/cpu/avx512_lanes.h"
#include "backends/cpu/kernels.h"

/* ---- Decoded panels against several activation rows ---- */

enum {
    TILE_TOKENS = 4,
    FEW_ROWS = 8,      /* panel rows against fewer activation rows than that */
    AHEAD_BYTES = 4096 /* prefetched before they are wanted */
};

/* R weight rows from r on against T activation rows from t on; R and T are constants. */
INLINE void tile_dots(const struct tile *tile, size_t r, size_t t, int R, int T)
{
    const float *w = tile->panel + r * tile->stride;
    const float *x = tile->x + t * tile->ldx;
    float *kept = tile->lanes ? tile->lanes + (r * tile->tokens + t) * LANES : NULL;
    size_t whole = tile->cols / LANES * LANES;
    __mmask16 rest = first_lanes(tile->cols % LANES);
    __m512 lanes[AVX512_TILE_ROWS][TILE_TOKENS];

    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int j = 0; j < T; j++)
            lanes[i][j] = kept && !tile->first ? _mm512_loadu_ps(kept + ((size_t)i * tile->tokens + (size_t)j) * LANES)
                                               : _mm512_setzero_ps();
    }
    for (size_t k = 0; k < whole; k += LANES) {
        __m512 xv[TILE_TOKENS];

        UNROLL
        for (int j = 0; j < T; j++)
            xv[j] = _mm512_loadu_ps(x + (size_t)j * tile->ldx + k);
        UNROLL
        for (int i = 0; i < R; i++) {
            __m512 wv = _mm512_loadu_ps(w + (size_t)i * tile->stride + k);

            UNROLL
            for (int j = 0; j < T; j++)
                lanes[i][j] = _mm512_fmadd_ps(wv, xv[j], lanes[i][j]);
        }
    }
    if (rest) {
        UNROLL
        for (int i = 0; i < R; i++) {
            __m512 wv = _mm512_loadu_ps(w + (size_t)i * tile->stride + whole);

            UNROLL
            for (int j = 0; j < T; j++)
                lanes[i][j] =
                    _mm512_fmadd_ps(wv, _mm512_maskz_loadu_ps(rest, x + (size_t)j * tile->ldx + whole), lanes[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        if (kept && !tile->last) {
            UNROLL
            for (int j = 0; j < T; j++)
                _mm512_storeu_ps(kept + ((size_t)i * tile->tokens + (size_t)j) * LANES, lanes[i][j]);
        } else {
            float sums[TILE_TOKENS];

            _mm_storeu_ps(sums, sum_four(lanes[i][0], T > 1 ? lanes[i][1] : lanes[i][0],
                                         T > 2 ? lanes[i][2] : lanes[i][0], T > 3 ? lanes[i][3] : lanes[i][0]));
            UNROLL
            for (int j = 0; j < T; j++)
                tile->y[(t + (size_t)j) * tile->ldy + r + (size_t)i] = sums[j];
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

/* FEW_ROWS panel rows from r on against all T activation rows, a constant: what scores of single tokens are. */
INLINE void few_dots(const struct tile *tile, size_t r, int T)
{
    const float *w = tile->panel + r * tile->stride;
    __m512 lanes[FEW_ROWS][TILE_TOKENS];

    UNROLL
    for (int i = 0; i < FEW_ROWS; i++) {
        UNROLL
        for (int j = 0; j < T; j++)
            lanes[i][j] = _mm512_setzero_ps();
    }
    for (size_t k = 0; k < tile->cols; k += LANES) {
        __m512 xv[TILE_TOKENS];

        UNROLL
        for (int j = 0; j < T; j++)
            xv[j] = _mm512_loadu_ps(tile->x + (size_t)j * tile->ldx + k);
        UNROLL
        for (int i = 0; i < FEW_ROWS; i++) {
            const float *at = w + (size_t)i * tile->stride + k;
            __m512 wv = _mm512_loadu_ps(at);

            _mm_prefetch((const char *)at + AHEAD_BYTES, _MM_HINT_T0);
            UNROLL
            for (int j = 0; j < T; j++)
                lanes[i][j] = _mm512_fmadd_ps(wv, xv[j], lanes[i][j]);
        }
    }
    UNROLL
    for (int j = 0; j < T; j++) {
        UNROLL
        for (int i = 0; i < FEW_ROWS; i += 4)
            _mm_storeu_ps(tile->y + (size_t)j * tile->ldy + r + (size_t)i,
                          sum_four(lanes[i][j], lanes[i + 1][j], lanes[i + 2][j], lanes[i + 3][j]));
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

void tile_avx512(const struct tile *tile)
{
    size_t r = tile_few(tile);

    for (; r + AVX512_TILE_ROWS <= tile->rows; r += AVX512_TILE_ROWS)
        tile_rows(tile, r, AVX512_TILE_ROWS);
    for (; r + 2 <= tile->rows; r += 2)
        tile_rows(tile, r, 2);
    if (r < tile->rows)
        tile_rows(tile, r, 1);
}

/* ---- Weighted sums of value rows ---- */

/* R rows from r on, D vectors of channels from d on; constants. */
INLINE void mix_sums(const struct mix *mix, size_t r, size_t d, int R, int D)
{
    const float *weight = mix->weight + r * mix->ldw;
    const float *value = mix->value + d;
    float *out = mix->out + r * mix->ldo + d;
    __m512 sum[6][4];

    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < D; v++)
            sum[i][v] = _mm512_loadu_ps(out + (size_t)i * mix->ldo + (size_t)v * LANES);
    }
    for (size_t j = 0; j < mix->count; j++) {
        __m512 row[4];

        UNROLL
        for (int v = 0; v < D; v++)
            row[v] = _mm512_loadu_ps(value + j * mix->ldv + (size_t)v * LANES);
        UNROLL
        for (int v = 0; v < D; v++)
            _mm_prefetch((const char *)(value + j * mix->ldv + (size_t)v * LANES) + AHEAD_BYTES, _MM_HINT_T0);
        UNROLL
        for (int i = 0; i < R; i++) {
            __m512 w = _mm512_set1_ps(weight[(size_t)i * mix->ldw + j]);

            UNROLL
            for (int v = 0; v < D; v++)
                sum[i][v] = _mm512_fmadd_ps(w, row[v], sum[i][v]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < D; v++)
            _mm512_storeu_ps(out + (size_t)i * mix->ldo + (size_t)v * LANES, sum[i][v]);
    }
}

INLINE void mix_rows(const struct mix *mix, size_t r, int R)
{
    size_t d = 0;

    for (; d + (size_t)4 * LANES <= mix->width; d += (size_t)4 * LANES)
        mix_sums(mix, r, d, R, 4);
    for (; d + (size_t)2 * LANES <= mix->width; d += (size_t)2 * LANES)
        mix_sums(mix, r, d, R, 2);
    for (; d < mix->width; d += LANES)
        mix_sums(mix, r, d, R, 1);
}

void mix_avx512(const struct mix *mix)
{
    size_t r = 0;

    for (; r + 6 <= mix->rows; r += 6)
        mix_rows(mix, r, 6);
    for (; r + 3 <= mix->rows; r += 3)
        mix_rows(mix, r, 3);
    for (; r < mix->rows; r++)
        mix_rows(mix, r, 1);
}
