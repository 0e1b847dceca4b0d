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
    struct native *native; /* its communicator in the transport's library; NULL: none */
    struct past *past;     /* roll.h; NULL before the first operation has ended */
};

/* STATUS_INVALID (a repeated or impossible member), STATUS_NOMEM. */
enum status group_create(struct session *session, const struct group_spec *spec, struct group **ret, struct error *err);
void group_destroy(struct group *group);

/* Where the session's sums may be the library's: begin to build the group's communicator there (native.h).  Collective
 * over the members, returns at once; nothing happens at others.  The statuses of the library. */
enum status group_open_native(struct group *group, struct error *err);
/* Before the transport is closed. */
void group_close_native(struct group *group);

#endif
