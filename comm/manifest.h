/* What ranks tell each other in the consensus, and the verdict over it.  Pure: bytes in, bytes out (consensus.c moves
 * them).
 *
 * The record is frozen: whatever else changes between versions of Ferry, its 64 bytes and their exchange do not, so
 * that two versions can always tell each other apart. */
#ifndef COMM_MANIFEST_H
#define COMM_MANIFEST_H

#include "base/text.h"
#include "comm/session.h"

enum {
    MANIFEST_PROTOCOL = 1,
    MANIFEST_RECORD_BYTES = 64,
    MANIFEST_KEYS_BYTES = 65536, /* rank 0's keys with their digests; more are folded into their parents */
    MANIFEST_DIFFERENCES = 8,    /* that a rank tells */
    MANIFEST_WHY_BYTES = 1400,
    MANIFEST_REPLIES_BYTES = 1 << 20 /* that travel up the tree; later ones are left out */
};

/* This rank's record. */
void manifest_record(const struct manifest *manifest, unsigned char record[MANIFEST_RECORD_BYTES]);

/* Do all ranks speak one protocol?  STATUS_MISMATCH names protocols, versions and ranks: the same sentence wherever the
 * same records are.  records [size][MANIFEST_RECORD_BYTES]. */
enum status manifest_protocols(const unsigned char *records, int size, struct error *err);

/* Whose fault a verdict other than STATUS_OK is: the only rank that failed; where none did, the only one of three or
 * more whose record differs from all the others'.  -1: nobody's in particular. */
int manifest_culprit(const unsigned char *records, int size);

/* Append the keys that rank 0 sends, at most MANIFEST_KEYS_BYTES. */
void manifest_keys(const struct manifest *manifest, struct text *ret);

/* Append this rank's reply to rank 0's keys: nothing when it is well and all agree; else its why, or its first
 * differences.  STATUS_CORRUPT: keys contradict themselves. */
enum status manifest_reply(const struct manifest *manifest, int rank, const unsigned char *keys, size_t key_bytes,
                           struct text *ret, struct error *err);

/* Rank 0: what all records and replies mean.  STATUS_OK; the status of the first rank that failed, every failed rank
 * with its why; STATUS_MISMATCH, every differing key with its values and their ranks; STATUS_NOMEM, STATUS_CORRUPT. */
enum status manifest_verdict(const unsigned char *records, int size, const unsigned char *replies, size_t reply_bytes,
                             struct error *err);

#endif
