/* The rule for cuts: where query heads and the feed-forward dimension may be cut, and who gets which piece.
 *
 * Units are dealt balanced to pieces, contiguous pieces balanced to ranks, the first get one more (docs/numerics.md).
 * Example: 9 heads of unit 1 in 2 pieces are 5 + 4; 11008 in units of 256 in 2 pieces are 22 + 21 units. */
#ifndef RUNTIME_CUT_H
#define RUNTIME_CUT_H

#include <stdint.h>

#include "base/status.h"

enum { CUT_MAX_PIECES = 1024 };

struct share {
    uint64_t start;
    uint64_t count;
};

/* begin[p] of pieces + 1 boundaries of a dimension, begin[0] = 0, begin[pieces] = total. */
struct cut {
    uint32_t pieces;
    uint64_t unit;
    uint64_t *begin;
};

/* what: "query heads", "the feed-forward dimension", for messages.  STATUS_MODEL: fewer units than pieces; lists the
 * legal numbers. */
enum status cut_init(uint64_t total, uint64_t unit, uint32_t pieces, const char *what, struct cut *ret,
                     struct error *err);
void cut_done(struct cut *cut);

/* The pieces of part p of parts, and the range of the dimension that they cover. */
struct share cut_pieces(const struct cut *cut, uint32_t parts, uint32_t p);
struct share cut_range(const struct cut *cut, uint32_t parts, uint32_t p);

#endif
