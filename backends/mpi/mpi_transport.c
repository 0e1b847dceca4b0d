/* Whole messages over MPI's point-to-point calls, none of which waits.
 *
 * A receive is posted only after MPI_Improbe has told its size, into memory of exactly that size: a receive smaller
 * than its message damages the heap in some MPIs before the truncation error comes. */
#include <stdlib.h>

#include "backends/mpi/mpi_errors.h"
#include "backends/mpi/mpi_private.h"
#include "base/size.h"

/* One matched message, not yet received: MPI's handle is all there is to it. */
struct message {
    MPI_Message handle;
};

/* One receive copies its whole message in one call, in which this rank answers nobody: longer payloads go in pieces. */
#define MAX_MESSAGE ((size_t)1 << 27)

static int mpi_rank(const struct transport *transport)
{
    return transport->rank;
}

static int mpi_size(const struct transport *transport)
{
    return transport->size;
}

static uint32_t mpi_max_tag(const struct transport *transport)
{
    return transport->max_tag;
}

static size_t mpi_max_message(const struct transport *transport)
{
    (void)transport;
    return MAX_MESSAGE;
}

static const char *mpi_host(const struct transport *transport, int rank)
{
    return transport->host ? transport->host[rank] : NULL;
}

static const char *mpi_describe(const struct transport *transport)
{
    return transport->about;
}

static struct work *work_take(struct transport *transport, int expected)
{
    struct work *work = transport->free_work;

    if (work)
        transport->free_work = work->next;
    else
        work = malloc(sizeof *work);
    if (work)
        *work = (struct work){.request = MPI_REQUEST_NULL, .expected = expected};
    return work;
}

static void work_give(struct transport *transport, struct work *work)
{
    work->next = transport->free_work;
    transport->free_work = work;
}

static enum status mpi_send(struct transport *transport, int peer, uint32_t tag, const void *bytes, size_t count,
                            struct work **ret, struct error *err)
{
    struct work *work;
    enum status st;
    int length;

    if (count > MAX_MESSAGE || size_to_int(count, &length))
        return error_set(err, STATUS_OVERFLOW, "message of %zu bytes to rank %d", count, peer);
    work = work_take(transport, -1);
    if (!work)
        return error_set(err, STATUS_NOMEM, "message to rank %d", peer);
    st = mpi_status(MPI_Isend(bytes, length, MPI_BYTE, peer, (int)tag, transport->payload, &work->request), "MPI_Isend",
                    err);
    if (st) {
        work_give(transport, work);
        return st;
    }
    *ret = work;
    return STATUS_OK;
}

static enum status mpi_probe(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                             size_t *ret_bytes, struct error *err)
{
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status what;
    int found = 0;
    MPI_Count count = 0;
    enum status st;

    *ret = NULL;
    st = mpi_status(MPI_Improbe(peer, (int)tag, transport->payload, &found, &handle, &what), "MPI_Improbe", err);
    if (st || !found)
        return st;
    *ret = malloc(sizeof **ret);
    if (!*ret)
        return error_set(err, STATUS_NOMEM, "message from rank %d", peer);
    (void)MPI_Get_elements_x(&what, MPI_BYTE, &count);
    (*ret)->handle = handle;
    *ret_bytes = count < 0 ? 0 : (size_t)count;
    return STATUS_OK;
}

static enum status mpi_receive(struct transport *transport, struct message *message, void *bytes, size_t count,
                               struct work **ret, struct error *err)
{
    MPI_Message handle = message->handle;
    struct work *work;
    enum status st;
    int length;

    free(message);
    if (size_to_int(count, &length))
        return error_set(err, STATUS_OVERFLOW, "message of %zu bytes", count);
    work = work_take(transport, length);
    if (!work)
        return error_set(err, STATUS_NOMEM, "receiving %zu bytes", count);
    st = mpi_status(MPI_Imrecv(bytes, length, MPI_BYTE, &handle, &work->request), "MPI_Imrecv", err);
    if (st) {
        work_give(transport, work);
        return st;
    }
    *ret = work;
    return STATUS_OK;
}

static enum status mpi_test(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    MPI_Status what;
    int done = 0;
    int got = 0;
    enum status st;

    st = mpi_status(MPI_Test(&work->request, &done, &what), "MPI_Test", err);
    *ret = done != 0;
    if (st == STATUS_OK && done && work->expected >= 0) {
        (void)MPI_Get_count(&what, MPI_BYTE, &got);
        if (got != work->expected)
            st = error_set(err, STATUS_CORRUPT, "received %d of %d bytes", got, work->expected);
    }
    if (done)
        work_give(transport, work);
    return st;
}

const struct transport_ops mpi_transport_ops = {
    .name = "mpi",
    .teardown = TEARDOWN_JOB,
    .open = mpi_open,
    .close = mpi_close,
    .rank = mpi_rank,
    .size = mpi_size,
    .max_tag = mpi_max_tag,
    .max_message = mpi_max_message,
    .send = mpi_send,
    .probe = mpi_probe,
    .receive = mpi_receive,
    .test = mpi_test,
    .control_send = mpi_control_send,
    .control_receive = mpi_control_receive,
    .describe = mpi_describe,
    .host = mpi_host,
    .raw = &mpi_raw_ops,
};
