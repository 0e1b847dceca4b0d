/* What one GPU can show, a line each: "NAME|ok or FAILED|figure".  usage: gpu_check MIB
 *
 * Run by scripts/gpu-check.  Every figure is the median of REPEATS interleaved with CUDA's own call for the same bytes;
 * every row also compares what came out with what the host computes. */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/loopback/loopback.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/fit.h"
#include "comm/executor.h"
#include "comm/plugin.h"
#include "comm/session.h"

enum { REPEATS = 9, WAIT_S = 60 };

struct bench {
    const struct device_ops *devices;
    struct device *device;
    struct memory *memory;
    struct memory *pinned;
    size_t bytes;
    struct error err;
    int failed;
};

static void __attribute__((format(printf, 4, 5)))
row(struct bench *bench, const char *name, bool good, const char *format, ...)
{
    va_list arguments;

    printf("%s|%s|", name, good ? "ok" : "FAILED");
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    if (!good && bench->err.text[0])
        printf(" (%s)", bench->err.text);
    printf("\n");
    (void)fflush(stdout);
    bench->err.text[0] = '\0';
    bench->failed += !good;
}

static bool settle(struct bench *bench)
{
    return memory_wait(bench->memory, clock_ns() + WAIT_S * NS_PER_S, &bench->err) == STATUS_OK;
}

static void fill(unsigned char *bytes, size_t count, uint32_t seed)
{
    for (size_t k = 0; k < count; k++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[k] = (unsigned char)(seed >> 24);
    }
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count / 2];
}

/* ---- copies ---- */

struct copy {
    const char *name;
    void *to;
    const void *from;
    enum cudaMemcpyKind kind;
};

static double ours(struct bench *bench, const struct copy *copy, bool *good)
{
    uint64_t begun = clock_ns();

    *good =
        *good && bench->memory->ops->copy(bench->memory, copy->to, copy->from, bench->bytes, &bench->err) == STATUS_OK;
    *good = *good && settle(bench);
    return (double)bench->bytes / (double)(clock_ns() - begun);
}

static double raw(struct bench *bench, const struct copy *copy, cudaStream_t stream, bool *good)
{
    uint64_t begun = clock_ns();

    *good = *good && cudaMemcpyAsync(copy->to, copy->from, bench->bytes, copy->kind, stream) == cudaSuccess &&
            cudaStreamSynchronize(stream) == cudaSuccess;
    return (double)bench->bytes / (double)(clock_ns() - begun);
}

static void show_copy(struct bench *bench, const struct copy *copy, cudaStream_t stream)
{
    double mine[REPEATS];
    double theirs[REPEATS];
    bool good = true;

    (void)ours(bench, copy, &good); /* the first makes buffers */
    for (int i = 0; i < REPEATS; i++) {
        mine[i] = ours(bench, copy, &good);
        theirs[i] = raw(bench, copy, stream, &good);
    }
    row(bench, copy->name, good, "%.2f GB/s, cudaMemcpyAsync %.2f GB/s", median(mine, REPEATS),
        median(theirs, REPEATS));
}

static void *block_in(struct bench *bench, struct memory *memory, size_t bytes)
{
    void *block = NULL;

    return memory->ops->allocate(memory, bytes, &block, &bench->err) == STATUS_OK ? block : NULL;
}

static void show_copies(struct bench *bench)
{
    struct memory *host = memory_host();
    void *first = block_in(bench, bench->memory, bench->bytes);
    void *second = block_in(bench, bench->memory, bench->bytes);
    unsigned char *pinned = block_in(bench, bench->pinned, bench->bytes);
    unsigned char *back = block_in(bench, bench->pinned, bench->bytes);
    unsigned char *pageable = block_in(bench, host, bench->bytes);
    const struct copy copies[] = {{"copy, pinned to device", first, pinned, cudaMemcpyHostToDevice},
                                  {"copy, device to device", second, first, cudaMemcpyDeviceToDevice},
                                  {"copy, device to pinned", back, second, cudaMemcpyDeviceToHost},
                                  {"copy, device to pageable", pageable, second, cudaMemcpyDeviceToHost},
                                  {"copy, pageable to device", first, pageable, cudaMemcpyHostToDevice}};
    cudaStream_t stream = NULL;
    bool good = first && second && pinned && back && pageable &&
                cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;

    if (good) {
        fill(pinned, bench->bytes, 1);
        for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
            show_copy(bench, &copies[i], stream);
        row(bench, "copies, all five in a chain",
            memcmp(pinned, back, bench->bytes) == 0 && memcmp(pinned, pageable, bench->bytes) == 0, "%zu bytes equal",
            bench->bytes);
    } else {
        row(bench, "copies", false, "no memory");
    }
    if (stream)
        (void)cudaStreamDestroy(stream);
    bench->memory->ops->release(bench->memory, first);
    bench->memory->ops->release(bench->memory, second);
    bench->pinned->ops->release(bench->pinned, pinned);
    bench->pinned->ops->release(bench->pinned, back);
    host->ops->release(host, pageable);
}

/* Runs of run bytes at twice their distance, packed on the device. */
static void show_rows(struct bench *bench, size_t run)
{
    size_t rows = bench->bytes / (2 * run);
    unsigned char *sent = block_in(bench, bench->pinned, bench->bytes);
    unsigned char *got = block_in(bench, bench->pinned, rows * run);
    void *there = block_in(bench, bench->memory, bench->bytes);
    void *packed = block_in(bench, bench->memory, rows * run);
    const struct memory_ops *ops = bench->memory->ops;
    double speed[REPEATS] = {0};
    bool good = sent && got && there && packed;
    char name[64];

    if (good)
        fill(sent, bench->bytes, 2);
    good = good && ops->copy(bench->memory, there, sent, bench->bytes, &bench->err) == STATUS_OK && settle(bench);
    for (int i = 0; good && i < REPEATS; i++) {
        uint64_t begun = clock_ns();

        good = ops->copy_rows(bench->memory, packed, run, there, 2 * run, run, rows, &bench->err) == STATUS_OK &&
               settle(bench);
        speed[i] = (double)(rows * run) / (double)(clock_ns() - begun);
    }
    good = good && ops->copy(bench->memory, got, packed, rows * run, &bench->err) == STATUS_OK && settle(bench);
    for (size_t i = 0; good && i < rows; i++)
        good = memcmp(got + i * run, sent + 2 * i * run, run) == 0;
    (void)snprintf(name, sizeof name, "rows of %zu bytes packed", run);
    row(bench, name, good, "%.2f GB/s", median(speed, REPEATS));
    ops->release(bench->memory, there);
    ops->release(bench->memory, packed);
    bench->pinned->ops->release(bench->pinned, sent);
    bench->pinned->ops->release(bench->pinned, got);
}

/* ---- kernels ---- */

static void show_sum(struct bench *bench, enum dtype dtype)
{
    const struct memory_ops *ops = bench->memory->ops;
    size_t count = bench->bytes / dtype_bytes(dtype);
    unsigned char *left = block_in(bench, bench->pinned, bench->bytes);
    unsigned char *right = block_in(bench, bench->pinned, bench->bytes);
    unsigned char *got = block_in(bench, bench->pinned, bench->bytes);
    void *sum = block_in(bench, bench->memory, bench->bytes);
    void *term = block_in(bench, bench->memory, bench->bytes);
    double speed[REPEATS] = {0};
    bool good = left && right && got && sum && term;
    char name[64];

    for (size_t k = 0; good && k < bench->bytes; k++)
        left[k] = right[k] = (unsigned char)(k % 96); /* no f32 of such bytes is NaN */
    good = good && ops->copy(bench->memory, term, right, bench->bytes, &bench->err) == STATUS_OK;
    for (int i = 0; good && i < REPEATS; i++) {
        uint64_t begun;

        good = ops->copy(bench->memory, sum, left, bench->bytes, &bench->err) == STATUS_OK && settle(bench);
        begun = clock_ns();
        good = good && ops->add(bench->memory, dtype, sum, term, count, &bench->err) == STATUS_OK && settle(bench);
        speed[i] = 3.0 * (double)bench->bytes / (double)(clock_ns() - begun);
    }
    good = good && ops->copy(bench->memory, got, sum, bench->bytes, &bench->err) == STATUS_OK && settle(bench);
    if (good)
        elements_add(dtype, left, right, count);
    good = good && memcmp(left, got, bench->bytes) == 0;
    (void)snprintf(name, sizeof name, "sum of %s, bits of the host", dtype_name(dtype));
    row(bench, name, good, "%.2f GB/s of memory", median(speed, REPEATS));
    ops->release(bench->memory, sum);
    ops->release(bench->memory, term);
    bench->pinned->ops->release(bench->pinned, left);
    bench->pinned->ops->release(bench->pinned, right);
    bench->pinned->ops->release(bench->pinned, got);
}

/* Every half widened, and f32 of every exponent narrowed, as the host does. */
static void show_halves(struct bench *bench, enum dtype half)
{
    enum { COUNT = 65536 };
    const struct memory_ops *ops = bench->memory->ops;
    uint16_t *halves = block_in(bench, bench->pinned, COUNT * 2);
    float *wide = block_in(bench, bench->pinned, COUNT * 4);
    void *there = block_in(bench, bench->memory, COUNT * 2);
    void *widened = block_in(bench, bench->memory, COUNT * 4);
    static float expected[COUNT];
    static uint16_t narrowed[COUNT];
    bool good = halves && wide && there && widened;
    char name[64];

    for (int k = 0; good && k < COUNT; k++)
        halves[k] = (uint16_t)k;
    good = good && ops->copy(bench->memory, there, halves, COUNT * 2, &bench->err) == STATUS_OK &&
           ops->convert(bench->memory, half, there, DTYPE_F32, widened, COUNT, &bench->err) == STATUS_OK &&
           ops->copy(bench->memory, wide, widened, COUNT * 4, &bench->err) == STATUS_OK && settle(bench);
    if (good) {
        elements_widen(half, halves, COUNT, expected);
        good = memcmp(wide, expected, sizeof expected) == 0;
        fill((unsigned char *)wide, COUNT * 4, 3);
    }
    good = good && ops->copy(bench->memory, widened, wide, COUNT * 4, &bench->err) == STATUS_OK &&
           ops->convert(bench->memory, DTYPE_F32, widened, half, there, COUNT, &bench->err) == STATUS_OK &&
           ops->copy(bench->memory, halves, there, COUNT * 2, &bench->err) == STATUS_OK && settle(bench);
    if (good) {
        elements_narrow(half, wide, COUNT, narrowed);
        good = memcmp(halves, narrowed, sizeof narrowed) == 0;
    }
    (void)snprintf(name, sizeof name, "%s from and to f32, bits of the host", dtype_name(half));
    row(bench, name, good, "%d values each way", COUNT);
    ops->release(bench->memory, there);
    ops->release(bench->memory, widened);
    bench->pinned->ops->release(bench->pinned, halves);
    bench->pinned->ops->release(bench->pinned, wide);
}

/* ---- marks, blocks, room ---- */

static void show_marks(struct bench *bench)
{
    enum { MARKS = 1000 };
    uint64_t begun = clock_ns();
    bool good = true;

    for (int i = 0; good && i < MARKS; i++)
        good = settle(bench);
    row(bench, "a mark set and reached", good, "%.2f us", (double)(clock_ns() - begun) / MARKS / 1e3);
}

static void show_room(struct bench *bench)
{
    struct memory_space space = {0};
    struct error said = {0};
    void *block = NULL;
    void *again;
    bool good = bench->memory->ops->space(bench->memory, &space, &bench->err) == STATUS_OK;
    const char *fits = fit_name(would_fit(bench->bytes, space));
    enum status st = bench->memory->ops->allocate(bench->memory, (size_t)space.total + 1, &block, &said);

    row(bench, "more than there is is refused", good && st == STATUS_NOMEM, "%s", said.text);
    row(bench, "room", good, "%" PRIu64 " of %" PRIu64 " bytes available, %zu bytes would be %s", space.available,
        space.total, bench->bytes, fits);
    block = block_in(bench, bench->memory, bench->bytes);
    bench->memory->ops->release(bench->memory, block);
    good = settle(bench);
    again = block_in(bench, bench->memory, bench->bytes);
    row(bench, "a released block is used again", good && block && again == block, "%zu bytes", bench->bytes);
    bench->memory->ops->release(bench->memory, again);
}

/* ---- executors ---- */

struct addition {
    struct tensor *sum;
    struct tensor *term;
    int times;
};

static enum status add(void *context, struct memory *memory, struct error *err)
{
    struct addition *addition = context;
    enum status st = STATUS_OK;

    for (int i = 0; i < addition->times && st == STATUS_OK; i++)
        st = memory->ops->add(memory, DTYPE_U32, addition->sum->data, addition->term->data, addition->sum->bytes / 4,
                              err);
    return st;
}

static enum status finish(enum status st, struct completion **completion, struct error *err)
{
    if (st == STATUS_OK)
        st = completion_wait(*completion, clock_ns() + WAIT_S * NS_PER_S, err);
    completion_abandon(*completion);
    *completion = NULL;
    return st;
}

struct stage {
    struct session *session;
    struct executor *first;
    struct executor *second;
    struct transfers *transfers;
    struct tensor *host;
    struct tensor *there;
    struct tensor *sum;
    struct tensor *back;
};

static enum status open_stage(struct bench *bench, struct stage *stage)
{
    const struct session_options options = {.timeout_ns = WAIT_S * NS_PER_S, .startup_timeout_ns = WAIT_S * NS_PER_S};
    const struct shape shape = {1, {bench->bytes / 4}};
    struct transport *transport = NULL;
    struct error *err = &bench->err;
    enum status st = loopback_ops.open(&(struct transport_options){0}, &transport, err);

    if (st == STATUS_OK)
        st = session_create(&loopback_ops, transport, &options, &stage->session, err);
    if (st == STATUS_OK)
        st = session_build(stage->session, NULL, 0, NULL, 0, err);
    if (st == STATUS_OK)
        st = executor_create_on(stage->session, bench->devices, bench->device, 16, &stage->first, err);
    if (st == STATUS_OK)
        st = executor_fork(stage->first, &stage->second, err);
    if (st == STATUS_OK)
        st = transfers_of_device(bench->memory, bench->pinned, &stage->transfers, err);
    if (st == STATUS_OK)
        st = tensor_create(DTYPE_U32, &shape, &stage->host, err);
    if (st == STATUS_OK)
        st = tensor_create_in(bench->pinned, DTYPE_U32, &shape, &stage->back, err);
    if (st == STATUS_OK)
        st = tensor_create_in(bench->memory, DTYPE_U32, &shape, &stage->there, err);
    return st == STATUS_OK ? tensor_create_in(bench->memory, DTYPE_U32, &shape, &stage->sum, err) : st;
}

/* Promote twice, add seven times on one queue, once more on another that comes after it, demote. */
static enum status run_stage(struct bench *bench, struct stage *stage)
{
    struct addition seven = {stage->sum, stage->there, 7};
    struct addition one = {stage->sum, stage->there, 1};
    struct completion *slow = NULL;
    struct completion *quick = NULL;
    struct error *err = &bench->err;
    enum status st =
        finish(executor_transfer(stage->first, stage->transfers, stage->host, stage->there, &quick, err), &quick, err);

    if (st == STATUS_OK)
        st = finish(executor_transfer(stage->first, stage->transfers, stage->host, stage->sum, &quick, err), &quick,
                    err);
    if (st == STATUS_OK)
        st = executor_submit_on(stage->first, add, &seven, &slow, err);
    if (st == STATUS_OK)
        st = executor_after(stage->second, slow, err);
    completion_abandon(slow);
    if (st == STATUS_OK)
        st = finish(executor_submit_on(stage->second, add, &one, &quick, err), &quick, err);
    if (st == STATUS_OK)
        st = finish(executor_transfer(stage->second, stage->transfers, stage->sum, stage->back, &quick, err), &quick,
                    err);
    return st;
}

static void show_executors(struct bench *bench)
{
    struct stage stage = {0};
    enum status st = open_stage(bench, &stage);
    bool good = st == STATUS_OK;

    if (good)
        fill(stage.host->data, stage.host->bytes, 5);
    good = good && run_stage(bench, &stage) == STATUS_OK;
    for (size_t k = 0; good && k < bench->bytes / 4; k++)
        good = ((uint32_t *)(void *)stage.back->data)[k] == 9 * ((uint32_t *)(void *)stage.host->data)[k];
    row(bench, "promote, two executors in order, demote", good, "%zu bytes", bench->bytes);
    tensor_release(stage.host);
    tensor_release(stage.back);
    tensor_release(stage.there);
    tensor_release(stage.sum);
    executor_release(stage.first);
    executor_release(stage.second);
    transfers_destroy(stage.transfers);
    if (stage.session && session_close(stage.session, st == STATUS_OK, &bench->err) != STATUS_OK)
        (void)session_close(stage.session, false, NULL);
}

int main(int argc, char **argv)
{
    struct bench bench = {.bytes = argc == 2 ? (size_t)strtoull(argv[1], NULL, 10) << 20 : 0};
    const struct plugin *plugin = NULL;
    enum status st = plugin_open("cuda", &plugin, NULL, 0, &bench.err);

    if (!bench.bytes)
        return 2;
    if (st == STATUS_OK)
        st = plugin->devices->open(0, &bench.device, &bench.err);
    if (st != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", bench.err.text);
        return 5;
    }
    bench.devices = plugin->devices;
    bench.memory = bench.device->memory;
    bench.pinned = bench.device->pinned;
    row(&bench, "device", true, "%s, %s, capability %d.%d", bench.device->facts.name, bench.device->facts.pci,
        bench.device->facts.capability[0], bench.device->facts.capability[1]);
    show_copies(&bench);
    show_rows(&bench, 64);
    show_rows(&bench, 4096);
    show_sum(&bench, DTYPE_F32);
    show_sum(&bench, DTYPE_I64);
    show_halves(&bench, DTYPE_F16);
    show_halves(&bench, DTYPE_BF16);
    show_marks(&bench);
    show_room(&bench);
    show_executors(&bench);
    plugin->devices->close(bench.device);
    return bench.failed ? 1 : 0;
}
