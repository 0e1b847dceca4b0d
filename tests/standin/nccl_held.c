/* Who holds a communicator, and how it is.  The last holder frees it. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/standin/nccl_inside.h"

pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t comms_changed = PTHREAD_COND_INITIALIZER;

static struct ncclComm *comms;
/* One text for the process, as NCCL has it: a job's words reach the caller. */
static char last_error[512];
static pthread_mutex_t last_error_lock = PTHREAD_MUTEX_INITIALIZER;

ncclResult_t comm_fail(ncclResult_t result, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    pthread_mutex_lock(&last_error_lock);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    pthread_mutex_unlock(&last_error_lock);
    va_end(arguments);
    return result;
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    static _Thread_local char copy[sizeof last_error];

    (void)comm;
    pthread_mutex_lock(&last_error_lock);
    memcpy(copy, last_error, sizeof copy);
    pthread_mutex_unlock(&last_error_lock);
    return copy;
}

void job_start(void *(*job)(void *), void *argument)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all;
    sigset_t before;

    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &detached, job, argument) != 0)
        job(argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}

/* --- holding ---------------------------------------------------------------------------------------------------- */

bool comm_live(const struct ncclComm *comm)
{
    for (const struct ncclComm *each = comms; each; each = each->next)
        if (each == comm)
            return true;
    return false;
}

void comm_drop(struct ncclComm *comm)
{
    if (--comm->holders > 0)
        return;
    if (comm->table)
        munmap(comm->table, table_bytes(comm->size));
    free(comm);
}

static void comm_unlink(struct ncclComm *comm)
{
    struct ncclComm **at = &comms;

    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
}

ncclResult_t comm_ready(struct ncclComm *comm)
{
    ncclResult_t state = ncclInvalidArgument;
    bool live;

    pthread_mutex_lock(&comms_lock);
    live = comm && comm_live(comm);
    if (live)
        state = comm->state;
    pthread_mutex_unlock(&comms_lock);
    if (!live)
        return comm_fail(ncclInvalidArgument, "no such communicator");
    if (state == ncclInProgress)
        return comm_fail(ncclInvalidArgument, "the communicator is in progress");
    return state == ncclSuccess ? state : comm_fail(state, "the communicator has failed");
}

void comm_begin(struct ncclComm *comm)
{
    pthread_mutex_lock(&comms_lock);
    comm->state = ncclInProgress;
    comm->jobs++;
    comm->holders++;
    pthread_mutex_unlock(&comms_lock);
}

void comm_end(struct ncclComm *comm, ncclResult_t result)
{
    pthread_mutex_lock(&comms_lock);
    if (comm->state == ncclInProgress)
        comm->state = result;
    comm->jobs--;
    pthread_cond_broadcast(&comms_changed);
    comm_drop(comm);
    pthread_mutex_unlock(&comms_lock);
}

struct ncclComm *comm_make(int device, bool blocking)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);

    if (!comm)
        return NULL;
    comm->device = device;
    comm->blocking = blocking;
    comm->holders = 1;
    pthread_mutex_lock(&comms_lock);
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&comms_lock);
    return comm;
}

ncclResult_t comm_perform(struct ncclComm *comm, void *(*job)(void *), void *argument)
{
    ncclResult_t state;

    if (!comm->blocking) {
        job_start(job, argument);
        return ncclInProgress;
    }
    pthread_mutex_lock(&comms_lock);
    comm->holders++;
    pthread_mutex_unlock(&comms_lock);
    job(argument);
    pthread_mutex_lock(&comms_lock);
    state = comm->state;
    comm_drop(comm);
    pthread_mutex_unlock(&comms_lock);
    return state;
}

void comm_bury(struct ncclComm *comm)
{
    pthread_mutex_lock(&comms_lock);
    comm_unlink(comm);
    comm_drop(comm);
    pthread_mutex_unlock(&comms_lock);
}
