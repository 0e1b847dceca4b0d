/* Whatever waits is looked at whenever the transport is asked for anything. */
#include "backends/mpi/mpi_outbox.h"

#include "backends/mpi/mpi_errors.h"
#include "base/size.h"

enum {
    /* Longer messages are announced when this much of them is written.  Shorter ones are there as soon as they are
     * announced, so that they can be lent as they lie; comm unpacks pieces of 128 KiB there. */
    EARLY_BYTES = 147456,
    FIRST_BYTES = 32768,
    LENT_LEAST_BYTES = 16384 /* what is less is sooner sent by a copy, which leaves its sender free */
};

/* There is room for the message: the beginning of it, its envelope, and then the rest of it. */
static void post_copy(struct transport *transport, struct work *work, const struct mail *mail)
{
    size_t first = work->count > EARLY_BYTES ? FIRST_BYTES : work->count;
    size_t done = mailbox_write(transport->mailbox, mail, work->bytes, 0, first);

    post_put_mail(transport->post, work->peer, work->tag, mail);
    (void)mailbox_write(transport->mailbox, mail, work->bytes, done, work->count - done);
}

/* False: there is no room in the mailbox, or the message is none for it. */
static bool post_mail(struct transport *transport, struct work *work)
{
    struct mailbox *mailbox = transport->mailbox;
    struct mail mail;

    if (work->count < MAILBOX_LEAST_BYTES || work->count > MAILBOX_MOST_BYTES)
        return false;
    if (mailbox_is_room(mailbox, work->bytes, work->count, &mail)) {
        mailbox_wrote(mailbox, &mail);
        post_put_mail(transport->post, work->peer, work->tag, &mail);
    } else if (mailbox_reserve(mailbox, work->peer, work->count, &mail)) {
        post_copy(transport, work, &mail);
    } else {
        return false;
    }
    work->over = true;
    return true;
}

bool outbox_lends_to(const struct transport *transport, int peer)
{
    return transport->lends_all || distance_lends(mailbox_distance(transport->mailbox, peer));
}

bool outbox_lend(struct transport *transport, struct work *work, const struct lent *lent)
{
    if (!mailbox_reserve(transport->mailbox, work->peer, 0, &work->mail))
        return false;
    work->lent = *lent;
    work->lent.slot = work->mail.slot;
    work->lent.number = work->mail.number;
    return true;
}

/* In memory that the peer can read, and too long for the mailbox, or sooner read there?  Then it is lent as a whole. */
static bool lend_long(struct transport *transport, struct work *work)
{
    const struct runs whole = {.bytes = work->bytes, .run = work->count, .stride = work->count, .rows = 1};
    struct lent lent;

    return work->count >= LENT_LEAST_BYTES && lending_reaches(&transport->lending, work->peer, &whole, &lent) &&
           (work->count > MAILBOX_MOST_BYTES || outbox_lends_to(transport, work->peer)) &&
           outbox_lend(transport, work, &lent);
}

static enum status pass_to_mpi(struct transport *transport, struct work *work, struct error *err)
{
    int length = 0;

    if (size_to_int(work->count, &length))
        return error_set(err, STATUS_OVERFLOW, "message of %zu bytes to rank %d", work->count, work->peer);
    return mpi_status(
        MPI_Isend(work->bytes, length, MPI_BYTE, work->peer, (int)work->tag, transport->payload, &work->request),
        "MPI_Isend", err);
}

/* *ret false: there is no cell for it. */
static enum status post(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    enum status st;

    *ret = true;
    if (!post_reaches(transport->post, work->peer))
        return pass_to_mpi(transport, work, err);
    st = post_has_room(transport->post, work->peer, ret, err);
    if (st != STATUS_OK || !*ret)
        return st;
    if (work->lent.rows || lend_long(transport, work)) {
        mailbox_lends(transport->mailbox, &work->mail, lending_lines(&work->lent));
        post_put_lent(transport->post, work->peer, work->tag, &work->lent, work->bytes, work->header_bytes);
        return STATUS_OK;
    }
    if (work->count <= RING_CELL_BYTES) {
        post_put_short(transport->post, work->peer, work->tag, work->bytes, work->count);
        work->over = true;
        return STATUS_OK;
    }
    if (post_mail(transport, work))
        return STATUS_OK;
    st = pass_to_mpi(transport, work, err);
    if (st == STATUS_OK)
        post_put_passed(transport->post, work->peer, work->tag, work->count);
    return st;
}

/* Is one before it, NULL: any, to this peer? */
static bool is_behind(const struct transport *transport, int peer, const struct work *work)
{
    for (const struct work *other = transport->waiting; other != work; other = other->next) {
        if (other->peer == peer)
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

enum status outbox_send_short(struct transport *transport, int peer, uint32_t tag, const void *bytes, size_t count,
                              bool *ret, struct error *err)
{
    enum status st;

    *ret = count <= RING_CELL_BYTES && post_reaches(transport->post, peer) && !is_behind(transport, peer, NULL);
    if (!*ret)
        return STATUS_OK;
    st = post_has_room(transport->post, peer, ret, err);
    *ret = *ret && st == STATUS_OK;
    if (*ret)
        post_put_short(transport->post, peer, tag, bytes, count);
    return st;
}

enum status outbox_send(struct transport *transport, struct work *work, struct error *err)
{
    bool posted = false;
    enum status st = STATUS_OK;

    if (!is_behind(transport, work->peer, NULL))
        st = post(transport, work, &posted, err);
    if (st == STATUS_OK && !posted)
        wait_in_line(transport, work);
    return st;
}

/* What waits for one peer holds up nothing to another. */
enum status outbox_flush(struct transport *transport, struct error *err)
{
    struct work **link = &transport->waiting;

    while (*link) {
        struct work *work = *link;
        struct work *next = work->next;
        bool posted = false;
        enum status st = STATUS_OK;

        if (!is_behind(transport, work->peer, work))
            st = post(transport, work, &posted, err);
        if (st != STATUS_OK)
            return st;
        if (posted) {
            *link = next;
            work->waits = false;
        } else {
            link = &work->next;
        }
    }
    return STATUS_OK;
}
