/* Sums in a device's memory: the tree over whole payloads, one addition a node.
 *
 * A right half that is one member whose dtype is its own partial is added where it lies; any other has a block of
 * staging memory for its sum, given back as soon as its use is queued.  log2 of the members blocks at once. */
#include <string.h>

#include "base/elements.h"
#include "comm/reduce.h"
#include "comm/staging.h"

struct tree {
    struct memory *device;
    struct staging *staging;
    enum dtype dtype;
    enum dtype partial;
    const void *const *in;
    size_t count;
};

enum status reduce_widen_on(struct memory *device, enum dtype dtype, const void *in, size_t count, void *out,
                            struct error *err)
{
    enum dtype partial = reduce_partial(dtype);

    if (!device) {
        reduce_widen(dtype, in, count, out);
        return STATUS_OK;
    }
    if (partial == dtype || !count)
        return memory_copy(device, out, in, count * dtype_bytes(dtype), err);
    return device->ops->convert(device, dtype, in, partial, out, count, err);
}

enum status reduce_narrow_on(struct memory *device, enum dtype dtype, const void *in, size_t count, void *out,
                             struct error *err)
{
    enum dtype partial = reduce_partial(dtype);

    if (!device) {
        reduce_narrow(dtype, in, count, out);
        return STATUS_OK;
    }
    if (partial == dtype || !count)
        return in == out ? STATUS_OK : memory_copy(device, out, in, count * dtype_bytes(dtype), err);
    return device->ops->convert(device, partial, in, dtype, out, count, err);
}

enum status reduce_add_on(struct memory *device, enum dtype partial, void *left, const void *right, size_t count,
                          struct error *err)
{
    if (device && count)
        return device->ops->add(device, partial, left, right, count, err);
    if (!device)
        elements_add(partial, left, right, count);
    return STATUS_OK;
}

/* out: a block of partial sums. */
static enum status sum(const struct tree *tree, int low, int high, unsigned char *out, struct error *err)
{
    int mid = low + (high - low + 1) / 2;
    unsigned char *right = NULL;
    enum status st = STATUS_OK;

    if (high - low == 1)
        return reduce_widen_on(tree->device, tree->dtype, tree->in[low], tree->count, out, err);
    st = sum(tree, low, mid, out, err);
    if (st != STATUS_OK)
        return st;
    if (high - mid == 1 && tree->partial == tree->dtype)
        return reduce_add_on(tree->device, tree->partial, out, tree->in[mid], tree->count, err);
    right = staging_take(tree->staging, tree->count * dtype_bytes(tree->partial), err);
    if (!right)
        return error_wrap(err, STATUS_NOMEM, "partial sums of %zu elements", tree->count);
    st = sum(tree, mid, high, right, err);
    if (st == STATUS_OK)
        st = reduce_add_on(tree->device, tree->partial, out, right, tree->count, err);
    staging_give(tree->staging, right);
    return st;
}

enum status reduce_tree_on(struct memory *device, struct staging *staging, enum dtype dtype, const void *const *in,
                           int members, size_t count, void *out, struct error *err)
{
    struct tree tree = {device, staging, dtype, reduce_partial(dtype), in, count};
    unsigned char *whole = NULL;
    enum status st = STATUS_OK;

    if (!count)
        return STATUS_OK;
    whole = staging_take(staging, count * dtype_bytes(tree.partial), err);
    if (!whole)
        return error_wrap(err, STATUS_NOMEM, "partial sums of %zu elements", count);
    st = sum(&tree, 0, members, whole, err);
    if (st == STATUS_OK)
        st = reduce_narrow_on(device, dtype, whole, count, out, err);
    staging_give(staging, whole);
    return st;
}
