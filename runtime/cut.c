/* Cuts: units to pieces, pieces to ranks, both by the balanced rule (the first get one more). */
#include "runtime/cut.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

enum status cut_init(uint64_t total, uint64_t unit, uint32_t pieces, const char *what, struct cut *ret,
                     struct error *err)
{
    uint64_t units;
    uint64_t legal;
    uint64_t *begin;

    if (!total || !unit || !pieces)
        return error_set(err, STATUS_INVALID, "%s: %" PRIu64 " in units of %" PRIu64 " in %u pieces", what, total, unit,
                         pieces);
    units = total / unit + (total % unit != 0);
    legal = units < CUT_MAX_PIECES ? units : CUT_MAX_PIECES;
    if (pieces > legal && legal == 1)
        return error_set(err, STATUS_MODEL,
                         "%s: %" PRIu64 " in units of %" PRIu64 " cannot be cut at all, %u pieces are wanted", what,
                         total, unit, pieces);
    if (pieces > legal)
        return error_set(err, STATUS_MODEL,
                         "%s: %" PRIu64 " in units of %" PRIu64 " cannot be cut in %u pieces, 1 to %" PRIu64
                         " are possible",
                         what, total, unit, pieces, legal);
    begin = calloc((size_t)pieces + 1, sizeof *begin);
    if (!begin)
        return error_set(err, STATUS_NOMEM, "%u pieces of %s", pieces, what);
    for (uint32_t piece = 0; piece < pieces; piece++)
        begin[piece] = share_start(units, pieces, piece) * unit;
    begin[pieces] = total;
    *ret = (struct cut){.pieces = pieces, .unit = unit, .begin = begin};
    return STATUS_OK;
}

void cut_done(struct cut *cut)
{
    free(cut->begin);
    memset(cut, 0, sizeof *cut);
}

struct share cut_pieces(const struct cut *cut, uint32_t parts, uint32_t p)
{
    return (struct share){.start = share_start(cut->pieces, parts, p), .count = share_count(cut->pieces, parts, p)};
}

struct share cut_range(const struct cut *cut, uint32_t parts, uint32_t p)
{
    struct share pieces = cut_pieces(cut, parts, p);
    uint64_t start = cut->begin[pieces.start];

    return (struct share){.start = start, .count = cut->begin[pieces.start + pieces.count] - start};
}
