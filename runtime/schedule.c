/* Rows of a wave are dealt in two passes: one row to every slot that decodes, then prompt rows, slot by slot, until the
 * chunk or the wave is full. */
#include "runtime/schedule.h"

#include <stdlib.h>

struct slot {
    bool busy;
    uint32_t request;
    uint32_t position;  /* rows already sent through */
    uint32_t generated; /* tokens that came back */
    uint32_t limit;     /* tokens allowed */
    uint32_t token;     /* the last one: the next row when the prompt is through */
    bool asked;         /* its last pass asked for a token */
};

struct schedule {
    struct schedule_options o;
    struct slot *slots;    /* [waves, slots] */
    uint32_t next_request; /* of this line */
    uint32_t busy;
};

enum status schedule_create(const struct schedule_options *options, struct schedule **ret, struct error *err)
{
    struct schedule *schedule = calloc(1, sizeof *schedule);

    if (schedule)
        schedule->slots = calloc((size_t)options->waves * options->slots, sizeof *schedule->slots);
    if (!schedule || !schedule->slots) {
        schedule_destroy(schedule);
        return error_set(err, STATUS_NOMEM, "a schedule of %u waves x %u requests", options->waves, options->slots);
    }
    schedule->o = *options;
    schedule->next_request = options->line;
    *ret = schedule;
    return STATUS_OK;
}

void schedule_destroy(struct schedule *schedule)
{
    if (!schedule)
        return;
    free(schedule->slots);
    free(schedule);
}

bool schedule_done(const struct schedule *schedule)
{
    return !schedule->busy && schedule->next_request >= schedule->o.prompts->count;
}

static void take_request(struct schedule *schedule, struct slot *slot)
{
    uint32_t room;

    if (schedule->next_request >= schedule->o.prompts->count)
        return;
    *slot = (struct slot){.busy = true, .request = schedule->next_request};
    room = schedule->o.context - prompt_length(schedule->o.prompts, slot->request);
    slot->limit = schedule->o.max_new_tokens < room ? schedule->o.max_new_tokens : room;
    schedule->next_request += schedule->o.lines;
    schedule->busy++;
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
        if (!slots[s].busy)
            take_request(schedule, &slots[s]);
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
    struct slot *slots = schedule->slots + (size_t)index * schedule->o.slots;
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
    if (!last && slot->generated + 1 >= slot->limit)
        return error_set(err, STATUS_MISMATCH, "request %u does not end at its last token, %u", token->request,
                         token->index);
    return STATUS_OK;
}

enum status schedule_tokens(struct schedule *schedule, uint32_t index, const struct token *tokens, struct error *err)
{
    struct slot *slots = schedule->slots + (size_t)index * schedule->o.slots;

    for (uint32_t s = 0; s < schedule->o.slots; s++) {
        struct slot *slot = &slots[s];
        enum status st = check_token(schedule, slot, &tokens[s], err);

        if (st != STATUS_OK)
            return error_wrap(err, st, "wave %u slot %u", index, s);
        if (!slot->asked)
            continue;
        slot->asked = false;
        slot->token = tokens[s].token;
        slot->generated++;
        if (tokens[s].flags & (TOKEN_STOP | TOKEN_LENGTH)) {
            slot->busy = false;
            schedule->busy--;
        }
    }
    return STATUS_OK;
}
