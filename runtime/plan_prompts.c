/* The prompts before any node is allocated: read and encoded as rank 0 of a run would. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "runtime/plan.h"
#include "runtime/prompts.h"
#include "runtime/tokenizer.h"
#include "topology/topology.h"

/* A model that a run could load must have one; what only stands for such a model need not. */
static bool needs_tokenizer(const struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return false;
    return tokenizer_is_here(checkpoint) || (checkpoint_has_weights(checkpoint) && !checkpoint_is_saved(checkpoint));
}

/* Why the prompts cannot be encoded here goes to why; nothing: they can. */
static void find_obstacle(const struct plan *plan, const struct checkpoint *checkpoint, struct text *why)
{
    const struct topology_generate *generate = &plan->topology->workload.generate;
    struct text path = {0};

    if (!needs_tokenizer(checkpoint)) {
        text_add(why, "the prompts' tokens, the tokenizer (it is not here)");
    } else if (generate->prompts_file.value && !strcmp(generate->prompts_file.value, "-")) {
        text_add(why, "the prompts (they come from standard input)");
    } else if (generate->prompts_file.value) {
        topology_path(plan->topology, generate->prompts_file.value, &path);
        if (access(text_string(&path), F_OK) != 0 && errno == ENOENT)
            text_add(why, "the prompts (there is no %s)", text_string(&path));
        text_done(&path);
    }
}

static void describe(const struct prompts *prompts, struct text *out)
{
    uint32_t least = UINT32_MAX;
    uint32_t most = 0;

    for (uint32_t i = 0; i < prompts->count; i++) {
        uint32_t length = prompt_length(prompts, i);

        least = length < least ? length : least;
        most = length > most ? length : most;
    }
    text_add(out, "%u prompt%s of ", prompts->count, prompts->count == 1 ? "" : "s");
    if (least < most)
        text_add(out, "%u to ", least);
    text_add(out, "%u token%s\n", most, most == 1 ? "" : "s");
}

enum status plan_check_prompts(struct plan *plan, const struct checkpoint *checkpoint, struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    struct prompts prompts = {0};
    struct text why = {0};
    enum status st = STATUS_OK;

    if (!plan->topology->workload.generate.at.line)
        return STATUS_OK;
    find_obstacle(plan, checkpoint, &why);
    if (needs_tokenizer(checkpoint))
        st = tokenizer_open(checkpoint, &tokenizer, err);
    if (why.length)
        text_add(&plan->verdict, "not checked: %s\n", text_string(&why));
    else if (st == STATUS_OK)
        st = prompts_read(plan->topology, checkpoint, tokenizer, plan->context, &prompts, err);
    if (!why.length && st == STATUS_OK)
        describe(&prompts, &plan->verdict);
    text_done(&why);
    prompts_done(&prompts);
    tokenizer_close(tokenizer);
    return st;
}
