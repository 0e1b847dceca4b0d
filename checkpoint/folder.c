/* A Hugging Face folder: config.json says what the model is; the weights are model.safetensors, or the shards that
 * model.safetensors.index.json names.  The index decides: a file or a tensor that it does not name is noted, not read.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_private.h"
#include "checkpoint/file.h"
#include "checkpoint/folder_config.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"

#define INDEX_NAME "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"
#define INDEX_LIMIT ((size_t)256 << 20)

/* How many names a message lists before it only counts. */
enum { NAMES_SHOWN = 8 };

struct name_list {
    struct text text;
    size_t count;
};

static void name_list_add(struct name_list *list, const char *name)
{
    if (list->count++ < NAMES_SHOWN)
        text_add(&list->text, "%s%.100s", list->count > 1 ? ", " : "", name);
}

static const char *name_list_end(struct name_list *list)
{
    if (list->count > NAMES_SHOWN)
        text_add(&list->text, " and %zu more", list->count - NAMES_SHOWN);
    return text_string(&list->text);
}

static enum status joined(const char *folder, const char *name, char **ret, struct error *err)
{
    *ret = file_join(folder, name);
    return *ret ? STATUS_OK : error_set(err, STATUS_NOMEM, "%s/%s", folder, name);
}

/* Read one file of weights and take over the tensors that index assigns to it: all when there is no index.  Tensors
 * found are struck out of the index. */
static enum status add_shard(struct checkpoint *checkpoint, const char *path, json_t *index, struct name_list *unnamed,
                             struct error *err)
{
    struct safetensors file = {0};
    int shard;
    enum status st = safetensors_read(path, &file, err);

    if (st != STATUS_OK)
        return st;
    st = store_add(checkpoint->store, path, file.file_bytes, &shard, err);
    for (size_t i = 0; i < file.count && st == STATUS_OK; i++) {
        const char *name = file.tensors[i].name;

        if (index) {
            const char *home = json_string_value(json_object_get(index, name));

            if (!home || strcmp(home, file_base_name(path))) {
                name_list_add(unnamed, name);
                continue;
            }
            (void)json_object_del(index, name);
        }
        file.tensors[i].shard = shard;
        st = checkpoint_add_tensor(checkpoint, name, strlen(name), &file.tensors[i], err);
    }
    safetensors_done(&file);
    return st;
}

/* The set of file names that the index uses, as an object's keys. */
static enum status shard_names(const char *path, const json_t *index, json_t *names, struct error *err)
{
    const char *tensor;
    json_t *value;

    if (!json_is_object(index))
        return error_set(err, STATUS_MODEL, "%s: weight_map is %s, expected an object", path, json_kind(index));
    json_object_foreach((json_t *)index, tensor, value)
    {
        const char *name = json_string_value(value);

        if (!name)
            return error_set(err, STATUS_MODEL, "%s: tensor '%.200s' is in %s, expected the name of a file", path,
                             tensor, json_kind(value));
        if (!*name || strchr(name, '/') || name[0] == '.')
            return error_set(err, STATUS_MODEL,
                             "%s: tensor '%.200s' is in '%.200s', expected the name of a file in this folder", path,
                             tensor, name);
        if (json_object_set_new(names, name, json_true()))
            return error_set(err, STATUS_NOMEM, "%s: the names of the shards", path);
    }
    if (!json_object_size(names))
        return error_set(err, STATUS_MODEL, "%s: weight_map names no tensor", path);
    return STATUS_OK;
}

static enum status check_present(const struct checkpoint *checkpoint, const char *index_path, json_t *names,
                                 struct error *err)
{
    struct name_list missing = {0};
    const char *name;
    json_t *value;
    enum status st = STATUS_OK;

    json_object_foreach(names, name, value)
    {
        char *path;

        st = joined(checkpoint->path, name, &path, err);
        if (st != STATUS_OK)
            break;
        if (access(path, R_OK))
            name_list_add(&missing, name);
        free(path);
    }
    if (st == STATUS_OK && missing.count)
        st = error_set(err, STATUS_MODEL, "%s names %zu files that cannot be read: %s", index_path, missing.count,
                       name_list_end(&missing));
    text_done(&missing.text);
    return st;
}

/* The folder's files of weights that end in suffix and are not among names. */
static void list_strays(const char *path, const char *suffix, const json_t *names, struct name_list *strays)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;

    if (!folder)
        return;
    while ((entry = readdir(folder))) {
        const char *end = strrchr(entry->d_name, '.');

        if (end && !strcmp(end, suffix) && !json_object_get(names, entry->d_name))
            name_list_add(strays, entry->d_name);
    }
    closedir(folder);
}

static void note_strays(struct checkpoint *checkpoint, const json_t *names)
{
    struct name_list strays = {0};

    list_strays(checkpoint->path, ".safetensors", names, &strays);
    if (strays.count)
        text_add(&checkpoint->notes, "%s: %s decides; not named by it, not read: %s\n", checkpoint->path, INDEX_NAME,
                 name_list_end(&strays));
    text_done(&strays.text);
}

static enum status check_found(const char *index_path, json_t *index, struct error *err)
{
    struct name_list absent = {0};
    const char *tensor;
    json_t *value;
    enum status st;

    if (!json_object_size(index))
        return STATUS_OK;
    json_object_foreach(index, tensor, value)
    {
        struct text item = {0};

        text_add(&item, "%.60s (%.60s)", tensor, json_string_value(value));
        name_list_add(&absent, text_string(&item));
        text_done(&item);
    }
    st = error_set(err, STATUS_MODEL, "%s names %zu tensors that their file does not hold: %s", index_path,
                   absent.count, name_list_end(&absent));
    text_done(&absent.text);
    return st;
}

static enum status open_shards(struct checkpoint *checkpoint, const char *index_path, json_t *index, json_t *names,
                               struct error *err)
{
    struct name_list unnamed = {0};
    const char *name;
    json_t *value;
    enum status st = shard_names(index_path, index, names, err);

    if (st == STATUS_OK)
        st = check_present(checkpoint, index_path, names, err);
    if (st != STATUS_OK)
        return st;
    note_strays(checkpoint, names);
    json_object_foreach(names, name, value)
    {
        char *path = NULL;

        st = joined(checkpoint->path, name, &path, err);
        if (st == STATUS_OK)
            st = add_shard(checkpoint, path, index, &unnamed, err);
        free(path);
        if (st != STATUS_OK)
            break;
    }
    if (st == STATUS_OK)
        st = check_found(index_path, index, err);
    if (unnamed.count)
        text_add(&checkpoint->notes, "%s: tensors that it does not assign to the file they lie in, not read: %s\n",
                 index_path, name_list_end(&unnamed));
    text_done(&unnamed.text);
    return st;
}

static enum status open_indexed(struct checkpoint *checkpoint, const char *index_path, struct error *err)
{
    json_t *document = NULL;
    json_t *names = json_object();
    enum status st = json_read_object(index_path, INDEX_LIMIT, &document, err);

    if (st == STATUS_OK && !names)
        st = error_set(err, STATUS_NOMEM, "%s", index_path);
    if (st == STATUS_OK)
        st = open_shards(checkpoint, index_path, json_object_get(document, "weight_map"), names, err);
    json_decref(names);
    json_decref(document);
    return st;
}

/* No index: model.safetensors, or no weights at all.  Shards without their index are a mistake, not "no weights". */
static enum status open_single(struct checkpoint *checkpoint, const char *single_path, struct error *err)
{
    struct name_list strays = {0};
    enum status st = STATUS_OK;

    if (!access(single_path, F_OK))
        return add_shard(checkpoint, single_path, NULL, NULL, err);
    list_strays(checkpoint->path, ".safetensors", NULL, &strays);
    if (strays.count)
        st = error_set(err, STATUS_MODEL, "%s: neither %s nor %s is there, but other weights are: %s", checkpoint->path,
                       INDEX_NAME, SINGLE_NAME, name_list_end(&strays));
    text_done(&strays.text);
    return st;
}

static enum status open_weights(struct checkpoint *checkpoint, struct error *err)
{
    char *index_path = NULL;
    char *single_path = NULL;
    enum status st = joined(checkpoint->path, INDEX_NAME, &index_path, err);

    if (st == STATUS_OK)
        st = joined(checkpoint->path, SINGLE_NAME, &single_path, err);
    if (st == STATUS_OK)
        st = access(index_path, F_OK) ? open_single(checkpoint, single_path, err)
                                      : open_indexed(checkpoint, index_path, err);
    free(index_path);
    free(single_path);
    return st == STATUS_OK ? checkpoint_index_names(checkpoint, err) : st;
}

/* A folder that was meant for another: what a model's would hold, and the models that this one does. */
static enum status check_described(const struct checkpoint *checkpoint, struct error *err)
{
    struct name_list models = {0};
    char *path = NULL;
    enum status st = joined(checkpoint->path, "config.json", &path, err);

    if (st == STATUS_OK && access(path, F_OK) && errno == ENOENT) {
        list_strays(checkpoint->path, ".gguf", NULL, &models);
        st = error_set(err, STATUS_STORAGE,
                       "%s: cannot open: No such file or directory; expected a Hugging Face folder (config.json, "
                       "*.safetensors, tokenizer.json)%s%s",
                       path, models.count ? ", or the path of a GGUF file: " : "", name_list_end(&models));
    }
    text_done(&models.text);
    free(path);
    return st;
}

enum status folder_open(struct checkpoint *checkpoint, struct error *err)
{
    enum status st = check_described(checkpoint, err);

    if (st == STATUS_OK)
        st = folder_config(checkpoint->path, &checkpoint->config, &checkpoint->notes, err);
    return st == STATUS_OK ? open_weights(checkpoint, err) : st;
}
