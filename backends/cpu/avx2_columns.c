/* Dots of many activation rows, with eight of them in a vector.
 *
 * Where lanes lie side by side in vectors a tile ends in shuffles that add them up, and its activation rows come from
 * the second-level cache again for every panel.  So the rows are laid out anew once: in groups of at most 24 tokens,
 * each [lane, step, token], where column 16 step + lane is a row's.  A tile of 4 weight rows x 24 tokens walks one lane
 * after the other: 12 chains in registers, one straight line of loads, the weights broadcast from the panel in the
 * first-level cache.  Lanes are walked in the order 0, 8, 4, 12, 2, ..., in which the tree of their sum needs at most
 * four halves to be kept. */
#include "backends/cpu/avx2_columns.h"

#include <immintrin.h>
#include <string.h>

#include "backends/cpu/inline.h"
#include "backends/cpu/kernels.h"

enum {
    WIDTH = 8,       /* tokens in a vector */
    MAX_VECTORS = 3, /* of a group */
    LEVELS = 4       /* of the tree over the lanes */
};

/* Vectors of the coming group, left being two or more.  One alone has too few chains to hide what an addition takes, so
 * four are two and two. */
static size_t group_vectors(size_t left)
{
    return left == 2 || left == 4 ? 2 : MAX_VECTORS;
}

/* ---- Laying out ---- */

INLINE void transpose(__m256 v[WIDTH])
{
    __m256 a[WIDTH];
    __m256 b[WIDTH];

    UNROLL
    for (int i = 0; i < WIDTH; i += 2) {
        a[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    UNROLL
    for (int i = 0; i < WIDTH; i += 4) {
        UNROLL
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm256_shuffle_ps(a[i + j], a[i + 2 + j], 0x44);
            b[i + 2 * j + 1] = _mm256_shuffle_ps(a[i + j], a[i + 2 + j], 0xee);
        }
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

/* Eight columns of up to eight rows, zeros for the missing ones, to out, out + stride, ... */
INLINE void lay_out(const float *x, size_t ldx, size_t rows, size_t cols, float *out, size_t stride)
{
    __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(cols < WIDTH ? (int)cols : WIDTH),
                                      _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256 v[WIDTH];

    UNROLL
    for (size_t i = 0; i < WIDTH; i++)
        v[i] = i < rows ? _mm256_maskload_ps(x + i * ldx, mask) : _mm256_setzero_ps();
    transpose(v);
    UNROLL
    for (size_t i = 0; i < WIDTH; i++)
        _mm256_storeu_ps(out + i * stride, v[i]);
}

void pack_avx2(const float *x, size_t ldx, size_t tokens, size_t cols, float *out)
{
    size_t steps = (cols + LANES - 1) / LANES;
    size_t vectors = (tokens + WIDTH - 1) / WIDTH;

    for (size_t v = 0; v < vectors;) {
        size_t group = group_vectors(vectors - v);
        size_t stride = steps * group * WIDTH; /* from a lane to the next */

        for (size_t i = 0; i < group; i++, v++) {
            const float *rows = x + v * WIDTH * ldx;

            for (size_t k = 0; k < steps; k++) {
                float *to = out + (k * group + i) * WIDTH;
                size_t left = cols - k * LANES;

                lay_out(rows + k * LANES, ldx, tokens - v * WIDTH, left, to, stride);
                lay_out(rows + k * LANES + WIDTH, ldx, tokens - v * WIDTH, left > WIDTH ? left - WIDTH : 0,
                        to + WIDTH * stride, stride);
            }
        }
        out += LANES * stride;
    }
}

/* ---- Multiplying ---- */

/* Where a tile is; R weight rows and V vectors of tokens are constants. */
struct place {
    const float *panel;
    const float *x; /* of the group */
    float *kept;    /* [LANES, R, V, WIDTH], or NULL */
    float *y;       /* of the first row and token */
    size_t tokens;  /* of the group that there are */
    size_t steps;
};

/* The chains of one lane go on. */
INLINE void add_lane(const struct tile *tile, const float *w, const float *x, size_t steps, int R, int V,
                     __m256 sum[4][MAX_VECTORS])
{
    for (size_t k = 0; k < steps; k++) {
        __m256 xv[MAX_VECTORS];

        UNROLL
        for (int v = 0; v < V; v++)
            xv[v] = _mm256_loadu_ps(x + v * WIDTH);
        UNROLL
        for (int r = 0; r < R; r++) {
            __m256 wv = _mm256_broadcast_ss(w + (size_t)r * tile->stride);

            UNROLL
            for (int v = 0; v < V; v++)
                sum[r][v] = _mm256_fmadd_ps(wv, xv[v], sum[r][v]);
        }
        x += V * WIDTH;
        w += LANES;
    }
}

INLINE void load_sums(const float *from, int R, int V, __m256 sum[4][MAX_VECTORS])
{
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int v = 0; v < V; v++)
            sum[r][v] = from ? _mm256_loadu_ps(from + (r * V + v) * WIDTH) : _mm256_setzero_ps();
    }
}

INLINE void store_sums(float *to, int R, int V, __m256 sum[4][MAX_VECTORS])
{
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int v = 0; v < V; v++)
            _mm256_storeu_ps(to + (r * V + v) * WIDTH, sum[r][v]);
    }
}

/* Four rows of eight tokens to where they belong. */
INLINE void store_four(float *y, size_t ldy, __m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 ab = _mm256_unpacklo_ps(a, b);
    __m256 cd = _mm256_unpacklo_ps(c, d);
    __m256 AB = _mm256_unpackhi_ps(a, b);
    __m256 CD = _mm256_unpackhi_ps(c, d);
    __m256 token[4] = {_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee),
                       _mm256_shuffle_ps(AB, CD, 0x44), _mm256_shuffle_ps(AB, CD, 0xee)};

    UNROLL
    for (size_t i = 0; i < 4; i++) {
        _mm_storeu_ps(y + i * ldy, _mm256_castps256_ps128(token[i]));
        _mm_storeu_ps(y + (i + 4) * ldy, _mm256_extractf128_ps(token[i], 1));
    }
}

INLINE void finish(const struct tile *tile, const struct place *place, int R, int V, __m256 sum[4][MAX_VECTORS])
{
    size_t whole = R == 4 ? place->tokens / WIDTH : 0;
    float rest[4 * MAX_VECTORS * WIDTH];

    UNROLL
    for (size_t v = 0; v < (size_t)V; v++) {
        if (v < whole)
            store_four(place->y + v * WIDTH * tile->ldy, tile->ldy, sum[0][v], sum[1][v], sum[2][v], sum[3][v]);
    }
    if (whole == (size_t)V)
        return;
    store_sums(rest, R, V, sum);
    for (size_t t = whole * WIDTH; t < place->tokens; t++) {
        for (int r = 0; r < R; r++)
            place->y[t * tile->ldy + (size_t)r] = rest[(size_t)(r * V) * WIDTH + t];
    }
}

/* Lanes 0, 8, 4, 12, ...: whenever both halves of a sum are there they are added, so that each addition of the tree
 * is lanes i and i + 8, then i + 4, i + 2, i + 1. */
INLINE void sum_lanes(const struct tile *tile, const struct place *place, int R, int V)
{
    size_t floats = (size_t)(R * V) * WIDTH;
    float half[LEVELS][4 * MAX_VECTORS * WIDTH];
    __m256 sum[4][MAX_VECTORS];
    int level = 0;

    for (unsigned n = 0; n < LANES; n++) {
        unsigned lane = (n & 1) << 3 | (n & 2) << 1 | (n & 4) >> 1 | n >> 3;

        load_sums(tile->first ? NULL : place->kept + lane * floats, R, V, sum);
        add_lane(tile, place->panel + lane, place->x + lane * place->steps * (size_t)V * WIDTH, place->steps, R, V,
                 sum);
        if (!tile->last) {
            store_sums(place->kept + lane * floats, R, V, sum);
            continue;
        }
        for (level = 0; n >> level & 1; level++) {
            UNROLL
            for (int r = 0; r < R; r++) {
                UNROLL
                for (int v = 0; v < V; v++)
                    sum[r][v] = _mm256_add_ps(sum[r][v], _mm256_loadu_ps(half[level] + (r * V + v) * WIDTH));
            }
        }
        if (level < LEVELS)
            store_sums(half[level], R, V, sum);
    }
    if (tile->last)
        finish(tile, place, R, V, sum);
}

INLINE void run_rows(const struct tile *tile, const struct place *place, int R, int V)
{
    if (V == 2)
        sum_lanes(tile, place, R, 2);
    else
        sum_lanes(tile, place, R, MAX_VECTORS);
}

void columns_avx2(const struct tile *tile)
{
    size_t steps = (tile->cols + LANES - 1) / LANES;
    size_t vectors = (tile->tokens + WIDTH - 1) / WIDTH;
    const float *x = tile->packed;

    for (size_t v = 0; v < vectors;) {
        size_t group = group_vectors(vectors - v);
        size_t token = v * WIDTH;
        struct place place = {.x = x, .steps = steps};

        place.tokens = tile->tokens - token < group * WIDTH ? tile->tokens - token : group * WIDTH;
        for (size_t r = 0; r < tile->rows;) {
            size_t rows = tile->rows - r < AVX2_COLUMN_ROWS ? 1 : AVX2_COLUMN_ROWS;

            place.panel = tile->panel + r * tile->stride;
            place.y = tile->y + token * tile->ldy + r;
            place.kept = tile->lanes ? tile->lanes + (r * vectors + rows * v) * WIDTH * LANES : NULL;
            if (rows == 1)
                run_rows(tile, &place, 1, (int)group);
            else
                run_rows(tile, &place, AVX2_COLUMN_ROWS, (int)group);
            r += rows;
        }
        x += LANES * steps * group * WIDTH;
        v += group;
    }
}
