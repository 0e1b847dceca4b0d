/* Rows of a wave are dealt in two passes: one row to every slot that decodes, then prompt rows, slot by slot, until the
 * chunk or the wave is full. */
#include "runtime/schedule.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    bool busy;
    bool resting; /* its request has ended, but the step that ended it may still be aborted */
    uint32_t request;
    uint32_t position;  /* rows already sent through */
    uint32_t generated; /* tokens that came back */
    uint32_t limit;     /* tokens allowed */
    uint32_t token;     /* the last one: the next row when the prompt is through */
    bool asked;         /* its last pass asked for a token */
};

/* All that a step changes. */
struct state {
    struct slot *slots;    /* [waves, slots] */
    uint32_t next_request; /* of this line */
    uint32_t busy;
};

struct schedule {
    struct schedule_options o;
    struct state now;
    struct state saved[2];
    bool *cancelled; /* [prompts] */
};

enum status schedule_create(const struct schedule_options *options, struct schedule **ret, struct error *err)
{
    struct schedule *schedule = calloc(1, sizeof *schedule);
    size_t slots = (size_t)options->waves * options->slots;
    bool all = schedule != NULL;

    if (all) {
        struct state *const states[] = {&schedule->now, &schedule->saved[0], &schedule->saved[1]};

        for (int i = 0; i < 3; i++)
            all = (states[i]->slots = calloc(slots, sizeof *states[i]->slots)) && all;
        schedule->cancelled = calloc(options->prompts->count, sizeof *schedule->cancelled);
    }
    if (!all || !schedule->cancelled) {
        schedule_destroy(schedule);
        return error_set(err, STATUS_NOMEM, "a schedule of %u waves x %u requests", options->waves, options->slots);
    }
    schedule->o = *options;
    schedule->now.next_request = options->line;
    *ret = schedule;
    return STATUS_OK;
}

void schedule_destroy(struct schedule *schedule)
{
    if (!schedule)
        return;
    free(schedule->now.slots);
    free(schedule->saved[0].slots);
    free(schedule->saved[1].slots);
    free(schedule->cancelled);
    free(schedule);
}

bool schedule_done(const struct schedule *schedule)
{
    return !schedule->now.busy && schedule->now.next_request >= schedule->o.prompts->count;
}

void schedule_cancel(struct schedule *schedule, uint32_t request)
{
    CHECK(request < schedule->o.prompts->count);
    schedule->cancelled[request] = true;
}

static void copy_state(const struct schedule *schedule, struct state *to, const struct state *from)
{
    memcpy(to->slots, from->slots, (size_t)schedule->o.waves * schedule->o.slots * sizeof *to->slots);
    to->next_request = from->next_request;
    to->busy = from->busy;
}

void schedule_save(struct schedule *schedule, int which)
{
    copy_state(schedule, &schedule->saved[which], &schedule->now);
}

void schedule_restore(struct schedule *schedule, int which)
{
    copy_state(schedule, &schedule->now, &schedule->saved[which]);
}

/* A slot of a cancelled request is free: whatever its last pass asked for has come. */
static void drop_cancelled(struct schedule *schedule, struct slot *slot)
{
    if (!slot->busy || !schedule->cancelled[slot->request])
        return;
    CHECK(!slot->asked);
    slot->busy = false;
    schedule->now.busy--;
}

static void take_request(struct schedule *schedule, struct slot *slot)
{
    struct state *now = &schedule->now;
    uint32_t room;

    while (now->next_request < schedule->o.prompts->count && schedule->cancelled[now->next_request])
        now->next_request += schedule->o.lines;
    if (now->next_request >= schedule->o.prompts->count)
        return;
    *slot = (struct slot){.busy = true, .request = now->next_request};
    room = schedule->o.context - prompt_length(schedule->o.prompts, slot->request);
    slot->limit = schedule->o.max_new_tokens < room ? schedule->o.max_new_tokens : room;
    now->next_request += schedule->o.lines;
    now->busy++;
}

/* Rows that slot still has to send before it can decode; 0: it decodes. */
static uint32_t prompt_left(const struct schedule *schedule, const struct slot *slot)
{
    uint32_t length = prompt_length(schedule->o.prompts, slot->request);

    return slot->position < length ? length - slot->position : 0;
}

static void deal_rows(struct schedule *schedule, struct slot *slots, struct wave *wave)
{
    uint32_t budget;

    for (uint32_t s = 0; s < schedule->o.slots; s++) {
        drop_cancelled(schedule, &slots[s]);
        if (!slots[s].busy && !slots[s].resting)
            take_request(schedule, &slots[s]);
        slots[s].resting = false;
        if (slots[s].busy && !prompt_left(schedule, &slots[s])) {
            wave->slot[s].rows = 1;
            wave->rows++;
        }
    }
    budget = schedule->o.wave_rows - wave->rows;
    if (budget > schedule->o.prompt_chunk)
        budget = schedule->o.prompt_chunk;
    for (uint32_t s = 0; s < schedule->o.slots; s++) {
        uint32_t rows = slots[s].busy ? prompt_left(schedule, &slots[s]) : 0;

        if (rows > budget)
            rows = budget;
        if (!rows)
            continue;
        wave->slot[s].rows = rows;
        wave->rows += rows;
        budget -= rows;
    }
}

static void fill_slot(const struct schedule *schedule, struct slot *slot, struct wave_slot *out, uint32_t *ids)
{
    const struct prompts *prompts = schedule->o.prompts;
    uint32_t length = prompt_length(prompts, slot->request);

    out->request = slot->request;
    out->position = slot->position;
    for (uint32_t i = 0; i < out->rows; i++) {
        uint32_t position = slot->position + i;

        ids[i] = position < length ? prompts->tokens[prompts->begin[slot->request] + position] : slot->token;
    }
    slot->position += out->rows;
    slot->asked = slot->position >= length;
    if (slot->asked)
        out->flags = WAVE_SAMPLE | (slot->generated + 1 == slot->limit ? WAVE_FINAL : 0);
}

void schedule_wave(struct schedule *schedule, uint32_t index, struct wave *wave, uint32_t *ids)
{
    struct slot *slots = schedule->now.slots + (size_t)index * schedule->o.slots;
    uint32_t row = 0;

    *wave = (struct wave){.slot_count = schedule->o.slots};
    deal_rows(schedule, slots, wave);
    for (uint32_t s = 0; s < schedule->o.slots; s++) {
        if (!wave->slot[s].rows)
            continue;
        fill_slot(schedule, &slots[s], &wave->slot[s], ids + row);
        row += wave->slot[s].rows;
    }
}

/* Exactly what the slot's last pass asked for, in the model's range; without this a damaged token would be looked up
 * outside the embedding, and one without its end would run over the cache. */
static enum status check_token(const struct schedule *schedule, const struct slot *slot, const struct token *token,
                               struct error *err)
{
    bool last = token->flags & (TOKEN_STOP | TOKEN_LENGTH);

    if (!slot->asked)
        return token->flags ? error_set(err, STATUS_MISMATCH, "token %u of request %u came back, none was asked for",
                                        token->index, token->request)
                            : STATUS_OK;
    if (!(token->flags & TOKEN_VALID) || token->request != slot->request || token->index != slot->generated)
        return error_set(err, STATUS_MISMATCH,
                         "token %u of request %u (flags %u) came back, expected token %u of request %u", token->index,
                         token->request, token->flags, slot->generated, slot->request);
    if (token->token >= schedule->o.vocab)
        return error_set(err, STATUS_MISMATCH, "token %u of request %u is %u, the vocabulary has %u", token->index,
                         token->request, token->token, schedule->o.vocab);
    if (token->flags & TOKEN_FAILED)
        return last ? error_set(err, STATUS_MISMATCH, "token %u of request %u has failed and is the last (flags %u)",
                                token->index, token->request, token->flags)
                    : STATUS_OK;
    if (!last && slot->generated + 1 >= slot->limit)
        return error_set(err, STATUS_MISMATCH, "request %u does not end at its last token, %u", token->request,
                         token->index);
    return STATUS_OK;
}

enum status schedule_tokens(struct schedule *schedule, uint32_t index, const struct token *tokens, struct error *err)
{
    struct slot *slots = schedule->now.slots + (size_t)index * schedule->o.slots;

    for (uint32_t s = 0; s < schedule->o.slots; s++) {
        struct slot *slot = &slots[s];
        enum status st = check_token(schedule, slot, &tokens[s], err);

        if (st != STATUS_OK)
            return error_wrap(err, st, "wave %u slot %u", index, s);
        if (!slot->asked)
            continue;
        slot->asked = false;
        if (tokens[s].flags & TOKEN_FAILED) {
            schedule_cancel(schedule, slot->request);
            continue;
        }
        slot->token = tokens[s].token;
        slot->generated++;
        if (tokens[s].flags & (TOKEN_STOP | TOKEN_LENGTH)) {
            slot->busy = false;
            slot->resting = true;
            schedule->now.busy--;
        }
    }
    return STATUS_OK;
}
