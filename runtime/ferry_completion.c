/* libferry's completions. */
#include <stdlib.h>

#include "base/clock.h"
#include "runtime/ferry_private.h"

_Static_assert((int)FERRY_PENDING == (int)COMPLETION_PENDING && (int)FERRY_DONE == (int)COMPLETION_DONE &&
                   (int)FERRY_FAILED == (int)COMPLETION_FAILED,
               "states have the same numbers");
_Static_assert(FERRY_FOREVER == DEADLINE_NONE, "for ever is no deadline");

bool posting_begin(struct posting *posting, struct ferry_session *session)
{
    *posting = (struct posting){.session = NULL};
    posting->status = ferry_here_own(session, &posting->err);
    if (posting->status != STATUS_OK)
        return false;
    posting->session = session;
    posting->completion = calloc(1, sizeof *posting->completion);
    if (!posting->completion) {
        posting->status = error_set(&posting->err, STATUS_NOMEM, "a completion");
        return false;
    }
    posting->completion->session = session;
    return true;
}

enum ferry_status posting_end(struct posting *posting, struct ferry_completion **ret, struct ferry_error *error)
{
    if (posting->status == STATUS_OK)
        *ret = posting->completion;
    else
        free(posting->completion);
    return ferry_result(posting->session, posting->status, &posting->err, error);
}

enum ferry_state ferry_test(struct ferry_completion *completion)
{
    enum ferry_state state;

    if (!completion || ferry_here(completion->session, NULL) != FERRY_OK)
        return FERRY_FAILED;
    state = (enum ferry_state)completion_test(completion->completion);
    if (state == FERRY_PENDING && completion_quarantined(completion->completion))
        return FERRY_QUARANTINED;
    return state;
}

static uint64_t deadline_after(uint64_t timeout_ns)
{
    uint64_t now = clock_ns();

    return timeout_ns > UINT64_MAX - now ? DEADLINE_NONE : now + timeout_ns;
}

enum ferry_status ferry_wait(struct ferry_completion *completion, uint64_t timeout_ns, struct ferry_error *error)
{
    struct error err = {0};
    enum status st;
    enum ferry_status given = GIVEN(error, NAMED(completion));

    if (given == FERRY_OK)
        given = ferry_here(completion->session, error);
    if (given != FERRY_OK)
        return given;
    st = completion_wait(completion->completion, deadline_after(timeout_ns), &err);
    return ferry_result(completion->session, st, &err, error);
}

void ferry_release(struct ferry_completion *completion)
{
    if (!completion)
        return;
    completion_release(completion->completion);
    free(completion);
}

void ferry_abandon(struct ferry_completion *completion)
{
    struct completion *work;

    if (!completion)
        return;
    work = completion->completion;
    /* What is under way still asks its describe, or is still to be done.  Without memory the handle stays for good. */
    (void)completion_retain(work, completion, free, NULL);
    completion_abandon(work);
}

enum ferry_status ferry_retain(struct ferry_completion *completion, void *value, void (*release)(void *value),
                               struct ferry_error *error)
{
    struct error err = {0};
    enum ferry_status given = GIVEN(error, NAMED(completion), {"release", release ? completion : NULL});

    if (given != FERRY_OK)
        return given;
    return ferry_result(completion->session, completion_retain(completion->completion, value, release, &err), &err,
                        error);
}

enum ferry_status ferry_finish(struct ferry_completion *completion, struct ferry_error *error)
{
    enum ferry_status status = ferry_wait(completion, FERRY_FOREVER, error);

    if (status == FERRY_OK)
        ferry_release(completion);
    else if (completion && ferry_here(completion->session, NULL) == FERRY_OK)
        ferry_abandon(completion);
    return status;
}

uint32_t ferry_flags(const struct ferry_completion *completion)
{
    bool done = completion && completion_test(completion->completion) == COMPLETION_DONE;

    return done ? completion_flags(completion->completion) : 0;
}
