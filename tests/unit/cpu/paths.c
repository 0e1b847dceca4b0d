#include "tests/unit/cpu/paths.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "backends/cpu/compute_private.h"
#include "tests/unit/cpu/emulated.h"

static const char *const names[] = {"plain", "plain-avx2", "plain-avx512", "avx2", "avx512", "avx512-emulated"};

int paths_count(void)
{
    return sizeof names / sizeof *names;
}

const char *paths_name(int path)
{
    return names[path];
}

static enum status open_path(int path, int threads, struct compute **ret, struct error *err)
{
    struct compute_options options = {.threads = threads, .simd = names[path]};

    if (strcmp(names[path], "avx512-emulated") != 0)
        return cpu_compute.open(&options, ret, err);
    if (!emulated_kernels)
        return STATUS_ENVIRONMENT;
    return compute_open_kernels(emulated_kernels, &options, ret, err);
}

void paths_say(void)
{
    for (int path = 0; path < paths_count(); path++) {
        struct compute *compute = NULL;

        if (open_path(path, 1, &compute, NULL) != STATUS_OK)
            fprintf(stderr, "SKIP path %s: this processor or this build lacks it\n", names[path]);
        cpu_compute.close(compute);
    }
}

struct compute *paths_open(int path, int threads)
{
    struct compute *compute = NULL;
    struct error err = {0};
    enum status st = open_path(path, threads, &compute, &err);

    ck_assert_msg(st == STATUS_OK || (st == STATUS_ENVIRONMENT && path > 0), "%s: %s", names[path], err.text);
    return compute;
}
