/* Data whose right place can be told from every byte, and sums that are exact in every dtype. */
#ifndef LAUNCHER_CHECK_PATTERN_H
#define LAUNCHER_CHECK_PATTERN_H

#include <stdbool.h>

#include "base/tensor.h"
#include "comm/layout.h"

/* Whose data: what member source sends to member target (-1: to all), as tensor number of a bundle. */
struct pattern {
    int source;
    int target;
    int tensor;
};

/* Write the part [start, start + count) of a tensor along the slab's axis: the elements of a tensor of count extents
 * that pattern describes. */
void pattern_fill(struct tensor *tensor, const struct slab *slab, uint64_t start, uint64_t count, struct pattern who);

/* Is it there?  False: *ret_byte is the first byte of the tensor that is another, *ret_expected what belongs there. */
bool pattern_holds(const struct tensor *tensor, const struct slab *slab, uint64_t start, uint64_t count,
                   struct pattern who, size_t *ret_byte, unsigned char *ret_expected);

/* Every element of tensor is what member brings to a sum over size members. */
void pattern_fill_addends(struct tensor *tensor, int member, int size);

/* Every element is the sum over all members: exact, wrapped in integers of 8 bits. */
bool pattern_holds_sums(const struct tensor *tensor, int size, size_t *ret_byte, unsigned char *ret_expected);

#endif
