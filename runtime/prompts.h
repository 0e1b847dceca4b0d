/* What a generation starts from: the token ids of every prompt, the same on all ranks. */
#ifndef RUNTIME_PROMPTS_H
#define RUNTIME_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct checkpoint;
struct group;
struct tokenizer;
struct topology;

enum { PROMPTS_MAX = 1 << 20 };

/* The longest deadline, the topology's default included. */
#define PROMPTS_MOST_NS (UINT64_C(7) * 24 * 3600 * 1000000000)

struct prompts {
    uint32_t count;
    uint64_t *begin;       /* [count + 1] */
    uint32_t *tokens;      /* [begin[count]] */
    uint32_t *deadline_ms; /* [count] since the generation's start, 0: none; NULL: no prompt has one */
};

/* Read and encode the topology's prompts or prompts_file ("-": stdin).  Local; world rank 0 only.  Checks ids against
 * vocab and lengths against context: a prompt must leave room for one token.
 * STATUS_MODEL names the prompt, its length and the context; STATUS_STORAGE; STATUS_TOPOLOGY (a line of the file). */
enum status prompts_read(const struct topology *topology, const struct checkpoint *checkpoint,
                         const struct tokenizer *tokenizer, uint32_t context, struct prompts *ret, struct error *err);

/* Give rank 0's (member 0's) prompts to everybody.  Collective over the world group; blocks.  prompts is read on
 * member 0 and filled elsewhere.  STATUS_MISMATCH: what has come does not fit context or vocab; STATUS_OVERFLOW,
 * STATUS_NOMEM; the group's. */
enum status prompts_share(struct prompts *prompts, struct group *world, uint32_t context, uint64_t vocab,
                          struct error *err);

void prompts_done(struct prompts *prompts);

static inline uint32_t prompt_length(const struct prompts *prompts, uint32_t i)
{
    return (uint32_t)(prompts->begin[i + 1] - prompts->begin[i]);
}

#endif
