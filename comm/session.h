/* One run of a job from consensus to close: the transport, the control channel, groups, routes, and the first failure.
 *
 * A session never ends the process.  The first failure is recorded, poisons the session (later calls fail with it and
 * submit nothing native) and goes out on the control channel; then one recovery agreement gives every rank the same
 * cause. */
#ifndef COMM_SESSION_H
#define COMM_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/spec.h"
#include "comm/transport.h"

struct cause;
struct session;
struct group;
struct route;

enum checks { CHECKS_OFF, CHECKS_LIGHT, CHECKS_FULL };
/* Who adds: comm's tree, with the same bits on every transport; the transport's library, in its own order; the library
 * where it can. */
enum reduction { REDUCTION_ORDERED, REDUCTION_NATIVE, REDUCTION_AUTO };
enum on_timeout { ON_TIMEOUT_ABORT, ON_TIMEOUT_QUARANTINE };

struct fault; /* comm/fault.h */

struct session_options {
    uint64_t timeout_ns;         /* a silent or stuck peer while a rank waits */
    uint64_t startup_timeout_ns; /* the same, until the first operation of a group or receipt of a route has ended:
                                  * consensus, building, loading; session_started ends it earlier */
    enum on_timeout on_timeout;
    enum checks checks;
    enum reduction reduction;   /* of sums in memory, the same on all ranks; groups that may sum get their communicators
                                 * in session_build */
    bool payload_integrity;     /* checksum every payload; of one in a device's memory over a copy on the host */
    struct memory *memory;      /* where bundles lie that belong to a device (spec.h); borrowed until session_close;
                                 * NULL: the process's own */
    struct memory *shared;      /* where the other bundles lie, and so those that the host may touch; borrowed until
                                 * session_close; NULL: the process's own */
    struct memory *pinned;      /* host memory through which goes what the transport cannot fetch from a device;
                                 * borrowed until session_close; NULL: the process's own */
    uint64_t first_sequence;    /* of every group and route, equal everywhere: lets a test start near a limit */
    const char *run_dir;        /* recorder ring and cause.json; NULL: none.  Copied. */
    const struct fault *faults; /* rehearsed faults; borrowed until session_close */
    int fault_count;
    void (*speak)(void *context, const struct cause *cause); /* called by session_settle at the rank that prints the
                                                              * cause, while the others still wait; NULL: nobody */
    void *speak_context;
    void (*part)(void *context); /* called by a clean session_close when every rank has come to it, before the
                                  * transport ends, which no timeout rule watches; NULL: nobody */
    void *part_context;
    /* At world rank 0: print a line of another rank (session_log), or of this one about whom the run waits for.  Called
     * with the session's lock held, from any of its threads; calls nothing of the session.  NULL: no such lines. */
    void (*log)(void *context, int rank, const char *line);
    void *log_context;
};

/* What one rank brings to the consensus.  Borrowed during the call. */
struct manifest_key {
    const char *key;   /* "mesh.tensor", "env.FERRY_X", "build.version" */
    uint64_t digest;   /* XXH3-64 of its value */
    const char *value; /* shown in a difference, cut at 64 bytes */
};

struct manifest {
    enum status status; /* of everything this rank prepared; anything but OK makes every rank fail */
    const char *why;    /* its sentence when status is not OK */
    uint64_t topology_digest;
    uint64_t plan_digest;
    uint64_t environment_digest;
    uint64_t build_digest;
    size_t key_count;
    const struct manifest_key *keys; /* sorted by key */
};

/* Start a session over an open transport (takes it on success) with its control thread.  Local.
 * STATUS_NOMEM, STATUS_ENVIRONMENT. */
enum status session_create(const struct transport_ops *ops, struct transport *transport,
                           const struct session_options *options, struct session **ret, struct error *err);

/* All ranks compare what they were told, before any group exists.  Collective over the world; blocks, at most
 * startup_timeout.  Both exchanges finish before anyone validates.  On failure every rank holds the same sentence.
 * STATUS_MISMATCH names ranks and the differing key; the status of a rank that failed, with its rank and why;
 * STATUS_TIMEOUT, STATUS_LOST. */
enum status session_consensus(struct session *session, const struct manifest *manifest, struct error *err);

/* Build groups in id order, then routes.  Every rank passes every spec (or at least all that name it).  Local, unless
 * the transport's library adds in the lines of an axis (comm/spec.h): then collective over the world; blocks, at most
 * twice startup_timeout.
 * STATUS_OVERFLOW (id above the transport's tags), STATUS_INVALID, STATUS_NOMEM; where it is collective the library's
 * statuses, STATUS_TIMEOUT, STATUS_LOST. */
enum status session_build(struct session *session, const struct group_spec *groups, size_t group_count,
                          const struct route_spec *routes, size_t route_count, struct error *err);

/* There is no loading to come: from now on timeout_ns holds.  Local. */
void session_started(struct session *session);

/* Lend the group or route with this id, NULL: none.  Until session_close. */
struct group *session_group(struct session *session, uint32_t id);
struct route *session_route(struct session *session, uint32_t id);

int session_rank(const struct session *session);
int session_size(const struct session *session);

/* Move everything that can move; never blocks.  Compute calls it between tiles, as often as it likes: it does something
 * every 50 us.  Counts as a sign of life, but not between two questions for the same pending work (completion_test, or
 * waits that last a moment, at least every 2 s or quarter of the timeout): who asks so waits. */
void session_progress(struct session *session);

/* STATUS_OK, or the first failure with its sentence. */
enum status session_check(struct session *session, struct error *err);

/* Record a failure of this rank (a model that could not be loaded, a token that is not finite); the first wins.
 * In a world of several ranks "rank R: " is put in front of the sentence, but for STATUS_USAGE: all ranks were given
 * the command line. */
void session_fail(struct session *session, enum status st, const char *why);

/* What later collectives agree on before their payload may be used.  Local; every rank makes the same change between
 * the same two operations. */
void session_set_checks(struct session *session, enum checks checks);

/* Call with the session's transport while no other thread can be inside it: for the transport's own calls beside the
 * session's.  Meanwhile nothing of the session moves and nobody is answered, so it must be short, and a call that may
 * hang needs a watchdog.  call's status, or the session's first failure. */
enum status session_alone(struct session *session,
                          enum status (*call)(void *context, struct transport *transport, struct error *err),
                          void *context, struct error *err);

/* After a failure: agree with whoever is left on the one cause, within about 2 s, or 6 s where the lowest rank begins
 * to settle late.  Fills err with the cause that every rank holds; *ret_speaker: this rank is the one that prints it
 * (and has written run_dir/cause.json). */
enum status session_settle(struct session *session, struct error *err, bool *ret_speaker);

/* Have world rank 0 print this line (cut at 4 KiB).  Local, never blocks; best effort: after a failure, or when rank 0
 * is gone, it is lost. */
void session_log(struct session *session, const char *line);

/* What this rank is doing, for "what do you wait for?" and the recorder: "step 12, stage 1".  Copied, cut at 63.
 * Another phase than before is a sign of life, also of a rank that asks. */
void session_phase(struct session *session, const char *phase);

struct session_counters {
    uint64_t frames_checked;
    uint64_t frames_sent;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t operations; /* posted collectives and route transfers, consensus and votes included */
};
struct session_counters session_counters(const struct session *session);

/* Stop the control thread, release groups, routes, transport (and session).  Every completion has been released or
 * abandoned, every bundle returned.  clean (no failure anywhere): collective; blocks until every rank has come, by the
 * timeout rule, and looks for messages that nobody received (STATUS_MISMATCH).  A rank that is lost when all have come,
 * before the transport has ended, is found by the transport's close (STATUS_TIMEOUT, STATUS_TRANSPORT).  When it fails
 * the session is still open: settle, then close it without clean.  Then nothing waits, but at most a second for work
 * that an executor is running (if it still runs then, the session's memory stays to the end of the process), MPI is not
 * finalised, and it does not fail. */
enum status session_close(struct session *session, bool clean, struct error *err);

#endif
