/* What the all-to-all algorithms share: the rows of counts that travel with full checks. */
#ifndef COMM_ALLTOALL_H
#define COMM_ALLTOALL_H

#include "comm/collective.h"

/* Is this a vote on an all-to-all, which carries them? */
static inline bool alltoall_has_rows(const struct collective *work)
{
    return work->completion.operation == OPERATION_VARIABLE_ALL_TO_ALL;
}

/* One member's send counts, then its receive counts: u64 each. */
static inline size_t alltoall_row_bytes(const struct collective *work)
{
    return 16 * (size_t)work->size;
}

void alltoall_put_rows(const struct collective *work, unsigned char *bytes);

/* rows [size]: does every pair agree?  STATUS_MISMATCH names the first that does not. */
enum status alltoall_check_matrix(const struct collective *work, const unsigned char *rows, struct error *err);

/* The same between this member and another, that sends us sends extents and expects expects from us. */
enum status alltoall_check_pair(const struct collective *work, int member, uint64_t sends, uint64_t expects,
                                struct error *err);

/* What a member sends to itself, of these rows. */
enum status alltoall_keep_own(struct collective *work, struct rows rows, struct error *err);

#endif
