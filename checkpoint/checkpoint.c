/* What both kinds of checkpoint share: the list of tensors, names sorted for a binary search, ranges checked before the
 * store sees them. */
#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/size.h"
#include "base/storage.h"
#include "checkpoint/checkpoint_private.h"
#include "checkpoint/gguf_private.h"
#include "checkpoint/saved.h"

static enum status open_any(struct checkpoint *checkpoint, struct error *err)
{
    struct stat facts;
    enum status st = store_create(&checkpoint->store, err);

    if (st != STATUS_OK)
        return st;
    if (stat(checkpoint->path, &facts))
        return error_set(err, STATUS_STORAGE, "%s: %s%s", checkpoint->path, strerror(errno),
                         errno == ENOENT ? "; expected a folder with config.json, or a .gguf file" : "");
    if (S_ISDIR(facts.st_mode))
        st = folder_open(checkpoint, err);
    else
        st = saved_begins(checkpoint->path) ? saved_open(checkpoint, err) : gguf_open(checkpoint, err);
    if (st == STATUS_OK && checkpoint->notes.failed)
        st = error_set(err, STATUS_NOMEM, "%s: the notes", checkpoint->path);
    return st;
}

enum status checkpoint_open(const char *path, struct checkpoint **ret, struct error *err)
{
    struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    enum status st;

    if (!checkpoint || !(checkpoint->path = strdup(path)))
        st = error_set(err, STATUS_NOMEM, "%s: the model's description", path);
    else
        st = open_any(checkpoint, err);
    if (st != STATUS_OK) {
        checkpoint_close(checkpoint);
        return st;
    }
    *ret = checkpoint;
    return STATUS_OK;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (size_t i = 0; i < checkpoint->count; i++)
        free((char *)checkpoint->tensors[i].name);
    free(checkpoint->tensors);
    free(checkpoint->by_name);
    text_done(&checkpoint->notes);
    gguf_destroy(checkpoint->gguf);
    store_destroy(checkpoint->store);
    free(checkpoint->path);
    free(checkpoint);
}

static enum status check_name(const struct checkpoint *checkpoint, const char *name, size_t length, struct error *err)
{
    if (!length || length > TENSOR_NAME_LIMIT)
        return error_set(err, STATUS_MODEL, "%s: tensor %zu has a name of %zu bytes, expected 1 to %d",
                         checkpoint->path, checkpoint->count, length, TENSOR_NAME_LIMIT);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return error_set(err, STATUS_MODEL, "%s: the name of tensor %zu holds the control character %u",
                             checkpoint->path, checkpoint->count, (unsigned char)name[i]);
    return STATUS_OK;
}

enum status checkpoint_add_tensor(struct checkpoint *checkpoint, const char *name, size_t length,
                                  const struct stored_tensor *facts, struct error *err)
{
    char *copy;
    enum status st = check_name(checkpoint, name, length, err);

    if (st != STATUS_OK)
        return st;
    if (checkpoint->count == checkpoint->capacity) {
        size_t capacity = checkpoint->capacity ? 2 * checkpoint->capacity : 64;
        struct stored_tensor *tensors = reallocarray(checkpoint->tensors, capacity, sizeof *tensors);

        if (!tensors)
            return error_set(err, STATUS_NOMEM, "%s: the list of tensors", checkpoint->path);
        checkpoint->tensors = tensors;
        checkpoint->capacity = capacity;
    }
    copy = strndup(name, length);
    if (!copy)
        return error_set(err, STATUS_NOMEM, "%s: the list of tensors", checkpoint->path);
    checkpoint->tensors[checkpoint->count] = *facts;
    checkpoint->tensors[checkpoint->count++].name = copy;
    return STATUS_OK;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
    const struct stored_tensor *list = tensors;

    return strcmp(list[*(const size_t *)a].name, list[*(const size_t *)b].name);
}

enum status checkpoint_index_names(struct checkpoint *checkpoint, struct error *err)
{
    size_t *by_name = calloc(checkpoint->count + 1, sizeof *by_name);

    if (!by_name)
        return error_set(err, STATUS_NOMEM, "%s: the list of tensors", checkpoint->path);
    checkpoint->by_name = by_name;
    for (size_t i = 0; i < checkpoint->count; i++)
        by_name[i] = i;
    qsort_r(by_name, checkpoint->count, sizeof *by_name, compare_names, checkpoint->tensors);
    for (size_t i = 1; i < checkpoint->count; i++) {
        const struct stored_tensor *one = &checkpoint->tensors[by_name[i - 1]];
        const struct stored_tensor *two = &checkpoint->tensors[by_name[i]];

        if (!strcmp(one->name, two->name))
            return error_set(err, STATUS_MODEL, "%s: duplicate tensor name '%s'",
                             store_path(checkpoint->store, two->shard), two->name);
    }
    return STATUS_OK;
}

bool checkpoint_is_gguf(const struct checkpoint *checkpoint)
{
    return checkpoint->gguf != NULL;
}

bool checkpoint_has_weights(const struct checkpoint *checkpoint)
{
    return checkpoint->count > 0;
}

bool checkpoint_is_saved(const struct checkpoint *checkpoint)
{
    return checkpoint->saved;
}

const char *checkpoint_path(const struct checkpoint *checkpoint)
{
    return checkpoint->path;
}

const struct model_config *checkpoint_config(const struct checkpoint *checkpoint)
{
    return &checkpoint->config;
}

const struct gguf *checkpoint_gguf(const struct checkpoint *checkpoint)
{
    return checkpoint->gguf;
}

const char *checkpoint_notes(const struct checkpoint *checkpoint)
{
    return text_string(&checkpoint->notes);
}

size_t checkpoint_tensor_count(const struct checkpoint *checkpoint)
{
    return checkpoint->count;
}

const struct stored_tensor *checkpoint_tensor(const struct checkpoint *checkpoint, size_t index)
{
    CHECK(index < checkpoint->count);
    return &checkpoint->tensors[index];
}

const struct stored_tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name)
{
    size_t low = 0;
    size_t high = checkpoint->by_name ? checkpoint->count : 0;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct stored_tensor *tensor = &checkpoint->tensors[checkpoint->by_name[middle]];
        int order = strcmp(name, tensor->name);

        if (!order)
            return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

int checkpoint_shard_count(const struct checkpoint *checkpoint)
{
    return store_count(checkpoint->store);
}

const char *checkpoint_shard_path(const struct checkpoint *checkpoint, int shard)
{
    return store_path(checkpoint->store, shard);
}

static enum status check_range(const struct checkpoint *checkpoint, const struct stored_tensor *tensor, uint64_t begin,
                               uint64_t bytes, struct error *err)
{
    if (checkpoint->saved)
        return error_set(err, STATUS_INVALID, "%s describes a model, it holds no weights", checkpoint->path);
    if (begin > tensor->bytes || bytes > tensor->bytes - begin)
        return error_set(err, STATUS_INVALID,
                         "tensor '%s': bytes %" PRIu64 " to %" PRIu64 " + %" PRIu64 " asked for, it has %" PRIu64,
                         tensor->name, begin, begin, bytes, tensor->bytes);
    return STATUS_OK;
}

enum status checkpoint_map(struct checkpoint *checkpoint, const struct stored_tensor *tensor, uint64_t begin,
                           uint64_t bytes, const unsigned char **ret, struct error *err)
{
    enum status st = check_range(checkpoint, tensor, begin, bytes, err);

    if (st != STATUS_OK)
        return st;
    st = store_map(checkpoint->store, tensor->shard, tensor->offset + begin, bytes, ret, err);
    return st == STATUS_OK ? st : error_wrap(err, st, "tensor '%s'", tensor->name);
}

/* One range that is lent as a storage. */
struct lease {
    struct store *store;
    int shard;
};

static void end_lease(void *context)
{
    struct lease *lease = context;

    store_release(lease->store, lease->shard);
    free(lease);
}

enum status checkpoint_lend(struct checkpoint *checkpoint, const struct stored_tensor *tensor, uint64_t begin,
                            uint64_t bytes, struct storage **ret, struct error *err)
{
    struct lease *lease = malloc(sizeof *lease);
    const unsigned char *data = NULL;
    enum status st;

    if (!lease)
        return error_set(err, STATUS_NOMEM, "tensor '%s'", tensor->name);
    st = checkpoint_map(checkpoint, tensor, begin, bytes, &data, err);
    if (st != STATUS_OK) {
        free(lease);
        return st;
    }
    *lease = (struct lease){checkpoint->store, tensor->shard};
    st = storage_lend(MEMORY_MAPPED, data, bytes, end_lease, lease, ret, err);
    if (st != STATUS_OK)
        end_lease(lease);
    return st;
}

enum status checkpoint_read(struct checkpoint *checkpoint, const struct stored_tensor *tensor, uint64_t begin,
                            uint64_t bytes, void *memory, struct error *err)
{
    enum status st = check_range(checkpoint, tensor, begin, bytes, err);

    if (st != STATUS_OK)
        return st;
    st = store_read(checkpoint->store, tensor->shard, tensor->offset + begin, bytes, memory, err);
    return st == STATUS_OK ? st : error_wrap(err, st, "tensor '%s'", tensor->name);
}

enum status checkpoint_read_strided(struct checkpoint *checkpoint, const struct stored_tensor *tensor, uint64_t begin,
                                    uint64_t row_count, uint64_t stride_bytes, uint64_t piece_bytes, void *memory,
                                    struct error *err)
{
    uint64_t span;
    enum status st;

    if (piece_bytes > stride_bytes)
        return error_set(err, STATUS_INVALID, "tensor '%s': pieces of %" PRIu64 " bytes, %" PRIu64 " apart",
                         tensor->name, piece_bytes, stride_bytes);
    if (!row_count || !piece_bytes)
        return check_range(checkpoint, tensor, begin, 0, err);
    if (size_mul(row_count - 1, stride_bytes, &span) || size_add(span, piece_bytes, &span))
        return error_set(err, STATUS_INVALID, "tensor '%s': %" PRIu64 " rows of %" PRIu64 " bytes", tensor->name,
                         row_count, stride_bytes);
    st = check_range(checkpoint, tensor, begin, span, err);
    if (st != STATUS_OK)
        return st;
    st = store_read_strided(checkpoint->store, tensor->shard, tensor->offset + begin, row_count, stride_bytes,
                            piece_bytes, memory, err);
    return st == STATUS_OK ? st : error_wrap(err, st, "tensor '%s'", tensor->name);
}

uint64_t checkpoint_bytes_read(const struct checkpoint *checkpoint)
{
    return store_bytes_read(checkpoint->store);
}

uint64_t checkpoint_bytes_resident(const struct checkpoint *checkpoint)
{
    return store_bytes_resident(checkpoint->store);
}
