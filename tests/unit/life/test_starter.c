/* Who started this process: its variables, its cores, and what does not fit the topology. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/starter.h"
#include "tests/suite.h"

static int count_cores(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    if (bytes < 512) { /* a kernel of 4096 CPUs */
        errno = EINVAL;
        return -1;
    }
    for (size_t cpu = 0; cpu < 3000; cpu++)
        CPU_SET_S(cpu, bytes, set);
    return 0;
}

static int no_cores(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    (void)bytes;
    (void)set;
    errno = EPERM;
    return -1;
}

START_TEST(cores_are_counted_beyond_1024)
{
    ck_assert_int_eq(starter_cores(count_cores), 3000);
    ck_assert_int_eq(starter_cores(no_cores), 1);
    ck_assert_int_ge(starter_cores(sched_getaffinity), 1);
}
END_TEST

static void forget_starters(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",      "PMI_SIZE",  "SLURM_PROCID",  "SLURM_NTASKS",
        "SLURM_STEP_ID",        "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "PMIX_RANK", "PMIX_NAMESPACE"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unsetenv(names[i]);
}

START_TEST(starters_are_known_by_their_variables)
{
    struct starter starter;

    forget_starters();
    starter_read(&starter);
    ck_assert_int_eq(starter.kind, STARTER_NONE);
    ck_assert_int_eq(starter.size, -1);
    (void)setenv("SLURM_PROCID", "0", 1);
    starter_read(&starter); /* a batch script is no step */
    ck_assert_int_eq(starter.kind, STARTER_NONE);
    (void)setenv("SLURM_PROCID", "2", 1);
    (void)setenv("SLURM_STEP_ID", "0", 1);
    (void)setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    starter_read(&starter);
    ck_assert_int_eq(starter.kind, STARTER_SLURM);
    ck_assert_int_eq(starter.rank, 2);
    ck_assert_int_eq(starter.size, 4);
    (void)setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    (void)setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    starter_read(&starter);
    ck_assert_int_eq(starter.kind, STARTER_OPENMPI);
    ck_assert_int_eq(starter.rank, 1);
    ck_assert_int_eq(starter.size, 3);
    (void)setenv("OMPI_COMM_WORLD_RANK", "4294967298", 1);
    starter_read(&starter);
    ck_assert_int_eq(starter.kind, STARTER_SLURM);
}
END_TEST

/* B17 */
START_TEST(singletons_and_wrong_sizes_are_told)
{
    struct starter slurm = {.kind = STARTER_SLURM, .size = 4};
    struct starter pmix = {.kind = STARTER_SLURM, .size = 4, .pmix = true};
    struct starter alone = {.kind = STARTER_NONE, .size = -1};
    struct error err = {0};

    ck_assert_int_eq(starter_check(&slurm, 4, 4, "x", &err), STATUS_OK);
    ck_assert_int_eq(starter_check(&alone, 1, 1, "x", &err), STATUS_OK);
    ck_assert_int_eq(starter_check(&slurm, 1, 4, "mpirun -n 4 ferry run t.yaml", &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "srun started 4 tasks without PMIx"));
    ck_assert_ptr_nonnull(strstr(err.text, "or mpirun -n 4 ferry run t.yaml"));
    ck_assert_int_eq(starter_check(&pmix, 1, 4, "x", &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "belongs to another MPI"));
    ck_assert_int_eq(starter_check(&alone, 1, 4, "mpirun -n 4 ferry run t.yaml", &err), STATUS_TOPOLOGY);
    ck_assert_str_eq(err.text, "the topology has 4 ranks, but 1 process was started: mpirun -n 4 ferry run t.yaml");
    ck_assert_int_eq(starter_check(&slurm, 4, 1, "x", &err), STATUS_TOPOLOGY);
    ck_assert_ptr_nonnull(strstr(err.text, "the topology has 1 rank, but 4 processes were started"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("starter");
    TCase *tests = tcase_create("starter");

    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, cores_are_counted_beyond_1024);
    tcase_add_test(tests, starters_are_known_by_their_variables);
    tcase_add_test(tests, singletons_and_wrong_sizes_are_told);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
