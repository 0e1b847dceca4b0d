/* Quarantine of work that waits for other work: what stands still is refused, and what waits behind it. */
#include "tests/loop/ranks.h"

#include <string.h>

#include "base/clock.h"
#include "tests/suite.h"

static const int members[] = {0, 1};
static const struct group_spec groups[] = {GROUP(1, 2, members), GROUP(2, 2, members), GROUP(3, 2, members)};

static void until(atomic_int *flag)
{
    for (int i = 0; i < 60000 && !atomic_load(flag); i++)
        clock_sleep_ns(NS_PER_MS);
    EXPECT(atomic_load(flag));
}

/* Rank 1 comes late to group 1; on rank 0 group 2 is ordered after that, and waited for. */
static enum status behind_body(struct rank *self)
{
    atomic_int *refused = self->context;
    struct group *group[3];
    struct completion *first = NULL;
    struct completion *second = NULL;
    struct completion *more = NULL;
    struct error err = {0};

    for (uint32_t i = 0; i < 3; i++)
        group[i] = session_group(self->session, i + 1);
    EXPECT(finish(group_barrier(group[2], &more, &self->err), &more, &self->err) == STATUS_OK);
    if (self->rank)
        until(refused);
    EXPECT(group_barrier(group[0], &first, &self->err) == STATUS_OK);
    EXPECT(group_after(group[1], first, &self->err) == STATUS_OK);
    EXPECT(group_barrier(group[1], &second, &self->err) == STATUS_OK);
    if (!self->rank) {
        EXPECT(completion_wait(second, DEADLINE_NONE, &err) == STATUS_TIMEOUT);
        EXPECT(strstr(err.text, "rank 1 has stood still") != NULL && strstr(err.text, "barrier on group/1") != NULL);
        EXPECT(completion_quarantined(first) && completion_quarantined(second));
        for (int i = 0; i < 2; i++) {
            EXPECT(group_barrier(group[i], &more, &err) == STATUS_TIMEOUT);
            EXPECT(strstr(err.text, i ? "group group/2 is quarantined" : "group group/1 is quarantined") != NULL);
        }
        EXPECT(session_check(self->session, &self->err) == STATUS_OK);
        atomic_store(refused, 1);
    }
    for (int i = 0; i < 30000 && completion_test(second) == COMPLETION_PENDING; i++)
        clock_sleep_ns(NS_PER_MS);
    EXPECT(completion_test(first) == COMPLETION_DONE && completion_test(second) == COMPLETION_DONE);
    completion_release(first);
    completion_release(second);
    for (int i = 0; i < 3; i++) /* all work again, and the third did all along */
        EXPECT(finish(group_barrier(group[i], &more, &self->err), &more, &self->err) == STATUS_OK);
    return STATUS_OK;
}

START_TEST(what_stands_still_is_quarantined_with_what_waits_behind_it)
{
    atomic_int refused = 0;
    struct ranks ranks = {.size = 2,
                          .groups = groups,
                          .group_count = 3,
                          .body = behind_body,
                          .context = &refused,
                          .session = {.timeout_ns = NS_PER_S, .on_timeout = ON_TIMEOUT_QUARANTINE}};

    ranks_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quarantine");
    TCase *tests = tcase_create("quarantine");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, what_stands_still_is_quarantined_with_what_waits_behind_it);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
