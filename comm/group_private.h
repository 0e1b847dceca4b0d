/* The inside of a group: a lane, and this rank's place in it.  All functions want the session's lock. */
#ifndef COMM_GROUP_PRIVATE_H
#define COMM_GROUP_PRIVATE_H

#include "comm/group.h"
#include "comm/session_private.h"

struct past;

struct group {
    struct lane lane;
    struct group_spec spec;
    int rank; /* member index; -1: not a member */
    uint64_t sequence;
    struct past *past; /* roll.h; NULL before the first operation has ended */
};

/* STATUS_INVALID (a repeated or impossible member), STATUS_NOMEM. */
enum status group_create(struct session *session, const struct group_spec *spec, struct group **ret, struct error *err);
void group_destroy(struct group *group);

#endif
