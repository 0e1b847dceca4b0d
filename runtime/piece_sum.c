/* The tree over pieces [lo, hi) splits at lo + ceil(n / 2).  Each rank's pieces are contiguous, so they are a few whole
 * subtrees; their sums, gathered in rank order, are the leaves of what is left of the tree.  When every rank owns
 * exactly one subtree and what is left is the balanced tree over ranks, the group's own sum gives the same bits with
 * less traffic. */
#include "runtime/piece_sum.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "comm/group.h"
#include "runtime/compute.h"
#include "runtime/mirror.h"
#include "runtime/wait.h"

struct piece_sum {
    uint32_t pieces;
    uint32_t parts;
    uint32_t part;
    struct group *group;
    size_t cols;
    struct share mine;      /* pieces of this rank */
    uint32_t *root_start;   /* [root_count] first piece of each subtree, all ranks, in order */
    uint32_t *root_pieces;  /* [root_count] how many it covers */
    uint32_t *first_root;   /* [parts + 1] a rank's roots */
    bool tree_of_ranks;     /* the group's all-reduce has this tree's order */
    struct mirror partial;  /* [mine.count * max_rows, cols] */
    struct mirror gathered; /* [root_count * max_rows, cols] */
    uint64_t *counts;       /* [parts] rows gathered from each rank */
};

static uint32_t middle(uint32_t lo, uint32_t hi)
{
    return lo + (hi - lo + 1) / 2;
}

/* Append the largest whole subtrees of [lo, hi) inside the share. */
static void find_roots(struct piece_sum *sum, uint32_t lo, uint32_t hi, struct share share, uint32_t *count)
{
    if (hi <= share.start || lo >= share.start + share.count)
        return;
    if (lo >= share.start && hi <= share.start + share.count) {
        sum->root_start[*count] = lo;
        sum->root_pieces[(*count)++] = hi - lo;
        return;
    }
    find_roots(sum, lo, middle(lo, hi), share, count);
    find_roots(sum, middle(lo, hi), hi, share, count);
}

/* Is [lo, hi) split over ranks [first, last) just as the balanced tree over those ranks would? */
static bool matches_ranks(const struct piece_sum *sum, uint32_t lo, uint32_t hi, uint32_t first, uint32_t last)
{
    if (last - first == 1) {
        uint32_t root = sum->first_root[first];

        return sum->first_root[first + 1] - root == 1 && sum->root_start[root] == lo &&
               sum->root_pieces[root] == hi - lo;
    }
    if (hi - lo < 2)
        return false;
    return matches_ranks(sum, lo, middle(lo, hi), first, middle(first, last)) &&
           matches_ranks(sum, middle(lo, hi), hi, middle(first, last), last);
}

/* Nothing travels where there is one rank. */
static enum status allocate(struct piece_sum *sum, struct shuttle *shuttle, size_t max_rows, struct error *err)
{
    struct shape shape = {2, {0, sum->cols}};
    enum status st;

    if (size_mul(sum->mine.count, max_rows, &shape.dim[0]) != STATUS_OK)
        return error_set(err, STATUS_OVERFLOW, "%u pieces of %zu rows", sum->pieces, max_rows);
    st = mirror_init(sum->parts == 1 ? NULL : shuttle, NULL, DTYPE_F32, &shape, &sum->partial, err);
    if (st != STATUS_OK || sum->parts == 1 || sum->tree_of_ranks)
        return st;
    if (size_mul(sum->first_root[sum->parts], max_rows, &shape.dim[0]) != STATUS_OK)
        return error_set(err, STATUS_OVERFLOW, "%u pieces of %zu rows", sum->pieces, max_rows);
    return mirror_init(shuttle, NULL, DTYPE_F32, &shape, &sum->gathered, err);
}

enum status piece_sum_create(uint32_t pieces, uint32_t parts, uint32_t part, struct group *group,
                             struct shuttle *shuttle, size_t max_rows, size_t cols, struct piece_sum **ret,
                             struct error *err)
{
    struct piece_sum *sum = calloc(1, sizeof *sum);
    uint32_t roots = 0;
    enum status st;

    if (sum) {
        *sum = (struct piece_sum){.pieces = pieces, .parts = parts, .part = part, .group = group, .cols = cols};
        sum->mine = (struct share){share_start(pieces, parts, part), share_count(pieces, parts, part)};
        sum->root_start = calloc(pieces, sizeof *sum->root_start);
        sum->root_pieces = calloc(pieces, sizeof *sum->root_pieces);
        sum->first_root = calloc((size_t)parts + 1, sizeof *sum->first_root);
        sum->counts = calloc(parts, sizeof *sum->counts);
    }
    if (!sum || !sum->root_start || !sum->root_pieces || !sum->first_root || !sum->counts) {
        piece_sum_destroy(sum);
        return error_set(err, STATUS_NOMEM, "the tree of %u pieces", pieces);
    }
    for (uint32_t p = 0; p < parts; p++) {
        find_roots(sum, 0, pieces, (struct share){share_start(pieces, parts, p), share_count(pieces, parts, p)},
                   &roots);
        sum->first_root[p + 1] = roots;
    }
    sum->tree_of_ranks = matches_ranks(sum, 0, pieces, 0, parts);
    st = allocate(sum, shuttle, max_rows, err);
    if (st != STATUS_OK) {
        piece_sum_destroy(sum);
        return st;
    }
    *ret = sum;
    return STATUS_OK;
}

void piece_sum_destroy(struct piece_sum *sum)
{
    if (!sum)
        return;
    mirror_done(&sum->partial);
    mirror_done(&sum->gathered);
    free(sum->root_start);
    free(sum->root_pieces);
    free(sum->first_root);
    free(sum->counts);
    free(sum);
}

float *piece_sum_partial(struct piece_sum *sum, uint32_t i, size_t rows)
{
    return (float *)(void *)sum->partial.here->data + (size_t)i * rows * sum->cols;
}

/* A view of the adding: leaves lie dense behind each other, each rows x cols. */
struct adding {
    const struct compute_ops *ops;
    struct compute *compute;
    float *leaves;
    size_t rows;
    size_t cols;
};

static float *leaf(const struct adding *adding, uint32_t i)
{
    return adding->leaves + (size_t)i * adding->rows * adding->cols;
}

static void add(const struct adding *adding, float *to, const float *from)
{
    adding->ops->add(adding->compute, to, adding->cols, from, adding->cols, adding->rows, adding->cols);
}

/* Add pieces [lo, hi) (leaf i is piece base + i) into the leaf of lo. */
static float *add_pieces(const struct adding *adding, uint32_t base, uint32_t lo, uint32_t hi)
{
    if (hi - lo == 1)
        return leaf(adding, lo - base);
    float *left = add_pieces(adding, base, lo, middle(lo, hi));

    add(adding, left, add_pieces(adding, base, middle(lo, hi), hi));
    return left;
}

/* Add what the gathered roots leave of the tree; *root is the next root in order. */
static float *add_roots(const struct piece_sum *sum, const struct adding *adding, uint32_t lo, uint32_t hi,
                        uint32_t *root)
{
    if (sum->root_start[*root] == lo && sum->root_pieces[*root] == hi - lo)
        return leaf(adding, (*root)++);
    float *left = add_roots(sum, adding, lo, middle(lo, hi), root);

    add(adding, left, add_roots(sum, adding, middle(lo, hi), hi, root));
    return left;
}

/* Add this rank's subtrees and close the gaps, so that its roots lie dense at the front of partial. */
static void add_own(struct piece_sum *sum, struct adding *adding)
{
    uint32_t first = sum->first_root[sum->part];
    size_t bytes = adding->rows * adding->cols * sizeof(float);

    adding->leaves = (float *)(void *)sum->partial.here->data;
    for (uint32_t r = first; r < sum->first_root[sum->part + 1]; r++) {
        float *root =
            add_pieces(adding, (uint32_t)sum->mine.start, sum->root_start[r], sum->root_start[r] + sum->root_pieces[r]);

        if (root != leaf(adding, r - first))
            memcpy(leaf(adding, r - first), root, bytes);
    }
}

static enum status sum_ranks(struct piece_sum *sum, size_t rows, uint64_t *wait_ns, struct error *err)
{
    struct shape shape = {2, {rows, sum->cols}};
    struct mirror *partial = &sum->partial;
    struct completion *completion = NULL;
    enum status st = mirror_reshape(partial, DTYPE_F32, &shape, err);

    if (st == STATUS_OK)
        st = mirror_promote(partial, sum->group, err);
    if (st == STATUS_OK)
        st = group_all_reduce_sum(sum->group, partial->there, partial->there, &completion, err);
    if (st == STATUS_OK)
        st = wait_and_release(completion, wait_ns, err);
    return st == STATUS_OK ? mirror_demote(partial, wait_ns, err) : st;
}

static enum status gather_roots(struct piece_sum *sum, size_t rows, uint64_t *wait_ns, struct error *err)
{
    struct shape send = {2, {0, sum->cols}};
    struct shape recv = {2, {sum->first_root[sum->parts] * rows, sum->cols}};
    struct completion *completion = NULL;
    enum status st;

    for (uint32_t p = 0; p < sum->parts; p++)
        sum->counts[p] = (sum->first_root[p + 1] - sum->first_root[p]) * rows;
    send.dim[0] = sum->counts[sum->part];
    st = mirror_reshape(&sum->partial, DTYPE_F32, &send, err);
    if (st == STATUS_OK)
        st = mirror_reshape(&sum->gathered, DTYPE_F32, &recv, err);
    if (st == STATUS_OK)
        st = mirror_promote(&sum->partial, sum->group, err);
    if (st == STATUS_OK)
        st = group_all_gather_uneven(sum->group, sum->partial.there, sum->gathered.there, 0, sum->counts, &completion,
                                     err);
    if (st == STATUS_OK)
        st = wait_and_release(completion, wait_ns, err);
    if (st == STATUS_OK)
        st = mirror_settle(&sum->partial, wait_ns, err);
    return st == STATUS_OK ? mirror_demote(&sum->gathered, wait_ns, err) : st;
}

enum status piece_sum_run(struct piece_sum *sum, const struct compute_ops *ops, struct compute *compute, size_t rows,
                          float **ret, uint64_t *wait_ns, struct error *err)
{
    struct adding adding = {.ops = ops, .compute = compute, .rows = rows, .cols = sum->cols};
    uint32_t root = 0;
    enum status st;

    add_own(sum, &adding);
    *ret = adding.leaves;
    if (sum->parts == 1)
        return STATUS_OK;
    if (sum->tree_of_ranks)
        return sum_ranks(sum, rows, wait_ns, err);
    st = gather_roots(sum, rows, wait_ns, err);
    if (st != STATUS_OK)
        return st;
    adding.leaves = (float *)(void *)sum->gathered.here->data;
    *ret = add_roots(sum, &adding, 0, sum->pieces, &root);
    return STATUS_OK;
}
