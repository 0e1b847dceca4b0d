/* The inside of a group: a lane, and this rank's place in it.  All functions want the session's lock. */
#ifndef COMM_GROUP_PRIVATE_H
#define COMM_GROUP_PRIVATE_H

#include "comm/group.h"
#include "comm/session_private.h"

struct past;
struct collective;

struct group {
    struct lane lane;
    struct group_spec spec;
    int rank; /* member index; -1: not a member */
    uint64_t sequence;
    struct native *native;              /* its communicator in the transport's library; NULL: none */
    struct past *past;                  /* roll.h; NULL before the first operation has ended */
    _Atomic(struct collective *) spare; /* one that has ended, for the next */
};

/* STATUS_INVALID (a repeated or impossible member), STATUS_NOMEM. */
enum status group_create(struct session *session, const struct group_spec *spec, struct group **ret, struct error *err);
void group_destroy(struct group *group);

/* Does the library divide its communicator of all ranks among lines of groups?  The same answer on all ranks. */
bool groups_have_lines(const struct session *session);
/* Where the session's sums may be the library's: begin to build the groups' communicators there (native.h).  Collective
 * over the members of each.  Returns at once but for lines, for which all ranks must have come to it together: then it
 * blocks until they are built, at most startup_timeout.  The statuses of the library, STATUS_TIMEOUT as the session's
 * failure. */
enum status groups_open_native(struct session *session, struct error *err);
/* Before the transport is closed. */
void group_close_native(struct group *group);

#endif
