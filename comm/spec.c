/* The operations' words, what a group was not given, and the digest of a bundle's schema. */
#include "comm/spec.h"

#include <string.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/text.h"

static const char *const names[OPERATION_COUNT] = {
    [OPERATION_NONE] = "none",
    [OPERATION_ALL_REDUCE_SUM] = "all_reduce_sum",
    [OPERATION_ALL_GATHER_EVEN] = "all_gather_even",
    [OPERATION_ALL_GATHER_UNEVEN] = "all_gather_uneven",
    [OPERATION_VARIABLE_ALL_TO_ALL] = "variable_all_to_all",
    [OPERATION_BROADCAST] = "broadcast",
    [OPERATION_BARRIER] = "barrier",
    [OPERATION_FAILURE_AGREEMENT] = "failure_agreement",
    [OPERATION_SEND_RECEIVE] = "send_receive",
    [OPERATION_COMPUTE] = "compute",
};

const char *operation_name(enum operation operation)
{
    return (unsigned)operation < OPERATION_COUNT ? names[operation] : "unknown";
}

enum operation operation_from_name(const char *name)
{
    for (int i = OPERATION_NONE + 1; i < OPERATION_COUNT; i++) {
        if (!strcmp(name, names[i]))
            return (enum operation)i;
    }
    return OPERATION_NONE;
}

static void lacks(const struct group_spec *spec, const char *found, const char *what, struct text *selected,
                  struct error *err)
{
    (void)error_set(err, STATUS_INVALID, "group %s: %s was not selected for it: its %s are %s", spec->name, found, what,
                    selected->length ? text_string(selected) : "none");
    text_done(selected);
}

void group_spec_lacks_operation(const struct group_spec *spec, enum operation operation, struct error *err)
{
    struct text selected = {0};

    for (int i = OPERATION_NONE + 1; i < OPERATION_COUNT; i++) {
        if (spec->operations & OPERATION_BIT(i))
            text_add(&selected, "%s%s", selected.length ? ", " : "", names[i]);
    }
    lacks(spec, operation_name(operation), "operations", &selected, err);
}

void group_spec_lacks_dtype(const struct group_spec *spec, enum dtype dtype, struct error *err)
{
    struct text selected = {0};

    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (spec->dtypes & DTYPE_BIT(i))
            text_add(&selected, "%s%s", selected.length ? ", " : "", dtype_name((enum dtype)i));
    }
    lacks(spec, dtype_name(dtype), "dtypes", &selected, err);
}

/* Each part's digest is seeded with what came before it. */
static void digest_number(uint64_t *digest, uint64_t value)
{
    unsigned char bytes[8];

    put_u64(bytes, value);
    *digest = XXH3_64bits_withSeed(bytes, sizeof bytes, *digest);
}

static void digest_text(uint64_t *digest, const char *text)
{
    *digest = XXH3_64bits_withSeed(text, strlen(text), *digest);
}

uint64_t route_spec_digest(const struct route_spec *spec)
{
    uint64_t digest = 0;

    digest_number(&digest, (uint64_t)spec->tensor_count);
    for (int t = 0; t < spec->tensor_count; t++) {
        const struct tensor_spec *tensor = &spec->tensors[t];

        digest_text(&digest, tensor->role);
        digest_number(&digest, tensor->dtype);
        digest_number(&digest, (uint64_t)tensor->ndim);
        for (int i = 0; i < tensor->ndim; i++) {
            digest_number(&digest, tensor->dim[i].low);
            digest_number(&digest, tensor->dim[i].high);
            digest_number(&digest, (uint64_t)(int64_t)tensor->dim[i].extent);
        }
    }
    digest_number(&digest, (uint64_t)spec->extent_count);
    for (int i = 0; i < spec->extent_count; i++) {
        digest_text(&digest, spec->extents[i].name);
        digest_number(&digest, spec->extents[i].low);
        digest_number(&digest, spec->extents[i].high);
    }
    return digest;
}
