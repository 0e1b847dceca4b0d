/* A tensor of the host with its twin where it travels: in a device's memory, or, where nothing else is there, itself.
 *
 * Computing reads and writes `here`; groups get `there`.  Initialise with mirror_init; a zeroed one is empty. */
#ifndef RUNTIME_MIRROR_H
#define RUNTIME_MIRROR_H

#include "runtime/shuttle.h"

struct group;

struct mirror {
    struct shuttle *shuttle; /* NULL: there is here */
    struct tensor *here;
    struct tensor *there;
    struct completion *leaving; /* a promotion that is not settled; NULL: none */
};

/* shuttle is borrowed until mirror_done; NULL: host memory alone, of this kind (borrowed so, too), NULL: the process's
 * own.  STATUS_NOMEM, STATUS_OVERFLOW. */
enum status mirror_init(struct shuttle *shuttle, struct memory *host, enum dtype dtype, const struct shape *shape,
                        struct mirror *ret, struct error *err);
/* A promotion that is under way must have been settled, or the session must have failed. */
void mirror_done(struct mirror *mirror);

/* Both.  STATUS_OVERFLOW: more than it was made for. */
enum status mirror_reshape(struct mirror *mirror, enum dtype dtype, const struct shape *shape, struct error *err);

/* Make there equal to here; what the group is asked to do next begins after that.  here must not be written before
 * mirror_settle.  Does not block.  Statuses of the shuttle and of group_after. */
enum status mirror_promote(struct mirror *mirror, struct group *group, struct error *err);

/* The same for nobody in particular, and wait.  Adds the time to *wait_ns.  Statuses of the shuttle. */
enum status mirror_upload(struct mirror *mirror, uint64_t *wait_ns, struct error *err);

/* Wait for the promotion, if there is one.  Adds the time to *wait_ns.  Statuses of the shuttle. */
enum status mirror_settle(struct mirror *mirror, uint64_t *wait_ns, struct error *err);

/* Make here equal to there, and wait.  Statuses of the shuttle. */
enum status mirror_demote(struct mirror *mirror, uint64_t *wait_ns, struct error *err);

#endif
