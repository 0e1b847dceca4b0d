/* Operations on an ordered set of ranks.  None blocks; each returns one completion to release (returns).
 *
 * Collective over the group: same order of calls on every member; a group runs one operation at a time, and further
 * ones queue.  Tensors are retained until completion; the caller must not write what is sent nor read what is
 * received.  Output is meaningless before completion.  Tensors may lie in a device's memory, both of a call in the
 * same; the operation begins behind what was queued there before.  Common statuses: STATUS_INVALID (not selected in the
 * plan, dtype, shapes or counts that break the contract, not a member), STATUS_OVERFLOW (limits), STATUS_NOMEM, the
 * session's first failure. */
#ifndef COMM_GROUP_H
#define COMM_GROUP_H

#include "base/tensor.h"
#include "comm/completion.h"
#include "comm/spec.h"

struct group;

const struct group_spec *group_spec(const struct group *group);
/* This rank's index in member order; -1: not a member. */
int group_rank(const struct group *group);
int group_size(const struct group *group);

/* recv = sum over members of send, elementwise, added by the balanced tree over member order (left half gets the
 * first half rounded up).  f16 and bf16 are summed in f32 and rounded once; integers wrap; bool is refused.  Equal
 * shapes everywhere.  send may be recv (in place). */
enum status group_all_reduce_sum(struct group *group, struct tensor *send, struct tensor *recv, struct completion **ret,
                                 struct error *err);

/* recv = concatenation of every member's send along axis, in member order; equal shapes.  In place: send is recv, and
 * holds the own part in its slot. */
enum status group_all_gather_even(struct group *group, struct tensor *send, struct tensor *recv, int axis,
                                  struct completion **ret, struct error *err);

/* The same with counts[group_size] extents along axis, zeros allowed; equal counts on every member.  Copied. */
enum status group_all_gather_uneven(struct group *group, struct tensor *send, struct tensor *recv, int axis,
                                    const uint64_t *counts, struct completion **ret, struct error *err);

/* Send send_counts[i] extents along axis to member i (in order), receive recv_counts[i] from it.  Copied. */
enum status group_variable_all_to_all(struct group *group, struct tensor *send, struct tensor *recv, int axis,
                                      const uint64_t *send_counts, const uint64_t *recv_counts, struct completion **ret,
                                      struct error *err);

/* tensor of member root (an index, not a world rank) to everybody. */
enum status group_broadcast(struct group *group, struct tensor *tensor, int root, struct completion **ret,
                            struct error *err);

/* Done when every member has come. */
enum status group_barrier(struct group *group, struct completion **ret, struct error *err);

/* The AND of every member's flags (bit 0: "I am well"), read by completion_flags after it is done. */
enum status group_failure_agreement(struct group *group, uint32_t flags, struct completion **ret, struct error *err);

/* The name of the algorithm that answers a collective ("direct", "ring"); lends for ever.  NULL: no collective. */
const char *group_algorithm(const struct completion *completion);

/* Operations submitted from now on begin when the completion (of an executor, a route, another group) is done: first
 * the producers, then the vote, then payload.  Several calls add up.  Local; the completion may be released or
 * abandoned at once.  STATUS_INVALID (of another session), STATUS_NOMEM, the session's first failure. */
enum status group_after(struct group *group, struct completion *completion, struct error *err);

#endif
