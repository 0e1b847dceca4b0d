/* The communicators that the transport's library keeps for its own sums: one a group, and those of an axis' lines at
 * once, by dividing the one of all ranks.  That wants all ranks to have come, and to wait: before a line is built no
 * message may use the one that is divided. */
#include <inttypes.h>

#include "base/clock.h"
#include "comm/group_private.h"
#include "comm/native.h"
#include "comm/reduce.h"

enum { NAMED_RANKS = 8 };

/* May the library ever add for it?  The same answer on all members. */
static bool wants_native(const struct group *group)
{
    const struct session *session = group->lane.session;
    const struct memory *memory = session->options.memory;

    if (session->options.reduction == REDUCTION_ORDERED || !session->ops->native || group->spec.size < 2 ||
        memory_host_view(memory) || !(group->spec.operations & OPERATION_BIT(OPERATION_ALL_REDUCE_SUM)))
        return false;
    for (int dtype = DTYPE_NONE + 1; dtype < DTYPE_COUNT; dtype++) {
        if (group->spec.dtypes & DTYPE_BIT(dtype) && reduce_supports((enum dtype)dtype) &&
            session->ops->native->adds(session->transport, memory, reduce_partial((enum dtype)dtype)))
            return true;
    }
    return false;
}

/* A line of all ranks divides nothing. */
static uint32_t line_of(const struct group *group)
{
    return group->spec.size < group->lane.session->size ? group->spec.first_line : 0;
}

bool groups_have_lines(const struct session *session)
{
    for (size_t i = 0; i < session->group_count; i++) {
        const struct group *group = session->groups[i];

        if (group->rank >= 0 && line_of(group) && wants_native(group))
            return true;
    }
    return false;
}

/* The first line of this rank that is not built on all its members, as far as is known; NULL: none. */
static const struct group *unbuilt_line(const struct session *session)
{
    for (size_t i = 0; i < session->group_count; i++) {
        const struct group *group = session->groups[i];

        if (group->native && line_of(group) &&
            session->ops->native->missing(session->transport, group->native, NULL, 0))
            return group;
    }
    return NULL;
}

static enum status library_failed(const struct session *session, struct error *err)
{
    return session->ops->native->failed ? session->ops->native->failed(session->transport, err) : STATUS_OK;
}

static bool lines_built(void *context)
{
    return !unbuilt_line(context) || library_failed(context, NULL) != STATUS_OK;
}

static enum status tell_unbuilt(const struct session *session, const struct group *group, struct error *err)
{
    int ranks[NAMED_RANKS];
    int count = session->ops->native->missing(session->transport, group->native, ranks, NAMED_RANKS);
    struct text text = {0};
    enum status st;

    text_add(&text, "group %s: its communicator is not built after %" PRIu64 " ms (startup_timeout): not on rank%s ",
             group->spec.name, session->options.startup_timeout_ns / NS_PER_MS, count > 1 ? "s" : "");
    for (int i = 0; i < count && i < NAMED_RANKS; i++)
        text_add(&text, "%s%d", i ? ", " : "", ranks[i]);
    if (count > NAMED_RANKS)
        text_add(&text, " and %d more", count - NAMED_RANKS);
    st = error_set(err, STATUS_TIMEOUT, "%s", text_string(&text));
    text_done(&text);
    return error_blame(err, st, session->ops->native->awaits(session->transport, group->native));
}

static enum status await_lines(struct session *session, struct error *err)
{
    uint64_t deadline_ns = clock_ns() + session->options.startup_timeout_ns;
    struct error why = {0};
    const struct group *unbuilt = NULL;
    enum status st = STATUS_OK;

    /* It says how it ended by what holds then. */
    (void)session_wait(session, &session->world->lane, lines_built, session, deadline_ns, NULL);
    if (session->failed)
        return session_failed(session, err);
    st = library_failed(session, &why);
    unbuilt = st == STATUS_OK ? unbuilt_line(session) : NULL;
    if (unbuilt)
        st = tell_unbuilt(session, unbuilt, &why);
    if (st == STATUS_OK)
        return STATUS_OK;
    (void)session_poison(session, st, &why);
    return session_failed(session, err);
}

enum status groups_open_native(struct session *session, struct error *err)
{
    enum status st = STATUS_OK;

    for (size_t i = 0; i < session->group_count && st == STATUS_OK; i++) {
        struct group *group = session->groups[i];

        if (group->rank < 0 || !wants_native(group))
            continue;
        st = session->ops->native->open(session->transport, group->spec.id, line_of(group), group->spec.members,
                                        group->spec.size, &group->native, err);
        if (st != STATUS_OK)
            (void)error_wrap(err, st, "group %s", group->spec.name);
    }
    return st == STATUS_OK && groups_have_lines(session) ? await_lines(session, err) : st;
}

void group_close_native(struct group *group)
{
    const struct session *session = group->lane.session;

    if (group->native)
        session->ops->native->close(session->transport, group->native);
    group->native = NULL;
}
