/* See work.h. */
#include "tests/loop/work.h"

#include "base/clock.h"

void gate_wait(struct session *session, struct gate *gate, int open)
{
    uint64_t until_ns = clock_ns() + PATIENCE_S * NS_PER_S;

    while (atomic_load(&gate->open) < open && clock_ns() < until_ns) {
        session_progress(session);
        clock_sleep_ns(100 * NS_PER_US);
    }
    EXPECT(atomic_load(&gate->open) >= open);
}

enum status write_values(void *context, struct error *err)
{
    const struct piece *piece = context;

    if (piece->gate) {
        atomic_fetch_add(&piece->gate->begun, 1);
        gate_wait(piece->session, piece->gate, 1);
    }
    if (piece->result != STATUS_OK)
        return error_set(err, piece->result, "token 7 is not finite");
    for (size_t i = 0; i < piece->count; i++)
        piece->where[i] = piece->value;
    return STATUS_OK;
}

uint32_t *words(struct tensor *tensor)
{
    return (uint32_t *)(void *)tensor->data;
}

bool all_are(struct tensor *tensor, uint32_t value)
{
    for (size_t i = 0; i < tensor->bytes / 4; i++) {
        if (words(tensor)[i] != value)
            return false;
    }
    return true;
}

void work_run(struct ranks *ranks, int size, rank_body *body)
{
    ranks->size = size;
    ranks->body = body;
    ranks_run(ranks);
}

void count_release(void *value)
{
    atomic_fetch_add((atomic_int *)value, 1);
}
