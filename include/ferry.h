/* libferry: groups, routes and framed transfers between the ranks of an MPI job, for a program of your own.
 *
 * A topology file names the ranks' groups and routes; ferry_open starts the session on every rank; each operation is
 * posted at once and returns a completion.  Whatever one rank does not expect (another operation, size, dtype or order
 * than its peer's, a damaged header, a dead or silent rank) ends every rank with one cause, in time.
 *
 *   struct ferry_error error;
 *   struct ferry_session *session;
 *   struct ferry_group *group;
 *   struct ferry_completion *sum;
 *
 *   if (ferry_open("topology.yaml", NULL, &session, &error)) ...
 *   ferry_find_group(session, "workers", &group, &error);
 *   ferry_all_reduce_sum(group, tensor, tensor, &sum, &error);
 *   ferry_finish(sum, &error);
 *   ferry_close(session, &error);
 *
 * Words.  *Collective*: every rank (of the group, or of the world) makes the same calls in the same order.  *Local*: no
 * other rank is concerned.  *Posts*: returns at once, whatever the peers do.  *Borrows*: the caller keeps it alive
 * until the stated moment.  *Retains*: libferry holds its own reference; the caller may release his, but must not write
 * what is sent nor read what is received before completion.  *Copies*.  *Takes*: on success only.  *Returns*: the
 * caller releases.  *Lends*: valid until the named call.
 *
 * Errors.  Every call that can fail returns a status; one that fails fills in error (may be NULL), one that does not
 * leaves it as it was.  There are two kinds:
 *   - of this call alone: an argument breaks its contract, memory is refused, a caller's own deadline has passed.
 *     Nothing was posted; the session goes on.  Where the peers wait for what could not be posted, say so: ferry_fail.
 *   - of the session: every rank's next call fails with the same status and sentence.  The call that meets the failure
 *     first takes up to about 3 s, in which the ranks that are left agree on the cause; later ones fail at once.
 * A NULL where ferry.h allows none is FERRY_INVALID, with the argument's name.  A function without a status answers a
 * NULL handle with -1 (a rank, an index), 0 (a count, bytes, flags, a dtype), "" (a name), NULL (memory, a bundle, a
 * tensor); one without a result does nothing.  No call ends the process.  A broken
 * rule of memory (a pending completion released, a bundle returned twice) is a mistake of the program: it prints the
 * rule and calls abort().
 *
 * Threads.  Calls may come from any thread; a handle is used by one at a time.  libferry keeps one thread of its own,
 * which answers other ranks while the program computes.
 *
 * Processes.  A program may fork before ferry_open.  Afterwards a session is its process's alone: in a forked one there
 * is nobody to answer the other ranks, and what it sent would come from its parent's rank.  There the calls
 * that post, wait, make progress or close are FERRY_INVALID, ferry_test is FERRY_FAILED, and ferry_fail does nothing;
 * the parent goes on.
 *
 * MPI.  ferry_open initialises MPI unless the program did, and works on a duplicate of its world.  A program that has
 * initialised MPI must have MPI_THREAD_MULTIPLE; where Ferry initialises it the program makes no call of MPI while a
 * session is open, and can open one session only, since MPI starts once in a process.  Tensors lie in host memory and
 * travel over MPI: communication.transport is mpi or auto; a file that says nccl is opened with the override
 * communication.transport=mpi.  After a failure MPI_Finalize can hang for ever: it is not called, and the program must
 * not call it; leave with an exit code other than 0 (ferry_exit_code). */
#ifndef FERRY_H
#define FERRY_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FERRY_API __attribute__((visibility("default")))
#else
#define FERRY_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum ferry_status {
    FERRY_OK = 0,
    FERRY_INTERNAL = 1,    /* a mistake of Ferry's own, found without a crash */
    FERRY_USAGE = 2,       /* a rehearsed fault's words */
    FERRY_TOPOLOGY = 3,    /* the topology file, or what it means for this job */
    FERRY_MODEL = 4,       /* not returned by libferry */
    FERRY_ENVIRONMENT = 5, /* MPI, libraries, the way the job was started */
    FERRY_NOMEM = 6,       /* an allocation was refused */
    FERRY_OVERFLOW = 7,    /* a size or count exceeds a limit; nothing was allocated or sent */
    FERRY_INVALID = 8,     /* an argument breaks the contract of the call */
    FERRY_UNSUPPORTED = 9, /* well formed, but not built (said by name) */
    FERRY_MISMATCH = 10,   /* ranks disagree: topology, signature, frame */
    FERRY_CORRUPT = 11,    /* bytes that contradict themselves */
    FERRY_TIMEOUT = 12,    /* the caller's deadline passed, or work is quarantined; buffers may still be in use */
    FERRY_LOST = 13,       /* a peer died, or the session was torn down */
    FERRY_STORAGE = 14,    /* a file could not be read or written */
    FERRY_TRANSPORT = 15,  /* MPI refused an operation */
    FERRY_STOPPED = 16,    /* not returned by libferry */
    FERRY_STUCK = 17       /* a rank was silent or stood still for the topology's timeout: the session has ended.  Named
                            * "timeout", with its exit code */
};

enum { FERRY_ERROR_BYTES = 2048 };

struct ferry_error {
    enum ferry_status status;
    int speak;                    /* 1: this rank tells the user.  Of a failure that all ranks share, one rank does */
    char text[FERRY_ERROR_BYTES]; /* a sentence for a person, always terminated */
};

/* "timeout", "mismatch"; never NULL. */
FERRY_API const char *ferry_status_name(enum ferry_status status);
/* The exit code that `ferry` would end with, 0 to 10: docs/exit-codes.md. */
FERRY_API int ferry_exit_code(enum ferry_status status);
/* The library's version: "0.1.0". */
FERRY_API const char *ferry_version(void);

/* ---- session ------------------------------------------------------------------------------------------- */

struct ferry_session;

struct ferry_options {
    size_t size;            /* sizeof(struct ferry_options) */
    const char *const *set; /* [set_count] overrides "key.path=value", as with ferry run --set; borrowed for the call */
    size_t set_count;
    const char *run_dir; /* an existing folder, shared or not, for each rank's flight recorder and cause.json, which
                          * `ferry doctor` reads; NULL: none (the topology's run_dir is for `ferry run`).  Copied */
    const char *const *fault; /* [fault_count] faults to rehearse, "rank=1,op=17,kind=kill", as with ferry run --fault;
                               * borrowed for the call */
    size_t fault_count;
};

/* Read the topology, start MPI, agree with every other rank on all that it says, build its groups and routes.
 *
 * Collective over the world; blocks: each phase at most communication.startup_timeout, but for the start of MPI itself,
 * which cannot be bounded from inside.  A rank whose own part fails (a file that cannot be read) still takes part in
 * the consensus, so that all ranks return with the same cause and none is left waiting.  From its return on
 * communication.timeout holds: a rank that loads for longer before its first operation calls ferry_progress meanwhile.
 *
 * topology  path of the file; one with a workload is refused.  Borrowed for the call.
 * options   NULL: none.
 * ret       a session for ferry_close; untouched on failure.
 *
 * FERRY_TOPOLOGY     the file is wrong, or the job has another number of ranks
 * FERRY_ENVIRONMENT  ferry-mpi.so or its MPI is missing; the program initialised MPI without MPI_THREAD_MULTIPLE; it
 *                    did not, and a session is open or was opened before; a variable of launch.require_env is not set
 * FERRY_UNSUPPORTED  transport nccl or loopback, native sums, backend cuda: the key is named, and what to set
 * FERRY_MISMATCH     ranks were told different things: the key and the ranks are named
 * FERRY_STORAGE, FERRY_USAGE, FERRY_INVALID (options), FERRY_OVERFLOW, FERRY_NOMEM, FERRY_STUCK, FERRY_LOST,
 * FERRY_TIMEOUT (the start of MPI) */
FERRY_API enum ferry_status ferry_open(const char *topology, const struct ferry_options *options,
                                       struct ferry_session **ret, struct ferry_error *error);

/* End the session: every completion has been released, finished or abandoned, every bundle sent or returned, every
 * executor released, and no other call is under way.  Work that was submitted is waited for.  Frees groups, routes and
 * session; tensors live on.  NULL is allowed.
 *
 * Without a failure: collective over the world; blocks until every rank has come, at most communication.timeout after
 * the last sign of life; MPI is finalised if Ferry initialised it.  After a failure, or when a rank does not come:
 * nothing waits, MPI is not finalised, memory that MPI may still use stays to the end of the process.
 * FERRY_OK, or the session's failure; the session is gone either way.  FERRY_INVALID in a forked process: nothing. Work
 * of an executor that gives no sign of life is named with its executor.  A rank that is lost when all have come and MPI
 * has not ended yet is missed by every other one, each for itself: FERRY_STUCK about communication.timeout and 8 s
 * later, or FERRY_TRANSPORT, with speak 1.
 */
FERRY_API enum ferry_status ferry_close(struct ferry_session *session, struct ferry_error *error);

/* World rank, world size, what carries the bytes ("Open MPI v4.1.4, 2 hosts", lent until ferry_close).  Local. */
FERRY_API int ferry_rank(const struct ferry_session *session);
FERRY_API int ferry_size(const struct ferry_session *session);
FERRY_API const char *ferry_transport(const struct ferry_session *session);
/* This rank's coordinate along "data", "pipeline", "tensor" or "expert"; -1: no such axis.  Local. */
FERRY_API int ferry_coordinate(const struct ferry_session *session, const char *axis);

/* Move what can move and answer the other ranks; never blocks.  For long computations: call it between tiles, as often
 * as you like (it does something every 50 us).  It counts as a sign of life: a rank that neither waits nor calls it for
 * communication.timeout while another waits for it is taken to be stuck.  It does not count while the program asks for
 * an operation again and again (ferry_test, or short ferry_wait; at least every 2 s, or quarter of the timeout): such a
 * program waits, and two that ask for each other are found out.  One that computes and asks in turns says so by
 * ferry_phase.  FERRY_OK, or the session's failure. */
FERRY_API enum ferry_status ferry_progress(struct ferry_session *session, struct ferry_error *error);

/* What this rank is doing, for messages and the flight recorder: "step 12".  Another text than before is a sign of
 * life. Copied, cut at 63 bytes.  NULL: nothing happens.  Local. */
FERRY_API void ferry_phase(struct ferry_session *session, const char *phase);

/* This rank cannot go on: end the session on every rank with this status and sentence.  The first failure wins.  Local,
 * does not block; the calls that follow return the cause.  Control characters in why become spaces; a status that is no
 * failure becomes FERRY_INTERNAL, and the sentence says so. */
FERRY_API void ferry_fail(struct ferry_session *session, enum ferry_status status, const char *why);

/* ---- tensors ------------------------------------------------------------------------------------------- */

struct ferry_tensor;

/* The numbers are those of the frames: docs/frame.md. */
enum ferry_dtype {
    FERRY_F32 = 1,
    FERRY_F16 = 2,
    FERRY_BF16 = 3,
    FERRY_F64 = 4,
    FERRY_I8 = 5,
    FERRY_U8 = 6,
    FERRY_I32 = 7,
    FERRY_U32 = 8,
    FERRY_I64 = 9,
    FERRY_U64 = 10,
    FERRY_BOOL = 11 /* one byte, 0 or 1 */
};

enum { FERRY_MAX_NDIM = 8 };

/* Extents in elements, row-major: dim[0] varies slowest.  ndim 0 is a single element; a dim of 0 makes it empty. */
struct ferry_shape {
    int ndim;
    uint64_t dim[FERRY_MAX_NDIM];
};

/* Bytes of one element; 0 for a number that is no dtype.  "f32"; "none" for such a number. */
FERRY_API size_t ferry_dtype_bytes(enum ferry_dtype dtype);
FERRY_API const char *ferry_dtype_name(enum ferry_dtype dtype);

/* Allocate, uninitialised, aligned to 64 bytes, with room for a frame's header in front: what is fastest to send.
 * Local.
 * ret  a tensor for ferry_tensor_release
 *
 * FERRY_INVALID (dtype, ndim), FERRY_OVERFLOW, FERRY_NOMEM. */
FERRY_API enum ferry_status ferry_tensor_create(enum ferry_dtype dtype, const struct ferry_shape *shape,
                                                struct ferry_tensor **ret, struct ferry_error *error);

/* The same over memory of the program's own, which is used where it lies.  Local.
 * memory     the elements; aligned to their size; may be NULL where there are none.  Borrowed until the last
 *            reference to the tensor has gone: the caller's own, and those of completions.  After a failure, and for
 *            completions that were abandoned, that may be the end of the process
 * give_back  told of that moment, once, from whichever thread it is; it must not call libferry.  NULL: nobody is told
 *
 * FERRY_INVALID (dtype, ndim, memory), FERRY_OVERFLOW, FERRY_NOMEM. */
FERRY_API enum ferry_status ferry_tensor_view(enum ferry_dtype dtype, const struct ferry_shape *shape, void *memory,
                                              void (*give_back)(void *context), void *context,
                                              struct ferry_tensor **ret, struct ferry_error *error);

/* Describe other elements in the same memory.  FERRY_INVALID (dtype, ndim; a pending operation works on the tensor, or
 * its bundle is on its way), FERRY_OVERFLOW: they need more. */
FERRY_API enum ferry_status ferry_tensor_reshape(struct ferry_tensor *tensor, enum ferry_dtype dtype,
                                                 const struct ferry_shape *shape, struct ferry_error *error);

/* Lent while the tensor lives.  The shape of NULL is {1, {0}}, which holds no element.  Local. */
FERRY_API void *ferry_tensor_data(struct ferry_tensor *tensor);
FERRY_API size_t ferry_tensor_bytes(const struct ferry_tensor *tensor);
FERRY_API enum ferry_dtype ferry_tensor_dtype(const struct ferry_tensor *tensor);
FERRY_API struct ferry_shape ferry_tensor_shape(const struct ferry_tensor *tensor);

/* One reference more; one less, freed with the last (NULL is allowed). */
FERRY_API struct ferry_tensor *ferry_tensor_retain(struct ferry_tensor *tensor);
FERRY_API void ferry_tensor_release(struct ferry_tensor *tensor);

/* ---- completions --------------------------------------------------------------------------------------- */

/* One posted operation.  It leaves pending exactly once, to done or failed.  Done means that this rank's buffers are
 * back and that the bytes moved are the bytes planned; not that the peer has read them.  What is received means nothing
 * before done. */
struct ferry_completion;

enum ferry_state {
    FERRY_PENDING = 0,
    FERRY_DONE = 1,
    FERRY_FAILED = 2,
    FERRY_QUARANTINED = 3 /* of ferry_test: pending, and given up by communication.timeout */
};

#define FERRY_FOREVER UINT64_MAX

/* Move it if it can move; never blocks.  Whoever asks again and again waits, by communication.timeout as ferry_wait
 * does.
 * FERRY_FAILED       ferry_wait says why
 * FERRY_QUARANTINED  with communication.on_timeout: quarantine, when the timeout has passed: the operation, or one
 *                    before it on the same group or route, is pending and may still end; ferry_wait(.., 0, ..) says it
 *                    with FERRY_TIMEOUT.  A loop that asks while FERRY_PENDING ends; one that wants to see the end of
 *                    quarantine asks on */
FERRY_API enum ferry_state ferry_test(struct ferry_completion *completion);

/* Wait until it is done or failed, or for timeout_ns nanoseconds (FERRY_FOREVER: the topology's communication.timeout
 * alone ends the wait).
 * FERRY_OK       done
 * FERRY_TIMEOUT  timeout_ns passed, or the operation is quarantined (communication.on_timeout): still pending, its
 *                tensors still retained, nothing torn down
 * otherwise      the session has failed; the completion may still be pending: abandon it */
FERRY_API enum ferry_status ferry_wait(struct ferry_completion *completion, uint64_t timeout_ns,
                                       struct ferry_error *error);

/* Done or failed: free it.  A pending one is a mistake of the program.  NULL is allowed. */
FERRY_API void ferry_release(struct ferry_completion *completion);

/* Give a completion, pending or not, and what it retains to the session.  NULL is allowed. */
FERRY_API void ferry_abandon(struct ferry_completion *completion);

/* ferry_wait for ever, then give the completion up, whatever came of it.  Not for ferry_receive, whose bundle is taken
 * from the completion. */
FERRY_API enum ferry_status ferry_finish(struct ferry_completion *completion, struct ferry_error *error);

/* Keep a value until the completion has ended: release is called with it then, once, from whichever thread it is; it
 * must not call libferry.  On a completion that has ended: at once.  Takes value.  FERRY_INVALID, FERRY_NOMEM. */
FERRY_API enum ferry_status ferry_retain(struct ferry_completion *completion, void *value, void (*release)(void *value),
                                         struct ferry_error *error);

/* ---- executors ----------------------------------------------------------------------------------------- */

/* An in-order queue of compute work with a thread of its own: what is submitted runs in that order, one piece at a
 * time. Executors forked from each other run side by side; nothing is ordered between them, nor between an executor and
 * a transfer, but what the calls named *_after order.  All of them are local, and none blocks. */
struct ferry_executor;

/* One piece of work, called in the executor's thread.  Between tiles it calls ferry_progress: that moves the transfers
 * behind it and is its sign of life.  It may post operations; it must not wait for what was submitted behind it, nor
 * return before all that it started has ended.  Anything but FERRY_OK, with a sentence in error, ends the session on
 * every rank: nothing that was ordered after it begins anywhere.  A number that is no status becomes FERRY_INTERNAL,
 * and the sentence says so. */
typedef enum ferry_status ferry_work(void *context, struct ferry_error *error);

enum { FERRY_MAX_CAPACITY = 65536 };

/* Returns a queue of at most capacity unfinished pieces, 1 to FERRY_MAX_CAPACITY.  name: in messages and the flight
 * recorder ("cpu/0"); copied, cut at 63 bytes.
 * FERRY_INVALID (capacity), FERRY_NOMEM, FERRY_ENVIRONMENT (no thread could be started), the session's failure. */
FERRY_API enum ferry_status ferry_executor_create(struct ferry_session *session, const char *name, uint32_t capacity,
                                                  struct ferry_executor **ret, struct ferry_error *error);

/* Returns one more on the same cores with the same capacity, named "cpu/0.1" and so on.  Results as above. */
FERRY_API enum ferry_status ferry_executor_fork(struct ferry_executor *executor, struct ferry_executor **ret,
                                                struct ferry_error *error);

/* Give it up, before ferry_close.  What was submitted still runs.  NULL is allowed. */
FERRY_API void ferry_executor_release(struct ferry_executor *executor);

/* Queue work; returns one completion, as posted operations do.  context is borrowed until completion.
 * FERRY_OVERFLOW  capacity pieces are unfinished: nothing was queued; wait for the oldest
 * FERRY_TIMEOUT   a piece of it is in quarantine
 * FERRY_INVALID, FERRY_NOMEM, the session's failure. */
FERRY_API enum ferry_status ferry_executor_submit(struct ferry_executor *executor, ferry_work *work, void *context,
                                                  struct ferry_completion **ret, struct ferry_error *error);

/* Returns a completion that is done when all that was submitted so far is.  It takes no place of the capacity. */
FERRY_API enum ferry_status ferry_executor_flush(struct ferry_executor *executor, struct ferry_completion **ret,
                                                 struct ferry_error *error);

/* What is submitted to the executor, posted on the group, or sent or received on the route from now on begins when the
 * completion, of whatever work of this session, is done; before a group's vote, and before a header leaves.  Several
 * calls add up.  The completion may be released or abandoned at once.
 * FERRY_INVALID (of another session), FERRY_NOMEM, the session's failure. */
FERRY_API enum ferry_status ferry_executor_after(struct ferry_executor *executor, struct ferry_completion *completion,
                                                 struct ferry_error *error);
struct ferry_group;
struct ferry_route;
FERRY_API enum ferry_status ferry_group_after(struct ferry_group *group, struct ferry_completion *completion,
                                              struct ferry_error *error);
FERRY_API enum ferry_status ferry_route_after(struct ferry_route *route, struct ferry_completion *completion,
                                              struct ferry_error *error);

/* How much is queued.  Unknown is never 0. */
#define FERRY_UNKNOWN UINT64_MAX
struct ferry_load {
    uint64_t pending;  /* submitted, neither done nor failed; FERRY_UNKNOWN */
    uint64_t capacity; /* how many may be; FERRY_UNKNOWN */
};

/* Of one executor; of all of the session together.  Unknown where there is none, which must not be taken for idle. */
FERRY_API struct ferry_load ferry_executor_load(const struct ferry_executor *executor);
FERRY_API struct ferry_load ferry_load(const struct ferry_session *session);

/* ---- groups -------------------------------------------------------------------------------------------- */

struct ferry_group;

/* The group of this name: the file's ("workers") or the mesh's ("world/0", "tensor/3"; docs/topology.md).  Local; lends
 * until ferry_close.  FERRY_INVALID: no such group (the nearest name is given). */
FERRY_API enum ferry_status ferry_find_group(struct ferry_session *session, const char *name, struct ferry_group **ret,
                                             struct ferry_error *error);
/* The line of the mesh along axis that goes through this rank.  FERRY_INVALID: the axis has one rank, or is none. */
FERRY_API enum ferry_status ferry_find_line(struct ferry_session *session, const char *axis, struct ferry_group **ret,
                                            struct ferry_error *error);

FERRY_API const char *ferry_group_name(const struct ferry_group *group);
FERRY_API int ferry_group_size(const struct ferry_group *group);
/* This rank's index in member order; -1: it is no member and may post nothing on the group. */
FERRY_API int ferry_group_rank(const struct ferry_group *group);
/* World rank of a member; -1: no such index. */
FERRY_API int ferry_group_member(const struct ferry_group *group, int index);

/* The operations.  Collective over the group; each posts and returns (*ret) one completion; a group runs one operation
 * at a time, further ones queue.  Tensors are retained until completion.  send and recv share no byte unless said.
 * What recv holds before completion, or after a failure, is undefined.  With checks: full members that call with
 * different things are found before any payload reaches it; of a message that was damaged on its way no byte does, but
 * other parts of the same operation may have.
 * FERRY_INVALID    the topology did not select the operation or the dtype, this rank is no member, or shapes, axis,
 *                  counts, tensors break what is said here
 * FERRY_OVERFLOW   a tensor exceeds the group's limits.max_bytes, or counts do not add up in 64 bits
 * FERRY_TIMEOUT    an operation of the group is in quarantine
 * FERRY_NOMEM, or the session's failure. */

/* recv = the sum over members of send, elementwise, always in the same order over members (a balanced tree), so that
 * all members and all runs get the same bits.  f16 and bf16 are added in f32 and rounded once; integers wrap; bool is
 * refused.  Equal shapes on all members; recv may be send (in place). */
FERRY_API enum ferry_status ferry_all_reduce_sum(struct ferry_group *group, struct ferry_tensor *send,
                                                 struct ferry_tensor *recv, struct ferry_completion **ret,
                                                 struct ferry_error *error);

/* recv = every member's send one after the other along axis, in member order.  Equal shapes; recv is group size times
 * as long along axis.  In place: send is recv, with the own part in its slot. */
FERRY_API enum ferry_status ferry_all_gather_even(struct ferry_group *group, struct ferry_tensor *send,
                                                  struct ferry_tensor *recv, int axis, struct ferry_completion **ret,
                                                  struct ferry_error *error);

/* The same with extents of its own for each member: counts [group size] elements along axis, zeros allowed, equal on
 * all members.  Copied. */
FERRY_API enum ferry_status ferry_all_gather_uneven(struct ferry_group *group, struct ferry_tensor *send,
                                                    struct ferry_tensor *recv, int axis, const uint64_t *counts,
                                                    struct ferry_completion **ret, struct ferry_error *error);

/* send is cut along axis: send_counts[i] extents go to member i, in order; recv gets recv_counts[i] from member i. Both
 * [group size], zeros allowed, copied.  What a member sends is what its peer expects.  Not in place. */
FERRY_API enum ferry_status ferry_variable_all_to_all(struct ferry_group *group, struct ferry_tensor *send,
                                                      struct ferry_tensor *recv, int axis, const uint64_t *send_counts,
                                                      const uint64_t *recv_counts, struct ferry_completion **ret,
                                                      struct ferry_error *error);

/* The tensor of member root (an index, no world rank) to all; the others' contents are overwritten. */
FERRY_API enum ferry_status ferry_broadcast(struct ferry_group *group, struct ferry_tensor *tensor, int root,
                                            struct ferry_completion **ret, struct ferry_error *error);

/* Done when every member has come. */
FERRY_API enum ferry_status ferry_barrier(struct ferry_group *group, struct ferry_completion **ret,
                                          struct ferry_error *error);

/* Done with the AND of every member's flags, bit by bit ("bit 0: I am well"): ferry_flags of the done completion
 * (0 of any other). */
FERRY_API enum ferry_status ferry_failure_agreement(struct ferry_group *group, uint32_t flags,
                                                    struct ferry_completion **ret, struct ferry_error *error);
FERRY_API uint32_t ferry_flags(const struct ferry_completion *completion);

/* ---- routes -------------------------------------------------------------------------------------------- */

/* A directed pair of ranks with the exact list of tensors that it carries.  Header and payload of each travel as one
 * message; the receiver compares the header with its own, byte for byte, before the payload may be used. */
struct ferry_route;

/* The tensors of one transfer, from the route's pool at this end. */
struct ferry_bundle;

/* The route of this name: the file's, or the mesh's ("forward/0-2").  Local; lends until ferry_close.  FERRY_INVALID.
 */
FERRY_API enum ferry_status ferry_find_route(struct ferry_session *session, const char *name, struct ferry_route **ret,
                                             struct ferry_error *error);
FERRY_API const char *ferry_route_name(const struct ferry_route *route);
FERRY_API int ferry_route_from(const struct ferry_route *route); /* world ranks */
FERRY_API int ferry_route_to(const struct ferry_route *route);
FERRY_API int ferry_route_tensors(const struct ferry_route *route); /* in the bundle */

/* Lent until the bundle is sent or returned; each has the largest extents that the file allows, and takes smaller ones
 * by ferry_tensor_reshape.  NULL: no such index. */
FERRY_API struct ferry_tensor *ferry_bundle_tensor(struct ferry_bundle *bundle, int index);

/* Sender: a free bundle to fill.  Blocks while all of the pool are under way, by the topology's timeout rule.  Lends
 * until ferry_send or ferry_bundle_return.
 *
 * FERRY_INVALID  this rank is not the sender, or the caller holds every bundle
 * FERRY_TIMEOUT  the route is quarantined
 * otherwise      the session's failure */
FERRY_API enum ferry_status ferry_acquire(struct ferry_route *route, struct ferry_bundle **ret,
                                          struct ferry_error *error);

/* Sender: post the bundle with its tensors' present shapes.  Takes bundle.  step is carried and compared; it must not
 * fall.  The completion may end only when the receiver has the bundle: post what a peer's send waits for before waiting
 * for one's own.
 *
 * FERRY_INVALID  a shape is not what the file says: the first is named; or step is less than the one before, or
 *                FERRY_ANY_STEP.  bundle is still the caller's
 * FERRY_NOMEM, or the session's failure. */
FERRY_API enum ferry_status ferry_send(struct ferry_route *route, struct ferry_bundle *bundle, uint64_t step,
                                       struct ferry_completion **ret, struct ferry_error *error);

/* Tells the shapes of tensors 1 and up from the contents of tensor 0, whose shape is fixed: for transfers whose sizes
 * the sender decides.  description has been compared, its contents are still to be judged: return anything but
 * FERRY_OK, with a sentence in error, to refuse them (a number that is no status becomes FERRY_INTERNAL).  shapes
 * [tensors of the route]: shapes[0] is filled in.  Called from inside libferry, perhaps on its own thread: it must call
 * nothing but ferry_tensor_*. */
typedef enum ferry_status ferry_describe(void *context, struct ferry_tensor *description, struct ferry_shape *shapes,
                                         struct ferry_error *error);

/* Receiver: post the receipt of the next bundle.
 * shapes    [tensors of the route]: those expected; copied.  NULL: as the file says, where it leaves no extent open
 * describe  NULL, or asked for shapes 1 and up, which the route must have; shapes may then be NULL.  context is
 *           borrowed until completion
 * step      what the sender's must be; FERRY_ANY_STEP: whatever comes, as long as it does not fall
 *
 * FERRY_INVALID  this rank is not the receiver, or shapes are not what the file says
 * FERRY_TIMEOUT  the route is quarantined
 * FERRY_NOMEM, or the session's failure. */
#define FERRY_ANY_STEP UINT64_MAX
FERRY_API enum ferry_status ferry_receive(struct ferry_route *route, const struct ferry_shape *shapes,
                                          ferry_describe *describe, void *context, uint64_t step,
                                          struct ferry_completion **ret, struct ferry_error *error);

/* The bundle of a done receipt, once, and its step (ret_step may be NULL).  Lends until ferry_bundle_return. */
FERRY_API struct ferry_bundle *ferry_take(struct ferry_completion *completion, uint64_t *ret_step);

/* Give a bundle back: unsent, or after use. */
FERRY_API void ferry_bundle_return(struct ferry_route *route, struct ferry_bundle *bundle);

#ifdef __cplusplus
}
#endif

#endif
