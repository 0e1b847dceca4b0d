/* One probe for each pair of this rank's groups and each of its incoming routes.
 *
 * A broadcast whose members name different roots, or one more bundle than was received, leaves a message behind and
 * nothing else: whoever sent it is done, and nobody waits. */
#include "comm/stray.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "comm/collective.h"
#include "comm/framed.h"
#include "comm/route_private.h"

#define ARRIVAL_NS (1 * NS_PER_S)

/* Its bytes, where they are few enough to be worth a look.  NULL: too many, or they did not come. */
static unsigned char *fetch(struct session *session, struct message *message, size_t bytes)
{
    uint64_t deadline_ns = clock_ns() + ARRIVAL_NS;
    unsigned char *got = bytes <= FRAMED_SCRATCH_BYTES ? malloc(bytes + 1) : NULL;
    struct work *work = NULL;
    bool ended = false;

    if (!got || session->ops->receive(session->transport, message, got, bytes, &work, NULL) != STATUS_OK) {
        free(got);
        return NULL;
    }
    while (session->ops->test(session->transport, work, &ended, NULL) == STATUS_OK && !ended) {
        if (clock_ns() > deadline_ns)
            return NULL; /* the transport may still write there */
        clock_sleep_ns(50 * NS_PER_US);
    }
    return got;
}

static enum status name_message(const struct lane *lane, int peer, const unsigned char *bytes, size_t count,
                                struct error *err)
{
    struct frame frame;
    char role[ROUTE_ROLE_BYTES + 1];
    struct text words = {0};
    enum status st;

    if (!bytes || !frame_read(bytes, count, &frame, role))
        return error_set(err, STATUS_MISMATCH, "%s %s: rank %d sent a message of %zu bytes that nobody received",
                         lane->kind, lane->name, peer, count);
    if (frame.kind == FRAME_COLLECTIVE)
        collective_describe(&words, &frame);
    else
        text_add(&words, "tensor %s", role);
    st = error_set(err, STATUS_MISMATCH, "%s %s, sequence %" PRIu64 ": rank %d: %s; rank %d did not receive it",
                   lane->kind, lane->name, frame.sequence, peer, text_string(&words), lane->session->rank);
    text_done(&words);
    return st;
}

static enum status look(struct session *session, const struct lane *lane, int peer, struct error *err)
{
    struct message *message = NULL;
    unsigned char *got = NULL;
    const void *ahead = NULL;
    size_t ahead_bytes = 0;
    size_t bytes = 0;
    enum status st = session->ops->probe(session->transport, peer, lane->id, &message, &bytes, err);

    if (st != STATUS_OK || !message)
        return st;
    if (session->ops->device && (ahead = session->ops->device->ahead(message, &ahead_bytes))) {
        st = name_message(lane, peer, ahead, ahead_bytes, err);
        session->ops->device->refuse(session->transport, message);
        return st;
    }
    got = fetch(session, message, bytes);
    st = name_message(lane, peer, got, bytes, err);
    free(got);
    return st;
}

static enum status look_in_group(struct session *session, const struct group *group, struct error *err)
{
    enum status st = STATUS_OK;

    if (group->rank < 0 || group->lane.first)
        return STATUS_OK;
    for (int i = 0; i < group->spec.size && st == STATUS_OK; i++) {
        if (i != group->rank)
            st = look(session, &group->lane, group->spec.members[i], err);
    }
    return st;
}

enum status stray_check(struct session *session, struct error *err)
{
    enum status st = STATUS_OK;

    for (size_t i = 0; i < session->group_count && st == STATUS_OK; i++)
        st = look_in_group(session, session->groups[i], err);
    for (size_t i = 0; i < session->route_count && st == STATUS_OK; i++) {
        const struct lane *lane = route_lane(session->routes[i]);
        const struct route_spec *spec = route_spec(session->routes[i]);

        if (spec->to == session->rank && !lane->first)
            st = look(session, lane, spec->from, err);
    }
    return st;
}
