/* What the topology, and a model's metadata if there is a model, mean for every rank.
 *
 * Pure: needs neither MPI nor the weights' bytes.  All ranks compute the same plan; its digest is compared in the
 * consensus.  100,000 ranks take under 2 s. */
#ifndef RUNTIME_PLAN_H
#define RUNTIME_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/spec.h"
#include "runtime/cut.h"
#include "runtime/mesh.h"

struct topology;
struct checkpoint;
struct model_config;
struct parameter_rule;

/* The forward bundle (boundary): role 0 "wave" u32 [slots, 4] (request, first position, rows, flags), role 1 "hidden"
 * f32 [rows, hidden].  The token bundle: "tokens" u32 [slots, 4] (request, token, flags, generated so far).  The
 * result bundle: "count" u32 [4] (entries, step, 0, 0), "tokens" u32 [entries, 4], "digests" u64 [entries], "top_ids"
 * u32 [entries, top], "top_logits" f32 [entries, top], with entries <= slots * pipeline and top <= 64. */
struct plan {
    const struct topology *topology;  /* borrowed, as is every name and role of the file */
    const struct model_config *model; /* borrowed from the checkpoint; NULL: no workload */
    struct mesh mesh;                 /* a file without a mesh: every axis 1, and world as the file says */

    /* Ids are dense from 1 over the groups, then the routes, in this order: world/0; per axis larger than 1 its lines
     * (tensor/N, pipeline/N, data/N, expert/N), numbered by their lowest rank; with more than one stage stage/N by
     * pipeline coordinate; the file's groups.  forward/A-B by A; token/A-B by A; result/A-0 by data line; the file's
     * routes.  Members of implied groups ascend. */
    size_t group_count;
    struct group_spec *groups;
    size_t route_count;
    struct route_spec *routes;

    /* With a model. */
    uint32_t pieces;     /* compute.pieces, or the tensor size */
    struct cut head_cut; /* query heads */
    struct cut ffn_cut;
    struct share *stage_layers; /* [pipeline] */
    uint32_t slots;             /* requests per wave at most: microbatch, or 8 */
    uint32_t wave_rows;         /* rows per wave at most: max(prompt_chunk or its default, slots) */
    uint32_t context;           /* tokens per request */
    bool microbatch_auto;

    struct text verdict;      /* notes and what could not be checked here, one a line */
    struct plan_store *store; /* what the pointers above lead to */
};

/* Where one rank stands; ids are 0 where there is none (tensor_group: also when the tensor axis is 1).
 *
 * weight_bytes are distinct stored bytes: a tied embedding that its own stage also uses as the head counts once.
 * replica_bytes: those that a lower rank of the same data line owns too, so that weights minus replicas, summed over
 * a data line, are the model's bytes. */
struct rank_plan {
    int rank;
    struct coordinates at;
    bool first; /* stage */
    bool last;
    struct share layers;
    struct share heads;
    struct share kv_heads; /* union of those that its query heads read */
    struct share ffn;
    struct share vocab; /* rows of the output head (last stage) */
    struct share pieces;
    uint32_t world_group;
    uint32_t tensor_group;
    uint32_t pipeline_group;
    uint32_t data_group;
    uint32_t expert_group;
    uint32_t stage_group;
    uint32_t forward_in; /* route from the previous stage */
    uint32_t forward_out;
    uint32_t token_in;     /* first stage of a pipeline longer than one: from the last stage */
    uint32_t token_out;    /* last stage of a pipeline longer than one */
    uint32_t result_out;   /* the sampling rank (tensor 0, last stage) of a data line, unless it is rank 0 */
    uint64_t weight_bytes; /* owned, replicas included */
    uint64_t replica_bytes;
    uint64_t cache_bytes_per_request;
    uint64_t state_bytes; /* caches of all requests in flight: slots * pipeline, each of context positions */
};

/* checkpoint: NULL when there is no workload or the model is not at hand (then model is NULL, and the verdict says
 * what that leaves unchecked); borrowed until plan_destroy.  A plan that is returned may run.
 *
 * STATUS_TOPOLOGY     what the file means is wrong, alone or for this model: all errors in one run, in the form of
 *                     the topology's own; err holds as many as fit, topology_report has all of them
 * STATUS_MODEL        the checkpoint contradicts itself or lacks tensors: err names the first of them
 * STATUS_UNSUPPORTED, STATUS_OVERFLOW, STATUS_NOMEM */
enum status plan_create(const struct topology *topology, const struct checkpoint *checkpoint, struct plan **ret,
                        struct error *err);
void plan_destroy(struct plan *plan);

void plan_rank(const struct plan *plan, int rank, struct rank_plan *ret);

/* Before anything of this rank is allocated: would it fit?  Caches that are larger than what is available are refused.
 * Weights that will not fit beside them are a line of warning, for the pages of a mapped file may be given back. Local.
 * STATUS_NOMEM: what is needed, what there is, and what to do. */
enum status rank_plan_fits(const struct rank_plan *rank, struct memory_space space, struct text *warning,
                           struct error *err);

/* Compare every tensor that the family asks for with the checkpoint's metadata: there, of the expected shape, of a type
 * that can be computed with.  Tensors beyond those are noted.  Local; reads no weights.  A checkpoint without weights
 * passes.  STATUS_MODEL names each tensor with the shape expected and found, as many as fit. */
enum status plan_check_tensors(const struct checkpoint *checkpoint, struct text *notes, struct error *err);

/* Encode the topology's prompts with the model's tokenizer, as `ferry run` will on rank 0, and say in the verdict what
 * they are, or why that is not checked here (no model, no tokenizer, a file of prompts that is not here, standard
 * input).  Local.  STATUS_MODEL, STATUS_UNSUPPORTED, STATUS_STORAGE, STATUS_TOPOLOGY: what is wrong with which. */
enum status plan_check_prompts(struct plan *plan, const struct checkpoint *checkpoint, struct error *err);

/* One line about the tensor name that rule cannot use (missing, misshapen, of a foreign type); false, and nothing, when
 * it is well. */
bool plan_tensor_fault(const struct checkpoint *checkpoint, const struct parameter_rule *rule, const char *name,
                       struct text *out);

/* The result route from data line d's sampling rank to rank 0; 0: it is rank 0 itself. */
uint32_t plan_result_route(const struct plan *plan, int data);

uint64_t plan_digest(const struct plan *plan);

/* The rank's place in the order that placement.order deals over the nodes' slots, from 0; the index of its node in
 * launch.hosts, or by ranks_per_node alone; -1 when the file does not say. */
int plan_slot(const struct plan *plan, int rank);
int plan_node(const struct plan *plan, int rank);

/* The views: a tree a person can read; one JSON object a line, complete; one rank. */
void plan_tree(const struct plan *plan, struct text *out);
void plan_json(const struct plan *plan, struct text *out);
void plan_rank_tree(const struct plan *plan, int rank, struct text *out);

/* "0..3, 8" of ascending numbers, cut after a few runs: "0..3, 8..11, ... (24 in all)". */
void plan_add_ranks(struct text *out, const int *ranks, size_t count);
/* "u32[8,4]", "f32[rows 0..256,576]". */
void plan_add_tensor(struct text *out, const struct route_spec *route, const struct tensor_spec *tensor);

#endif
