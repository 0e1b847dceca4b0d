/* How fast the CPU backend is on this machine: bytes of weights per second for one activation row beside a plain read
 * of the same bytes by the same threads, multiply-adds per second for many, and attention.
 *
 *   bench_kernels [threads [path ...]]        (default: 1, then avx512 and avx2)
 *   bench_kernels threads --read FILE         only the plain read, of this file's bytes as they are mapped
 *
 * Each figure is the best of several runs; other work on the machine shows. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "base/clock.h"
#include "base/pool.h"

enum { REPEATS = 5, MATRIX_BYTES = 64 << 20, TOKENS = 256 };
static const size_t shapes[] = {576, 1536, 4096};

struct bytes {
    const unsigned char *data;
    size_t count;
    uint64_t sums[POOL_MAX_THREADS * 8];
};

/* Eight independent sums, so that the loads are what takes time. */
static void read_work(void *context, int thread, int threads)
{
    struct bytes *bytes = context;
    size_t words = bytes->count / 64 / (size_t)threads * 8;
    const uint64_t *word = (const uint64_t *)(const void *)bytes->data + words * (size_t)thread;
    uint64_t sum[8] = {0};

    for (size_t i = 0; i < words; i += 8) {
        for (int j = 0; j < 8; j++)
            sum[j] += word[i + (size_t)j];
    }
    for (int j = 1; j < 8; j++)
        sum[0] += sum[j];
    bytes->sums[thread * 8] = sum[0];
}

static double seconds(uint64_t begin)
{
    return (double)(clock_ns() - begin) * 1e-9;
}

static double best_read(int threads, const unsigned char *data, size_t count)
{
    struct bytes bytes = {.data = data, .count = count};
    struct pool *pool = NULL;
    double best = INFINITY;

    if (pool_create(threads, &pool, NULL) != STATUS_OK)
        return 0.0;
    for (int i = 0; i < REPEATS; i++) {
        uint64_t begin = clock_ns();

        pool_run(pool, read_work, &bytes);
        best = fmin(best, seconds(begin));
    }
    pool_destroy(pool);
    return (double)count / best * 1e-9;
}

static void print_read(int threads, const unsigned char *data, size_t count)
{
    printf("plain read by %d thread%s: %.1f GB/s\n", threads, threads > 1 ? "s" : "", best_read(threads, data, count));
}

/* A mapping like the one that products read weights from, pages and all. */
static int read_file(int threads, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    void *data = MAP_FAILED;

    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0)
        data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (data == MAP_FAILED) {
        perror(path);
        return EXIT_FAILURE;
    }
    print_read(threads, data, (size_t)info.st_size);
    munmap(data, (size_t)info.st_size);
    return EXIT_SUCCESS;
}

static double best_product(struct compute *compute, const struct product *product, size_t rows)
{
    double best = INFINITY;

    for (int i = 0; i < REPEATS; i++) {
        uint64_t begin = clock_ns();

        cpu_compute.products(compute, product, 1, rows);
        best = fmin(best, seconds(begin));
    }
    return best;
}

static void bench_type(struct compute *compute, enum weight_type type, const unsigned char *data, const float *x,
                       float *y)
{
    printf("  %-5s", weight_type_name(type));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t cols = shapes[i] / weight_block_length(type) * weight_block_length(type);
        size_t row_bytes = cols / weight_block_length(type) * weight_block_bytes(type);
        struct matrix w = {type, MATRIX_BYTES / row_bytes, cols, row_bytes, data};
        struct product product = {&w, x, cols, y, w.rows, NULL};

        if (i == 1) {
            static const size_t rows[] = {1, 2, 4, 8};

            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                printf(" %6.1f", (double)(w.rows * row_bytes) / best_product(compute, &product, rows[r]) * 1e-9);
            printf(" |");
        }
        w.rows = 1536;
        product.ldy = w.rows;
        printf(" %6.1f", (double)w.rows * (double)cols * TOKENS / best_product(compute, &product, TOKENS) * 1e-9);
    }
    printf("\n");
}

static void bench_attention(struct compute *compute, const float *x, float *out)
{
    static const uint32_t kv_of_head[9] = {0, 0, 0, 1, 1, 1, 2, 2, 2};
    enum { CONTEXT = 2048, HEAD_DIM = 64, LAYERS = 24 };
    float *table = calloc(CONTEXT * HEAD_DIM, sizeof *table);
    size_t layer_bytes = (cpu_compute.cache_bytes(3, HEAD_DIM, CONTEXT) + 63) / 64 * 64;
    unsigned char *cache = aligned_alloc(64, LAYERS * layer_bytes);
    struct segment segment = {.cache = cache};
    struct attention a = {.q = x,
                          .ldq = 576,
                          .k = x,
                          .ldk = 192,
                          .v = x,
                          .ldv = 192,
                          .out = out,
                          .ldo = 576,
                          .heads = 9,
                          .kv_heads = 3,
                          .kv_of_head = kv_of_head,
                          .head_dim = HEAD_DIM,
                          .scale = 0.125f,
                          .rope_cos = table,
                          .rope_sin = table,
                          .context = CONTEXT,
                          .segments = &segment,
                          .segment_count = 1};
    double chunk = INFINITY;
    double token = INFINITY;

    if (!table || !cache)
        abort();
    memset(cache, 0, LAYERS * layer_bytes);
    for (int i = 0; i < REPEATS; i++) {
        uint64_t begin = clock_ns();

        for (segment.position = 0; segment.position < CONTEXT; segment.position += segment.count) {
            segment.count = TOKENS;
            cpu_compute.attend(compute, &a);
        }
        chunk = fmin(chunk, seconds(begin));
        segment.position = CONTEXT - 1;
        segment.count = 1;
        begin = clock_ns();
        for (size_t layer = 0; layer < LAYERS; layer++) { /* more than most processors' caches hold */
            segment.cache = cache + layer * layer_bytes;
            cpu_compute.attend(compute, &a);
        }
        token = fmin(token, seconds(begin) / LAYERS);
        segment.cache = cache;
    }
    printf(
        "  attention, 9 heads of 64 on 3: a prompt of 2048 in chunks of 256: %.1f GMAC/s; one token at 2048: %.0f us\n",
        2.0 * 9 * HEAD_DIM * CONTEXT * (CONTEXT + 1) / 2 / chunk * 1e-9, token * 1e6);
    free(table);
    free(cache);
}

static void bench_rows(struct compute *compute, float *x, float *y)
{
    double norm = INFINITY;
    double gated = INFINITY;
    static float weight[1536];

    for (int i = 0; i < REPEATS * 20; i++) {
        uint64_t begin = clock_ns();

        cpu_compute.norm(compute, x, 576, 1, 576, weight, 1e-5f, y, 576);
        norm = fmin(norm, seconds(begin));
        begin = clock_ns();
        cpu_compute.gated(compute, x, 1536, x, 1536, 1, 1536, y, 1536);
        gated = fmin(gated, seconds(begin));
    }
    printf("  one row: norm of 576: %.2f us; gate of 1536: %.2f us\n", norm * 1e6, gated * 1e6);
}

static void bench_path(const char *path, int threads, const unsigned char *data, float *x, float *y)
{
    struct compute_options options = {.threads = threads, .simd = path};
    struct compute *compute = NULL;

    if (cpu_compute.open(&options, &compute, NULL) != STATUS_OK) {
        printf("%s: not on this processor\n", path);
        return;
    }
    printf("%s, %d thread%s: GMAC/s at 256 rows, K = 576 | GB/s of weights, K = 1536, at 1, 2, 4, 8 rows | GMAC/s, K = "
           "1536, 4096\n",
           path, threads, threads > 1 ? "s" : "");
    for (int type = 0; type < WEIGHT_TYPE_COUNT; type++)
        bench_type(compute, (enum weight_type)type, data, x, y);
    bench_attention(compute, x, y);
    bench_rows(compute, x, y);
    cpu_compute.close(compute);
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"avx512", "avx2"};
    int threads = argc > 1 ? atoi(argv[1]) : 1;

    if (argc == 4 && !strcmp(argv[2], "--read") && threads >= 1 && threads <= POOL_MAX_THREADS)
        return read_file(threads, argv[3]);
    unsigned char *data = aligned_alloc(64, MATRIX_BYTES);
    float *x = calloc((size_t)TOKENS * 4096 + 2048 * 576, sizeof *x);
    float *y = calloc((size_t)8 * MATRIX_BYTES / 864, sizeof *y);

    if (!data || !x || !y || threads < 1 || threads > POOL_MAX_THREADS) {
        free(data);
        free(x);
        free(y);
        return EXIT_FAILURE;
    }
    /* Every half and float in this pattern is an ordinary small number. */
    for (size_t i = 0; i < MATRIX_BYTES; i++)
        data[i] = (unsigned char)(0x11 + i % 7);
    for (size_t i = 0; i < (size_t)TOKENS * 4096; i++)
        x[i] = (float)(i % 17) * 0.125f - 1.0f;
    print_read(threads, data, MATRIX_BYTES);
    for (int i = 2; i < argc; i++)
        bench_path(argv[i], threads, data, x, y);
    for (size_t i = 0; argc < 3 && i < sizeof all / sizeof *all; i++)
        bench_path(all[i], threads, data, x, y);
    free(data);
    free(x);
    free(y);
    return EXIT_SUCCESS;
}
