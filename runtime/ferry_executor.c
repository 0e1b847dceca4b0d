/* libferry's executors: comm's, whose work is a function of the program. */
#include <stdlib.h>
#include <string.h>

#include "comm/executor.h"
#include "runtime/ferry_private.h"

_Static_assert(FERRY_MAX_CAPACITY == (int)EXECUTOR_MAX_CAPACITY && FERRY_UNKNOWN == LOAD_UNKNOWN,
               "limits have the same numbers");

struct ferry_executor {
    struct ferry_session *session;
    struct executor *executor;
};

/* A handle for what make makes out of from. */
static enum ferry_status open_executor(struct ferry_session *session, struct ferry_executor *from, const char *name,
                                       uint32_t capacity, struct ferry_executor **ret, struct ferry_error *error)
{
    struct ferry_executor *executor = calloc(1, sizeof *executor);
    struct error err = {0};
    enum status st = STATUS_OK;

    if (!executor) {
        st = error_set(&err, STATUS_NOMEM, "an executor");
        return ferry_result(session, st, &err, error);
    }
    executor->session = session;
    st = from ? executor_fork(from->executor, &executor->executor, &err)
              : executor_create(session->session, name, capacity, &executor->executor, &err);
    if (st == STATUS_OK)
        *ret = executor;
    else
        free(executor);
    return ferry_result(session, st, &err, error);
}

enum ferry_status ferry_executor_create(struct ferry_session *session, const char *name, uint32_t capacity,
                                        struct ferry_executor **ret, struct ferry_error *error)
{
    enum ferry_status given = GIVEN(error, NAMED(session), NAMED(name), NAMED(ret));

    if (given == FERRY_OK)
        given = ferry_here(session, error);
    return given == FERRY_OK ? open_executor(session, NULL, name, capacity, ret, error) : given;
}

enum ferry_status ferry_executor_fork(struct ferry_executor *executor, struct ferry_executor **ret,
                                      struct ferry_error *error)
{
    enum ferry_status given = GIVEN(error, NAMED(executor), NAMED(ret));

    return given == FERRY_OK ? open_executor(executor->session, executor, NULL, 0, ret, error) : given;
}

void ferry_executor_release(struct ferry_executor *executor)
{
    if (!executor)
        return;
    executor_release(executor->executor);
    free(executor);
}

/* In the executor's thread: the program's function, and its sentence. */
static enum status work_of_program(void *context, struct error *err)
{
    const struct ferry_completion *completion = context;
    struct ferry_error error = {0};
    enum ferry_status status = completion->work(completion->context, &error);

    return ferry_called(status, &error, err);
}

enum ferry_status ferry_executor_submit(struct ferry_executor *executor, ferry_work *work, void *context,
                                        struct ferry_completion **ret, struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(executor), {"work", work ? executor : NULL}, NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (!posting_begin(&p, executor->session))
        return posting_end(&p, ret, error);
    p.completion->work = work;
    p.completion->context = context;
    p.status = executor_submit(executor->executor, work_of_program, p.completion, &p.completion->completion, &p.err);
    return posting_end(&p, ret, error);
}

enum ferry_status ferry_executor_flush(struct ferry_executor *executor, struct ferry_completion **ret,
                                       struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(executor), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (posting_begin(&p, executor->session))
        p.status = executor_flush(executor->executor, &p.completion->completion, &p.err);
    return posting_end(&p, ret, error);
}

enum ferry_status ferry_executor_after(struct ferry_executor *executor, struct ferry_completion *completion,
                                       struct ferry_error *error)
{
    struct error err = {0};
    enum ferry_status given = GIVEN(error, NAMED(executor), NAMED(completion));

    if (given != FERRY_OK)
        return given;
    return ferry_result(executor->session, executor_after(executor->executor, completion->completion, &err), &err,
                        error);
}

enum ferry_status ferry_group_after(struct ferry_group *group, struct ferry_completion *completion,
                                    struct ferry_error *error)
{
    struct error err = {0};
    enum ferry_status given = GIVEN(error, NAMED(group), NAMED(completion));

    if (given != FERRY_OK)
        return given;
    return ferry_result(group->session, group_after(group->group, completion->completion, &err), &err, error);
}

enum ferry_status ferry_route_after(struct ferry_route *route, struct ferry_completion *completion,
                                    struct ferry_error *error)
{
    struct error err = {0};
    enum ferry_status given = GIVEN(error, NAMED(route), NAMED(completion));

    if (given != FERRY_OK)
        return given;
    return ferry_result(route->session, route_after(route->route, completion->completion, &err), &err, error);
}

struct ferry_load ferry_executor_load(const struct ferry_executor *executor)
{
    struct load load = executor_load(executor ? executor->executor : NULL);

    return (struct ferry_load){load.pending, load.capacity};
}

struct ferry_load ferry_load(const struct ferry_session *session)
{
    struct load load = session ? session_load(session->session) : executor_load(NULL);

    return (struct ferry_load){load.pending, load.capacity};
}
