/* A case is one operation with one dtype, shape and axis.  Every member walks the same cases in the same order; each is
 * posted, waited for and verified before the next, so that the first damage is named by the case that met it. */
#include "launcher/check_probe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "comm/reduce.h"
#include "comm/route.h"
#include "launcher/check_pattern.h"
#include "runtime/mirror.h"
#include "runtime/wait.h"

enum { INNER = 3, OUTER = 2, AXES = 2, SIZES = 4, ROOTS = 3 };

/* Of one tensor. */
#define MOST_BYTES (UINT64_C(1) << 20)

/* What is verified by adding up every member's part costs members times elements. */
#define MOST_ADDENDS (UINT64_C(1) << 22)

struct probe {
    struct group *group;
    struct shuttle *shuttle; /* NULL: tensors lie in host memory, */
    struct memory *shared;   /* of this kind; NULL: the process's own */
    const struct group_spec *spec;
    int size;
    int self;
    enum operation operation;
    enum dtype dtype;
    int axis;
    uint64_t *counts; /* [2 * size], for the case under way */
    uint64_t cases;
};

/* Elements that one tensor may have. */
static uint64_t most_elements(const struct probe *probe)
{
    uint64_t bytes = probe->spec->max_bytes < MOST_BYTES ? probe->spec->max_bytes : MOST_BYTES;

    return bytes / dtype_bytes(probe->dtype);
}

/* [OUTER, extent, INNER] along axis 1, [extent, INNER] along axis 0. */
static struct shape shape_along(int axis, uint64_t extent)
{
    if (axis == 1)
        return (struct shape){3, {OUTER, extent, INNER}};
    return (struct shape){2, {extent, INNER}};
}

static uint64_t elements_each(int axis)
{
    return axis == 1 ? OUTER * INNER : INNER;
}

static enum status create(const struct probe *probe, uint64_t extent, struct mirror *ret, struct slab *slab,
                          struct error *err)
{
    struct shape shape = shape_along(probe->axis, extent);
    enum status st = mirror_init(probe->shuttle, probe->shared, probe->dtype, &shape, ret, err);

    if (st == STATUS_OK && ret->here->bytes)
        memset(ret->here->data, 0xa5, ret->here->bytes);
    return st == STATUS_OK ? slab_of(&shape, probe->dtype, probe->axis, slab, err) : st;
}

static enum status wrong(const struct probe *probe, const struct tensor *tensor, size_t byte, unsigned char expected,
                         struct error *err)
{
    char shape[160];

    shape_text(&tensor->shape, tensor->dtype, shape, sizeof shape);
    return error_set(err, STATUS_CORRUPT, "group %s, %s of %s: byte %zu is %u, expected %u", probe->spec->name,
                     operation_name(probe->operation), shape, byte, tensor->data[byte], expected);
}

/* Wait for what was posted (st says whether), and look at what it brought; NULL: nothing. */
static enum status finish(struct probe *probe, enum status st, struct completion *completion, struct mirror *brought,
                          struct error *err)
{
    uint64_t waited = 0;

    probe->cases++;
    if (st == STATUS_OK)
        st = wait_and_release(completion, &waited, err);
    return st == STATUS_OK && brought ? mirror_demote(brought, &waited, err) : st;
}

static enum status sum(struct probe *probe, uint64_t elements, bool in_place, struct error *err)
{
    struct shape shape = {1, {elements}};
    struct completion *completion = NULL;
    struct mirror send = {0};
    struct mirror other = {0};
    struct mirror *recv = in_place ? &send : &other;
    unsigned char expected;
    size_t byte;
    enum status st = mirror_init(probe->shuttle, probe->shared, probe->dtype, &shape, &send, err);

    if (st == STATUS_OK && !in_place)
        st = mirror_init(probe->shuttle, probe->shared, probe->dtype, &shape, &other, err);
    if (st == STATUS_OK) {
        pattern_fill_addends(send.here, probe->self, probe->size);
        st = mirror_promote(&send, probe->group, err);
    }
    if (st == STATUS_OK)
        st = group_all_reduce_sum(probe->group, send.there, recv->there, &completion, err);
    st = finish(probe, st, completion, recv, err);
    if (st == STATUS_OK && !pattern_holds_sums(recv->here, probe->size, &byte, &expected))
        st = wrong(probe, recv->here, byte, expected, err);
    mirror_done(&send);
    mirror_done(&other);
    return st;
}

static enum status post_gather(struct probe *probe, struct tensor *send, struct tensor *recv,
                               struct completion **completion, struct error *err)
{
    if (probe->operation == OPERATION_ALL_GATHER_EVEN)
        return group_all_gather_even(probe->group, send, recv, probe->axis, completion, err);
    return group_all_gather_uneven(probe->group, send, recv, probe->axis, probe->counts, completion, err);
}

/* Does recv hold each member's part, one after the other? */
static enum status holds_parts(const struct probe *probe, const struct tensor *recv, const struct slab *slab,
                               const uint64_t *counts, int target, struct error *err)
{
    uint64_t start = 0;

    for (int member = 0; member < probe->size; member++) {
        struct pattern who = {.source = member, .target = target};
        unsigned char expected;
        size_t byte;

        if (!pattern_holds(recv, slab, start, counts[member], who, &byte, &expected))
            return wrong(probe, recv, byte, expected, err);
        start += counts[member];
    }
    return STATUS_OK;
}

/* counts [size] along axis, added up in total. */
static enum status gather(struct probe *probe, uint64_t total, bool in_place, struct error *err)
{
    struct completion *completion = NULL;
    struct mirror other = {0};
    struct mirror recv = {0};
    struct mirror *send = in_place ? &recv : &other;
    struct slab from = {0};
    struct slab to = {0};
    uint64_t start = 0;
    enum status st = create(probe, total, &recv, &to, err);

    for (int member = 0; member < probe->self; member++)
        start += probe->counts[member];
    if (st == STATUS_OK && !in_place)
        st = create(probe, probe->counts[probe->self], &other, &from, err);
    if (st == STATUS_OK) {
        pattern_fill(send->here, in_place ? &to : &from, in_place ? start : 0, probe->counts[probe->self],
                     (struct pattern){.source = probe->self, .target = -1});
        st = mirror_promote(send, probe->group, err);
    }
    if (st == STATUS_OK)
        st = post_gather(probe, send->there, recv.there, &completion, err);
    st = finish(probe, st, completion, &recv, err);
    if (st == STATUS_OK)
        st = holds_parts(probe, recv.here, &to, probe->counts, -1, err);
    mirror_done(&other);
    mirror_done(&recv);
    return st;
}

/* What member sends to peer: zero for a third of all pairs, never the same both ways. */
static uint64_t sent(int member, int peer, uint64_t rows)
{
    return rows * (uint64_t)((member + 2 * peer) % 3);
}

static enum status exchange(struct probe *probe, uint64_t rows, struct error *err)
{
    uint64_t *to = probe->counts;
    uint64_t *from = probe->counts + probe->size;
    struct completion *completion = NULL;
    struct mirror send = {0};
    struct mirror recv = {0};
    struct slab send_slab = {0};
    struct slab recv_slab = {0};
    uint64_t sends = 0;
    uint64_t receives = 0;
    uint64_t start = 0;
    enum status st;

    for (int peer = 0; peer < probe->size; peer++) {
        sends += to[peer] = sent(probe->self, peer, rows);
        receives += from[peer] = sent(peer, probe->self, rows);
    }
    st = create(probe, sends, &send, &send_slab, err);
    if (st == STATUS_OK)
        st = create(probe, receives, &recv, &recv_slab, err);
    for (int peer = 0; st == STATUS_OK && peer < probe->size; peer++) {
        pattern_fill(send.here, &send_slab, start, to[peer], (struct pattern){.source = probe->self, .target = peer});
        start += to[peer];
    }
    if (st == STATUS_OK)
        st = mirror_promote(&send, probe->group, err);
    if (st == STATUS_OK)
        st = group_variable_all_to_all(probe->group, send.there, recv.there, probe->axis, to, from, &completion, err);
    st = finish(probe, st, completion, &recv, err);
    if (st == STATUS_OK)
        st = holds_parts(probe, recv.here, &recv_slab, from, probe->self, err);
    mirror_done(&send);
    mirror_done(&recv);
    return st;
}

static enum status broadcast(struct probe *probe, uint64_t rows, int root, struct error *err)
{
    struct pattern who = {.source = root, .target = -1};
    struct completion *completion = NULL;
    struct mirror tensor = {0};
    struct slab slab = {0};
    unsigned char expected;
    size_t byte;
    enum status st = create(probe, rows, &tensor, &slab, err);

    if (st == STATUS_OK && probe->self == root) {
        pattern_fill(tensor.here, &slab, 0, rows, who);
        st = mirror_promote(&tensor, probe->group, err);
    }
    if (st == STATUS_OK)
        st = group_broadcast(probe->group, tensor.there, root, &completion, err);
    st = finish(probe, st, completion, &tensor, err);
    if (st == STATUS_OK && !pattern_holds(tensor.here, &slab, 0, rows, who, &byte, &expected))
        st = wrong(probe, tensor.here, byte, expected, err);
    mirror_done(&tensor);
    return st;
}

/* Each member clears a bit of its own; then all are well. */
static enum status agree(struct probe *probe, bool well, struct error *err)
{
    uint32_t expected = UINT32_MAX;
    struct completion *completion = NULL;
    uint32_t flags = 0;
    enum status st;

    for (int member = 0; !well && member < probe->size; member++)
        expected &= ~(UINT32_C(1) << (member % 32));
    st = group_failure_agreement(probe->group, well ? UINT32_MAX : ~(UINT32_C(1) << (probe->self % 32)), &completion,
                                 err);
    probe->cases++;
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    if (st == STATUS_OK)
        flags = completion_flags(completion);
    completion_abandon(completion);
    if (st == STATUS_OK && flags != expected)
        st = error_set(err, STATUS_CORRUPT, "group %s, failure_agreement: flags are %08" PRIx32 ", expected %08" PRIx32,
                       probe->spec->name, flags, expected);
    return st;
}

static enum status agreements(struct probe *probe, struct error *err)
{
    enum status st = agree(probe, false, err);

    return st == STATUS_OK ? agree(probe, true, err) : st;
}

static enum status meet(struct probe *probe, struct error *err)
{
    struct completion *completion = NULL;
    enum status st = group_barrier(probe->group, &completion, err);

    return finish(probe, st, completion, NULL, err);
}

/* Rows of the size'th case, where all members together may have most. */
static uint64_t rows_of(int size, uint64_t most)
{
    const uint64_t rows[SIZES] = {0, 1, most / 7, most};

    return rows[size];
}

static enum status gathers(struct probe *probe, int size, struct error *err)
{
    bool even = probe->operation == OPERATION_ALL_GATHER_EVEN;
    /* Uneven ones are 3, 0, 1, 2 times as long. */
    uint64_t most = most_elements(probe) / elements_each(probe->axis) / (uint64_t)probe->size / (even ? 1 : 3);
    uint64_t rows = rows_of(size, most);
    uint64_t total = 0;

    if (rows > most)
        return STATUS_OK;
    for (int member = 0; member < probe->size; member++)
        total += probe->counts[member] = even ? rows : rows * (uint64_t)((member * 5 + 3) % 4);
    return gather(probe, total, size == 2, err);
}

static enum status exchanges(struct probe *probe, int size, struct error *err)
{
    uint64_t most = most_elements(probe) / elements_each(probe->axis) / (uint64_t)probe->size / 2;
    uint64_t rows = rows_of(size, most);

    return rows > most ? STATUS_OK : exchange(probe, rows, err);
}

static enum status broadcasts(struct probe *probe, int size, struct error *err)
{
    const int roots[ROOTS] = {0, probe->size - 1, probe->size / 2};
    uint64_t most = most_elements(probe) / elements_each(probe->axis);
    uint64_t rows = rows_of(size, most);
    enum status st = STATUS_OK;

    for (int i = 0; i < ROOTS && st == STATUS_OK && rows <= most; i++)
        st = broadcast(probe, rows, roots[i], err);
    return st;
}

static enum status sums(struct probe *probe, int size, struct error *err)
{
    uint64_t most = most_elements(probe);
    uint64_t elements;

    if (most > MOST_ADDENDS / (uint64_t)probe->size)
        most = MOST_ADDENDS / (uint64_t)probe->size;
    elements = rows_of(size, most);
    return elements > most ? STATUS_OK : sum(probe, elements, size % 2 == 1, err);
}

static bool has_axis(enum operation operation)
{
    return operation == OPERATION_ALL_GATHER_EVEN || operation == OPERATION_ALL_GATHER_UNEVEN ||
           operation == OPERATION_VARIABLE_ALL_TO_ALL;
}

static enum status one_size(struct probe *probe, int size, struct error *err)
{
    switch (probe->operation) {
    case OPERATION_ALL_REDUCE_SUM:
        return reduce_supports(probe->dtype) ? sums(probe, size, err) : STATUS_OK;
    case OPERATION_ALL_GATHER_EVEN:
    case OPERATION_ALL_GATHER_UNEVEN:
        return gathers(probe, size, err);
    case OPERATION_VARIABLE_ALL_TO_ALL:
        return exchanges(probe, size, err);
    default:
        return broadcasts(probe, size, err);
    }
}

/* Every size with the first dtype, the small ones with the others. */
static enum status every_size(struct probe *probe, bool first, struct error *err)
{
    int axes = has_axis(probe->operation) ? AXES : 1;
    int sizes = first ? SIZES : SIZES - 1;
    enum status st = STATUS_OK;

    for (probe->axis = 0; probe->axis < axes && st == STATUS_OK; probe->axis++) {
        for (int size = 0; size < sizes && st == STATUS_OK; size++)
            st = one_size(probe, size, err);
    }
    return st;
}

static enum status every_dtype(struct probe *probe, struct error *err)
{
    bool first = true;
    enum status st = STATUS_OK;

    for (int dtype = DTYPE_NONE + 1; dtype < DTYPE_COUNT && st == STATUS_OK; dtype++) {
        if (!(probe->spec->dtypes & DTYPE_BIT(dtype)))
            continue;
        probe->dtype = (enum dtype)dtype;
        st = every_size(probe, first, err);
        first = false;
    }
    return st;
}

enum status probe_group(struct group *group, struct shuttle *shuttle, struct memory *shared, uint64_t *ret_cases,
                        struct error *err)
{
    struct probe probe = {.group = group,
                          .shuttle = shuttle,
                          .shared = shared,
                          .spec = group_spec(group),
                          .size = group_size(group),
                          .self = group_rank(group)};
    enum status st = STATUS_OK;

    probe.counts = calloc(2 * (size_t)probe.size, sizeof *probe.counts);
    if (!probe.counts)
        return error_set(err, STATUS_NOMEM, "counts of %d members", probe.size);
    for (int operation = OPERATION_NONE + 1; operation < OPERATION_SEND_RECEIVE && st == STATUS_OK; operation++) {
        if (!(probe.spec->operations & OPERATION_BIT(operation)))
            continue;
        probe.operation = (enum operation)operation;
        if (operation == OPERATION_BARRIER)
            st = meet(&probe, err);
        else if (operation == OPERATION_FAILURE_AGREEMENT)
            st = agreements(&probe, err);
        else
            st = every_dtype(&probe, err);
    }
    free(probe.counts);
    *ret_cases = probe.cases;
    return st;
}
