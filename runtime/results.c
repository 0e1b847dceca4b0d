/* Two steps can be open at once (a vote travels one step behind the compute), so entries are kept by step modulo 2. */
#include "runtime/results.h"

#include <stdlib.h>
#include <string.h>

#include "comm/route.h"
#include "comm/session.h"
#include "runtime/boundary.h"
#include "runtime/plan.h"
#include "runtime/wait.h"

enum { OPEN_STEPS = 2, COUNT_WORDS = 4, TOKEN_WORDS = 4 };

struct entry {
    struct token token;
    uint64_t digest;
    struct candidate top[RESULTS_MAX_TOP];
};

/* Entries of one step on the sampling rank. */
struct step_entries {
    uint32_t count;
    struct entry *entry; /* [capacity] */
};

/* Rank 0's view of one data line. */
struct line {
    struct route *route;        /* NULL: rank 0 samples it itself */
    struct completion *receipt; /* posted for the step `next` */
    uint64_t next;              /* step whose bundle is to be taken next */
};

struct results {
    uint32_t capacity; /* entries of one step */
    uint32_t top;
    bool sampling;
    bool collecting;
    struct route *out; /* NULL: entries stay here */
    struct step_entries open[OPEN_STEPS];
    uint64_t committed; /* steps */
    int line_count;
    struct line *lines;
    results_emit *emit;
    void *context;
    struct outbox sent;
    uint64_t wait_ns;
};

static enum status create_lines(struct results *r, const struct plan *plan, struct session *session, struct error *err)
{
    r->line_count = plan->mesh.size[AXIS_DATA];
    r->lines = calloc((size_t)r->line_count, sizeof *r->lines);
    if (!r->lines)
        return error_set(err, STATUS_NOMEM, "%d data lines", r->line_count);
    for (int d = 0; d < r->line_count; d++) {
        uint32_t id = plan_result_route(plan, d);

        r->lines[d].route = id ? session_route(session, id) : NULL;
    }
    return STATUS_OK;
}

enum status results_create(const struct plan *plan, const struct rank_plan *rank, struct session *session,
                           uint32_t waves, uint32_t top, results_emit *emit, void *context, struct results **ret,
                           struct error *err)
{
    struct results *r = calloc(1, sizeof *r);
    enum status st = STATUS_OK;

    if (!r)
        return error_set(err, STATUS_NOMEM, "results");
    r->capacity = waves * plan->slots;
    r->top = top;
    r->sampling = rank->last && !rank->at.at[AXIS_TENSOR] && !rank->at.at[AXIS_EXPERT];
    r->collecting = rank->rank == 0;
    r->out = rank->result_out ? session_route(session, rank->result_out) : NULL;
    r->emit = emit;
    r->context = context;
    for (int i = 0; st == STATUS_OK && r->sampling && i < OPEN_STEPS; i++) {
        r->open[i].entry = calloc(r->capacity, sizeof *r->open[i].entry);
        if (!r->open[i].entry)
            st = error_set(err, STATUS_NOMEM, "results of %u requests", r->capacity);
    }
    if (st == STATUS_OK && r->collecting)
        st = create_lines(r, plan, session, err);
    if (st != STATUS_OK) {
        results_destroy(r);
        return st;
    }
    *ret = r;
    return STATUS_OK;
}

void results_destroy(struct results *r)
{
    if (!r)
        return;
    for (int i = 0; i < OPEN_STEPS; i++)
        free(r->open[i].entry);
    free(r->lines);
    free(r);
}

void results_note(struct results *r, uint64_t step, const struct result *result)
{
    struct step_entries *entries = &r->open[step % OPEN_STEPS];
    struct entry *entry;

    if (!r->sampling)
        return;
    CHECK(entries->count < r->capacity);
    entry = &entries->entry[entries->count++];
    entry->token = result->token;
    entry->digest = result->digest;
    if (r->top)
        memcpy(entry->top, result->top, r->top * sizeof *entry->top);
}

static enum status emit_own(struct results *r, struct step_entries *entries, struct error *err)
{
    enum status st = STATUS_OK;

    for (uint32_t i = 0; st == STATUS_OK && i < entries->count; i++) {
        const struct entry *entry = &entries->entry[i];
        const struct result result = {entry->token, entry->digest, entry->top};

        st = r->emit(r->context, &result, err);
    }
    entries->count = 0;
    return st;
}

static void shape_bundle(uint32_t count, uint32_t top, struct shape *shapes)
{
    shapes[0] = (struct shape){1, {COUNT_WORDS}};
    shapes[1] = (struct shape){2, {count, TOKEN_WORDS}};
    shapes[2] = (struct shape){1, {count}};
    shapes[3] = (struct shape){2, {count, top}};
    shapes[4] = (struct shape){2, {count, top}};
}

static void write_entries(const struct results *r, const struct step_entries *entries, uint64_t step,
                          struct bundle *bundle)
{
    const uint32_t head[COUNT_WORDS] = {entries->count, (uint32_t)step, 0, 0};
    uint32_t *tokens = (uint32_t *)(void *)bundle->tensor[1]->data;
    uint64_t *digests = (uint64_t *)(void *)bundle->tensor[2]->data;
    uint32_t *ids = (uint32_t *)(void *)bundle->tensor[3]->data;
    float *logits = (float *)(void *)bundle->tensor[4]->data;

    memcpy(bundle->tensor[0]->data, head, sizeof head);
    for (uint32_t i = 0; i < entries->count; i++) {
        const struct entry *entry = &entries->entry[i];
        const uint32_t words[TOKEN_WORDS] = {entry->token.request, entry->token.token, entry->token.flags,
                                             entry->token.index};

        memcpy(tokens + (size_t)i * TOKEN_WORDS, words, sizeof words);
        digests[i] = entry->digest;
        for (uint32_t k = 0; k < r->top; k++) {
            ids[(size_t)i * r->top + k] = entry->top[k].id;
            logits[(size_t)i * r->top + k] = entry->top[k].logit;
        }
    }
}

static enum status send_entries(struct results *r, struct step_entries *entries, uint64_t step, struct error *err)
{
    const struct route_spec *spec = route_spec(r->out);
    struct shape shapes[ROUTE_MAX_TENSORS];
    struct completion *completion = NULL;
    struct bundle *bundle = NULL;
    uint64_t start = clock_ns();
    enum status st = route_acquire(r->out, &bundle, err);

    r->wait_ns += clock_ns() - start;
    if (st != STATUS_OK)
        return st;
    shape_bundle(entries->count, r->top, shapes);
    for (int i = 0; st == STATUS_OK && i < bundle->count; i++)
        st = tensor_reshape(bundle->tensor[i], spec->tensors[i].dtype, &shapes[i], err);
    if (st == STATUS_OK) {
        write_entries(r, entries, step, bundle);
        st = route_send(r->out, bundle, step, &completion, err);
    }
    if (st != STATUS_OK) {
        route_return(r->out, bundle);
        return st;
    }
    entries->count = 0;
    return outbox_add(&r->sent, completion, &r->wait_ns, err);
}

static enum status describe_results(void *context, const struct tensor *description, struct shape *shapes,
                                    struct error *err)
{
    const struct results *r = context;
    uint32_t head[COUNT_WORDS];

    memcpy(head, description->data, sizeof head);
    if (head[0] > r->capacity || head[2] || head[3])
        return error_set(err, STATUS_MISMATCH, "result bundle announces %u entries, expected at most %u", head[0],
                         r->capacity);
    shape_bundle(head[0], r->top, shapes);
    return STATUS_OK;
}

static enum status emit_bundle(struct results *r, const struct bundle *bundle, struct error *err)
{
    const uint32_t *tokens = (const uint32_t *)(const void *)bundle->tensor[1]->data;
    const uint64_t *digests = (const uint64_t *)(const void *)bundle->tensor[2]->data;
    const uint32_t *ids = (const uint32_t *)(const void *)bundle->tensor[3]->data;
    const float *logits = (const float *)(const void *)bundle->tensor[4]->data;
    uint64_t count = bundle->tensor[1]->shape.dim[0];
    enum status st = STATUS_OK;

    for (uint64_t i = 0; st == STATUS_OK && i < count; i++, tokens += TOKEN_WORDS) {
        struct candidate top[RESULTS_MAX_TOP];

        for (uint32_t k = 0; k < r->top; k++)
            top[k] = (struct candidate){logits[i * r->top + k], ids[i * r->top + k]};
        const struct result result = {{tokens[0], tokens[1], tokens[2], tokens[3]}, digests[i], top};

        st = r->emit(r->context, &result, err);
    }
    return st;
}

/* Post, test and take one line's bundles; wait: until every committed step has come. */
static enum status advance_line(struct results *r, struct line *line, bool wait, struct error *err)
{
    while (line->route && line->next < r->committed) {
        struct bundle *bundle;
        enum status st = STATUS_OK;

        if (!line->receipt) {
            struct shape shapes[ROUTE_MAX_TENSORS];

            shape_bundle(0, r->top, shapes);
            st = route_receive(line->route, shapes, describe_results, r, line->next, &line->receipt, err);
        }
        if (st == STATUS_OK && !wait && completion_test(line->receipt) == COMPLETION_PENDING)
            return STATUS_OK;
        if (st == STATUS_OK)
            st = completion_wait(line->receipt, DEADLINE_NONE, err);
        if (st != STATUS_OK)
            return st;
        bundle = route_take(line->receipt, NULL);
        completion_release(line->receipt);
        line->receipt = NULL;
        line->next++;
        st = emit_bundle(r, bundle, err);
        route_return(line->route, bundle);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static enum status advance(struct results *r, bool wait, struct error *err)
{
    enum status st = STATUS_OK;

    for (int d = 0; st == STATUS_OK && d < r->line_count; d++)
        st = advance_line(r, &r->lines[d], wait, err);
    return st;
}

enum status results_commit(struct results *r, uint64_t step, struct error *err)
{
    struct step_entries *entries = &r->open[step % OPEN_STEPS];
    enum status st = STATUS_OK;

    r->committed = step + 1;
    if (r->sampling && r->out)
        st = send_entries(r, entries, step, err);
    else if (r->sampling)
        st = emit_own(r, entries, err);
    return st == STATUS_OK ? advance(r, false, err) : st;
}

/* Of an aborted step only the failures stay. */
static void keep_failures(struct step_entries *entries)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < entries->count; i++)
        if (entries->entry[i].token.flags & TOKEN_FAILED)
            entries->entry[kept++] = entries->entry[i];
    entries->count = kept;
}

enum status results_abort(struct results *r, uint64_t step, uint64_t next, struct error *err)
{
    enum status st;

    keep_failures(&r->open[step % OPEN_STEPS]);
    r->open[(step + 1) % OPEN_STEPS].count = 0;
    st = results_commit(r, step, err);
    if (st == STATUS_OK)
        st = advance(r, true, err);
    for (int d = 0; d < r->line_count; d++)
        r->lines[d].next = next;
    r->committed = next;
    return st;
}

bool results_passed(const struct results *r, int line, uint64_t step)
{
    return (r->lines[line].route ? r->lines[line].next : r->committed) > step;
}

uint64_t results_wait_ns(const struct results *r)
{
    return r->wait_ns;
}

enum status results_poll(struct results *r, struct error *err)
{
    return advance(r, false, err);
}

enum status results_finish(struct results *r, bool clean, struct error *err)
{
    enum status st = clean ? advance(r, true, err) : STATUS_OK;

    for (int d = 0; d < r->line_count; d++) {
        if (r->lines[d].receipt)
            completion_abandon(r->lines[d].receipt);
        r->lines[d].receipt = NULL;
    }
    enum status sent = outbox_finish(&r->sent, clean && st == STATUS_OK, &r->wait_ns, err);

    return st == STATUS_OK ? sent : st;
}
