/* The random cases of tests/loop over NCCL, with every tensor in device memory: the same seeds, the same reference.
 *
 * usage: nccl_properties CASES [SEED [staged]]     staged: over MPI, through pinned memory of the host */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/loop/property.h"
#include "tests/nccl/device_world.h"
#include "tests/suite.h"

static struct device_world device;
static struct session *session;
static struct property_world world;
static int cases = 1;

START_TEST(random_cases_equal_the_serial_reference)
{
    struct error err = {0};
    enum status st = property_run(session, device.memory, &world, 0, cases, NULL, &err);

    ck_assert_msg(st == STATUS_OK, "again with: nccl_properties %d %llu%s\n%s", cases, (unsigned long long)world.seed,
                  device.staged ? " staged" : "", err.text);
}
END_TEST

static enum status start(uint64_t seed, struct error *err)
{
    struct session_options options = {
        .timeout_ns = 30 * NS_PER_S, .startup_timeout_ns = 30 * NS_PER_S, .checks = CHECKS_FULL};
    enum status st = device_world_open(60 * NS_PER_S, 30 * NS_PER_S, &device, err);

    if (st != STATUS_OK)
        return st;
    options.memory = device.memory;
    options.pinned = device.device->pinned;
    st = session_create(device.ops, device.transport, &options, &session, err);
    if (st != STATUS_OK)
        return st;
    property_world_draw(seed, session_size(session), &world);
    return session_build(session, world.groups, (size_t)world.group_count, world.routes, (size_t)world.route_count,
                         err);
}

int main(int argc, char **argv)
{
    Suite *suite = suite_create("nccl properties");
    TCase *tests = tcase_create("nccl properties");
    struct error err = {0};
    int failed;

    if (argc > 1)
        cases = (int)strtol(argv[1], NULL, 10);
    device.staged = argc > 3 && strcmp(argv[3], "staged") == 0;
    if (start(argc > 2 ? strtoull(argv[2], NULL, 10) : 4000, &err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, random_cases_equal_the_serial_reference);
    suite_add_tcase(suite, tests);
    failed = suite_run_here(suite);
    if (session_close(session, true, &err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    device_world_end(&device);
    return failed;
}
