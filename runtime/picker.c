/* Random numbers are a function of seed, request and index, so digests are all that a step changes here. */
#include "runtime/picker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "checkpoint/model_config.h"
#include "runtime/prompts.h"

struct picker {
    struct picker_options o;
    uint32_t vocab;
    XXH3_state_t **digests; /* [3, waves, slots]: of each slot's request so far, and as saved; NULL unless asked for */
    struct candidate *scratch; /* [vocab] */
    struct candidate best[RESULTS_MAX_TOP];
};

static size_t digest_count(const struct picker *picker)
{
    return (size_t)picker->o.waves * picker->o.slots;
}

enum status picker_create(const struct picker_options *options, struct picker **ret, struct error *err)
{
    struct picker *picker = calloc(1, sizeof *picker);
    bool all = picker != NULL;

    if (all) {
        picker->o = *options;
        picker->vocab = (uint32_t)options->model->vocab_size;
        picker->scratch = calloc(picker->vocab, sizeof *picker->scratch);
        if (options->digest)
            picker->digests = calloc(3 * digest_count(picker), sizeof(XXH3_state_t *));
        all = picker->scratch && (picker->digests || !options->digest);
    }
    for (size_t i = 0; all && picker->digests && i < 3 * digest_count(picker); i++) {
        picker->digests[i] = XXH3_createState();
        all = picker->digests[i] && XXH3_64bits_reset(picker->digests[i]) == XXH_OK;
    }
    if (!all) {
        picker_destroy(picker);
        return error_set(err, STATUS_NOMEM, "digests of %u waves x %u requests", options->waves, options->slots);
    }
    *ret = picker;
    return STATUS_OK;
}

void picker_destroy(struct picker *picker)
{
    if (!picker)
        return;
    for (size_t i = 0; picker->digests && i < 3 * digest_count(picker); i++)
        XXH3_freeState(picker->digests[i]);
    free(picker->digests);
    free(picker->scratch);
    free(picker);
}

static void copy_digests(struct picker *picker, int to, int from)
{
    size_t count = digest_count(picker);

    for (size_t i = 0; picker->digests && i < count; i++)
        XXH3_copyState(picker->digests[(size_t)to * count + i], picker->digests[(size_t)from * count + i]);
}

void picker_save(struct picker *picker, int which)
{
    copy_digests(picker, 1 + which, 0);
}

void picker_restore(struct picker *picker, int which)
{
    copy_digests(picker, 0, 1 + which);
}

static bool is_stop(const struct picker *picker, uint32_t token)
{
    const struct model_config *model = picker->o.model;

    for (int i = 0; !picker->o.ignore_eos && i < model->stop_token_count; i++)
        if (model->stop_token[i] == token)
            return true;
    return false;
}

/* The digest of the slot's request, this token's logits included. */
static uint64_t add_digest(struct picker *picker, uint32_t index, uint32_t s, uint32_t generated, const float *logits)
{
    XXH3_state_t *digest = picker->digests ? picker->digests[(size_t)index * picker->o.slots + s] : NULL;

    if (!digest)
        return 0;
    if (!generated)
        XXH3_64bits_reset(digest);
    XXH3_64bits_update(digest, logits, picker->vocab * sizeof *logits);
    return XXH3_64bits_digest(digest);
}

/* One slot's token from its logits; noted as a result. */
static enum status pick_slot(struct picker *picker, uint64_t step, uint32_t index, uint32_t s,
                             const struct wave_slot *slot, const float *logits, struct token *token, struct error *err)
{
    uint32_t length = prompt_length(picker->o.prompts, slot->request);
    uint32_t known = slot->position + slot->rows;
    struct result result = {.top = picker->best};
    struct error why;

    if (known < length)
        return error_set(err, STATUS_MISMATCH, "slot %u asks for a token at position %u inside prompt %u", s, known,
                         slot->request);
    *token = (struct token){.request = slot->request, .flags = TOKEN_VALID, .index = known - length};
    if (sampler_pick(&picker->o.sampling, logits, picker->vocab, slot->request, token->index, picker->scratch,
                     &token->token, &why) != STATUS_OK) {
        token->flags |= TOKEN_FAILED | (isnan(logits[token->token]) ? 0 : TOKEN_INFINITE);
        memset(picker->best, 0, sizeof picker->best);
    } else {
        if (is_stop(picker, token->token))
            token->flags |= TOKEN_STOP;
        else if (slot->flags & WAVE_FINAL)
            token->flags |= TOKEN_LENGTH;
        result.digest = add_digest(picker, index, s, token->index, logits);
        sampler_best(logits, picker->vocab, picker->o.top, picker->best);
    }
    result.token = *token;
    results_note(picker->o.results, step, &result);
    return STATUS_OK;
}

enum status picker_wave(struct picker *picker, uint64_t step, uint32_t index, const struct wave *wave,
                        const float *logits, struct token *tokens, bool *ret_failed, struct error *err)
{
    enum status st = STATUS_OK;

    *ret_failed = false;
    memset(tokens, 0, picker->o.slots * sizeof *tokens);
    for (uint32_t s = 0; st == STATUS_OK && s < wave->slot_count; s++) {
        if (!(wave->slot[s].flags & WAVE_SAMPLE))
            continue;
        st = pick_slot(picker, step, index, s, &wave->slot[s], logits, &tokens[s], err);
        *ret_failed = *ret_failed || tokens[s].flags & TOKEN_FAILED;
        logits += picker->vocab;
    }
    return st;
}
