/* Memory that only copies may touch, streams that take their time, kernels from a table. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/each.h"
#include "tests/standin/hold.h"
#include "tests/standin/standin.h"
#include "tests/standin/suite.h"

enum { BYTES = 10000 };

#define OK(call) ck_assert_int_eq((call), cudaSuccess)

static unsigned char *on_device(size_t bytes)
{
    void *block = NULL;

    OK(cudaMalloc(&block, bytes));
    return block;
}

static unsigned char *pinned(size_t bytes)
{
    void *block = NULL;

    OK(cudaMallocHost(&block, bytes));
    return block;
}

static cudaStream_t stream_open(unsigned flags)
{
    cudaStream_t stream;

    OK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

/* A stream waits at a barrier until it is let go. */
static void hold(cudaStream_t stream, atomic_bool *let_go)
{
    atomic_store(let_go, false);
    standin_queue(stream, hold_here, let_go);
}

/* What most tests begin with: BYTES on either side, and streams that order nothing by themselves.  It ends with the
 * test's process. */
struct desk {
    cudaStream_t stream;
    cudaStream_t second;
    unsigned char *device;
    unsigned char *host; /* pinned */
    atomic_bool let_go;  /* for hold */
};

static void desk_open(struct desk *desk)
{
    desk->stream = stream_open(cudaStreamNonBlocking);
    desk->second = stream_open(cudaStreamNonBlocking);
    desk->device = on_device(BYTES);
    desk->host = pinned(BYTES);
    atomic_store(&desk->let_go, false);
}

static void all_are(const unsigned char *bytes, size_t count, int value)
{
    for (size_t k = 0; k < count; k++)
        assert_each(bytes[k] == value, "byte %zu is %#x", k, bytes[k]);
}

/* Run in a process of its own, with stderr in text; its wait status. */
static int watched(void (*run)(void), char *text, size_t bytes)
{
    int ends[2];
    int status = 0;
    ssize_t got;
    size_t length = 0;
    pid_t child;

    ck_assert_int_eq(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        run();
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], text + length, bytes - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

START_TEST(copies_come_back_in_rows_and_whole)
{
    cudaStream_t stream = stream_open(cudaStreamNonBlocking);
    unsigned char *device = on_device(BYTES);
    unsigned char *host = pinned(2 * BYTES);

    for (int k = 0; k < BYTES; k++)
        host[k] = (unsigned char)(k * 31 + (k >> 8));
    OK(cudaMemcpyAsync(device, host, BYTES, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(host + BYTES, device, BYTES, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_mem_eq(host, host + BYTES, BYTES);
    /* 10 runs of 7 bytes, 100 apart, to 9 apart. */
    OK(cudaMemcpy2DAsync(host + BYTES, 9, device + 3, 100, 7, 10, cudaMemcpyDefault, stream));
    OK(cudaStreamSynchronize(stream));
    for (int row = 0; row < 10; row++)
        for (int k = 0; k < 7; k++)
            ck_assert_int_eq(host[BYTES + row * 9 + k], host[3 + row * 100 + k]);
    /* Between the runs nothing was written. */
    ck_assert_int_eq(host[BYTES + 8], host[8]);
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_destination_holds_poison_until_the_copy_is_done)
{
    struct desk desk;

    desk_open(&desk);
    all_are(desk.host, BYTES, POISON_FRESH);
    memset(desk.host, 5, BYTES);
    OK(cudaMemsetAsync(desk.device, 9, BYTES, desk.stream));
    hold(desk.stream, &desk.let_go);
    OK(cudaMemcpyAsync(desk.host, desk.device, BYTES, cudaMemcpyDeviceToHost, desk.stream));
    all_are(desk.host, BYTES, POISON_PENDING);
    ck_assert_int_eq(cudaStreamQuery(desk.stream), cudaErrorNotReady);
    atomic_store(&desk.let_go, true);
    OK(cudaStreamSynchronize(desk.stream));
    all_are(desk.host, BYTES, 9);
    OK(cudaFree(desk.device));
    OK(cudaFreeHost(desk.host));
}
END_TEST

/* What earlier work still reads is not poisoned. */
START_TEST(queued_work_keeps_its_source)
{
    struct desk desk;

    desk_open(&desk);
    memset(desk.host, 5, BYTES);
    hold(desk.stream, &desk.let_go);
    OK(cudaMemcpyAsync(desk.device, desk.host, BYTES, cudaMemcpyHostToDevice, desk.stream));
    OK(cudaMemcpyAsync(desk.host, desk.device, BYTES, cudaMemcpyDeviceToHost, desk.stream));
    atomic_store(&desk.let_go, true);
    OK(cudaStreamSynchronize(desk.stream));
    all_are(desk.host, BYTES, 5);
}
END_TEST

static void touch(void)
{
    unsigned char *device = on_device(BYTES);

    ((volatile unsigned char *)device)[17] = 1;
}

START_TEST(the_host_may_not_touch_device_memory)
{
    char text[1000];
    int status = watched(touch, text, sizeof text);

    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == STANDIN_TOUCHED, "status %#x", (unsigned)status);
    ck_assert_ptr_nonnull(strstr(text, "host access to device memory at 0x"));
    ck_assert_ptr_nonnull(strstr(text, "byte 17 of an allocation of 10000 on device 0"));
}
END_TEST

static void touch_freed(void)
{
    unsigned char *device = on_device(BYTES);

    OK(cudaFree(device));
    ((volatile unsigned char *)device)[0] = 1;
}

static void segfault(void)
{
    OK(cudaFree(on_device(1)));
    ((volatile unsigned char *)(uintptr_t)getpid())[0] = 1;
}

START_TEST(other_faults_stay_what_they_are)
{
    char text[1000];
    int status = watched(touch_freed, text, sizeof text);

    ck_assert_int_eq(WEXITSTATUS(status), STANDIN_TOUCHED);
    ck_assert_ptr_nonnull(strstr(text, "host access to freed device memory"));
    status = watched(segfault, text, sizeof text);
    ck_assert_msg(WIFSIGNALED(status) || WEXITSTATUS(status) != STANDIN_TOUCHED, "status %#x", (unsigned)status);
    ck_assert_ptr_null(strstr(text, "host access"));
}
END_TEST

static void use_freed(void)
{
    unsigned char *device = on_device(BYTES);

    OK(cudaFree(device));
    ck_assert_int_eq(cudaMemset(device, 1, 1), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaFree(device), cudaErrorInvalidValue);
}

START_TEST(freed_memory_is_refused_and_named)
{
    char text[1000];

    ck_assert_int_eq(watched(use_freed, text, sizeof text), 0);
    ck_assert_ptr_nonnull(strstr(text, "use of freed device memory at 0x"));
    ck_assert_ptr_nonnull(strstr(text, "no live allocation begins there"));
}
END_TEST

START_TEST(memory_runs_out)
{
    void *block = NULL;
    void *more = NULL;
    size_t available = 0;
    size_t total = 0;

    setenv("FERRY_STANDIN_MEMORY", "100000", 1);
    OK(cudaMalloc(&block, 60000));
    OK(cudaMemGetInfo(&available, &total));
    ck_assert_uint_eq(total, 100000);
    ck_assert_uint_eq(available, 40000);
    ck_assert_int_eq(cudaMalloc(&more, 40001), cudaErrorMemoryAllocation);
    ck_assert_ptr_null(more);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&more, 40001));
    OK(cudaFree(block));
    OK(cudaSetDevice(0));
    OK(cudaMemGetInfo(&available, &total));
    ck_assert_uint_eq(available, 100000);
}
END_TEST

START_TEST(copies_that_do_not_fit_are_refused)
{
    unsigned char *device = on_device(100);
    unsigned char *host = pinned(100);
    unsigned char pageable[100];

    ck_assert_int_eq(cudaMemcpy(device, host, 101, cudaMemcpyDefault), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(device + 1, host, 100, cudaMemcpyDefault), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(host + 50, device, 51, cudaMemcpyDefault), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(device, host, 10, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(host, device, 10, cudaMemcpyHostToHost), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(device, pageable, 10, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy(device, host, 10, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    ck_assert_int_eq(cudaMemset(pageable, 1, 10), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaMemcpy2D(device, 5, host, 10, 6, 2, cudaMemcpyDefault), cudaErrorInvalidPitchValue);
    ck_assert_int_eq(cudaMemcpy2D(device, SIZE_MAX / 2, host, 10, 6, 4, cudaMemcpyDefault), cudaErrorInvalidValue);
    OK(cudaMemcpy(device, host, 100, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(device, NULL, 0, cudaMemcpyHostToDevice));
}
END_TEST

START_TEST(addresses_say_what_they_are)
{
    struct cudaPointerAttributes is;
    unsigned char own[64];

    OK(cudaSetDevice(2));
    unsigned char *device = on_device(100);
    unsigned char *host = pinned(100);

    OK(cudaPointerGetAttributes(&is, device + 99));
    ck_assert_int_eq(is.type, cudaMemoryTypeDevice);
    ck_assert_int_eq(is.device, 2);
    ck_assert_ptr_null(is.hostPointer);
    OK(cudaPointerGetAttributes(&is, host));
    ck_assert_int_eq(is.type, cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&is, own));
    ck_assert_int_eq(is.type, cudaMemoryTypeUnregistered);
    OK(cudaHostRegister(own, sizeof own, cudaHostRegisterDefault));
    ck_assert_int_eq(cudaHostRegister(own, 1, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaPointerGetAttributes(&is, own + 1));
    ck_assert_int_eq(is.type, cudaMemoryTypeHost);
    OK(cudaHostUnregister(own));
    ck_assert_int_eq(cudaHostUnregister(own), cudaErrorHostMemoryNotRegistered);
}
END_TEST

/* Pageable memory: its bytes are taken in the call, and have come when the call returns. */
START_TEST(pageable_memory_is_staged)
{
    struct desk desk;
    unsigned char own[BYTES];

    desk_open(&desk);
    memset(own, 4, BYTES);
    hold(desk.stream, &desk.let_go);
    OK(cudaMemcpyAsync(desk.device, own, BYTES, cudaMemcpyHostToDevice, desk.stream));
    memset(own, 6, BYTES);
    atomic_store(&desk.let_go, true);
    OK(cudaMemcpyAsync(own, desk.device, BYTES, cudaMemcpyDeviceToHost, desk.stream));
    all_are(own, BYTES, 4);
}
END_TEST

START_TEST(a_stream_waits_for_an_event_of_another)
{
    struct desk desk;
    cudaEvent_t event;

    desk_open(&desk);
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaEventQuery(event));
    OK(cudaStreamWaitEvent(desk.second, event, 0));
    hold(desk.stream, &desk.let_go);
    OK(cudaMemsetAsync(desk.device, 7, BYTES, desk.stream));
    OK(cudaEventRecord(event, desk.stream));
    ck_assert_int_eq(cudaEventQuery(event), cudaErrorNotReady);
    OK(cudaStreamWaitEvent(desk.second, event, 0));
    OK(cudaMemcpyAsync(desk.host, desk.device, BYTES, cudaMemcpyDeviceToHost, desk.second));
    clock_sleep_ns(20 * NS_PER_MS);
    all_are(desk.host, BYTES, POISON_PENDING);
    atomic_store(&desk.let_go, true);
    OK(cudaStreamSynchronize(desk.second));
    all_are(desk.host, BYTES, 7);
    OK(cudaEventSynchronize(event));
    OK(cudaEventDestroy(event));
}
END_TEST

/* Without an event nothing orders two streams. */
START_TEST(streams_without_an_event_are_not_ordered)
{
    struct desk desk;

    desk_open(&desk);
    hold(desk.stream, &desk.let_go);
    OK(cudaMemsetAsync(desk.device, 7, BYTES, desk.stream));
    OK(cudaMemcpyAsync(desk.host, desk.device, BYTES, cudaMemcpyDeviceToHost, desk.second));
    OK(cudaStreamSynchronize(desk.second));
    all_are(desk.host, BYTES, POISON_PENDING);
    atomic_store(&desk.let_go, true);
    OK(cudaStreamSynchronize(desk.stream));
}
END_TEST

START_TEST(the_default_stream_waits_for_blocking_streams_alone)
{
    cudaStream_t blocking = stream_open(cudaStreamDefault);
    cudaStream_t other = stream_open(cudaStreamNonBlocking);
    unsigned char *host = pinned(BYTES);
    unsigned char *device = on_device(BYTES);
    atomic_bool let_go;
    atomic_bool let_other_go;

    hold(other, &let_other_go);
    OK(cudaMemsetAsync(device, 1, BYTES, NULL));
    OK(cudaStreamSynchronize(NULL));
    hold(blocking, &let_go);
    OK(cudaMemsetAsync(device, 2, BYTES, blocking));
    OK(cudaMemcpyAsync(host, device, BYTES, cudaMemcpyDeviceToHost, NULL));
    ck_assert_int_eq(cudaStreamQuery(NULL), cudaErrorNotReady);
    atomic_store(&let_go, true);
    OK(cudaStreamSynchronize(NULL));
    all_are(host, BYTES, 2);
    atomic_store(&let_other_go, true);
    OK(cudaDeviceSynchronize());
}
END_TEST

static void look_at(void *bytes)
{
    clock_sleep_ns(20 * NS_PER_MS);
    all_are(bytes, BYTES, 5);
}

/* A function of the host finds in pinned memory what was there when it was queued. */
START_TEST(a_host_function_runs_in_its_turn)
{
    cudaStream_t stream = stream_open(cudaStreamNonBlocking);
    unsigned char *host = pinned(BYTES);

    memset(host, 5, BYTES);
    OK(cudaLaunchHostFunc(stream, look_at, host));
    OK(cudaMemsetAsync(host, 1, BYTES, stream));
    OK(cudaStreamSynchronize(stream));
    all_are(host, BYTES, 1);
}
END_TEST

START_TEST(events_tell_the_time_between)
{
    cudaStream_t stream = stream_open(cudaStreamNonBlocking);
    cudaEvent_t start;
    cudaEvent_t finish;
    cudaEvent_t blind;
    float ms = -1;

    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&finish));
    OK(cudaEventCreateWithFlags(&blind, cudaEventDisableTiming));
    setenv("FERRY_STANDIN_LAG", "2000", 1);
    OK(cudaEventRecord(start, stream));
    OK(cudaEventRecord(finish, stream));
    OK(cudaEventRecord(blind, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaEventElapsedTime(&ms, start, finish));
    ck_assert(ms >= 2.0f);
    ck_assert_int_eq(cudaEventElapsedTime(&ms, start, blind), cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(finish));
    OK(cudaEventDestroy(blind));
}
END_TEST

static void *let_go_later(void *flag)
{
    clock_sleep_ns(50 * NS_PER_MS);
    atomic_store((atomic_bool *)flag, true);
    return NULL;
}

START_TEST(free_waits_for_the_device)
{
    struct desk desk;
    pthread_t thread;

    desk_open(&desk);
    hold(desk.stream, &desk.let_go);
    OK(cudaMemsetAsync(desk.device, 1, BYTES, desk.stream));
    ck_assert_int_eq(pthread_create(&thread, NULL, let_go_later, &desk.let_go), 0);
    OK(cudaFree(desk.device));
    ck_assert(atomic_load(&desk.let_go));
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_destroyed_stream_still_does_its_work)
{
    struct desk desk;

    desk_open(&desk);
    hold(desk.stream, &desk.let_go);
    OK(cudaMemsetAsync(desk.device, 3, BYTES, desk.stream));
    OK(cudaMemcpyAsync(desk.host, desk.device, BYTES, cudaMemcpyDeviceToHost, desk.stream));
    OK(cudaStreamDestroy(desk.stream));
    ck_assert_int_eq(cudaStreamQuery(desk.stream), cudaErrorInvalidResourceHandle);
    atomic_store(&desk.let_go, true);
    OK(cudaDeviceSynchronize());
    all_are(desk.host, BYTES, 3);
}
END_TEST

START_TEST(a_lost_device_fails_every_call)
{
    unsigned char *device = on_device(BYTES);

    setenv("FERRY_STANDIN_FAULT", "op=1,kind=lost", 1);
    OK(cudaMemset(device, 1, 1));
    OK(cudaMemsetAsync(device, 1, 1, NULL));
    ck_assert_int_eq(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaMemset(device, 1, 1), cudaErrorIllegalAddress);
}
END_TEST

/* --- kernels ------------------------------------------------------------------------------------------------------ */

static const unsigned char image[] = {0x50, 0xed, 0x55, 0xba, 0, 0, 0, 0};

static cudaLibrary_t library_open(void)
{
    cudaLibrary_t library;

    OK(cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    return library;
}

static cudaKernel_t kernel_named(cudaLibrary_t library, const char *name)
{
    cudaKernel_t kernel;

    OK(cudaLibraryGetKernel(&kernel, library, name));
    return kernel;
}

static cudaError_t start(cudaKernel_t kernel, void *out, const void *in, uint64_t count, cudaStream_t stream)
{
    void *arguments[] = {&out, &in, &count};

    return cudaLaunchKernel((const void *)kernel, (dim3){4, 1, 1}, (dim3){128, 1, 1}, arguments, 0, stream);
}

START_TEST(a_kernel_adds)
{
    float *values = (float *)(void *)pinned(2000 * sizeof(float));
    void *device = on_device(2000 * sizeof(float));
    float *left = device;
    cudaLibrary_t library = library_open();

    for (int k = 0; k < 2000; k++)
        values[k] = (float)k;
    OK(cudaMemcpy(device, values, 2000 * sizeof(float), cudaMemcpyHostToDevice));
    OK(start(kernel_named(library, "ferry_add_f32"), left, left + 1000, 1000, NULL));
    OK(cudaMemcpy(values, device, 2000 * sizeof(float), cudaMemcpyDeviceToHost));
    for (int k = 0; k < 1000; k++)
        ck_assert(values[k] == (float)(2 * k + 1000));
    ck_assert(values[1000] == 1000.0f);
    OK(cudaLibraryUnload(library));
}
END_TEST

START_TEST(a_kernel_widens_and_narrows)
{
    uint16_t *halves = (uint16_t *)(void *)pinned(8);
    float *singles = (float *)(void *)pinned(8);
    cudaLibrary_t library = library_open();

    halves[0] = 0x3c00; /* 1 */
    halves[1] = 0xc000; /* -2 */
    OK(start(kernel_named(library, "ferry_widen_f16"), singles, halves, 2, NULL));
    OK(cudaStreamSynchronize(NULL));
    ck_assert(singles[0] == 1.0f && singles[1] == -2.0f);
    OK(start(kernel_named(library, "ferry_narrow_bf16"), halves, singles, 2, NULL));
    OK(cudaStreamSynchronize(NULL));
    ck_assert_int_eq(halves[0], 0x3f80);
    ck_assert_int_eq(halves[1], 0xc000);
    OK(cudaLibraryUnload(library));
}
END_TEST

START_TEST(kernels_that_are_not_there_are_refused)
{
    static const unsigned char no_image[8];
    cudaLibrary_t library;
    cudaKernel_t kernel;

    ck_assert_int_eq(cudaLibraryLoadData(&library, no_image, NULL, NULL, 0, NULL, NULL, 0),
                     cudaErrorInvalidKernelImage);
    library = library_open();
    ck_assert_int_eq(cudaLibraryGetKernel(&kernel, library, "ferry_add_f80"), cudaErrorSymbolNotFound);
    OK(cudaLibraryUnload(library));
}
END_TEST

START_TEST(a_kernel_outside_its_memory_loses_the_device)
{
    unsigned char *device = on_device(100);
    unsigned char own[8];
    cudaLibrary_t library = library_open();
    cudaKernel_t kernel = kernel_named(library, "ferry_add_u8");

    OK(start(kernel, device, device + 50, 50, NULL));
    ck_assert_int_eq(start(kernel, device, own, 8, NULL), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaStreamSynchronize(NULL), cudaErrorIllegalAddress);
    OK(cudaLibraryUnload(library));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {copies_come_back_in_rows_and_whole,
                                  a_destination_holds_poison_until_the_copy_is_done,
                                  queued_work_keeps_its_source,
                                  the_host_may_not_touch_device_memory,
                                  other_faults_stay_what_they_are,
                                  freed_memory_is_refused_and_named,
                                  memory_runs_out,
                                  copies_that_do_not_fit_are_refused,
                                  addresses_say_what_they_are,
                                  pageable_memory_is_staged,
                                  a_stream_waits_for_an_event_of_another,
                                  streams_without_an_event_are_not_ordered,
                                  the_default_stream_waits_for_blocking_streams_alone,
                                  a_host_function_runs_in_its_turn,
                                  events_tell_the_time_between,
                                  free_waits_for_the_device,
                                  a_destroyed_stream_still_does_its_work,
                                  a_lost_device_fails_every_call,
                                  a_kernel_adds,
                                  a_kernel_widens_and_narrows,
                                  kernels_that_are_not_there_are_refused,
                                  a_kernel_outside_its_memory_loses_the_device};

    return suite_main("standin_memory", tests, sizeof tests / sizeof *tests);
}
