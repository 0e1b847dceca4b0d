/* Random cases of all operations over loopback, 1 to 16 ranks as threads, against a serial reference.
 *
 * usage: loop_properties MEMORY SESSIONS [SEED]      host, staged (a device's, through the host), device (direct);
 * SEED: run that session again, alone */
#include "tests/loop/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/loop/property.h"
#include "tests/suite.h"

enum { CASES = 100, FIRST_SEED = 1000 };

struct shared {
    struct property_world world;
    atomic_int arrived[CASES];
};

static enum status cases_body(struct rank *self)
{
    struct shared *shared = self->context;

    return property_run(self->session, self->memory, &shared->world, 0, CASES, shared->arrived, &self->err);
}

/* Where tensors lie, and how they leave there. */
enum kind { ON_HOST, STAGED, DIRECT, KINDS };
static const char *const kinds[KINDS] = {"host", "staged", "device"};
static enum kind kind;

/* The world's size, how messages travel and what is compared follow from the seed, too. */
static void run_session(uint64_t seed)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 16};
    static const size_t largest[] = {0, 0, 300, 1000, 4096};
    static const size_t eager[] = {0, 1 << 20, 700};
    static const enum checks checks[] = {CHECKS_FULL, CHECKS_LIGHT, CHECKS_FULL, CHECKS_OFF};
    int size = sizes[seed % 10];
    uint64_t other = property_mix(seed);
    struct shared *shared = calloc(1, sizeof *shared);
    struct ranks *ranks = calloc(1, sizeof *ranks);

    ck_assert(shared && ranks);
    property_world_draw(seed, size, &shared->world);
    *ranks = (struct ranks){.size = size,
                            .loopback = {.max_message = largest[other % 5], .eager_bytes = eager[other / 8 % 3]},
                            .session = {.checks = checks[other / 32 % 4],
                                        .payload_integrity = other / 256 % 3 == 0,
                                        .timeout_ns = 60 * NS_PER_S},
                            .groups = shared->world.groups,
                            .group_count = (size_t)shared->world.group_count,
                            .routes = shared->world.routes,
                            .route_count = (size_t)shared->world.route_count,
                            .late_memory = kind != ON_HOST,
                            .ops = kind == DIRECT ? &loopback_device_ops : NULL,
                            .body = cases_body,
                            .context = shared};
    ranks_run(ranks);
    for (int i = 0; i < size; i++)
        ck_assert_msg(ranks->rank[i].status == STATUS_OK, "again with: loop_properties %s 1 %llu\nrank %d: %s",
                      kinds[kind], (unsigned long long)seed, i, ranks->rank[i].err.text);
    ranks_check(ranks);
    free(ranks);
    free(shared);
}

static uint64_t first_seed = FIRST_SEED;

START_TEST(random_cases_equal_the_serial_reference)
{
    run_session(first_seed + (uint64_t)_i);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("properties");
    TCase *all = tcase_create("all");
    int sessions = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 1;

    while (argc > 1 && kind < KINDS && strcmp(kinds[kind], argv[1]) != 0)
        kind++;
    if (kind == KINDS)
        return EXIT_FAILURE;
    if (argc > 3)
        first_seed = strtoull(argv[3], NULL, 10);
    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, random_cases_equal_the_serial_reference, 0, sessions);
    suite_add_tcase(suite, all);
    (void)printf("%d cases\n", sessions * CASES);
    return suite_run(suite);
}
