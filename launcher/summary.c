/* A rank's figures are one row of u64 in an even gather over the world. */
#include "launcher/summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/tensor.h"
#include "comm/group.h"
#include "runtime/plan.h"
#include "runtime/wait.h"

enum { FIELDS = sizeof(struct summary) / sizeof(uint64_t) };

enum status summary_gather(const struct summary *mine, struct group *world, struct summary *all, struct error *err)
{
    struct shape one = {2, {1, FIELDS}};
    struct shape every = {2, {(uint64_t)group_size(world), FIELDS}};
    struct completion *completion = NULL;
    struct tensor *send = NULL;
    struct tensor *recv = NULL;
    uint64_t waited = 0;
    enum status st = tensor_create(DTYPE_U64, &one, &send, err);

    if (st == STATUS_OK)
        st = tensor_create(DTYPE_U64, &every, &recv, err);
    if (st == STATUS_OK) {
        memcpy(send->data, mine, sizeof *mine);
        st = group_all_gather_even(world, send, recv, 0, &completion, err);
    }
    if (st == STATUS_OK)
        st = wait_and_release(completion, &waited, err);
    if (st == STATUS_OK)
        memcpy(all, recv->data, (size_t)group_size(world) * sizeof *all);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

/* The slowest rank of a stage stands for it. */
static void stage_line(const struct plan *plan, const struct summary *all, int stage, struct text *out)
{
    const struct summary *slowest = NULL;
    int ranks = 0;
    uint64_t idle;

    for (int rank = 0; rank < plan->mesh.world; rank++) {
        if (mesh_coordinates(&plan->mesh, rank).at[AXIS_PIPELINE] != stage)
            continue;
        ranks++;
        if (!slowest || all[rank].compute_ns > slowest->compute_ns)
            slowest = &all[rank];
    }
    CHECK(slowest); /* every stage has a rank */
    idle = slowest->elapsed_ns > slowest->compute_ns ? slowest->elapsed_ns - slowest->compute_ns : 0;
    text_add(out,
             "  stage %-3d %3d rank%s  compute %6.2f s  wait %6.2f s  bubble %4.1f %%  %" PRIu64 " waves, %" PRIu64
             " rows\n",
             stage, ranks, ranks == 1 ? " " : "s", (double)slowest->compute_ns / 1e9, (double)slowest->wait_ns / 1e9,
             percent(idle, slowest->elapsed_ns), slowest->waves, slowest->rows);
}

static void add_bytes(struct text *out, const char *before, uint64_t bytes)
{
    text_add(out, "%s", before);
    text_add_size(out, bytes);
}

static void rank_line(const struct summary *all, int rank, struct text *out)
{
    const struct summary *s = &all[rank];

    text_add(out, "  rank %-4d ", rank);
    add_bytes(out, "weights owned ", s->owned_bytes);
    add_bytes(out, " (replicas ", s->replica_bytes);
    add_bytes(out, "), read ", s->read_bytes);
    add_bytes(out, ", resident ", s->resident_bytes);
    add_bytes(out, "; caches ", s->cache_bytes);
    text_add(out, "; loaded in %.2f s\n", (double)s->load_ns / 1e9);
}

void summary_text(const struct plan *plan, const struct summary *all, const struct summary_totals *totals,
                  struct text *out)
{
    uint64_t elapsed = all[0].elapsed_ns;
    uint64_t frames = 0;
    uint64_t checked = 0;
    uint64_t bytes = 0;
    int shown = plan->mesh.world < 32 ? plan->mesh.world : 32;

    for (int rank = 0; rank < plan->mesh.world; rank++) {
        frames += all[rank].frames_sent;
        checked += all[rank].frames_checked;
        bytes += all[rank].bytes_sent;
    }
    text_add(out,
             "%" PRIu64 " tokens from %" PRIu64 " prompt tokens in %.2f s: %.1f tokens/s, first token after %.0f ms"
             " (mean), %" PRIu64 " steps\n",
             totals->tokens, totals->prompt_tokens, (double)elapsed / 1e9,
             elapsed ? 1e9 * (double)totals->tokens / (double)elapsed : 0.0, (double)totals->first_token_ns / 1e6,
             all[0].steps);
    for (int stage = 0; stage < plan->mesh.size[AXIS_PIPELINE]; stage++)
        stage_line(plan, all, stage, out);
    for (int rank = 0; rank < shown; rank++)
        rank_line(all, rank, out);
    if (shown < plan->mesh.world)
        text_add(out, "  ... and %d more ranks\n", plan->mesh.world - shown);
    text_add(out, "  frames %" PRIu64 " sent, %" PRIu64 " checked", frames, checked);
    add_bytes(out, "; ", bytes);
    text_add(out, " moved over %s", totals->transport);
    if (totals->memory)
        text_add(out, " (%s)", totals->memory);
    text_add(out, "; cpu %s, %d thread%s a rank\n", totals->simd, totals->threads, totals->threads == 1 ? "" : "s");
}
