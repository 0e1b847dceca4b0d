/* Matrix products: rows of weights in chunks, dealt to the threads; a dot is never cut between two of them.  A thread's
 * chunks lie behind each other, so that what a kernel prefetches at the end of one is the start of its next.
 *
 * One activation row: the weights stream through the path's vector kernel of their type, where it has one.  Otherwise a
 * panel of a few weight rows is decoded to f32 once and multiplied with a block of activation rows that stays in the
 * second-level cache, laid out anew once where the path likes that.  Wide matrices are worked in blocks of columns with
 * the dots' chains kept between them. */
#include "backends/cpu/compute_private.h"

#include "base/size.h"

enum {
    MAX_PRODUCTS = 16,
    CHUNK_ROWS = 12,             /* chunks are multiples: of 3, 4 and 6 rows a panel */
    CHUNK_BYTES = 32 * 1024,     /* of packed weights: a few microseconds, enough to hide the dealing */
    CHUNKS_PER_THREAD = 4,       /* at least, as far as rows allow */
    WHOLE_COLS = PANEL_MAX_COLS, /* this many at a time, or ... */
    BLOCKED_COLS = 768,          /* ... blocks of these: panel and four activation rows fit the first-level cache */
    BLOCK_BYTES = 512 * 1024,    /* of activations that stay in the second-level cache */
    UNIT_WORK = 2 * 1024 * 1024  /* multiply-adds: communication waits for its turn some 50 us, not more */
};

/* One product cut into chunks of weight rows x blocks of tokens; units are numbered block by block. */
struct cut {
    const struct product *product;
    size_t chunk_rows;
    size_t chunk_count;
    size_t block_count;
    size_t first_unit;
};

struct product_job {
    struct compute *compute;
    size_t rows;
    int count;
    struct cut cut[MAX_PRODUCTS];
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t divide_up(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

static size_t token_blocks(size_t rows, size_t cols)
{
    size_t fit = BLOCK_BYTES / sizeof(float) / (cols ? cols : 1) / 4 * 4;

    fit = fit < 16 ? 16 : smaller(fit, TILE_MAX_TOKENS);
    return divide_up(rows, fit);
}

/* Chunks of one size throughout a list of products, so that equal shares of chunks are equal shares of work. */
static size_t choose_chunk_bytes(const struct product *list, int count, int threads)
{
    size_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += (size_t)list[i].w->rows * list[i].w->row_bytes;
    return smaller(CHUNK_BYTES, bytes / (size_t)(threads * CHUNKS_PER_THREAD));
}

static void cut_product(struct cut *cut, const struct product *product, size_t rows, size_t chunk_bytes)
{
    const struct matrix *w = product->w;
    size_t blocks = token_blocks(rows, (size_t)w->cols);
    size_t wanted = chunk_bytes / (w->row_bytes + 1) + 1;

    wanted = smaller(wanted, UNIT_WORK / (divide_up(rows, blocks) * (size_t)w->cols + 1) + 1);
    cut->product = product;
    cut->chunk_rows = divide_up(wanted, CHUNK_ROWS) * CHUNK_ROWS;
    cut->chunk_count = divide_up((size_t)w->rows, cut->chunk_rows);
    cut->block_count = blocks;
}

static void decode_panel(const struct compute *compute, const struct matrix *w, uint64_t row, size_t rows,
                         size_t first_col, size_t cols, float *panel, size_t stride)
{
    decode_kernel *decode = compute->kernels->decode[w->type];
    size_t skipped = first_col / weight_block_length(w->type) * weight_block_bytes(w->type);

    for (size_t r = 0; r < rows; r++) {
        const unsigned char *packed = w->data + (row + r) * w->row_bytes + skipped;
        float *values = panel + r * stride;

        if (decode)
            decode(packed, cols, values);
        else
            compute->kernels->row->decode(w->type, packed, cols, values);
        for (size_t k = cols; k < stride; k++)
            values[k] = 0.0f;
    }
}

static size_t column_step(size_t cols)
{
    return cols <= WHOLE_COLS ? cols : BLOCKED_COLS;
}

/* Lay a block of tokens out in this thread's memory, one block of columns behind the other, unless it lies there: a
 * thread's units are mostly of one block, and products of one list often have the same activations. */
static bool pack_block(const struct kernels *kernels, struct scratch *scratch, const struct product *product,
                       size_t token, size_t tokens)
{
    size_t cols = (size_t)product->w->cols;
    size_t step = column_step(cols);
    size_t padded = (tokens + PACK_TOKENS - 1) / PACK_TOKENS * PACK_TOKENS;
    struct packed from = {product->x + token * product->ldx, product->ldx, tokens, cols};
    struct packed *held = &scratch->packed_from;

    if (!kernels->pack || tokens < PACK_MIN_TOKENS || cols + LANES > PACKED_FLOATS / padded)
        return false;
    if (held->x == from.x && held->ldx == from.ldx && held->tokens == tokens && held->cols == cols)
        return true;
    for (size_t col = 0; col < cols; col += step)
        kernels->pack(from.x + col, from.ldx, tokens, smaller(step, cols - col), scratch->packed + col * padded);
    *held = from;
    return true;
}

/* One panel against one block of tokens, all columns. */
static void multiply_panel(const struct compute *compute, struct scratch *scratch, const struct product *product,
                           uint64_t row, size_t rows, size_t token, size_t tokens, bool packed)
{
    const struct matrix *w = product->w;
    size_t cols = (size_t)w->cols;
    size_t step = column_step(cols);
    size_t padded = (tokens + PACK_TOKENS - 1) / PACK_TOKENS * PACK_TOKENS;
    struct tile tile = {.panel = scratch->panel,
                        .rows = rows,
                        .ldx = product->ldx,
                        .tokens = tokens,
                        .lanes = step < cols ? scratch->lanes : NULL,
                        .ldy = product->ldy};

    tile.y = product->y + token * product->ldy + row;
    for (size_t col = 0; col == 0 || col < cols; col += step) {
        tile.cols = smaller(step, cols - col);
        tile.stride = (tile.cols + LANES - 1) / LANES * LANES;
        tile.x = product->x + token * product->ldx + col;
        tile.packed = packed ? scratch->packed + col * padded : NULL;
        tile.first = col == 0;
        tile.last = col + tile.cols == cols;
        decode_panel(compute, w, row, rows, col, tile.cols, scratch->panel, tile.stride);
        compute->kernels->tile(&tile);
        if (!cols)
            return;
    }
}

static void add_bias(const struct product *product, uint64_t row, size_t rows, size_t token, size_t tokens)
{
    if (!product->bias)
        return;
    for (size_t t = token; t < token + tokens; t++) {
        for (size_t r = (size_t)row; r < row + rows; r++)
            product->y[t * product->ldy + r] += product->bias[r];
    }
}

static void run_unit(const struct product_job *job, struct scratch *scratch, const struct cut *cut, size_t unit)
{
    const struct product *product = cut->product;
    const struct kernels *kernels = job->compute->kernels;
    vector_kernel *vector = job->rows == 1 ? kernels->vector[product->w->type] : NULL;
    size_t row = unit % cut->chunk_count * cut->chunk_rows;
    size_t rows = smaller(cut->chunk_rows, (size_t)product->w->rows - row);
    size_t block = unit / cut->chunk_count;
    size_t token = (size_t)share_start(job->rows, cut->block_count, block);
    size_t tokens = (size_t)share_count(job->rows, cut->block_count, block);

    if (vector) {
        vector(product->w, row, rows, product->x, product->y + row);
    } else {
        bool packed = pack_block(kernels, scratch, product, token, tokens);
        size_t panel_rows = packed ? kernels->packed_rows : kernels->panel_rows;

        for (size_t r = 0; r < rows; r += panel_rows)
            multiply_panel(job->compute, scratch, product, row + r, smaller(panel_rows, rows - r), token, tokens,
                           packed);
    }
    add_bias(product, row, rows, token, tokens);
}

static void product_work(void *context, int thread, int threads)
{
    struct product_job *job = context;
    struct scratch *scratch = job->compute->scratch[thread];
    size_t unit;

    (void)threads;
    scratch->packed_from.x = NULL;
    while (compute_take(job->compute, thread, &unit)) {
        const struct cut *cut = job->cut;

        while (unit - cut->first_unit >= cut->chunk_count * cut->block_count)
            cut++;
        run_unit(job, scratch, cut, unit - cut->first_unit);
    }
}

void product_run(struct compute *compute, const struct product *list, int count, size_t rows)
{
    struct product_job job = {.compute = compute, .rows = rows, .count = count};
    size_t chunk_bytes = choose_chunk_bytes(list, count, compute->threads);
    size_t multiply_adds = 0;
    size_t units = 0;

    CHECK(count >= 0 && count <= MAX_PRODUCTS);
    if (!rows)
        return;
    for (int i = 0; i < count; i++) {
        cut_product(&job.cut[i], &list[i], rows, chunk_bytes);
        job.cut[i].first_unit = units;
        units += job.cut[i].chunk_count * job.cut[i].block_count;
        multiply_adds += rows * (size_t)list[i].w->rows * (size_t)list[i].w->cols;
    }
    compute_deal(compute, units, compute->threads);
    compute_run(compute, product_work, &job, multiply_adds);
}
