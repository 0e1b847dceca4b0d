/* Ranks as threads in one process: copies bytes through the same frames and algorithms as any other transport.
 *
 * For tests, and for a job of one rank without MPI (its open). */
#ifndef BACKENDS_LOOPBACK_LOOPBACK_H
#define BACKENDS_LOOPBACK_LOOPBACK_H

#include "comm/transport.h"

struct loopback_world;

struct loopback_options {
    size_t max_message; /* 0: unlimited; comm sends longer payloads in pieces */
    size_t eager_bytes; /* messages up to here are copied at once; larger ones lie at the sender until received */
    uint32_t max_tag;   /* 0: as MPI promises at least, 32767 */
};

/* Ranks 0..size-1, none has joined (returns).  STATUS_NOMEM. */
enum status loopback_world_create(int size, const struct loopback_options *options, struct loopback_world **ret,
                                  struct error *err);
/* Give up the creator's hold; freed when every rank has closed too.  NULL is allowed. */
void loopback_world_destroy(struct loopback_world *world);

/* This thread's rank comes in (returns; loopback_ops.close releases).  Once a rank. */
enum status loopback_join(struct loopback_world *world, int rank, struct transport **ret, struct error *err);

/* Teardown native.  open makes a world of one. */
extern const struct transport_ops loopback_ops;
/* The same with messages between devices' memories, any that the host cannot touch. */
extern const struct transport_ops loopback_device_ops;
/* As loopback_ops, but a posted work cannot be taken back, as with MPI. */
extern const struct transport_ops loopback_job_ops;

#endif
