/* The transport's sum over one rank beside NCCL's own call and a copy of the same bytes, a line each as gpu_check's.
 * usage: gpu_check_nccl MIB, on one rank under mpirun */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/native.h"
#include "tests/nccl/device_world.h"

enum { REPEATS = 9, WAIT_S = 30 };

struct bench {
    struct device_world world;
    struct native *native;
    ncclComm_t comm; /* NCCL's own, beside the transport's */
    cudaStream_t stream;
    size_t count;
    unsigned char *send;
    unsigned char *recv;
    struct error err;
};

typedef bool once(struct bench *bench);

static bool wait_work(struct bench *bench, struct work *work)
{
    uint64_t until_ns = clock_ns() + WAIT_S * NS_PER_S;
    bool over = false;

    while (!over && clock_ns() < until_ns) {
        if (bench->world.ops->test(bench->world.transport, work, &over, &bench->err) != STATUS_OK)
            return false;
    }
    return over;
}

static bool by_transport(struct bench *bench)
{
    struct work *work = NULL;

    return bench->world.ops->native->all_reduce(bench->world.transport, bench->native, bench->world.memory, DTYPE_F32,
                                                bench->send, bench->recv, bench->count, &work,
                                                &bench->err) == STATUS_OK &&
           wait_work(bench, work);
}

static bool by_nccl(struct bench *bench)
{
    return ncclAllReduce(bench->send, bench->recv, bench->count, ncclFloat, ncclSum, bench->comm, bench->stream) ==
               ncclSuccess &&
           cudaStreamSynchronize(bench->stream) == cudaSuccess;
}

static bool by_copy(struct bench *bench)
{
    return bench->world.memory->ops->copy(bench->world.memory, bench->recv, bench->send, bench->count * 4,
                                          &bench->err) == STATUS_OK &&
           memory_wait(bench->world.memory, clock_ns() + WAIT_S * NS_PER_S, &bench->err) == STATUS_OK;
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

/* Medians in GB/s, interleaved. */
static bool measure(struct bench *bench, once *const *calls, int calls_count, double *ret)
{
    double speed[3][REPEATS];
    bool good = true;

    for (int i = -1; good && i < REPEATS; i++) { /* the first warms up */
        for (int c = 0; good && c < calls_count; c++) {
            uint64_t begun = clock_ns();

            good = calls[c](bench);
            speed[c][i < 0 ? 0 : i] = (double)(bench->count * 4) / (double)(clock_ns() - begun);
        }
    }
    for (int c = 0; good && c < calls_count; c++) {
        qsort(speed[c], REPEATS, sizeof speed[c][0], by_size);
        ret[c] = speed[c][REPEATS / 2];
    }
    return good;
}

static bool compare(struct bench *bench)
{
    float *sent = malloc(bench->count * 4);
    float *got = malloc(bench->count * 4);
    bool same = sent && got;

    for (size_t k = 0; same && k < bench->count; k++)
        sent[k] = (float)k * 0.37f;
    if (same) {
        device_put(&bench->world, bench->send, sent, bench->count * 4);
        same = by_transport(bench);
    }
    if (same) {
        device_get(&bench->world, got, bench->recv, bench->count * 4);
        same = memcmp(sent, got, bench->count * 4) == 0;
    }
    free(sent);
    free(got);
    return same;
}

static bool open_bench(struct bench *bench)
{
    const int members[] = {0};
    ncclUniqueId id;

    if (device_world_open(WAIT_S * NS_PER_S, WAIT_S * NS_PER_S, &bench->world, &bench->err) != STATUS_OK)
        return false;
    bench->send = device_room(&bench->world, bench->count * 4);
    bench->recv = device_room(&bench->world, bench->count * 4);
    return bench->world.ops->native->open(bench->world.transport, 1, 0, members, 1, &bench->native, &bench->err) ==
               STATUS_OK &&
           cudaSetDevice(0) == cudaSuccess &&
           cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking) == cudaSuccess &&
           ncclGetUniqueId(&id) == ncclSuccess && ncclCommInitRank(&bench->comm, 1, id, 0) == ncclSuccess;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    once *const calls[] = {by_transport, by_nccl, by_copy};
    double speed[3] = {0};
    bool good;

    bench.count = argc == 2 ? (size_t)strtoull(argv[1], NULL, 10) << 18 : 0;
    if (!bench.count)
        return 2;
    good = open_bench(&bench);
    if (!good) {
        (void)fprintf(stderr, "%s\n", bench.err.text);
        return 1;
    }
    good = compare(&bench) && measure(&bench, calls, 3, speed);
    printf("NCCL's sum, one rank|%s|%.2f GB/s, ncclAllReduce %.2f GB/s, device copy %.2f GB/s%s%s\n",
           good ? "ok" : "FAILED", speed[0], speed[1], speed[2], good ? "" : ": ", bench.err.text);
    (void)ncclCommDestroy(bench.comm);
    (void)cudaStreamDestroy(bench.stream);
    bench.world.ops->native->close(bench.world.transport, bench.native);
    device_free(&bench.world, bench.send);
    device_free(&bench.world, bench.recv);
    if (device_world_close(&bench.world, good, &bench.err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", bench.err.text);
        return 1;
    }
    return good ? 0 : 1;
}
