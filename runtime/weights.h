/* One rank's part of a checkpoint, bound: packed matrices as they lie, vectors as f32.
 *
 * Row slices are used in place in the mapped file, which is leased until weights_unload.  Slices along the inner
 * dimension are packed once, through bounded reads.  Everything is validated before anything is bound; binding cannot
 * fail. */
#ifndef RUNTIME_WEIGHTS_H
#define RUNTIME_WEIGHTS_H

#include <stdint.h>

#include "base/status.h"
#include "runtime/compute.h"
#include "runtime/family.h"

struct checkpoint;
struct plan;
struct rank_plan;
struct storage;

/* Indexed by enum parameter; a parameter that this layer or stage has not is zero. */
struct weight_set {
    struct matrix matrix[PARAMETER_COUNT];
    float *vector[PARAMETER_COUNT];
    struct matrix *o_pieces;    /* [pieces.count] views of PARAMETER_O, one a piece of this rank */
    struct matrix *down_pieces; /* [pieces.count] views of PARAMETER_DOWN */
};

struct weights {
    uint64_t layer_count;
    uint32_t piece_count;
    struct weight_set *layers; /* [layer_count] */
    struct weight_set stage;   /* embedding, output norm, head, rope factors */
    uint64_t owned_bytes;      /* of stored bytes that this rank holds */
    struct storage **storage;  /* [storage_count] what all of it lies in: leased from the mapped files, or packed */
    size_t storage_count;
    size_t storage_capacity;
};

/* Load rank's part.  The checkpoint is borrowed until weights_unload.  Local; reads files.
 * STATUS_MODEL (missing tensor, wrong shape or type: expected and found), STATUS_STORAGE, STATUS_CORRUPT,
 * STATUS_OVERFLOW, STATUS_NOMEM. */
enum status weights_load(struct checkpoint *checkpoint, const struct plan *plan, const struct rank_plan *rank,
                         struct weights **ret, struct error *err);
void weights_unload(struct weights *weights);

#endif
