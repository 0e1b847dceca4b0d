/* A GGUF file, or several that say of themselves that they are parts of one (split.count, split.no): the parts' names
 * end in -00001-of-00003.gguf, the first is opened, the others must lie beside it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "checkpoint/checkpoint_private.h"
#include "checkpoint/file.h"
#include "checkpoint/gguf_private.h"

/* "-00001-of-00003.gguf" */
enum { ENDING_BYTES = 20, PARTS_SHOWN = 8 };

struct split {
    uint64_t count; /* 1: not split */
    uint64_t number;
    uint64_t tensor_count; /* of all parts; 0: not said */
};

static enum status read_split(const struct gguf *gguf, const char *path, struct split *ret, struct error *err)
{
    *ret = (struct split){.count = 1};
    (void)gguf_get_u64(gguf, "split.count", &ret->count);
    (void)gguf_get_u64(gguf, "split.no", &ret->number);
    (void)gguf_get_u64(gguf, "split.tensors.count", &ret->tensor_count);
    if (!ret->count)
        ret->count = 1;
    if (ret->count > STORE_MAX_FILES || ret->number >= ret->count)
        return error_set(err, STATUS_MODEL, "%s: split.no %" PRIu64 " of split.count %" PRIu64 " (at most %d parts)",
                         path, ret->number, ret->count, STORE_MAX_FILES);
    return STATUS_OK;
}

/* path with its ending made that of part number (from 0); NULL when path does not end as a part's name does.  The
 * caller frees.  *ret_own: the number that path's own name says. */
static char *part_path(const char *path, uint64_t number, uint64_t count, uint64_t *ret_own)
{
    size_t length = strlen(path);
    char ending[64];
    unsigned own;
    unsigned own_count;
    int end = 0;
    char *result;

    if (length < ENDING_BYTES ||
        sscanf(path + length - ENDING_BYTES, "-%5u-of-%5u.gguf%n", &own, &own_count, &end) != 2 ||
        end != ENDING_BYTES || own_count != count || !own)
        return NULL;
    (void)snprintf(ending, sizeof ending, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", number + 1, count);
    result = strdup(path);
    if (result)
        memcpy(result + length - ENDING_BYTES, ending, ENDING_BYTES);
    *ret_own = own - 1;
    return result;
}

/* The opened file must be the first part, by its metadata and by its name. */
static enum status check_first(const char *path, const struct split *split, struct error *err)
{
    uint64_t own = 0;
    char *first = part_path(path, 0, split->count, &own);
    enum status st = STATUS_OK;

    if (split->number)
        st = error_set(err, STATUS_MODEL, "%s: this is part %" PRIu64 " of %" PRIu64 ": open the first part%s%s", path,
                       split->number + 1, split->count, first ? ", " : "", first ? file_base_name(first) : "");
    else if (!first || own)
        st = error_set(err, STATUS_MODEL,
                       "%s: this is part 1 of %" PRIu64 ", so its name must end in -00001-of-%05" PRIu64
                       ".gguf, or the other parts cannot be found",
                       path, split->count, split->count);
    free(first);
    return st;
}

static enum status check_present(const char *path, uint64_t count, struct error *err)
{
    struct text missing = {0};
    uint64_t missing_count = 0;
    uint64_t own;
    enum status st = STATUS_OK;

    for (uint64_t i = 1; i < count; i++) {
        char *part = part_path(path, i, count, &own);

        if (part && access(part, R_OK) && missing_count++ < PARTS_SHOWN)
            text_add(&missing, "%s%s", missing_count > 1 ? ", " : "", file_base_name(part));
        free(part);
    }
    if (missing_count > PARTS_SHOWN)
        text_add(&missing, " and %" PRIu64 " more", missing_count - PARTS_SHOWN);
    if (missing_count)
        st = error_set(err, STATUS_MODEL, "%s: %" PRIu64 " of %" PRIu64 " parts cannot be read: %s", path,
                       missing_count, count, text_string(&missing));
    text_done(&missing);
    return st;
}

/* Enter the file and its tensors; the metadata is complete afterwards. */
static enum status add_file(struct checkpoint *checkpoint, struct gguf *gguf, struct error *err)
{
    int shard;
    enum status st = store_add(checkpoint->store, gguf->path, gguf->file_bytes, &shard, err);

    if (st == STATUS_OK)
        st = gguf_read_tensors(gguf, checkpoint, shard, err);
    gguf_finish(gguf);
    return st;
}

static enum status add_part(struct checkpoint *checkpoint, const char *path, uint64_t number, uint64_t count,
                            struct error *err)
{
    struct gguf *gguf = NULL;
    struct split split;
    enum status st = gguf_read(path, &gguf, err);

    if (st == STATUS_OK)
        st = read_split(gguf, path, &split, err);
    if (st == STATUS_OK && (split.number != number || split.count != count))
        st = error_set(err, STATUS_MODEL,
                       "%s: by its name part %" PRIu64 " of %" PRIu64 ", by its metadata part %" PRIu64 " of %" PRIu64,
                       path, number + 1, count, split.number + 1, split.count);
    if (st == STATUS_OK)
        st = add_file(checkpoint, gguf, err);
    gguf_destroy(gguf);
    return st;
}

static enum status add_parts(struct checkpoint *checkpoint, const struct split *split, struct error *err)
{
    uint64_t own;
    enum status st = check_present(checkpoint->path, split->count, err);

    for (uint64_t i = 1; i < split->count && st == STATUS_OK; i++) {
        char *path = part_path(checkpoint->path, i, split->count, &own);

        st = path ? add_part(checkpoint, path, i, split->count, err)
                  : error_set(err, STATUS_NOMEM, "%s: the names of its parts", checkpoint->path);
        free(path);
    }
    if (st == STATUS_OK && split->tensor_count && split->tensor_count != checkpoint->count)
        st = error_set(err, STATUS_MODEL, "%s: split.tensors.count says %" PRIu64 ", the parts hold %zu tensors",
                       checkpoint->path, split->tensor_count, checkpoint->count);
    return st;
}

enum status gguf_open(struct checkpoint *checkpoint, struct error *err)
{
    struct split split;
    enum status st = gguf_read(checkpoint->path, &checkpoint->gguf, err);

    if (st != STATUS_OK)
        return st;
    st = read_split(checkpoint->gguf, checkpoint->path, &split, err);
    if (st == STATUS_OK && split.count > 1)
        st = check_first(checkpoint->path, &split, err);
    if (st == STATUS_OK)
        st = add_file(checkpoint, checkpoint->gguf, err);
    if (st == STATUS_OK && split.count > 1)
        st = add_parts(checkpoint, &split, err);
    if (st == STATUS_OK)
        st = checkpoint_index_names(checkpoint, err);
    return st == STATUS_OK ? gguf_config(checkpoint, err) : st;
}
