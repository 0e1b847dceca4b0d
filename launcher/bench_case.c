/* Cases are numbered: (operation, variant, size).  Variant 0 has the parts whole, the others as runs of a few lengths
 * on axis 1.  A size that a group cannot share out evenly is rounded down; one too small for it is left out. */
#include "launcher/bench_case.h"

#include <inttypes.h>
#include <string.h>

#include "base/size.h"

enum { GROWTH = 4, VARIANTS = 4 };

/* Of variants 1..: a column of a head, of a narrow and of a wide matrix. */
static const size_t runs[VARIANTS] = {0, 64, 1024, 16384};

static bool has_axis(enum operation operation)
{
    return operation == OPERATION_ALL_GATHER_EVEN || operation == OPERATION_ALL_GATHER_UNEVEN ||
           operation == OPERATION_VARIABLE_ALL_TO_ALL;
}

static bool has_bytes(enum operation operation)
{
    return operation != OPERATION_BARRIER && operation != OPERATION_FAILURE_AGREEMENT;
}

static int size_count(const struct bench_options *options)
{
    int count = 1;

    for (size_t bytes = options->first_bytes; bytes <= options->last_bytes / GROWTH; bytes *= GROWTH)
        count++;
    return count;
}

/* False: the group cannot have this one. */
static bool describe(const struct bench_target *target, enum operation operation, int variant, size_t bytes,
                     struct bench_case *ret)
{
    size_t element = dtype_bytes(target->dtype);
    size_t parts = has_axis(operation) ? (size_t)target->size : 1;
    size_t extent = bytes / element;

    *ret = (struct bench_case){.operation = operation, .dtype = target->dtype, .axis = -1, .outer = 1};
    if (!has_bytes(operation))
        return true;
    if (has_axis(operation)) {
        ret->axis = variant ? 1 : 0;
        ret->run_bytes = runs[variant];
    }
    if (variant) {
        extent = runs[variant] / element * parts;
        ret->outer = bytes / (runs[variant] * parts);
    }
    ret->extent = operation == OPERATION_ALL_GATHER_UNEVEN ? extent : extent - extent % parts;
    ret->bytes = ret->outer * ret->extent * element;
    return ret->bytes && (!variant || (ret->outer > 1 && parts > 1));
}

bool bench_case_next(const struct bench_options *options, const struct bench_target *target, int *at,
                     struct bench_case *ret)
{
    int sizes = size_count(options);

    for (; *at < OPERATION_COUNT * VARIANTS * sizes; ++*at) {
        enum operation operation = (enum operation)(*at / (VARIANTS * sizes));
        int variant = *at / sizes % VARIANTS;
        int size = *at % sizes;
        bool once = !has_bytes(operation) && size;

        if (!(target->operations & OPERATION_BIT(operation)) || once || (variant && !has_axis(operation)))
            continue;
        if (!describe(target, operation, variant, options->first_bytes << (2 * size), ret))
            continue;
        ++*at;
        return true;
    }
    return false;
}

void bench_case_counts(const struct bench_case *point, const struct bench_target *target, uint64_t *counts)
{
    uint64_t n = (uint64_t)target->size;

    for (uint64_t i = 0; i < n; i++) {
        if (point->operation == OPERATION_ALL_GATHER_UNEVEN) /* in proportion to 1, 2, ... n */
            counts[i] = point->extent * (i + 1) * (i + 2) / (n * (n + 1)) - point->extent * i * (i + 1) / (n * (n + 1));
        else
            counts[i] = point->extent / n;
    }
}

/* Byte at of what member sends. */
static unsigned char pattern(int member, size_t at)
{
    return (unsigned char)((size_t)member * 37 + at * 11 + (at >> 8) * 7 + 1);
}

/* Element at of what member adds: small, so that sums are exact. */
static unsigned addend(int member, size_t at)
{
    return (unsigned)(((size_t)member * 7 + at * 13) % 8);
}

static void put_number(enum dtype dtype, unsigned value, unsigned char *to)
{
    uint64_t whole = value;
    float single = (float)value;
    double two = (double)value;
    uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(single) : f32_to_bf16(single);

    switch (dtype) {
    case DTYPE_F32:
        memcpy(to, &single, sizeof single);
        break;
    case DTYPE_F64:
        memcpy(to, &two, sizeof two);
        break;
    case DTYPE_F16:
    case DTYPE_BF16:
        memcpy(to, &half, sizeof half);
        break;
    default: /* little-endian: the low bytes are the narrower integer */
        memcpy(to, &whole, dtype_bytes(dtype));
        break;
    }
}

static struct shape shape_of(const struct bench_case *point, uint64_t extent)
{
    if (point->axis == 1)
        return (struct shape){.ndim = 2, .dim = {point->outer, extent}};
    return (struct shape){.ndim = 1, .dim = {extent}};
}

static bool is_gather(const struct bench_case *point)
{
    return point->operation == OPERATION_ALL_GATHER_EVEN || point->operation == OPERATION_ALL_GATHER_UNEVEN;
}

enum status bench_case_fill(const struct bench_case *point, const struct bench_target *target, int member,
                            const uint64_t *counts, struct tensor *send, struct tensor *recv, struct error *err)
{
    struct shape whole = shape_of(point, point->extent);
    struct shape own = shape_of(point, is_gather(point) ? counts[member] : point->extent);
    size_t element = dtype_bytes(point->dtype);
    enum status st = tensor_reshape(send, point->dtype, &own, err);

    (void)target;
    if (st == STATUS_OK)
        st = tensor_reshape(recv, point->dtype, &whole, err);
    if (st != STATUS_OK)
        return st;
    if (point->operation == OPERATION_ALL_REDUCE_SUM) {
        for (size_t i = 0; i < send->bytes / element; i++)
            put_number(point->dtype, addend(member, i), send->data + i * element);
    } else {
        for (size_t i = 0; i < send->bytes; i++)
            send->data[i] = pattern(member, i);
    }
    if (recv->bytes)
        memset(recv->data, 0xa5, recv->bytes);
    if (point->operation == OPERATION_BROADCAST && member == 0 && recv->bytes)
        memcpy(recv->data, send->data, recv->bytes);
    return STATUS_OK;
}

static enum status differs(const struct bench_case *point, const struct bench_target *target, const char *who,
                           size_t at, unsigned expected, unsigned got, struct error *err)
{
    return error_set(err, STATUS_CORRUPT, "%s %s, %s of %zu bytes by %s: byte %zu is %u, expected %u",
                     target->is_route ? "route" : "group", target->name, operation_name(point->operation), point->bytes,
                     who, at, got, expected);
}

static enum status verify_sum(const struct bench_case *point, const struct bench_target *target,
                              const struct tensor *recv, const char *who, struct error *err)
{
    size_t element = dtype_bytes(point->dtype);

    for (size_t i = 0; i < recv->bytes / element; i++) {
        unsigned char expected[8];
        unsigned sum = 0;

        for (int m = 0; m < target->size; m++)
            sum += addend(m, i);
        put_number(point->dtype, sum, expected);
        for (size_t k = 0; k < element; k++) {
            if (recv->data[i * element + k] != expected[k])
                return differs(point, target, who, i * element + k, expected[k], recv->data[i * element + k], err);
        }
    }
    return STATUS_OK;
}

/* Row by row, each member's run: of an all-to-all the part of its tensor that was for us. */
static enum status verify_parts(const struct bench_case *point, const struct bench_target *target, int member,
                                const uint64_t *counts, const struct tensor *recv, const char *who, struct error *err)
{
    size_t element = dtype_bytes(point->dtype);
    const unsigned char *got = recv->data;

    for (size_t row = 0; row < point->outer; row++) {
        for (int m = 0; m < target->size; m++) {
            size_t run = (size_t)counts[m] * element;
            size_t from = row * run;

            if (!is_gather(point))
                from = row * point->extent * element + (size_t)member * run;
            for (size_t i = 0; i < run; i++, got++) {
                if (*got != pattern(m, from + i))
                    return differs(point, target, who, (size_t)(got - recv->data), pattern(m, from + i), *got, err);
            }
        }
    }
    return STATUS_OK;
}

enum status bench_case_verify(const struct bench_case *point, const struct bench_target *target, int member,
                              const uint64_t *counts, const struct tensor *recv, const char *who, struct error *err)
{
    int from = target->is_route ? 1 - member : 0;

    if (point->operation == OPERATION_ALL_REDUCE_SUM)
        return verify_sum(point, target, recv, who, err);
    if (has_axis(point->operation))
        return verify_parts(point, target, member, counts, recv, who, err);
    for (size_t i = 0; i < recv->bytes; i++) {
        if (recv->data[i] != pattern(from, i))
            return differs(point, target, who, i, pattern(from, i), recv->data[i], err);
    }
    return STATUS_OK;
}

double bench_case_bus(const struct bench_case *point, int members, double us)
{
    double share = (double)(members - 1) / (double)members;
    double factor = point->operation == OPERATION_ALL_REDUCE_SUM ? 2 * share : has_axis(point->operation) ? share : 1;

    return us > 0 ? factor * (double)point->bytes / us / 1e3 : 0;
}
