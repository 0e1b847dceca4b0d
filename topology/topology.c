/* The way of a file: bytes, tree, overrides, typed values, rules.  Each step notes its errors in the source and the
 * next one goes on as far as there is something to look at, so that one run reports them all. */
#include "topology/topology.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/document.h"
#include "topology/keys.h"
#include "topology/override.h"
#include "topology/reader.h"
#include "topology/rules.h"
#include "topology/source.h"

void topology_destroy(struct topology *topology)
{
    if (!topology)
        return;
    source_destroy(topology->source);
    free(topology);
}

static enum status fill(struct topology *topology)
{
    struct topology_source *source = topology->source;
    struct node *root;
    enum status st = document_parse_file(source, &root);

    if (st != STATUS_OK || !root)
        return st;
    for (size_t i = 0; st == STATUS_OK && root->kind == NODE_MAP && i < source->override_count; i++)
        st = override_apply(source, (uint32_t)i + 1, root);
    if (st == STATUS_OK)
        st = reader_fill(topology, root);
    if (st == STATUS_OK && root->kind == NODE_MAP)
        st = rules_check(topology);
    return st == STATUS_OK && source->arena.failed ? STATUS_NOMEM : st;
}

enum status topology_parse(const char *bytes, size_t byte_count, const char *name, const char *const *overrides,
                           size_t override_count, struct topology **ret, struct text *messages, struct error *err)
{
    static const char mark[] = "\xef\xbb\xbf";
    bool marked = byte_count >= 3 && !memcmp(bytes, mark, 3);
    struct topology *topology;
    enum status st;

    if (byte_count > TOPOLOGY_MAX_FILE_BYTES)
        return error_set(err, STATUS_TOPOLOGY, "%s: the file is larger than the limit of %d bytes", name,
                         TOPOLOGY_MAX_FILE_BYTES);
    if (byte_count >= 2 && (!memcmp(bytes, "\xff\xfe", 2) || !memcmp(bytes, "\xfe\xff", 2)))
        return error_set(err, STATUS_TOPOLOGY, "%s: the file is UTF-16: save it as UTF-8", name);
    topology = calloc(1, sizeof *topology);
    if (!topology)
        return error_set(err, STATUS_NOMEM, "%s: no memory for a topology", name);
    topology->source = source_create(name, marked ? bytes + 3 : bytes, marked ? byte_count - 3 : byte_count, overrides,
                                     override_count);
    st = topology->source ? fill(topology) : STATUS_NOMEM;
    if (st == STATUS_NOMEM)
        error_set(err, st, "%s: no memory for a topology", name);
    else
        st = source_report(topology->source, messages, err);
    if (st == STATUS_OK)
        *ret = topology;
    else
        topology_destroy(topology);
    return st;
}

/* One byte more than the limit is enough to know that the file is too large, whatever its size. */
static enum status read_file(const char *path, char *bytes, size_t capacity, size_t *ret, struct error *err)
{
    FILE *file = fopen(path, "rbe");
    enum status st = STATUS_OK;

    if (!file)
        return error_set(err, STATUS_STORAGE, "%s: %s", path, strerror(errno));
    errno = 0;
    *ret = fread(bytes, 1, capacity, file);
    if (ferror(file))
        st = error_set(err, STATUS_STORAGE, "%s: %s", path, strerror(errno));
    (void)fclose(file);
    return st;
}

enum status topology_load(const char *path, const char *const *overrides, size_t override_count, struct topology **ret,
                          struct text *messages, struct error *err)
{
    size_t capacity = TOPOLOGY_MAX_FILE_BYTES + 1;
    char *bytes = malloc(capacity);
    size_t byte_count = 0;
    enum status st;

    if (!bytes)
        return error_set(err, STATUS_NOMEM, "%s: no memory for the file", path);
    st = read_file(path, bytes, capacity, &byte_count, err);
    if (st == STATUS_OK)
        st = topology_parse(bytes, byte_count, path, overrides, override_count, ret, messages, err);
    free(bytes);
    return st;
}

void topology_error_at(const struct topology *topology, struct topology_position at, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    source_error_list(topology->source, at, format, args);
    va_end(args);
}

void topology_describe_position(const struct topology *topology, struct topology_position at, struct text *text)
{
    source_describe(topology->source, at, text);
}

enum status topology_report(const struct topology *topology, struct text *messages, struct error *err)
{
    return source_report(topology->source, messages, err);
}

void topology_path(const struct topology *topology, const char *path, struct text *text)
{
    const char *slash = strrchr(topology->source->name, '/');

    if (*path != '/' && slash)
        text_add_bytes(text, topology->source->name, (size_t)(slash - topology->source->name) + 1);
    text_add(text, "%s", path);
}

const char *topology_axis_name(enum topology_axis axis)
{
    return key_axes.word[axis];
}

const char *topology_operation_name(enum topology_operation operation)
{
    return key_operations.word[operation];
}
