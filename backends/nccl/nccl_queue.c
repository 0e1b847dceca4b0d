/* A sorted list.  Few operations of a rank are posted at a time, and new tickets belong near its end. */
#include "backends/nccl/nccl_queue.h"

#define COMPARE(a, b) ((a) < (b) ? -1 : (a) > (b))

int ticket_compare(const struct ticket *a, const struct ticket *b)
{
    int order = COMPARE(a->clock, b->clock);

    if (order == 0)
        order = COMPARE(a->kind, b->kind);
    if (order == 0)
        order = COMPARE(a->from, b->from);
    if (order == 0)
        order = COMPARE(a->to, b->to);
    return order ? order : COMPARE(a->number, b->number);
}

static void insert(struct queue *queue, struct entry *entry)
{
    struct entry **link = &queue->first;

    while (*link && ticket_compare(&(*link)->ticket, &entry->ticket) < 0)
        link = &(*link)->next;
    entry->next = *link;
    *link = entry;
    entry->queued = true;
}

void queue_remove(struct queue *queue, struct entry *entry)
{
    struct entry **link = &queue->first;

    if (!entry->queued)
        return;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    entry->queued = false;
}

uint64_t queue_propose(struct queue *queue, struct entry *entry)
{
    CHECK(!entry->queued);
    entry->ticket.clock = ++queue->clock;
    entry->final = false;
    insert(queue, entry);
    return entry->ticket.clock;
}

enum status queue_decide(struct queue *queue, struct entry *entry, uint64_t proposal, uint64_t *ret)
{
    CHECK(!entry->queued);
    if (proposal == 0 || proposal > TICKET_LIMIT)
        return STATUS_CORRUPT;
    queue->clock = proposal > queue->clock ? proposal : queue->clock + 1;
    entry->ticket.clock = queue->clock;
    entry->final = true;
    insert(queue, entry);
    *ret = queue->clock;
    return STATUS_OK;
}

enum status queue_settle(struct queue *queue, struct entry *entry, uint64_t clock)
{
    if (!entry->queued || entry->final || clock < entry->ticket.clock || clock > TICKET_LIMIT)
        return STATUS_CORRUPT;
    queue_remove(queue, entry);
    entry->ticket.clock = clock;
    entry->final = true;
    insert(queue, entry);
    if (clock > queue->clock)
        queue->clock = clock;
    return STATUS_OK;
}

/* Two transfers the same way between the same ranks are run one after the other within a group, behind whatever else
 * lies in it: then the order would no more be the order of tickets. */
static bool fits(const struct entry *entry, struct entry *const *group, size_t count)
{
    if (entry->alone || !entry->final || count == QUEUE_GROUP)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (group[i]->peer == entry->peer && group[i]->sends == entry->sends)
            return false;
    }
    return true;
}

size_t queue_take(struct queue *queue, struct entry **entries)
{
    size_t count = 0;

    if (!queue->first || !queue->first->final)
        return 0;
    do {
        entries[count] = queue->first;
        queue_remove(queue, queue->first);
        count++;
    } while (!entries[0]->alone && queue->first && fits(queue->first, entries, count));
    return count;
}
