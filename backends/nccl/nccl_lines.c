/* The lines of an axis: one ncclCommSplit for all of them, by which the communicator of all ranks is divided.
 *
 * It is collective over all ranks, which must have nothing under way on that communicator, and call it for one axis
 * after the other in the same order: comm sees to the first (native.h), here the axis with the smallest ids comes
 * first. Its calls return at once; NCCL writes the handle when the communicator that is divided says that it is ready
 * again. */
#include <inttypes.h>
#include <limits.h>

#include "backends/nccl/nccl_errors.h"
#include "backends/nccl/nccl_private.h"

/* The next axis to be divided, or the one that is. */
static struct native *next_line(const struct transport *transport)
{
    struct native *next = NULL;

    for (struct native *native = transport->natives; native; native = native->next) {
        if (native->first_line && native->building && (!next || native->id < next->id))
            next = native;
    }
    return next;
}

bool nccl_lines_busy(const struct transport *transport)
{
    return next_line(transport) != NULL;
}

static enum status wrap(const struct native *native, enum status st, struct error *err)
{
    return st == STATUS_OK
               ? st
               : error_wrap(err, st, "group %" PRIu32 ", one line of %d ranks among all", native->id, native->size);
}

static enum status divide(struct native *native, struct error *err)
{
    struct transport *transport = native->transport;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    uint32_t color = native->id - native->first_line;

    if (transport->launches || color > INT_MAX)
        return error_set(err, STATUS_INVALID, "a line is opened too late, or is one of too many");
    config.blocking = 0;
    native->dividing = true;
    return nccl_status(ncclCommSplit(transport->comm, (int)color, native->index, &native->child, &config),
                       "ncclCommSplit", transport->comm, err);
}

/* Who is in it the other ranks have said, too: a sum over others would be believed. */
static enum status check_line(const struct native *native, struct error *err)
{
    int size = 0;
    int number = 0;
    enum status st = nccl_status(ncclCommCount(native->comm, &size), "ncclCommCount", native->comm, err);

    if (st == STATUS_OK)
        st = nccl_status(ncclCommUserRank(native->comm, &number), "ncclCommUserRank", native->comm, err);
    if (st == STATUS_OK && (size != native->size || number != native->index))
        st = error_set(err, STATUS_MISMATCH,
                       "NCCL made it of %d ranks, this one number %d, expected %d and number %d: a rank was told of "
                       "other lines",
                       size, number, native->size, native->index);
    return st;
}

static enum status look(struct native *native, struct error *err)
{
    ncclComm_t parent = native->transport->comm;
    ncclResult_t state = ncclSuccess;
    enum status st = nccl_status(ncclCommGetAsyncError(parent, &state), "ncclCommGetAsyncError", parent, err);

    if (st != STATUS_OK || state == ncclInProgress)
        return st;
    native->comm = __atomic_load_n(&native->child, __ATOMIC_ACQUIRE); /* a failed one, too, is torn down */
    native->dividing = false;
    st = nccl_status(state, "ncclCommSplit", parent, err);
    if (st == STATUS_OK)
        st = check_line(native, err);
    return st == STATUS_OK ? nccl_native_built(native, err) : st;
}

enum status nccl_lines_step(struct transport *transport, struct error *err)
{
    struct native *line = next_line(transport);
    enum status st = STATUS_OK;

    while (line && st == STATUS_OK) {
        if (!line->dividing)
            st = wrap(line, divide(line, err), err);
        if (st == STATUS_OK)
            st = wrap(line, look(line, err), err);
        if (line->building)
            break;
        line = next_line(transport);
    }
    return st;
}
