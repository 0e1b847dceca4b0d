/* One place of each ring end, and one list of messages kept, for every peer.
 *
 * Whatever a peer writes is copied to memory of this process's own and checked there.  A peer that stops or dies leaves
 * a cell that is not published, which nobody reads.
 *
 * Cost: one look at one line where nothing has come; two copies of a short message, no call into MPI, and no memory is
 * allocated but for more messages at a time than ever before. */
#include "backends/mpi/mpi_post.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct corner {
    struct ring_writer writer;
    struct ring_reader reader;
    struct message *first; /* kept, in the order sent */
    struct message *last;
    int kept;
    int next_heard; /* the next rank that is heard, -1: there is none */
};

struct post {
    int size;
    int first_heard; /* of the ranks of this host, few of the world's; -1: there is none */
    uint32_t max_tag;
    size_t max_bytes;
    struct corner corners[]; /* [size] */
};

struct post *post_create(int size)
{
    struct post *post = calloc(1, sizeof *post + (size_t)size * sizeof post->corners[0]);

    if (post) {
        post->size = size;
        post->first_heard = -1;
    }
    return post;
}

void post_open(struct post *post, const struct mailbox *mailbox, uint32_t max_tag, size_t max_bytes)
{
    post->max_tag = max_tag;
    post->max_bytes = max_bytes;
    for (int peer = 0; peer < post->size; peer++) {
        post->corners[peer].writer.ring = mailbox_ring_to(mailbox, peer);
        post->corners[peer].reader.ring = mailbox_ring_from(mailbox, peer);
        if (!post->corners[peer].reader.ring)
            continue;
        post->corners[peer].next_heard = post->first_heard;
        post->first_heard = peer;
    }
}

void post_destroy(struct post *post)
{
    free(post);
}

bool post_reaches(const struct post *post, int peer)
{
    return post && peer >= 0 && peer < post->size && post->corners[peer].writer.ring;
}

bool post_hears(const struct post *post, int peer)
{
    return post && peer >= 0 && peer < post->size && post->corners[peer].reader.ring;
}

enum status post_has_room(struct post *post, int peer, bool *ret, struct error *err)
{
    enum status st = ring_has_room(&post->corners[peer].writer, ret, err);

    return st == STATUS_OK ? st : error_wrap(err, st, "messages to rank %d", peer);
}

void post_put_short(struct post *post, int peer, uint32_t tag, const void *bytes, size_t count)
{
    const struct ring_label label = {.tag = tag, .kind = MESSAGE_SHORT, .byte_count = count};

    ring_put(&post->corners[peer].writer, &label, bytes);
}

void post_put_mail(struct post *post, int peer, uint32_t tag, const struct mail *mail)
{
    const struct ring_label label = {.tag = tag, .kind = MESSAGE_MAIL, .byte_count = sizeof *mail};

    ring_put(&post->corners[peer].writer, &label, mail);
}

void post_put_lent(struct post *post, int peer, uint32_t tag, const struct lent *lent, const void *header,
                   size_t header_bytes)
{
    const struct ring_label label = {.tag = tag, .kind = MESSAGE_LENT, .byte_count = sizeof *lent + header_bytes};
    unsigned char bytes[RING_CELL_BYTES];

    memcpy(bytes, lent, sizeof *lent);
    if (header_bytes)
        memcpy(bytes + sizeof *lent, header, header_bytes);
    ring_put(&post->corners[peer].writer, &label, bytes);
}

void post_put_passed(struct post *post, int peer, uint32_t tag, size_t count)
{
    const struct ring_label label = {.tag = tag, .kind = MESSAGE_PASSED, .byte_count = sizeof(uint64_t)};
    uint64_t bytes = count;

    ring_put(&post->corners[peer].writer, &label, &bytes);
}

/* What its cell said, in memory of this process. */
static enum status read_label(const struct post *post, const struct ring_label *label, struct message *message,
                              struct error *err)
{
    size_t carried = (size_t)label->byte_count;
    uint64_t count = carried;
    bool right = label->tag <= post->max_tag;

    if (label->kind == MESSAGE_MAIL && carried == sizeof message->mail) {
        memcpy(&message->mail, message->bytes, sizeof message->mail);
        count = message->mail.bytes;
    } else if (label->kind == MESSAGE_PASSED && carried == sizeof count) {
        memcpy(&count, message->bytes, sizeof count);
    } else if (label->kind == MESSAGE_LENT && carried >= sizeof message->lent) {
        memcpy(&message->lent, message->bytes, sizeof message->lent);
        message->mail = (struct mail){.slot = message->lent.slot, .number = message->lent.number};
        message->header_bytes = carried - sizeof message->lent;
        count = message->header_bytes + (uint64_t)message->lent.run * message->lent.rows;
    } else if (label->kind != MESSAGE_SHORT) {
        right = false;
    }
    if (!right || count > post->max_bytes)
        return error_set(err, STATUS_CORRUPT,
                         "a message with tag %" PRIu32 ", kind %" PRIu32 ", %" PRIu64 " bytes, of which %zu came along",
                         label->tag, label->kind, count, carried);
    message->tag = label->tag;
    message->kind = label->kind;
    message->count = (int)count;
    return STATUS_OK;
}

/* The next cell's message; *ret NULL: none has come.  What cannot be stays, and is told again. */
static enum status take(struct post *post, struct message_pool *pool, int peer, struct message **ret, struct error *err)
{
    struct ring_reader *reader = &post->corners[peer].reader;
    struct ring_label label;
    struct message *message;
    bool come = false;
    enum status st = ring_has_come(reader, &come, err);

    *ret = NULL;
    if (st != STATUS_OK)
        return error_wrap(err, st, "from rank %d", peer);
    if (!come)
        return STATUS_OK;
    message = message_take(pool);
    if (!message)
        return error_set(err, STATUS_NOMEM, "message from rank %d", peer);
    message->peer = peer;
    st = ring_read(reader, &label, message->bytes, err);
    if (st == STATUS_OK)
        st = read_label(post, &label, message, err);
    if (st == STATUS_OK) {
        ring_next(reader);
        *ret = message;
        return STATUS_OK;
    }
    message_give(pool, message);
    return error_wrap(err, st, "from rank %d", peer);
}

static void keep(struct corner *corner, struct message *message)
{
    message->next = NULL;
    if (corner->last)
        corner->last->next = message;
    else
        corner->first = message;
    corner->last = message;
    corner->kept++;
}

enum status post_find(struct post *post, struct message_pool *pool, int peer, uint32_t tag, struct message **ret,
                      struct error *err)
{
    struct corner *corner = &post->corners[peer];
    struct message *message = corner->first;
    enum status st = STATUS_OK;

    while (message && message->tag != tag)
        message = message->next;
    /* No more than a ring full: its writer may be as quick. */
    for (int i = 0; i < RING_CELLS && !message && st == STATUS_OK; i++) {
        st = take(post, pool, peer, &message, err);
        if (!message)
            break;
        keep(corner, message);
        message = message->tag == tag ? message : NULL;
    }
    *ret = message;
    return st;
}

void post_take_in(struct post *post, struct message_pool *pool)
{
    for (int peer = post->first_heard; peer >= 0; peer = post->corners[peer].next_heard) {
        struct corner *corner = &post->corners[peer];

        for (int i = 0; i < RING_CELLS && corner->kept < POST_KEPT; i++) {
            struct message *message = NULL;

            if (take(post, pool, peer, &message, NULL) != STATUS_OK || !message)
                break;
            keep(corner, message);
        }
    }
}

void post_remove(struct post *post, struct message *message)
{
    struct corner *corner = &post->corners[message->peer];
    struct message *before = NULL;

    for (struct message *at = corner->first; at != message; at = at->next)
        before = at;
    if (before)
        before->next = message->next;
    else
        corner->first = message->next;
    if (corner->last == message)
        corner->last = before;
    corner->kept--;
}
