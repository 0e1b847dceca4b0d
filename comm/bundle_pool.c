/* Free bundles in a list; a bundle knows whether it is lent, so that giving it back twice is caught. */
#include "comm/bundle_pool.h"

#include <stdlib.h>

#include "comm/route_schema.h"

struct pooled {
    struct bundle bundle; /* first */
    struct pooled *next;  /* free ones */
    bool lent;
    bool sent; /* pending in its tensors */
};

struct bundle_pool {
    struct pooled *free;
    int depth;
    struct pooled pooled[]; /* [depth] */
};

/* One bundle with memory for the largest extents. */
static enum status create_bundle(const struct route_spec *spec, struct memory *memory, struct memory *host,
                                 struct bundle *bundle, struct error *err)
{
    for (int t = 0; t < spec->tensor_count; t++) {
        const struct tensor_spec *tensor = &spec->tensors[t];
        struct shape shape;
        enum status st;

        route_schema_largest(spec, t, &shape);
        st = tensor_create_in(spec->memory_tensors >> t & 1 ? memory : host, tensor->dtype, &shape, &bundle->tensor[t],
                              err);
        if (st != STATUS_OK)
            return error_wrap(err, st, "route %s, tensor %s", spec->name, tensor->role);
        bundle->count = t + 1;
    }
    return STATUS_OK;
}

enum status bundle_pool_create(const struct route_spec *spec, struct memory *memory, struct memory *host,
                               struct bundle_pool **ret, struct error *err)
{
    struct bundle_pool *pool = calloc(1, sizeof *pool + (size_t)spec->depth * sizeof pool->pooled[0]);
    enum status st = STATUS_OK;

    if (!pool)
        return error_set(err, STATUS_NOMEM, "the pool of route %s", spec->name);
    pool->depth = spec->depth;
    for (int i = 0; i < spec->depth && st == STATUS_OK; i++) {
        st = create_bundle(spec, memory ? memory : host, host, &pool->pooled[i].bundle, err);
        pool->pooled[i].next = pool->free;
        pool->free = &pool->pooled[i];
    }
    if (st != STATUS_OK) {
        bundle_pool_destroy(pool);
        return st;
    }
    *ret = pool;
    return STATUS_OK;
}

void bundle_pool_destroy(struct bundle_pool *pool)
{
    if (!pool)
        return;
    for (int i = 0; i < pool->depth; i++) {
        for (int t = 0; t < pool->pooled[i].bundle.count; t++)
            tensor_release(pool->pooled[i].bundle.tensor[t]);
    }
    free(pool);
}

struct bundle *bundle_pool_take(struct bundle_pool *pool)
{
    struct pooled *pooled = pool->free;

    if (!pooled)
        return NULL;
    pool->free = pooled->next;
    pooled->lent = true;
    return &pooled->bundle;
}

bool bundle_pool_any(const struct bundle_pool *pool)
{
    return pool->free != NULL;
}

bool bundle_pool_lent(const struct bundle *bundle)
{
    return ((const struct pooled *)bundle)->lent;
}

static void count_tensors(const struct bundle *bundle, int by)
{
    for (int t = 0; t < bundle->count; t++)
        (void)atomic_fetch_add(&bundle->tensor[t]->pending, by);
}

void bundle_pool_send(struct bundle *bundle)
{
    ((struct pooled *)bundle)->sent = true;
    count_tensors(bundle, 1);
}

void bundle_pool_give(struct bundle_pool *pool, struct bundle *bundle)
{
    struct pooled *pooled = (struct pooled *)bundle;

    if (!bundle)
        return;
    REQUIRE(pooled->lent, "a bundle is given back that is not lent: it was returned or sent before");
    if (pooled->sent)
        count_tensors(bundle, -1);
    pooled->sent = false;
    pooled->lent = false;
    pooled->next = pool->free;
    pool->free = pooled;
}
