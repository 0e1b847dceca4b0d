/* The random cases of tests/loop over real ranks: the same seeds, the same reference, bit for bit.
 *
 * usage: mpi_properties CASES [SEED] */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/loop/property.h"
#include "tests/mpi/world.h"

static struct world world;
static struct property_world drawn;
static int cases = 1;

START_TEST(random_cases_equal_the_serial_reference)
{
    struct error err = {0};
    enum status st = property_run(world.session, NULL, &drawn, 0, cases, NULL, &err);

    ck_assert_msg(st == STATUS_OK, "again with: mpi_properties %d %llu\n%s", cases, (unsigned long long)drawn.seed,
                  err.text);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("mpi properties");
    TCase *tests = tcase_create("mpi properties");
    struct error err = {0};
    enum status st = world_start(&world, &err);

    if (argc > 1)
        cases = (int)strtol(argv[1], NULL, 10);
    if (st == STATUS_OK) {
        property_world_draw(argc > 2 ? strtoull(argv[2], NULL, 10) : 4000, world.size, &drawn);
        st = session_build(world.session, drawn.groups, (size_t)drawn.group_count, drawn.routes,
                           (size_t)drawn.route_count, &err);
    }
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, random_cases_equal_the_serial_reference);
    suite_add_tcase(suite, tests);
    return world_run(&world, suite, st, &err);
}
