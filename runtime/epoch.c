/* One failure agreement an epoch: 4 bytes in ceil(log2 ranks) rounds, behind the compute of the next epoch. */
#include "runtime/epoch.h"

#include <inttypes.h>

#include "comm/completion.h"
#include "comm/group.h"
#include "runtime/wait.h"

static struct epoch *entry(struct epoch_book *book, uint64_t number)
{
    return &book->last[number % 2];
}

const char *epoch_state_name(enum epoch_state state)
{
    static const char *const name[] = {"unknown", "open", "voted on", "committed", "aborted", "indeterminate"};

    return name[state];
}

struct epoch epoch_look(const struct epoch_book *book, uint64_t number)
{
    const struct epoch *found = &book->last[number % 2];

    return found->state != EPOCH_NONE && found->number == number ? *found : (struct epoch){number, EPOCH_NONE, 0};
}

enum status epoch_open(struct epoch_book *book, uint64_t *ret, struct error *err)
{
    for (int i = 0; i < 2; i++)
        if (book->last[i].state == EPOCH_INDETERMINATE)
            return error_set(err, STATUS_LOST,
                             "step %" PRIu64 " is indeterminate: this rank voted for it and does not know whether the "
                             "others committed it; restart the job",
                             book->last[i].number);
    CHECK(entry(book, book->next)->state != EPOCH_OPEN && entry(book, book->next)->state != EPOCH_VOTED);
    *entry(book, book->next) = (struct epoch){book->next, EPOCH_OPEN, 0};
    *ret = book->next++;
    return STATUS_OK;
}

enum status epoch_vote(struct epoch_book *book, uint32_t flags, struct error *err)
{
    struct epoch *newest = entry(book, book->next - 1);
    enum status st;

    CHECK(!book->vote && newest->state == EPOCH_OPEN);
    st = group_failure_agreement(book->world, flags, &book->vote, err);
    if (st != STATUS_OK)
        return st;
    newest->state = EPOCH_VOTED;
    newest->flags = flags;
    book->voted = newest->number;
    return STATUS_OK;
}

bool epoch_heard(struct epoch_book *book)
{
    return book->vote && completion_test(book->vote) == COMPLETION_DONE;
}

/* The vote is done: everybody's is in. */
static void decide(struct epoch_book *book)
{
    struct epoch *epoch = entry(book, book->voted);

    epoch->flags = completion_flags(book->vote);
    completion_release(book->vote);
    book->vote = NULL;
    epoch->state = epoch->flags & EPOCH_FOR ? EPOCH_COMMITTED : EPOCH_ABORTED;
    if (epoch->state == EPOCH_COMMITTED)
        book->committed_count++;
    else
        book->aborted_count++;
}

enum status epoch_verdict(struct epoch_book *book, struct epoch *ret, struct error *err)
{
    uint64_t start = clock_ns();
    enum status st;

    CHECK(book->vote);
    st = completion_wait(book->vote, DEADLINE_NONE, err);
    book->wait_ns += clock_ns() - start;
    if (st != STATUS_OK)
        return st;
    decide(book);
    *ret = *entry(book, book->voted);
    return STATUS_OK;
}

void epoch_withdraw(struct epoch_book *book)
{
    struct epoch *newest = entry(book, book->next - 1);

    CHECK(newest->state == EPOCH_OPEN);
    newest->state = EPOCH_ABORTED;
    book->aborted_count++;
}

void epoch_end(struct epoch_book *book)
{
    if (epoch_heard(book))
        decide(book);
    for (int i = 0; i < 2; i++) {
        struct epoch *epoch = &book->last[i];

        if (epoch->state == EPOCH_OPEN)
            epoch->state = EPOCH_ABORTED;
        /* A vote against decides alone: nobody can have committed it. */
        if (epoch->state == EPOCH_VOTED)
            epoch->state = epoch->flags & EPOCH_FOR ? EPOCH_INDETERMINATE : EPOCH_ABORTED;
    }
    completion_abandon(book->vote);
    book->vote = NULL;
}
