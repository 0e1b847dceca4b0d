/* Whole messages: to processes of this host by the post (mpi_post.h), else over MPI's point-to-point calls.  Nothing
 * waits.
 *
 * A receive is posted only after a probe has told its size, into memory of exactly that size: a receive smaller than
 * its message damages the heap in some MPIs before the truncation error comes.
 *
 * MPI_Iprobe looks: MPI_Improbe makes a request of its own, found or not.  A short message is then received at once,
 * into the record of the message, and copied from there; a longer one is matched by MPI_Improbe, so that no other probe
 * finds it again.  Between the two calls nobody else is inside this communicator. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_errors.h"
#include "backends/mpi/mpi_outbox.h"
#include "base/clock.h"
#include "base/size.h"

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
    bool gone = false;
    enum status st;

    if (count > MAX_MESSAGE)
        return error_set(err, STATUS_OVERFLOW, "message of %zu bytes to rank %d", count, peer);
    st = outbox_send_short(transport, peer, tag, bytes, count, &gone, err);
    if (gone)
        *ret = &transport->done;
    if (st != STATUS_OK || gone)
        return st;
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

static struct work *mpi_reach(struct transport *transport, int peer, const struct runs *runs)
{
    struct lent lent;
    struct work *work = NULL;

    if (!post_reaches(transport->post, peer) || !lending_reaches(&transport->lending, peer, runs, &lent) ||
        !outbox_lends_to(transport, peer) || !(work = work_take(transport, -1)))
        return NULL;
    work->peer = peer;
    if (outbox_lend(transport, work, &lent))
        return work;
    work_give(transport, work);
    return NULL;
}

static enum status mpi_send_lent(struct transport *transport, struct work *work, uint32_t tag, const void *header,
                                 size_t header_bytes, const struct runs *runs, struct error *err)
{
    enum status st = STATUS_OK;

    CHECK(header_bytes && header_bytes <= LENDING_HEADER_BYTES && runs->run <= work->lent.run &&
          runs->rows <= work->lent.rows);
    work->lent.run = (uint32_t)runs->run;
    work->lent.rows = (uint32_t)runs->rows;
    work->tag = tag;
    work->bytes = header;
    work->header_bytes = header_bytes;
    st = outbox_send(transport, work, err);
    if (st != STATUS_OK)
        work_give(transport, work);
    return st;
}

static unsigned char *mpi_room(struct transport *transport, int peer, size_t count, bool *ret_near)
{
    struct mail mail;

    if (count < MAILBOX_LEAST_BYTES || count > MAILBOX_MOST_BYTES || !post_reaches(transport->post, peer) ||
        !mailbox_reserve(transport->mailbox, peer, count, &mail))
        return NULL;
    *ret_near = distance_is_stored_to(mailbox_distance(transport->mailbox, peer));
    return mailbox_room(transport->mailbox, &mail);
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

    message->kind = message->count <= SHORT_BYTES ? MESSAGE_SHORT : MESSAGE_PASSED;
    if (message->kind == MESSAGE_SHORT) {
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

/* Has MPI a message of (peer, tag)?  *ret_count: its bytes, -1: none has come. */
static enum status look(struct transport *transport, int peer, uint32_t tag, int *ret_count, struct error *err)
{
    MPI_Status what;
    int found = 0;
    enum status st = mpi_status(MPI_Iprobe(peer, (int)tag, transport->payload, &found, &what), "MPI_Iprobe", err);

    *ret_count = -1;
    if (st != STATUS_OK || !found)
        return st;
    (void)MPI_Get_count(&what, MPI_BYTE, ret_count);
    if (*ret_count < 0) /* MPI_UNDEFINED: more than an int can say, and than anybody expects */
        *ret_count = INT_MAX;
    return STATUS_OK;
}

static enum status probe_mpi(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                             struct error *err)
{
    struct message *message;
    int count = -1;
    enum status st = look(transport, peer, tag, &count, err);

    if (st != STATUS_OK || count < 0)
        return st;
    message = message_take(&transport->messages);
    if (!message)
        return error_set(err, STATUS_NOMEM, "message from rank %d", peer);
    message->count = count;
    message->peer = peer;
    st = match(transport, peer, tag, message, err);
    if (st != STATUS_OK)
        message_give(&transport->messages, message);
    else
        *ret = message;
    return st;
}

/* What the post has announced, and MPI brings; *ret: it is here. */
static enum status match_passed(struct transport *transport, struct message *message, bool *ret, struct error *err)
{
    int count = -1;
    enum status st = look(transport, message->peer, message->tag, &count, err);

    *ret = count >= 0;
    if (st != STATUS_OK || !*ret)
        return st;
    if (count != message->count)
        return error_set(err, STATUS_CORRUPT, "rank %d announced %d bytes with tag %" PRIu32 ", and sent %d",
                         message->peer, message->count, message->tag, count);
    return match(transport, message->peer, message->tag, message, err);
}

static enum status probe_post(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                              struct error *err)
{
    struct message *message = NULL;
    bool here = true;
    enum status st = post_find(transport->post, &transport->messages, peer, tag, &message, err);

    if (st != STATUS_OK || !message)
        return st;
    if (message->kind == MESSAGE_LENT)
        st = lending_check(&transport->lending, peer, &message->lent, err);
    if (st == STATUS_OK && (message->kind == MESSAGE_MAIL || message->kind == MESSAGE_LENT))
        st = mailbox_match(transport->mailbox, peer, tag, &message->mail, err);
    else if (message->kind == MESSAGE_PASSED)
        st = match_passed(transport, message, &here, err);
    if (st != STATUS_OK || !here)
        return st;
    post_remove(transport->post, message);
    *ret = message;
    return STATUS_OK;
}

static enum status mpi_probe(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                             size_t *ret_bytes, struct error *err)
{
    enum status st = transport->waiting ? outbox_flush(transport, err) : STATUS_OK;

    *ret = NULL;
    if (st == STATUS_OK)
        st = post_hears(transport->post, peer) ? probe_post(transport, peer, tag, ret, err)
                                               : probe_mpi(transport, peer, tag, ret, err);
    if (*ret)
        *ret_bytes = (size_t)(*ret)->count;
    return st;
}

static void mpi_give_back(struct transport *transport, struct message *message, uint64_t read_ns)
{
    if (message->kind == MESSAGE_MAIL || message->kind == MESSAGE_LENT) /* its room is free again, or its payload */
        mailbox_return(transport->mailbox, message->peer, &message->mail, read_ns);
    message_give(&transport->messages, message);
}

/* A short message, which has most likely come: else it is copied as soon as it has.  *ret: it was. */
static enum status take_brief(struct transport *transport, struct message *message, void *to, bool *ret,
                              struct error *err)
{
    enum status st = STATUS_OK;

    *ret = message->request == MPI_REQUEST_NULL;
    if (!*ret)
        st = test_brief(message, ret, err);
    if (st != STATUS_OK || !*ret)
        return st;
    memcpy(to, message->bytes, (size_t)message->count);
    message_give(&transport->messages, message);
    return STATUS_OK;
}

static enum status receive_brief(struct transport *transport, struct message *message, void *bytes, struct work **ret,
                                 struct error *err)
{
    bool come = false;
    enum status st = take_brief(transport, message, bytes, &come, err);
    struct work *work = &transport->done;

    if (st != STATUS_OK)
        return st;
    if (!come) {
        work = work_take(transport, -1);
        if (!work)
            return error_set(err, STATUS_NOMEM, "receiving %d bytes", message->count);
        work->brief = message;
        work->to = bytes;
    }
    *ret = work;
    return STATUS_OK;
}

static enum status receive_long(struct transport *transport, struct message *message, void *bytes, int length,
                                struct work **ret, struct error *err)
{
    bool mailed = message->kind == MESSAGE_MAIL;
    struct work *work = work_take(transport, mailed ? -1 : length);

    if (!work)
        return error_set(err, STATUS_NOMEM, "receiving %d bytes", length);
    if (mailed) {
        work->peer = message->peer;
        work->mail = message->mail;
        work->to = bytes;
        work->done = mailbox_read(transport->mailbox, work->peer, &work->mail, work->to, 0);
    } else {
        enum status st =
            mpi_status(MPI_Imrecv(bytes, length, MPI_BYTE, &message->handle, &work->request), "MPI_Imrecv", err);

        if (st != STATUS_OK) {
            work_give(transport, work);
            return st;
        }
    }
    message_give(&transport->messages, message);
    *ret = work;
    return STATUS_OK;
}

static const unsigned char *mpi_look(const struct transport *transport, const struct message *message,
                                     size_t *ret_header_bytes, struct runs *ret)
{
    if (message->kind != MESSAGE_LENT)
        return NULL;
    *ret = lending_runs(&transport->lending, message->peer, &message->lent);
    *ret_header_bytes = message->header_bytes;
    return message->bytes + sizeof message->lent;
}

/* A lent message, as if it lay together. */
static void receive_lent(struct transport *transport, struct message *message, unsigned char *bytes, struct work **ret)
{
    struct runs runs = {0};
    size_t header_bytes = 0;
    const unsigned char *header = mpi_look(transport, message, &header_bytes, &runs);
    uint64_t begun = clock_ns();

    memcpy(bytes, header, header_bytes);
    runs_copy(bytes + header_bytes, runs.run, runs.bytes, runs.stride, runs.run, runs.rows);
    mpi_give_back(transport, message, clock_ns() - begun);
    *ret = &transport->done;
}

static enum status mpi_receive(struct transport *transport, struct message *message, void *bytes, size_t count,
                               struct work **ret, struct error *err)
{
    enum status st = STATUS_OK;
    int length = 0;

    if (size_to_int(count, &length))
        st = error_set(err, STATUS_OVERFLOW, "message of %zu bytes", count);
    else if (message->kind == MESSAGE_SHORT)
        st = receive_brief(transport, message, bytes, ret, err);
    else if (message->kind == MESSAGE_LENT)
        receive_lent(transport, message, bytes, ret);
    else
        st = receive_long(transport, message, bytes, length, ret, err);
    if (st != STATUS_OK)
        mpi_give_back(transport, message, 0);
    return st;
}

static unsigned char *mpi_lend(struct transport *transport, struct message *message)
{
    if (message->kind != MESSAGE_MAIL || !mailbox_whole(transport->mailbox, message->peer, &message->mail))
        return NULL;
    return mailbox_bytes(transport->mailbox, message->peer, &message->mail);
}

/* Has all of a message come out of its sender's mailbox?  After a close there is none any more. */
static bool read_on(struct transport *transport, struct work *work)
{
    if (!transport->mailbox)
        return false;
    work->done = mailbox_read(transport->mailbox, work->peer, &work->mail, work->to, work->done);
    if (work->done < work->mail.bytes)
        return false;
    mailbox_return(transport->mailbox, work->peer, &work->mail, 0);
    return true;
}

/* Of what MPI carries. */
static enum status test_request(struct work *work, struct error *err)
{
    MPI_Status what;
    int done = 0;
    int got = 0;
    enum status st = mpi_status(MPI_Test(&work->request, &done, &what), "MPI_Test", err);

    work->over = done != 0;
    if (st != STATUS_OK || !done || work->expected < 0)
        return st;
    (void)MPI_Get_count(&what, MPI_BYTE, &got);
    return got == work->expected ? STATUS_OK
                                 : error_set(err, STATUS_CORRUPT, "received %d of %d bytes", got, work->expected);
}

static enum status mpi_test(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    enum status st = transport->waiting ? outbox_flush(transport, err) : STATUS_OK;

    *ret = work == &transport->done;
    if (*ret || st != STATUS_OK || work->waits)
        return st;
    if (!work->over && work->brief)
        st = take_brief(transport, work->brief, work->to, &work->over, err);
    else if (!work->over && work->lent.rows)
        work->over = transport->mailbox && mailbox_is_returned(transport->mailbox, &work->mail);
    else if (!work->over && work->to)
        work->over = read_on(transport, work);
    else if (!work->over)
        st = test_request(work, err);
    *ret = work->over && st == STATUS_OK;
    if (*ret)
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
    .reach = mpi_reach,
    .send_lent = mpi_send_lent,
    .look = mpi_look,
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
