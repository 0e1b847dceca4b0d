/* Whole messages over MPI's point-to-point calls, none of which waits.
 *
 * A receive is posted only after a probe has told its size, into memory of exactly that size: a receive smaller than
 * its message damages the heap in some MPIs before the truncation error comes.
 *
 * MPI_Iprobe looks: MPI_Improbe makes a request of its own, found or not.  A short message is then received at once,
 * into the record of the message, and copied from there; a longer one is matched by MPI_Improbe, so that no other probe
 * finds it again.  Between the two calls nobody else is inside this communicator. */
#include <limits.h>
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

static unsigned char *mpi_room(struct transport *transport, int peer, size_t count, bool *ret_near)
{
    struct mail mail;

    if (count < MAILBOX_LEAST_BYTES || count > MAILBOX_MOST_BYTES || !mailbox_reaches(transport->mailbox, peer) ||
        !mailbox_reserve(transport->mailbox, peer, count, &mail))
        return NULL;
    *ret_near = mailbox_is_near(transport->mailbox, peer);
    return mailbox_room(transport->mailbox, &mail);
}

/* The message that an envelope stands for. */
static enum status open_envelope(struct transport *transport, int peer, uint32_t tag, struct message *message,
                                 size_t *ret_bytes, struct error *err)
{
    struct mail *mail = &message->mail;
    enum status st = mpi_status(
        MPI_Recv(mail, MAILBOX_ENVELOPE_BYTES, MPI_BYTE, peer, (int)tag, transport->payload, MPI_STATUS_IGNORE),
        "MPI_Recv of an envelope", err);

    if (st == STATUS_OK)
        st = mailbox_match(transport->mailbox, peer, tag, mail, err);
    message->mailed = st == STATUS_OK;
    *ret_bytes = (size_t)mail->bytes;
    return st;
}

/* Is all of a short message here?  Then it has the size that the probe told. */
static enum status test_brief(struct message *message, bool *ret, struct error *err)
{
    MPI_Status what;
    int done = 0;
    int got = 0;
    enum status st = mpi_status(MPI_Test(&message->request, &done, &what), "MPI_Test", err);

    *ret = done != 0;
    if (st != STATUS_OK || !done)
        return st;
    (void)MPI_Get_count(&what, MPI_BYTE, &got);
    if (got == message->count)
        return STATUS_OK;
    return error_set(err, STATUS_CORRUPT, "received %d of %d bytes", got, message->count);
}

/* Take the message that the probe has found out of MPI's queue. */
static enum status match(struct transport *transport, int peer, uint32_t tag, struct message *message,
                         struct error *err)
{
    int found = 0;
    bool done = false;
    enum status st;

    message->brief = message->count <= SHORT_BYTES;
    if (message->brief) {
        st = mpi_status(
            MPI_Irecv(message->bytes, message->count, MPI_BYTE, peer, (int)tag, transport->payload, &message->request),
            "MPI_Irecv", err);
        return st != STATUS_OK ? st : test_brief(message, &done, err);
    }
    st = mpi_status(MPI_Improbe(peer, (int)tag, transport->payload, &found, &message->handle, MPI_STATUS_IGNORE),
                    "MPI_Improbe", err);
    if (st != STATUS_OK || found)
        return st;
    return error_set(err, STATUS_TRANSPORT, "a message from rank %d is gone between two probes", peer);
}

static enum status mpi_probe(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                             size_t *ret_bytes, struct error *err)
{
    struct message *message;
    MPI_Status what;
    int found = 0;
    enum status st = outbox_flush(transport, err);

    *ret = NULL;
    if (st != STATUS_OK)
        return st;
    st = mpi_status(MPI_Iprobe(peer, (int)tag, transport->payload, &found, &what), "MPI_Iprobe", err);
    if (st != STATUS_OK || !found)
        return st;
    message = message_take(&transport->messages);
    if (!message)
        return error_set(err, STATUS_NOMEM, "message from rank %d", peer);
    (void)MPI_Get_count(&what, MPI_BYTE, &message->count);
    if (message->count < 0) /* MPI_UNDEFINED: more than an int can say, and than anybody expects */
        message->count = INT_MAX;
    message->peer = peer;
    *ret_bytes = (size_t)message->count;
    if (message->count == MAILBOX_ENVELOPE_BYTES && mailbox_hears(transport->mailbox, peer))
        st = open_envelope(transport, peer, tag, message, ret_bytes, err);
    else
        st = match(transport, peer, tag, message, err);
    if (st != STATUS_OK)
        message_give(&transport->messages, message);
    else
        *ret = message;
    return st;
}

/* Its room in the mailbox is free again. */
static void let_go(struct transport *transport, const struct message *message)
{
    if (message->mailed)
        mailbox_return(transport->mailbox, message->peer, &message->mail);
}

/* A short message, which has most likely come: else it is copied as soon as it has. */
static enum status take_brief(struct transport *transport, struct work *work, struct message *message,
                              struct error *err)
{
    bool come = message->request == MPI_REQUEST_NULL;
    enum status st = come ? STATUS_OK : test_brief(message, &come, err);

    work->brief = message;
    if (st != STATUS_OK || !come)
        return st;
    memcpy(work->to, message->bytes, (size_t)message->count);
    message_give(&transport->messages, message);
    work->brief = NULL;
    work->over = true;
    return STATUS_OK;
}

static enum status mpi_receive(struct transport *transport, struct message *message, void *bytes, size_t count,
                               struct work **ret, struct error *err)
{
    bool by_mpi = !message->mailed && !message->brief;
    struct work *work = NULL;
    enum status st = STATUS_OK;
    int length = 0;

    if (size_to_int(count, &length))
        st = error_set(err, STATUS_OVERFLOW, "message of %zu bytes", count);
    else if (!(work = work_take(transport, by_mpi ? length : -1)))
        st = error_set(err, STATUS_NOMEM, "receiving %zu bytes", count);
    else if (by_mpi)
        st = mpi_status(MPI_Imrecv(bytes, length, MPI_BYTE, &message->handle, &work->request), "MPI_Imrecv", err);
    if (st == STATUS_OK && !by_mpi)
        work->to = bytes;
    if (st == STATUS_OK && message->brief) {
        *ret = work;
        return take_brief(transport, work, message, err);
    }
    if (st == STATUS_OK && message->mailed) {
        work->peer = message->peer;
        work->mail = message->mail;
        work->done = mailbox_read(transport->mailbox, work->peer, &work->mail, work->to, 0);
    } else {
        let_go(transport, message);
    }
    message_give(&transport->messages, message);
    if (st != STATUS_OK && work)
        work_give(transport, work);
    if (st == STATUS_OK)
        *ret = work;
    return st;
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
    if (st == STATUS_OK && work->brief)
        st = take_brief(transport, work, work->brief, err);
    if (st != STATUS_OK || work->waits || work->brief)
        return st;
    if (work->to) {
        *ret = work->over || read_on(transport, work);
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
    .limit_close = mpi_limit_close,
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
