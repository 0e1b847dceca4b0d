/* The life of a communicator: made by a meeting, split, finalized, revoked, aborted, destroyed.
 *
 * What takes time is a job.  A blocking communicator does it in the caller's thread, another in a thread of its own,
 * and is in progress until it has ended: then nothing else may be asked of it but to be aborted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "tests/standin/nccl_inside.h"

static long comms_made;
static long comms_split;

/* --- making ----------------------------------------------------------------------------------------------------- */

static void hex_of(const unsigned char *bytes, size_t count, char *text)
{
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    unsigned char bytes[16];

    if (!id)
        return comm_fail(ncclInvalidArgument, "no place for the id");
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return comm_fail(ncclSystemError, "no random numbers");
    memset(id, 0, sizeof *id);
    hex_of(bytes, sizeof bytes, id->internal);
    return meeting_serve(id->internal);
}

static ncclResult_t refuse_duplicates(const struct ncclComm *comm)
{
    const struct seat *seats = comm->table->seats;

    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank && strcmp(seats[rank].bus, seats[comm->rank].bus) == 0)
            return comm_fail(ncclInvalidUsage, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %s",
                             comm->rank, rank, seats[rank].bus);
    return ncclSuccess;
}

static void ring_all(struct ncclComm *comm)
{
    for (int rank = 0; rank < comm->size; rank++)
        seat_ring(comm, rank);
}

/* All members have come so far; false: stopped. */
static bool all_reach(struct ncclComm *comm, enum stage stage)
{
    struct seat *seats = comm->table->seats;

    __atomic_store_n(&seats[comm->rank].stage, stage, __ATOMIC_RELEASE);
    ring_all(comm);
    for (int rank = 0; rank < comm->size; rank++) {
        while (__atomic_load_n(&seats[rank].stage, __ATOMIC_ACQUIRE) < stage) {
            if (comm_stopped(comm))
                return false;
            seat_rest(comm, seat_bell(comm), 20);
        }
    }
    return true;
}

/* Nobody goes on, or away, before all hold the table: it may be this process that still hands it out. */
static ncclResult_t comm_meet(struct ncclComm *comm)
{
    ncclResult_t result;
    struct table *table = meeting_attend(comm, comm->name, &result);

    if (!table)
        return result;
    pthread_mutex_lock(&comms_lock);
    comm->table = table;
    pthread_mutex_unlock(&comms_lock);
    return all_reach(comm, STAGE_ARRIVED) ? refuse_duplicates(comm) : ncclInternalError;
}

static void wait_for_stop(const struct ncclComm *comm)
{
    while (!comm_stopped(comm))
        clock_sleep_ns(NS_PER_MS);
}

static void *init_job(void *argument)
{
    struct ncclComm *comm = argument;
    long made = __atomic_fetch_add(&comms_made, 1, __ATOMIC_RELAXED);
    ncclResult_t result;

    if (standin_fault_at(FAULT_INIT, made).kind == FAULT_INIT)
        wait_for_stop(comm);
    result = comm_meet(comm);
    if (standin_fault_at(FAULT_UNREADY, made).kind == FAULT_UNREADY)
        wait_for_stop(comm);
    comm_end(comm, result);
    return NULL;
}

static ncclResult_t read_config(const ncclConfig_t *config, bool standard, bool *blocking)
{
    static const ncclConfig_t model = NCCL_CONFIG_INITIALIZER;

    *blocking = standard;
    if (!config)
        return ncclSuccess;
    if (config->magic != model.magic || config->size < offsetof(ncclConfig_t, cgaClusterSize))
        return comm_fail(ncclInvalidArgument, "the configuration was not initialised");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
        return comm_fail(ncclInvalidArgument, "blocking is %d", config->blocking);
    if (config->blocking != NCCL_CONFIG_UNDEF_INT)
        *blocking = config->blocking != 0;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *ret, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    bool blocking;
    int device = 0;
    struct ncclComm *comm;
    ncclResult_t result = read_config(config, true, &blocking);

    if (result != ncclSuccess)
        return result;
    if (!ret || size < 1 || size > RANKS_MAX || rank < 0 || rank >= size ||
        memchr(id.internal, 0, NAME_BYTES) == NULL || id.internal[0] == 0)
        return comm_fail(ncclInvalidArgument, "rank %d of %d", rank, size);
    if (cudaGetDevice(&device) != cudaSuccess)
        return comm_fail(ncclUnhandledCudaError, "no device");
    if (!(comm = comm_make(device, blocking)))
        return comm_fail(ncclSystemError, "no memory");
    comm->rank = rank;
    comm->size = size;
    snprintf(comm->name, sizeof comm->name, "%.*s", NAME_BYTES - 1, id.internal);
    *ret = comm;
    comm_begin(comm);
    return comm_perform(comm, init_job, comm);
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *ret, int size, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(ret, size, id, rank, NULL);
}

/* --- splitting -------------------------------------------------------------------------------------------------- */

struct split {
    struct ncclComm *parent;
    struct ncclComm *child; /* NULL: this rank wants none */
    ncclComm_t *ret;        /* the child is not there for the caller before all is over, well or not */
    int color;
    int key;
};

/* All operations of this rank have ended; false: aborted. */
static bool await_idle(struct ncclComm *comm)
{
    bool idle;

    pthread_mutex_lock(&comms_lock);
    while (comm->waiting > 0 && !comm_aborted(comm))
        pthread_cond_wait(&comms_changed, &comms_lock);
    idle = !comm_aborted(comm);
    pthread_mutex_unlock(&comms_lock);
    return idle;
}

static bool await_splitters(const struct split *split, uint32_t ordinal)
{
    struct ncclComm *parent = split->parent;

    for (int rank = 0; rank < parent->size; rank++) {
        while (__atomic_load_n(&parent->table->seats[rank].splits, __ATOMIC_ACQUIRE) < ordinal) {
            if (comm_aborted(parent))
                return false;
            seat_rest(parent, seat_bell(parent), 20);
        }
    }
    return true;
}

/* Is a before b in the child: by key, then by rank? */
static bool is_before(const struct table *table, int slot, int a, int b)
{
    int key_a = table->seats[a].key[slot];
    int key_b = table->seats[b].key[slot];

    return key_a < key_b || (key_a == key_b && a < b);
}

static void take_place(struct split *split, int slot)
{
    const struct table *table = split->parent->table;

    for (int rank = 0; rank < split->parent->size; rank++) {
        if (table->seats[rank].color[slot] != split->color)
            continue;
        split->child->size++;
        split->child->rank += is_before(table, slot, rank, split->parent->rank);
    }
}

static void name_child(struct split *split, uint32_t ordinal)
{
    uint64_t digest = UINT64_C(14695981039346656037);
    char text[128];

    snprintf(text, sizeof text, "%s.%u.%d", split->parent->name, ordinal, split->color);
    for (const char *at = text; *at; at++)
        digest = (digest ^ (unsigned char)*at) * UINT64_C(1099511628211);
    snprintf(split->child->name, sizeof split->child->name, "split-%016llx", (unsigned long long)digest);
}

static ncclResult_t split_meet(struct split *split)
{
    struct ncclComm *parent = split->parent;
    struct seat *seat = &parent->table->seats[parent->rank];
    uint32_t ordinal = ++parent->splits;
    int slot = (int)(ordinal % 2);
    ncclResult_t result = ncclSuccess;

    seat->color[slot] = split->color;
    seat->key[slot] = split->key;
    __atomic_store_n(&seat->splits, ordinal, __ATOMIC_RELEASE);
    ring_all(parent);
    if (!await_splitters(split, ordinal))
        return ncclInternalError;
    if (!split->child)
        return ncclSuccess;
    take_place(split, slot);
    name_child(split, ordinal);
    if (split->child->rank == 0)
        result = meeting_serve(split->child->name);
    return result == ncclSuccess ? comm_meet(split->child) : result;
}

static void *split_job(void *argument)
{
    struct split *split = argument;
    long made = __atomic_fetch_add(&comms_split, 1, __ATOMIC_RELAXED);
    ncclResult_t result = ncclInternalError;

    if (await_idle(split->parent))
        result = standin_fault_at(FAULT_SPLIT, made).kind == FAULT_SPLIT ? ncclSystemError : split_meet(split);
    if (split->child) {
        split->child->parent = NULL;
        comm_end(split->child, result);
        __atomic_store_n(split->ret, split->child, __ATOMIC_RELEASE);
    }
    comm_end(split->parent, result);
    free(split);
    return NULL;
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *ret, ncclConfig_t *config)
{
    bool blocking;
    struct split *split;
    ncclResult_t result = comm_ready(parent);

    if (result == ncclSuccess)
        result = read_config(config, parent->blocking, &blocking);
    if (result != ncclSuccess)
        return result;
    if (!ret || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
        return comm_fail(ncclInvalidArgument, "color %d", color);
    *ret = NULL;
    if (!(split = malloc(sizeof *split)))
        return comm_fail(ncclSystemError, "no memory");
    *split = (struct split){.parent = parent, .ret = ret, .color = color, .key = key};
    if (color != NCCL_SPLIT_NOCOLOR) {
        if (!(split->child = comm_make(parent->device, blocking))) {
            free(split);
            return comm_fail(ncclSystemError, "no memory");
        }
        split->child->parent = parent;
        comm_begin(split->child);
    }
    comm_begin(parent);
    return comm_perform(parent, split_job, split);
}

/* --- ending ----------------------------------------------------------------------------------------------------- */

static void *finalize_job(void *argument)
{
    struct ncclComm *comm = argument;

    comm_end(comm, await_idle(comm) && all_reach(comm, STAGE_LEAVING) ? ncclSuccess : ncclInternalError);
    return NULL;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result = comm_ready(comm);

    if (result != ncclSuccess)
        return result;
    if (comm->revoked || comm->finalized)
        return comm_fail(ncclInvalidArgument, "the communicator was %s", comm->revoked ? "revoked" : "finalized");
    comm->finalized = true;
    comm_begin(comm);
    return comm_perform(comm, finalize_job, comm);
}

/* What was not finalized is finalized first, which waits for the peers. */
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t result;

    if (!comm)
        return ncclSuccess;
    result = comm_ready(comm);
    if (result != ncclSuccess)
        return result;
    if (!comm->finalized && !comm->revoked) {
        comm->finalized = true;
        comm_begin(comm);
        finalize_job(comm);
    }
    comm_bury(comm);
    return ncclSuccess;
}

static void comm_stop(struct ncclComm *comm, enum comm_stop stop)
{
    pthread_mutex_lock(&comms_lock);
    __atomic_store_n(&comm->stop, stop, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&comms_changed);
    pthread_mutex_unlock(&comms_lock);
}

/* Launches that have not begun end when their stream reaches them. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    bool live;

    if (!comm)
        return ncclSuccess;
    pthread_mutex_lock(&comms_lock);
    live = comm_live(comm);
    pthread_mutex_unlock(&comms_lock);
    if (!live)
        return comm_fail(ncclInvalidArgument, "no such communicator");
    comm_stop(comm, STOP_ABORTED);
    pthread_mutex_lock(&comms_lock);
    while (comm->running > 0 || comm->jobs > 0)
        pthread_cond_wait(&comms_changed, &comms_lock);
    pthread_mutex_unlock(&comms_lock);
    comm_bury(comm);
    return ncclSuccess;
}

static void *revoke_job(void *argument)
{
    struct ncclComm *comm = argument;

    pthread_mutex_lock(&comms_lock);
    while (comm->running > 0)
        pthread_cond_wait(&comms_changed, &comms_lock);
    pthread_mutex_unlock(&comms_lock);
    comm_end(comm, ncclSuccess);
    return NULL;
}

EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    bool live;
    bool revocable;

    if (!comm)
        return ncclSuccess;
    if (flags != NCCL_REVOKE_DEFAULT)
        return comm_fail(ncclInvalidArgument, "revoke flags %d", flags);
    pthread_mutex_lock(&comms_lock);
    live = comm_live(comm);
    revocable = live && comm->table && !comm->revoked && !comm->finalized;
    if (revocable) {
        comm->revoked = true;
        comm->state = ncclInProgress;
        comm->jobs++;
        comm->holders++;
    }
    pthread_mutex_unlock(&comms_lock);
    if (!live)
        return comm_fail(ncclInvalidArgument, "no such communicator");
    if (!revocable)
        return comm_fail(ncclInvalidArgument, "revoked or finalized before, or not yet built");
    comm_stop(comm, STOP_REVOKED);
    return comm_perform(comm, revoke_job, comm);
}

/* --- asking ----------------------------------------------------------------------------------------------------- */

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *ret)
{
    bool live;

    pthread_mutex_lock(&comms_lock);
    live = comm && comm_live(comm);
    if (live)
        *ret = comm->state;
    pthread_mutex_unlock(&comms_lock);
    return live ? ncclSuccess : comm_fail(ncclInvalidArgument, "no such communicator");
}

EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t result = comm_ready(comm);

    if (result == ncclSuccess)
        *count = comm->size;
    return result;
}

EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    ncclResult_t result = comm_ready(comm);

    if (result == ncclSuccess)
        *device = comm->device;
    return result;
}

EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ncclResult_t result = comm_ready(comm);

    if (result == ncclSuccess)
        *rank = comm->rank;
    return result;
}

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    if (!version)
        return comm_fail(ncclInvalidArgument, "no place for the version");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                        "internal error - please report this issue to the NCCL developers",
                                        "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                        "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};

    return (int)result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}
