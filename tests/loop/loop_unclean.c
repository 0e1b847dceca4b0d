/* A session that is closed without a clean end while an executor still runs a piece of work: nobody waits for it longer
 * than a second, and nothing that it may touch is freed. */
#include <check.h>
#include <stdatomic.h>

#include "backends/loopback/loopback.h"
#include "base/clock.h"
#include "comm/executor.h"
#include "comm/session.h"
#include "tests/suite.h"

/* They stay to the end of the process, where the work was not over in time. */
static struct loopback_world *world;
static struct session *session;

struct labour {
    uint64_t lasts_ns; /* 0: until it is told */
    atomic_int begun;
    atomic_int told;
    atomic_int ended;
};

static enum status labour(void *context, struct error *err)
{
    struct labour *self = context;
    uint64_t until_ns = clock_ns() + self->lasts_ns;

    (void)err;
    atomic_store(&self->begun, 1);
    while (self->lasts_ns ? clock_ns() < until_ns : !atomic_load(&self->told))
        clock_sleep_ns(NS_PER_MS);
    session_progress(session); /* as compute does between its tiles */
    atomic_store(&self->ended, 1);
    return STATUS_OK;
}

/* Close while the work runs; how long that took, in seconds. */
static double close_over(struct labour *work)
{
    const struct loopback_options options = {0};
    const struct session_options wanted = {.timeout_ns = 20 * NS_PER_S, .startup_timeout_ns = 20 * NS_PER_S};
    struct executor *executor = NULL;
    struct completion *completion = NULL;
    struct transport *transport = NULL;
    struct error err = {0};
    uint64_t begun_ns;

    ck_assert_int_eq(loopback_world_create(1, &options, &world, &err), STATUS_OK);
    ck_assert_int_eq(loopback_join(world, 0, &transport, &err), STATUS_OK);
    ck_assert_int_eq(session_create(&loopback_ops, transport, &wanted, &session, &err), STATUS_OK);
    ck_assert_int_eq(executor_create(session, "cpu/0", 4, &executor, &err), STATUS_OK);
    ck_assert_int_eq(executor_submit(executor, labour, work, &completion, &err), STATUS_OK);
    while (!atomic_load(&work->begun))
        clock_sleep_ns(NS_PER_MS);
    completion_abandon(completion);
    executor_release(executor);
    session_fail(session, STATUS_MODEL, "the session fails under its work");
    begun_ns = clock_ns();
    ck_assert_int_eq(session_close(session, false, &err), STATUS_OK);
    return (double)(clock_ns() - begun_ns) / (double)NS_PER_S;
}

START_TEST(work_that_runs_on_finds_its_session)
{
    struct labour work = {0};
    double seconds = close_over(&work);

    ck_assert_msg(seconds >= 0.9 && seconds < 10, "closed within %.2f s", seconds);
    ck_assert(!atomic_load(&work.ended));
    atomic_store(&work.told, 1);
    for (int i = 0; i < 10000 && !atomic_load(&work.ended); i++)
        clock_sleep_ns(NS_PER_MS);
    ck_assert(atomic_load(&work.ended));
    clock_sleep_ns(200 * NS_PER_MS); /* its thread takes the session's lock once more */
}
END_TEST

START_TEST(work_that_ends_in_time_is_waited_for)
{
    struct labour work = {.lasts_ns = 300 * NS_PER_MS};
    double seconds = close_over(&work);

    ck_assert(atomic_load(&work.ended));
    ck_assert_msg(seconds < 0.9, "closed after %.2f s, when the work had ended", seconds);
    loopback_world_destroy(world);
    world = NULL;
    session = NULL;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unclean");
    TCase *tests = tcase_create("unclean");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, work_that_runs_on_finds_its_session);
    tcase_add_test(tests, work_that_ends_in_time_is_waited_for);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
