/* The inside of a plan, for the plan_*.c files that fill it in and show it. */
#ifndef RUNTIME_PLAN_PRIVATE_H
#define RUNTIME_PLAN_PRIVATE_H

#include "runtime/family.h"
#include "runtime/plan.h"
#include "topology/topology.h"

enum {
    PLAN_NAME_BYTES = 32, /* "forward/1048575-1048575" */
    PLAN_DEFAULT_SLOTS = 8,
    PLAN_MAX_SLOTS = 64,
    PLAN_DEFAULT_CHUNK = 256,
    PLAN_MAX_CHUNK = 65536,
    PLAN_MAX_TOP = 64,
    PLAN_POOL_DEPTH = 4,
    PLAN_PROBE_BYTES = 1 << 20
};

/* What the ranks with one (pipeline, tensor) coordinate hold. */
struct ledger {
    uint64_t weight_bytes;
    uint64_t replica_bytes;
    uint64_t cache_bytes; /* of one request */
};

struct plan_store {
    int *members;                   /* of every group, behind each other */
    char (*names)[PLAN_NAME_BYTES]; /* of implied groups, then implied routes */
    struct tensor_spec *tensors;    /* forward, token and result bundles, then the file's */
    struct extent_spec *extents;
    size_t implied_groups;
    size_t implied_routes;
    uint32_t line_group[AXIS_COUNT]; /* id of the axis's line 0; 0: the axis has no groups */
    uint32_t stage_group;            /* of stage 0 */
    uint32_t forward_route;          /* the first of each kind; 0: none */
    uint32_t token_route;
    uint32_t result_route;
    struct ledger *ledger; /* [pipeline * tensor]; NULL without a model */
    uint64_t *host_start;  /* [hosts + 1] in slots; NULL: the file does not say */
};

/* The element type of each stored parameter, as far as it is known: [layer_count * PARAMETER_COUNT], and one more row
 * for what stands outside the layers. */
struct plan_types {
    const struct model_config *config;
    signed char *type; /* enum weight_type */
};

/* With weights their types; else config.json's torch_dtype (absent: f32) for every parameter. */
enum status plan_types_init(struct plan_types *types, const struct checkpoint *checkpoint, struct error *err);
void plan_types_done(struct plan_types *types);

/* Stored bytes of rows x cols elements of this parameter (cols: whole blocks); layer is ignored outside layers.
 * UINT64_MAX on overflow. */
uint64_t plan_types_bytes(const struct plan_types *types, const struct parameter_rule *rule, uint64_t layer,
                          uint64_t rows, uint64_t cols);
/* Least common multiple over the layers of the parameter's block length. */
uint64_t plan_types_unit(const struct plan_types *types, enum parameter parameter);

/* Deal layer_count layers of these costs, in order, to stages, at least one each, so that the most expensive stage is
 * as cheap as can be; last_cost is added to the last stage.  stages <= layer_count; costs are below 2^62 in sum. */
void plan_deal_layers(const uint64_t *cost, uint64_t layer_count, uint64_t last_cost, uint64_t stages,
                      struct share *ret);

/* Each notes its findings as errors of the topology, and returns another failure only. */
enum status plan_model(struct plan *plan, const struct checkpoint *checkpoint, struct error *err);
enum status plan_ledger(struct plan *plan, const struct plan_types *types, struct error *err);
void plan_check_groups(const struct plan *plan);
void plan_check_routes(const struct plan *plan);

/* Build the groups, then the routes; the file's were checked. */
enum status plan_groups(struct plan *plan, struct error *err);
enum status plan_routes(struct plan *plan, struct error *err);

/* The largest bytes of one tensor and of a whole bundle; UINT64_MAX on overflow. */
uint64_t plan_tensor_bytes(const struct tensor_spec *tensor);
uint64_t plan_bundle_bytes(const struct route_spec *route);

/* Waves of one step: every stage has one. */
static inline uint32_t plan_waves(const struct plan *plan)
{
    return (uint32_t)plan->mesh.size[AXIS_PIPELINE];
}

/* The shares of tensor coordinate t. */
struct share plan_heads(const struct plan *plan, int t);
struct share plan_kv_heads(const struct plan *plan, int t);
struct share plan_ffn(const struct plan *plan, int t);
struct share plan_vocab(const struct plan *plan, int t);

/* Where the hosts of the file begin in the order of slots; plan_slot and plan_node use it. */
enum status plan_places(struct plan *plan, struct error *err);

/* "mpi", "full": the words of the file. */
const char *plan_transport_name(const struct plan *plan);
const char *plan_reduction_name(const struct plan *plan);
/* Where tensors lie while they travel, as far as the topology alone tells. */
const char *plan_memory_words(const struct plan *plan);
/* "node1", "node 3"; "" when the file does not say. */
void plan_add_node(struct text *out, const struct plan *plan, int rank);

#endif
