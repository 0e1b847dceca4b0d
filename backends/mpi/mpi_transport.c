/* Whole messages over MPI's point-to-point calls, none of which waits.
 *
 * A receive is posted only after MPI_Improbe has told its size, into memory of exactly that size: a receive smaller
 * than its message damages the heap in some MPIs before the truncation error comes. */
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_errors.h"
#include "backends/mpi/mpi_outbox.h"
#include "base/size.h"

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
    struct work *work = NULL;
    enum status st;

    if (count > MAX_MESSAGE)
        return error_set(err, STATUS_OVERFLOW, "message of %zu bytes to rank %d", count, peer);
    work = work_take(transport, -1);
    if (!work)
        return error_set(err, STATUS_NOMEM, "message to rank %d", peer);
    work->peer = peer;
    work->tag = tag;
    work->bytes = bytes;
    work->count = count;
    st = outbox_send(transport, work, err);
    if (st != STATUS_OK) {
        work_give(transport, work);
        return st;
    }
    *ret = work;
    return STATUS_OK;
}

static unsigned char *mpi_room(struct transport *transport, int peer, size_t count)
{
    struct mail mail;

    if (count < MAILBOX_LEAST_BYTES || count > MAILBOX_MOST_BYTES || !mailbox_reaches(transport->mailbox, peer) ||
        !mailbox_reserve(transport->mailbox, count, &mail))
        return NULL;
    return mailbox_room(transport->mailbox, &mail);
}

/* The message that an envelope stands for. */
static enum status open_envelope(struct transport *transport, int peer, uint32_t tag, struct message *message,
                                 size_t *ret_bytes, struct error *err)
{
    struct mail *mail = &message->mail;
    enum status st = mpi_status(MPI_Mrecv(mail, MAILBOX_ENVELOPE_BYTES, MPI_BYTE, &message->handle, MPI_STATUS_IGNORE),
                                "MPI_Mrecv", err);

    if (st == STATUS_OK)
        st = mailbox_match(transport->mailbox, peer, tag, mail, err);
    message->mailed = st == STATUS_OK;
    *ret_bytes = (size_t)mail->bytes;
    return st;
}

static enum status mpi_probe(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                             size_t *ret_bytes, struct error *err)
{
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status what;
    int found = 0;
    MPI_Count count = 0;
    enum status st = outbox_flush(transport, err);

    *ret = NULL;
    if (st != STATUS_OK)
        return st;
    st = mpi_status(MPI_Improbe(peer, (int)tag, transport->payload, &found, &handle, &what), "MPI_Improbe", err);
    if (st || !found)
        return st;
    *ret = message_take(&transport->messages);
    if (!*ret)
        return error_set(err, STATUS_NOMEM, "message from rank %d", peer);
    (void)MPI_Get_elements_x(&what, MPI_BYTE, &count);
    (*ret)->handle = handle;
    (*ret)->peer = peer;
    *ret_bytes = count < 0 ? 0 : (size_t)count;
    if (count != MAILBOX_ENVELOPE_BYTES || !mailbox_hears(transport->mailbox, peer))
        return STATUS_OK;
    st = open_envelope(transport, peer, tag, *ret, ret_bytes, err);
    if (st) {
        message_give(&transport->messages, *ret);
        *ret = NULL;
    }
    return st;
}

/* Its room in the mailbox is free again. */
static void let_go(struct transport *transport, const struct message *message)
{
    if (message->mailed)
        mailbox_return(transport->mailbox, message->peer, &message->mail);
}

static enum status mpi_receive(struct transport *transport, struct message *message, void *bytes, size_t count,
                               struct work **ret, struct error *err)
{
    struct message matched = *message;
    struct work *work;
    enum status st;
    int length;

    message_give(&transport->messages, message);
    if (size_to_int(count, &length)) {
        let_go(transport, &matched);
        return error_set(err, STATUS_OVERFLOW, "message of %zu bytes", count);
    }
    work = work_take(transport, matched.mailed ? -1 : length);
    if (!work) {
        let_go(transport, &matched);
        return error_set(err, STATUS_NOMEM, "receiving %zu bytes", count);
    }
    if (matched.mailed) {
        work->peer = matched.peer;
        work->mail = matched.mail;
        work->to = bytes;
        work->done = mailbox_read(transport->mailbox, work->peer, &work->mail, work->to, 0);
        *ret = work;
        return STATUS_OK;
    }
    st = mpi_status(MPI_Imrecv(bytes, length, MPI_BYTE, &matched.handle, &work->request), "MPI_Imrecv", err);
    if (st) {
        work_give(transport, work);
        return st;
    }
    *ret = work;
    return STATUS_OK;
}

static unsigned char *mpi_lend(struct transport *transport, struct message *message)
{
    if (!message->mailed || !mailbox_whole(transport->mailbox, message->peer, &message->mail))
        return NULL;
    return mailbox_bytes(transport->mailbox, message->peer, &message->mail);
}

static void mpi_give_back(struct transport *transport, struct message *message)
{
    let_go(transport, message);
    message_give(&transport->messages, message);
}

/* Has all of a message come out of its sender's mailbox?  After a close there is none any more. */
static bool read_on(struct transport *transport, struct work *work)
{
    if (!transport->mailbox)
        return false;
    work->done = mailbox_read(transport->mailbox, work->peer, &work->mail, work->to, work->done);
    if (work->done < work->mail.bytes)
        return false;
    mailbox_return(transport->mailbox, work->peer, &work->mail);
    return true;
}

static enum status mpi_test(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    MPI_Status what;
    int done = 0;
    int got = 0;
    enum status st = outbox_flush(transport, err);

    *ret = false;
    if (st != STATUS_OK || work->waits)
        return st;
    if (work->to) {
        *ret = read_on(transport, work);
        if (*ret)
            work_give(transport, work);
        return STATUS_OK;
    }
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
    .room = mpi_room,
    .probe = mpi_probe,
    .receive = mpi_receive,
    .lend = mpi_lend,
    .give_back = mpi_give_back,
    .test = mpi_test,
    .control_send = mpi_control_send,
    .control_receive = mpi_control_receive,
    .describe = mpi_describe,
    .host = mpi_host,
    .raw = &mpi_raw_ops,
};
