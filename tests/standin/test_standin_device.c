/* Which devices are there, which are seen, what they are called. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/standin/suite.h"

enum { MOST = 8 };

struct view {
    cudaError_t error;
    int count;
    char bus[MOST][16];
    char uuid[MOST][64];
};

static void uuid_text(const unsigned char *bytes, char text[64])
{
    int length = snprintf(text, 64, "GPU-");

    for (int i = 0; i < 16; i++)
        length += snprintf(text + length, (size_t)(64 - length),
                           i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
}

static void look(struct view *view)
{
    view->error = cudaGetDeviceCount(&view->count);
    for (int i = 0; i < view->count && i < MOST; i++) {
        struct cudaDeviceProp properties;

        if (cudaGetDeviceProperties(&properties, i) != cudaSuccess ||
            cudaDeviceGetPCIBusId(view->bus[i], 16, i) != cudaSuccess)
            _exit(1);
        uuid_text((const unsigned char *)properties.uuid.bytes, view->uuid[i]);
    }
}

/* What a new process sees with that list; NULL: without one. */
static struct view seen(const char *list)
{
    struct view *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct view view;
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        if (list)
            setenv("CUDA_VISIBLE_DEVICES", list, 1);
        else
            unsetenv("CUDA_VISIBLE_DEVICES");
        look(shared);
        _exit(0);
    }
    waitpid(child, &status, 0);
    ck_assert_int_eq(status, 0);
    view = *shared;
    munmap(shared, sizeof *shared);
    return view;
}

START_TEST(devices_have_names_of_their_own)
{
    struct view all = seen(NULL);

    ck_assert_int_eq(all.count, 4);
    for (int i = 0; i < all.count; i++) {
        unsigned bus;

        ck_assert_int_eq(sscanf(all.bus[i], "0000:%02x:00.0", &bus), 1);
        ck_assert_uint_eq(strlen(all.uuid[i]), 40);
        for (int k = 0; k < i; k++) {
            ck_assert_str_ne(all.bus[i], all.bus[k]);
            ck_assert_int_ne(strncmp(all.uuid[i], all.uuid[k], 8), 0);
        }
    }
}
END_TEST

/* B75 */
START_TEST(visible_devices_are_numbered_as_listed)
{
    static const struct {
        const char *list;
        int count;
        int physical[4];
    } cases[] = {{"3", 1, {3}},          {"2,3", 2, {2, 3}},
                 {"3,0", 2, {3, 0}},     {"", 0, {0}},
                 {"1,9,2", 1, {1}},      {"-1", 0, {0}},
                 {"0,-1,1", 1, {0}},     {"0, 2", 2, {0, 2}},
                 {"NoDevFiles", 0, {0}}, {"1x,2", 0, {0}},
                 {"2,2", 0, {0}},        {"GPU-", 0, {0}},
                 {"GPU-zz,1", 0, {0}},   {"0,1,2,3", 4, {0, 1, 2, 3}}};
    struct view all = seen(NULL);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct view view = seen(cases[i].list);

        ck_assert_msg(view.count == cases[i].count, "\"%s\": %d devices", cases[i].list, view.count);
        ck_assert_int_eq(view.error, cases[i].count ? cudaSuccess : cudaErrorNoDevice);
        for (int k = 0; k < view.count; k++)
            ck_assert_str_eq(view.bus[k], all.bus[cases[i].physical[k]]);
    }
}
END_TEST

START_TEST(visible_devices_go_by_the_beginning_of_a_uuid)
{
    struct view all = seen(NULL);
    char list[128];

    snprintf(list, sizeof list, "%s,%.8s", all.uuid[2], all.uuid[1]);
    struct view view = seen(list);

    ck_assert_int_eq(view.count, 2);
    ck_assert_str_eq(view.bus[0], all.bus[2]);
    ck_assert_str_eq(view.bus[1], all.bus[1]);
}
END_TEST

START_TEST(a_machine_may_have_other_numbers_of_devices)
{
    setenv("FERRY_STANDIN_DEVICES", "2", 1);
    ck_assert_int_eq(seen(NULL).count, 2);
    setenv("FERRY_STANDIN_DEVICES", "0", 1);
    ck_assert_int_eq(seen(NULL).error, cudaErrorNoDevice);
    setenv("FERRY_STANDIN_DRIVER", "12080", 1);
    ck_assert_int_eq(seen(NULL).error, cudaErrorInsufficientDriver);
}
END_TEST

START_TEST(a_device_past_the_last_is_refused)
{
    int device = -1;
    int version = 0;

    ck_assert_int_eq(cudaSetDevice(4), cudaErrorInvalidDevice);
    ck_assert_int_eq(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidDevice);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    ck_assert_int_eq(cudaSetDevice(3), cudaSuccess);
    ck_assert_int_eq(cudaGetDevice(&device), cudaSuccess);
    ck_assert_int_eq(device, 3);
    ck_assert_int_eq(cudaDeviceGetByPCIBusId(&device, seen(NULL).bus[1]), cudaSuccess);
    ck_assert_int_eq(device, 1);
    ck_assert_int_eq(cudaRuntimeGetVersion(&version), cudaSuccess);
    ck_assert_int_eq(version, CUDART_VERSION);
    ck_assert_str_eq(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
    ck_assert_str_eq(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {devices_have_names_of_their_own, visible_devices_are_numbered_as_listed,
                                  visible_devices_go_by_the_beginning_of_a_uuid,
                                  a_machine_may_have_other_numbers_of_devices, a_device_past_the_last_is_refused};

    return suite_main("standin_device", tests, sizeof tests / sizeof *tests);
}
