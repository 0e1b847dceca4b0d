/* Requests lie in the order of their deadlines; one index says which are due, another which have been told of. */
#include "runtime/deadlines.h"

#include <stdlib.h>

#include "base/clock.h"
#include "runtime/prompts.h"
#include "runtime/schedule.h"

struct entry {
    uint32_t deadline_ms;
    uint32_t request;
    uint64_t step; /* due: the last one in which it may have generated */
};

struct deadlines {
    struct deadlines_options o;
    uint64_t start_ns;
    struct entry *entries; /* [count], by deadline */
    uint32_t count;        /* of requests that have one */
    uint32_t due;
    uint32_t told;
    uint32_t *generated; /* [prompts]: tokens handed on; the keeper's, NULL where no request has a deadline */
    bool *ended;         /* [prompts] */
};

static int by_deadline(const void *a, const void *b)
{
    const struct entry *one = a;
    const struct entry *other = b;

    if (one->deadline_ms != other->deadline_ms)
        return one->deadline_ms < other->deadline_ms ? -1 : 1;
    return one->request < other->request ? -1 : one->request > other->request;
}

enum status deadlines_create(const struct deadlines_options *options, struct deadlines **ret, struct error *err)
{
    const struct prompts *prompts = options->prompts;
    struct deadlines *deadlines = calloc(1, sizeof *deadlines);
    size_t count = prompts->deadline_ms ? prompts->count : 0;

    if (deadlines) {
        deadlines->o = *options;
        deadlines->entries = calloc(count + 1, sizeof *deadlines->entries);
        deadlines->generated = calloc(count + 1, sizeof *deadlines->generated);
        deadlines->ended = calloc(count + 1, sizeof *deadlines->ended);
    }
    if (!deadlines || !deadlines->entries || !deadlines->generated || !deadlines->ended) {
        deadlines_destroy(deadlines);
        return error_set(err, STATUS_NOMEM, "the deadlines of %u requests", prompts->count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (prompts->deadline_ms[i])
            deadlines->entries[deadlines->count++] = (struct entry){prompts->deadline_ms[i], i, 0};
    }
    qsort(deadlines->entries, deadlines->count, sizeof *deadlines->entries, by_deadline);
    *ret = deadlines;
    return STATUS_OK;
}

void deadlines_destroy(struct deadlines *deadlines)
{
    if (!deadlines)
        return;
    free(deadlines->entries);
    free(deadlines->generated);
    free(deadlines->ended);
    free(deadlines);
}

void deadlines_start(struct deadlines *deadlines)
{
    deadlines->start_ns = clock_ns();
}

uint32_t deadlines_vote(const struct deadlines *deadlines)
{
    uint64_t now_ms = (clock_ns() - deadlines->start_ns) / NS_PER_MS;

    if (!deadlines->o.keeper)
        return UINT32_MAX << DEADLINES_SHIFT;
    return (uint32_t)(now_ms < DEADLINES_MOST_MS ? now_ms : DEADLINES_MOST_MS) << DEADLINES_SHIFT;
}

void deadlines_read(struct deadlines *deadlines, uint32_t flags, uint64_t step, struct schedule *schedule)
{
    uint32_t now_ms = flags >> DEADLINES_SHIFT;

    for (; deadlines->due < deadlines->count; deadlines->due++) {
        struct entry *entry = &deadlines->entries[deadlines->due];

        if (entry->deadline_ms > now_ms)
            return;
        entry->step = step;
        if (schedule)
            schedule_cancel(schedule, entry->request);
    }
}

enum status deadlines_emit(void *context, const struct result *result, struct error *err)
{
    struct deadlines *deadlines = context;
    const struct token *token = &result->token;

    if (deadlines->count && token->request < deadlines->o.prompts->count) {
        deadlines->generated[token->request] += !(token->flags & (TOKEN_FAILED | TOKEN_DEADLINE));
        deadlines->ended[token->request] = token->flags & TOKEN_ENDS;
    }
    return deadlines->o.emit(deadlines->o.emit_context, result, err);
}

enum status deadlines_tell(struct deadlines *deadlines, const struct results *results, struct error *err)
{
    for (; deadlines->o.keeper && deadlines->told < deadlines->due; deadlines->told++) {
        const struct entry *entry = &deadlines->entries[deadlines->told];
        uint32_t request = entry->request;
        struct result end = {
            .token = {.request = request, .flags = TOKEN_DEADLINE, .index = deadlines->generated[request]}};
        enum status st = STATUS_OK;

        if (results && !results_passed(results, (int)(request % deadlines->o.lines), entry->step))
            return STATUS_OK;
        if (!deadlines->ended[request])
            st = deadlines_emit(deadlines, &end, err);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}
