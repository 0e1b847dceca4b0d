/* The end of the communicators.
 *
 * After a failure nobody waits for what was started: every rank ends its own communicators, as NCCL demands of all that
 * are alive.  One that is ready is revoked (no call waits; ncclCommGetAsyncError says when it is quiescent); one that
 * is in progress, or cannot be revoked, is aborted, which may block and so has a thread of its own.  The memory is back
 * when the stream is empty.  A good end finalizes first, which flushes, and destroys then; what
 * no sum has used is aborted there, too, on all members: its building may never end.
 *
 * A thread that NCCL does not let go is left behind with what it works on. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "backends/nccl/nccl_errors.h"
#include "backends/nccl/nccl_private.h"
#include "base/clock.h"

static void *help(void *context)
{
    struct helper *helper = context;

    (void)cudaSetDevice(helper->device);
    for (int i = 0; i < helper->count; i++) {
        if (i < helper->aborts)
            (void)ncclCommAbort(helper->comms[i]);
        else
            (void)ncclCommDestroy(helper->comms[i]);
    }
    atomic_store(&helper->over, true);
    return NULL;
}

static int count_comms(const struct transport *transport)
{
    int count = transport->comm != NULL;

    for (const struct native *native = transport->natives; native; native = native->next)
        count += native->comm != NULL;
    return count;
}

/* No sum has used it, on any member: at a good end it is aborted, for it may still be under construction. */
static bool is_idle(const struct native *native)
{
    return native->number == 0;
}

/* The helper takes all communicators; abort: it aborts those in use, too.  False: there is no memory or no thread for
 * it. */
static bool send_helper(struct transport *transport, bool abort)
{
    int count = count_comms(transport);
    struct helper *helper = calloc(1, sizeof *helper + (size_t)count * sizeof helper->comms[0]);

    if (!helper)
        return false;
    helper->device = transport->device;
    for (const struct native *native = transport->natives; native; native = native->next) {
        if (native->comm && is_idle(native))
            helper->comms[helper->count++] = native->comm;
    }
    helper->aborts = helper->count;
    for (const struct native *native = transport->natives; native; native = native->next) {
        if (native->comm && !is_idle(native))
            helper->comms[helper->count++] = native->comm;
    }
    if (transport->comm)
        helper->comms[helper->count++] = transport->comm;
    if (abort)
        helper->aborts = helper->count;
    if (pthread_create(&helper->thread, NULL, help, helper)) {
        free(helper);
        return false;
    }
    transport->helper = helper;
    transport->comm = NULL;
    for (struct native *native = transport->natives; native; native = native->next)
        native->comm = NULL;
    return true;
}

/* Is the helper done?  Then it is gone. */
static bool helper_over(struct transport *transport)
{
    if (!transport->helper)
        return true;
    if (!atomic_load(&transport->helper->over))
        return false;
    (void)pthread_join(transport->helper->thread, NULL);
    free(transport->helper);
    transport->helper = NULL;
    return true;
}

static bool revoke(ncclComm_t comm)
{
    ncclResult_t state = ncclSuccess;

    if (!comm)
        return true;
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess || state == ncclInProgress)
        return false;
    state = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
    return state == ncclSuccess || state == ncclInProgress;
}

static void abort_all(struct transport *transport)
{
    if (transport->helper || send_helper(transport, true))
        transport->teardown = TEARDOWN_ABORTING;
}

void nccl_teardown_begin(struct transport *transport)
{
    bool revoked = true;

    if (transport->teardown != TEARDOWN_NONE)
        return;
    (void)nccl_use_device(transport, NULL);
    transport->teardown = TEARDOWN_REVOKING;
    revoked = revoke(transport->comm);
    for (const struct native *native = transport->natives; native; native = native->next)
        revoked = revoke(native->comm) && revoked;
    if (!revoked)
        abort_all(transport);
}

/* Quiescent: 1; not yet: 0; it will not be: -1. */
static int revoked(ncclComm_t comm)
{
    ncclResult_t state = ncclSuccess;

    if (!comm)
        return 1;
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess)
        return -1;
    return state == ncclSuccess ? 1 : state == ncclInProgress ? 0 : -1;
}

static void look_at_revoked(struct transport *transport)
{
    int least = revoked(transport->comm);

    for (const struct native *native = transport->natives; native; native = native->next) {
        int one = revoked(native->comm);

        least = one < least ? one : least;
    }
    if (least < 0)
        abort_all(transport);
    if (least == 1 && cudaStreamQuery(transport->stream) != cudaErrorNotReady)
        transport->teardown = TEARDOWN_QUIET;
}

void nccl_teardown_step(struct transport *transport)
{
    (void)nccl_use_device(transport, NULL);
    if (transport->teardown == TEARDOWN_REVOKING)
        look_at_revoked(transport);
    else if (transport->teardown == TEARDOWN_ABORTING && helper_over(transport) &&
             cudaStreamQuery(transport->stream) != cudaErrorNotReady)
        transport->teardown = TEARDOWN_QUIET;
}

bool nccl_quiet(struct transport *transport)
{
    nccl_teardown_step(transport);
    return transport->teardown == TEARDOWN_QUIET;
}

static bool wait_until(struct transport *transport, bool (*over)(struct transport *transport), uint64_t deadline_ns)
{
    uint64_t pause_ns = 10 * NS_PER_US;

    while (!over(transport)) {
        if (clock_ns() > deadline_ns)
            return false;
        clock_sleep_ns(pause_ns);
        pause_ns = pause_ns < NS_PER_MS ? 2 * pause_ns : NS_PER_MS;
    }
    return true;
}

static bool all_ready(struct transport *transport)
{
    bool ready = revoked(transport->comm) != 0;

    for (const struct native *native = transport->natives; native; native = native->next)
        ready = (is_idle(native) || revoked(native->comm) != 0) && ready;
    return ready;
}

static void finalize_all(struct transport *transport)
{
    if (transport->comm)
        (void)ncclCommFinalize(transport->comm);
    for (const struct native *native = transport->natives; native; native = native->next) {
        if (native->comm && !is_idle(native))
            (void)ncclCommFinalize(native->comm);
    }
}

/* Of its last event the host may know before the stream says that it has ended. */
static bool stream_ended(struct transport *transport)
{
    return cudaStreamQuery(transport->stream) != cudaErrorNotReady;
}

bool nccl_teardown_close(struct transport *transport, bool clean, uint64_t deadline_ns)
{
    (void)nccl_use_device(transport, NULL);
    if (clean && !transport->failed) {
        if (wait_until(transport, all_ready, deadline_ns)) {
            finalize_all(transport);
            clean = wait_until(transport, all_ready, deadline_ns);
        } else {
            clean = false;
        }
    } else {
        nccl_teardown_begin(transport);
        (void)wait_until(transport, nccl_quiet, deadline_ns);
        clean = transport->teardown == TEARDOWN_QUIET;
    }
    if (count_comms(transport) && !send_helper(transport, !clean))
        return false;
    return wait_until(transport, helper_over, deadline_ns) && wait_until(transport, stream_ended, deadline_ns);
}
