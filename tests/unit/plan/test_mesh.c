/* The mesh: ranks and coordinates, lines, limits. */
#include <check.h>
#include <string.h>

#include "runtime/mesh.h"
#include "tests/suite.h"

/* tensor 2, pipeline 3, expert 2, data 2. */
static struct mesh example(void)
{
    struct mesh mesh = {.size = {[AXIS_DATA] = 2, [AXIS_PIPELINE] = 3, [AXIS_TENSOR] = 2, [AXIS_EXPERT] = 2}};

    ck_assert_int_eq(mesh_init(&mesh, NULL), STATUS_OK);
    return mesh;
}

START_TEST(rank_22_of_the_example_stands_where_the_specification_says)
{
    struct mesh mesh = example();
    struct coordinates at = mesh_coordinates(&mesh, 22);

    ck_assert_int_eq(mesh.world, 24);
    ck_assert_int_eq(at.at[AXIS_TENSOR], 1);
    ck_assert_int_eq(at.at[AXIS_PIPELINE], 2);
    ck_assert_int_eq(at.at[AXIS_EXPERT], 0);
    ck_assert_int_eq(at.at[AXIS_DATA], 1);
}
END_TEST

START_TEST(every_rank_survives_the_way_to_coordinates_and_back)
{
    struct mesh mesh = example();

    for (int rank = 0; rank < mesh.world; rank++)
        ck_assert_int_eq(mesh_rank(&mesh, mesh_coordinates(&mesh, rank)), rank);
}
END_TEST

START_TEST(lines_through_rank_22_are_those_of_the_specification)
{
    static const int expected[AXIS_COUNT][3] = {
        [AXIS_DATA] = {10, 22}, [AXIS_PIPELINE] = {14, 18, 22}, [AXIS_TENSOR] = {20, 22}, [AXIS_EXPERT] = {22, 23}};
    struct mesh mesh = example();

    for (int axis = 0; axis < AXIS_COUNT; axis++)
        for (int member = 0; member < mesh.size[axis]; member++)
            ck_assert_int_eq(mesh_line_member(&mesh, axis, mesh_line(&mesh, axis, 22), member), expected[axis][member]);
}
END_TEST

START_TEST(lines_are_numbered_by_their_lowest_rank_and_hold_every_rank_once)
{
    struct mesh mesh = example();

    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        int lines = mesh.world / mesh.size[axis];
        int seen[24] = {0};

        for (int line = 0; line < lines; line++) {
            if (line)
                ck_assert_int_gt(mesh_line_member(&mesh, axis, line, 0), mesh_line_member(&mesh, axis, line - 1, 0));
            for (int member = 0; member < mesh.size[axis]; member++) {
                int rank = mesh_line_member(&mesh, axis, line, member);

                seen[rank]++;
                ck_assert_int_eq(mesh_line(&mesh, axis, rank), line);
                ck_assert_int_eq(mesh_coordinates(&mesh, rank).at[axis], member);
            }
        }
        for (int rank = 0; rank < mesh.world; rank++)
            ck_assert_int_eq(seen[rank], 1);
    }
}
END_TEST

START_TEST(sizes_below_one_and_worlds_beyond_the_limit_are_refused)
{
    struct error err = {0};
    struct mesh none = {.size = {1, 0, 1, 1}};
    struct mesh most = {.size = {1024, 1024, 1, 1}};
    struct mesh more = {.size = {1024, 1024, 1, 2}};
    struct mesh huge = {.size = {2147483647, 2147483647, 2147483647, 2147483647}};

    ck_assert_int_eq(mesh_init(&none, &err), STATUS_INVALID);
    ck_assert(strstr(err.text, "pipeline has size 0"));
    ck_assert_int_eq(mesh_init(&most, &err), STATUS_OK);
    ck_assert_int_eq(most.world, 1048576);
    ck_assert_int_eq(mesh_init(&more, &err), STATUS_OVERFLOW);
    ck_assert(strstr(err.text, "1048576 ranks"));
    ck_assert_int_eq(mesh_init(&huge, &err), STATUS_OVERFLOW);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mesh");
    TCase *tests = tcase_create("mesh");

    tcase_add_test(tests, rank_22_of_the_example_stands_where_the_specification_says);
    tcase_add_test(tests, every_rank_survives_the_way_to_coordinates_and_back);
    tcase_add_test(tests, lines_through_rank_22_are_those_of_the_specification);
    tcase_add_test(tests, lines_are_numbered_by_their_lowest_rank_and_hold_every_rank_once);
    tcase_add_test(tests, sizes_below_one_and_worlds_beyond_the_limit_are_refused);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
