/* Whatever waits is looked at whenever the transport is asked for anything. */
#include "backends/mpi/mpi_outbox.h"

#include "backends/mpi/mpi_errors.h"
#include "base/size.h"

enum {
    /* Longer messages are announced when this much of them is written.  Shorter ones are there as soon as they are
     * announced, so that they can be lent as they lie; comm unpacks pieces of 128 KiB there. */
    EARLY_BYTES = 147456,
    FIRST_BYTES = 32768
};

static enum status post_envelope(struct transport *transport, struct work *work, struct error *err)
{
    enum status st = mpi_status(MPI_Isend(&work->mail, MAILBOX_ENVELOPE_BYTES, MPI_BYTE, work->peer, (int)work->tag,
                                          transport->payload, &work->request),
                                "MPI_Isend", err);

    if (st != STATUS_OK)
        mailbox_take_back(transport->mailbox, &work->mail);
    return st;
}

/* There is room for the message: the beginning of it, its envelope, and then the rest of it. */
static enum status post_copy(struct transport *transport, struct work *work, struct error *err)
{
    size_t first = work->count > EARLY_BYTES ? FIRST_BYTES : work->count;
    size_t done = mailbox_write(transport->mailbox, &work->mail, work->bytes, 0, first);
    enum status st = post_envelope(transport, work, err);

    if (st == STATUS_OK)
        (void)mailbox_write(transport->mailbox, &work->mail, work->bytes, done, work->count - done);
    return st;
}

/* *ret false: there is no room for what has no other way. */
static enum status post(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    struct mailbox *mailbox = transport->mailbox;
    bool special = work->count == MAILBOX_ENVELOPE_BYTES;
    bool size = special || (work->count >= MAILBOX_LEAST_BYTES && work->count <= MAILBOX_MOST_BYTES);
    bool mailable = size && mailbox_reaches(mailbox, work->peer);
    int length = 0;

    *ret = true;
    if (mailable && mailbox_is_room(mailbox, work->bytes, work->count, &work->mail)) {
        mailbox_wrote(mailbox, &work->mail);
        return post_envelope(transport, work, err);
    }
    if (mailable && mailbox_reserve(mailbox, work->peer, work->count, &work->mail))
        return post_copy(transport, work, err);
    if (mailable && special) {
        *ret = false;
        return STATUS_OK;
    }
    if (size_to_int(work->count, &length))
        return error_set(err, STATUS_OVERFLOW, "message of %zu bytes to rank %d", work->count, work->peer);
    return mpi_status(
        MPI_Isend(work->bytes, length, MPI_BYTE, work->peer, (int)work->tag, transport->payload, &work->request),
        "MPI_Isend", err);
}

/* Is there an earlier message of its peer and tag? */
static bool is_behind(const struct transport *transport, const struct work *work)
{
    for (const struct work *other = transport->waiting; other; other = other->next) {
        if (other->peer == work->peer && other->tag == work->tag)
            return true;
    }
    return false;
}

static void wait_in_line(struct transport *transport, struct work *work)
{
    struct work **link = &transport->waiting;

    while (*link)
        link = &(*link)->next;
    work->waits = true;
    work->next = NULL;
    *link = work;
}

enum status outbox_send(struct transport *transport, struct work *work, struct error *err)
{
    bool posted = false;
    enum status st = STATUS_OK;

    if (!is_behind(transport, work))
        st = post(transport, work, &posted, err);
    if (st == STATUS_OK && !posted)
        wait_in_line(transport, work);
    return st;
}

enum status outbox_flush(struct transport *transport, struct error *err)
{
    while (transport->waiting) {
        struct work *work = transport->waiting;
        bool posted = false;
        enum status st = post(transport, work, &posted, err);

        if (st != STATUS_OK || !posted)
            return st;
        transport->waiting = work->next;
        work->waits = false;
    }
    return STATUS_OK;
}
