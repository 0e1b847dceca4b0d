/* A failure's cause on disk: RUN_DIR/cause.json, for people and for `ferry doctor`. */
#ifndef COMM_CAUSE_H
#define COMM_CAUSE_H

#include "comm/control.h"
#include "comm/transport.h"

/* Write cause.json whole or not at all.  The first writer of a run wins: when it is there already nothing changes and
 * STATUS_OK is returned.  last is the culprit's last recorded operation as text; NULL: unknown.
 * ret_first (NULL: not asked)  false: a cause is there already that a rank has found, that its culprit or its keeper
 * has told, or that blames the same rank or none, and that has been or is being printed; true also when the file cannot
 * be written, or when the cause there is that ranks lost another one or wait for it: in a job cut in two each part
 * prints its own.  STATUS_STORAGE. */
enum status cause_save(const char *run_dir, const struct cause *cause, const char *last, bool *ret_first,
                       struct error *err);

/* Add to the text on which hosts the ranks run that it names: "; rank 2 runs on node2".  Hosts that it names already
 * are left out, and so is what does not fit.  ops->host NULL: nothing is added. */
void cause_add_hosts(struct cause *cause, const struct transport_ops *ops, const struct transport *transport);

/* A new run begins in this folder: the cause of an earlier one goes.  Best effort. */
void cause_forget(const char *run_dir);

/* Which of two causes explains a failure better: <0: a, >0: b, 0: equal.  A total order, the same on every rank: what
 * a rank found itself before a lost rank, that before a timeout; then the earlier, then the lower reporter. */
int cause_compare(const struct cause *a, const struct cause *b);

#endif
