/* Checked arithmetic for every size and count that comes from a file, the wire or a user. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* *ret = a * b, or STATUS_OVERFLOW with *ret untouched. */
static inline enum status size_mul(size_t a, size_t b, size_t *ret)
{
    size_t product;

    if (__builtin_mul_overflow(a, b, &product))
        return STATUS_OVERFLOW;
    *ret = product;
    return STATUS_OK;
}

/* *ret = a + b, or STATUS_OVERFLOW with *ret untouched. */
static inline enum status size_add(size_t a, size_t b, size_t *ret)
{
    size_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return STATUS_OVERFLOW;
    *ret = sum;
    return STATUS_OK;
}

/* *ret = a as int, or STATUS_OVERFLOW with *ret untouched. */
static inline enum status size_to_int(size_t a, int *ret)
{
    if (a > INT_MAX)
        return STATUS_OVERFLOW;
    *ret = (int)a;
    return STATUS_OK;
}

/* a rounded up to a multiple of unit (a power of two), or STATUS_OVERFLOW. */
static inline enum status size_round_up(size_t a, size_t unit, size_t *ret)
{
    size_t sum;

    if (__builtin_add_overflow(a, unit - 1, &sum))
        return STATUS_OVERFLOW;
    *ret = sum & ~(unit - 1);
    return STATUS_OK;
}

/* The balanced contiguous rule: part p of total things dealt to parts; the first total % parts get one more. */
static inline uint64_t share_start(uint64_t total, uint64_t parts, uint64_t p)
{
    uint64_t each = total / parts;
    uint64_t more = total % parts;

    return p * each + (p < more ? p : more);
}

static inline uint64_t share_count(uint64_t total, uint64_t parts, uint64_t p)
{
    return total / parts + (p < total % parts ? 1 : 0);
}

#endif
