/* What the topology, and a model's metadata if there is a model, mean for every rank.
 *
 * Pure: needs neither MPI nor the weights' bytes.  All ranks compute the same plan; its digest is compared in the
 * consensus.  100,000 ranks take under 2 s. */
#ifndef RUNTIME_PLAN_H
#define RUNTIME_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "comm/spec.h"
#include "runtime/cut.h"
#include "runtime/mesh.h"

struct topology;
struct checkpoint;
struct model_config;

/* The forward bundle (boundary): role 0 "wave" u32 [slots, 4] (request, first position, rows, flags), role 1 "hidden"
 * f32 [rows, hidden].  The token bundle: "tokens" u32 [slots, 4] (request, token, flags, generated so far).  The
 * result bundle: "count" u32 [4] (entries, step, 0, 0), "tokens" u32 [entries, 4], "digests" u64 [entries], "top_ids"
 * u32 [entries, top], "top_logits" f32 [entries, top], with entries <= slots * pipeline and top <= 64. */
struct plan {
    const struct topology *topology;  /* borrowed */
    const struct model_config *model; /* borrowed from the checkpoint; NULL: no workload */
    struct mesh mesh;

    size_t group_count;
    struct group_spec *groups; /* implied ones first, then the file's; ids 1.. dense over groups, then routes */
    size_t route_count;
    struct route_spec *routes;

    /* With a model. */
    uint32_t pieces;          /* compute.pieces, or the tensor size */
    struct cut head_cut;      /* query heads */
    struct cut ffn_cut;
    struct share *stage_layers; /* [pipeline] */
    uint32_t slots;           /* requests per wave at most: microbatch, or 8 */
    uint32_t wave_rows;       /* rows per wave at most: max(prompt_chunk or its default, slots) */
    uint32_t context;         /* tokens per request */
    bool microbatch_auto;

    struct text verdict;      /* notes and what could not be checked here, one a line */
};

/* Where one rank stands; ids are 0 where there is none. */
struct rank_plan {
    int rank;
    struct coordinates at;
    bool first; /* stage */
    bool last;
    struct share layers;
    struct share heads;
    struct share kv_heads; /* union of those that its query heads read */
    struct share ffn;
    struct share vocab;    /* rows of the output head (last stage) */
    struct share pieces;
    uint32_t world_group;
    uint32_t tensor_group;
    uint32_t pipeline_group;
    uint32_t data_group;
    uint32_t expert_group;
    uint32_t stage_group;
    uint32_t forward_in;   /* route from the previous stage */
    uint32_t forward_out;
    uint32_t token_in;     /* first stage of a pipeline longer than one: from the last stage */
    uint32_t token_out;    /* last stage of a pipeline longer than one */
    uint32_t result_out;   /* the sampling rank (tensor 0, last stage) of a data line, unless it is rank 0 */
    uint64_t weight_bytes; /* owned, replicas included */
    uint64_t replica_bytes;
    uint64_t cache_bytes_per_request;
    uint64_t state_bytes;  /* caches of all requests in flight */
};

/* checkpoint: NULL when there is no workload or the model is not at hand.  Errors of the file's meaning are reported
 * in the form of the topology's own errors (file:line:column, caret), all in one run; the status is then
 * STATUS_TOPOLOGY or STATUS_MODEL and err holds all of them. */
enum status plan_create(const struct topology *topology, const struct checkpoint *checkpoint, struct plan **ret,
                        struct error *err);
void plan_destroy(struct plan *plan);

void plan_rank(const struct plan *plan, int rank, struct rank_plan *ret);

/* The result route from data line d's sampling rank to rank 0; 0: it is rank 0 itself. */
uint32_t plan_result_route(const struct plan *plan, int data);

uint64_t plan_digest(const struct plan *plan);

/* The views: a tree a person can read; one JSON object a line, complete; one rank. */
void plan_tree(const struct plan *plan, struct text *out);
void plan_json(const struct plan *plan, struct text *out);
void plan_rank_tree(const struct plan *plan, int rank, struct text *out);

#endif
