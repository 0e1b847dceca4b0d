/* The session counts what is waited for, so that a failed one knows that patience helps. */
#include "comm/queued.h"

#include "base/clock.h"

enum { REST_US = 50 };

enum status queued_mark(struct queued *queued, struct session *session, struct memory *memory, struct error *err)
{
    enum status st = STATUS_OK;

    CHECK(!queued->memory);
    if (memory_host_view(memory))
        return STATUS_OK;
    st = memory->ops->mark(memory, &queued->mark, err);
    if (st != STATUS_OK)
        return st;
    queued->memory = memory;
    session->queued++;
    return STATUS_OK;
}

enum status queued_reached(struct queued *queued, struct session *session, bool *ret, struct error *err)
{
    enum status st = STATUS_OK;

    *ret = true;
    if (!queued->memory)
        return STATUS_OK;
    st = queued->memory->ops->reached(queued->memory, queued->mark, ret, err);
    if (st == STATUS_OK && !*ret)
        return STATUS_OK;
    queued->memory = NULL;
    queued->mark = NULL;
    session->queued--;
    session_moved(session);
    return st;
}

bool queued_let_go(struct queued *queued, struct session *session)
{
    bool reached = false;

    return queued_reached(queued, session, &reached, NULL) != STATUS_OK || reached;
}

void queued_end(struct session *session, uint64_t patience_ns)
{
    uint64_t until_ns = clock_ns() + patience_ns;

    while (session->queued && clock_ns() < until_ns) {
        session_unlock(session);
        clock_sleep_ns(REST_US * NS_PER_US);
        session_lock(session);
        session_advance(session);
    }
}
