/* Every byte of the data belongs to exactly one tensor: sorted by their ranges, the tensors must follow each other
 * without a gap from the first byte to the file's end.  That one rule finds overlaps, holes, cut files and trailing
 * bytes.  Unaligned offsets are legal. */
#include "checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "checkpoint/checkpoint_private.h"
#include "checkpoint/file.h"
#include "checkpoint/json.h"

enum { LENGTH_BYTES = 8 };

/* The format's element types; those without a weight type are carried, not computed with. */
static const struct element {
    const char *name;
    unsigned bits;
    enum weight_type type;
} elements[] = {
    {"F32", 32, WEIGHT_F32},         {"F16", 16, WEIGHT_F16},     {"BF16", 16, WEIGHT_BF16},
    {"F64", 64, WEIGHT_NONE},        {"I64", 64, WEIGHT_NONE},    {"U64", 64, WEIGHT_NONE},
    {"C64", 64, WEIGHT_NONE},        {"I32", 32, WEIGHT_NONE},    {"U32", 32, WEIGHT_NONE},
    {"I16", 16, WEIGHT_NONE},        {"U16", 16, WEIGHT_NONE},    {"I8", 8, WEIGHT_NONE},
    {"U8", 8, WEIGHT_NONE},          {"BOOL", 8, WEIGHT_NONE},    {"F8_E4M3", 8, WEIGHT_NONE},
    {"F8_E5M2", 8, WEIGHT_NONE},     {"F8_E8M0", 8, WEIGHT_NONE}, {"F8_E4M3FNUZ", 8, WEIGHT_NONE},
    {"F8_E5M2FNUZ", 8, WEIGHT_NONE}, {"F6_E2M3", 6, WEIGHT_NONE}, {"F6_E3M2", 6, WEIGHT_NONE},
    {"F4", 4, WEIGHT_NONE},
};

static const struct element *find_element(const char *name)
{
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++)
        if (!strcmp(elements[i].name, name))
            return &elements[i];
    return NULL;
}

static enum status parse_shape(const char *path, const char *name, const json_t *shape, struct stored_tensor *tensor,
                               struct error *err)
{
    size_t ndim = json_array_size(shape);
    char shown[96];

    if (!json_is_array(shape))
        return error_set(err, STATUS_MODEL, "%s: tensor '%.200s': shape is %s, expected an array", path, name,
                         json_kind(shape));
    if (ndim > STORED_MAX_NDIM)
        return error_set(err, STATUS_MODEL, "%s: tensor '%.200s': %zu dimensions, at most %d are read", path, name,
                         ndim, STORED_MAX_NDIM);
    tensor->ndim = (int)ndim;
    for (size_t i = 0; i < ndim; i++) {
        const json_t *dim = json_array_get(shape, i);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return error_set(err, STATUS_MODEL, "%s: tensor '%.200s': dimension %zu is %s, expected a whole number",
                             path, name, i, json_show(dim, shown, sizeof shown));
        tensor->dim[i] = (uint64_t)json_integer_value(dim);
    }
    return STATUS_OK;
}

static enum status parse_range(const char *path, const char *name, const json_t *range, uint64_t *ret_begin,
                               uint64_t *ret_end, struct error *err)
{
    const json_t *begin = json_array_get(range, 0);
    const json_t *end = json_array_get(range, 1);

    if (!json_is_array(range) || json_array_size(range) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return error_set(err, STATUS_MODEL, "%s: tensor '%.200s': data_offsets must be two whole numbers, found %s%s",
                         path, name, json_kind(range), json_is_array(range) ? " of another kind" : "");
    if (json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return error_set(err, STATUS_MODEL,
                         "%s: tensor '%.200s': data_offsets [%" JSON_INTEGER_FORMAT ", %" JSON_INTEGER_FORMAT
                         "]: the end lies before the begin",
                         path, name, json_integer_value(begin), json_integer_value(end));
    *ret_begin = (uint64_t)json_integer_value(begin);
    *ret_end = (uint64_t)json_integer_value(end);
    return STATUS_OK;
}

/* Bytes that shape and type take, against bytes that the range has. */
static enum status check_bytes(const char *path, const char *name, const struct element *element,
                               struct stored_tensor *tensor, struct error *err)
{
    size_t bits = element->bits;
    size_t row_bits = element->bits;

    for (int i = 0; i < tensor->ndim; i++)
        if (size_mul(bits, tensor->dim[i], &bits))
            return error_set(err, STATUS_MODEL, "%s: tensor '%.200s': the shape's elements overflow 64 bits", path,
                             name);
    if (bits % 8)
        return error_set(err, STATUS_MODEL, "%s: tensor '%.200s': %zu bits of %s are no whole bytes", path, name, bits,
                         element->name);
    if (bits / 8 != tensor->bytes)
        return error_set(err, STATUS_MODEL,
                         "%s: tensor '%.200s': shape and type %s take %zu bytes, data_offsets give %" PRIu64, path,
                         name, element->name, bits / 8, tensor->bytes);
    /* Cannot wrap when no dimension is zero: it is at most all bits.  With a zero there are no rows to speak of. */
    if (tensor->ndim && bits)
        row_bits *= tensor->dim[tensor->ndim - 1];
    tensor->row_bytes = bits ? row_bits / 8 : 0;
    return STATUS_OK;
}

static enum status parse_tensor(const char *path, const char *name, const json_t *entry, struct stored_tensor *tensor,
                                struct error *err)
{
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    const struct element *element;
    uint64_t end = 0;
    enum status st;

    if (!json_is_object(entry) || !type)
        return error_set(err, STATUS_MODEL, "%s: tensor '%.200s': no dtype", path, name);
    element = find_element(type);
    if (!element)
        return error_set(err, STATUS_UNSUPPORTED, "%s: tensor '%.200s' has unsupported type '%.60s'", path, name, type);
    *tensor = (struct stored_tensor){.name = name, .type = element->type, .type_name = element->name};
    st = parse_shape(path, name, json_object_get(entry, "shape"), tensor, err);
    if (st == STATUS_OK)
        st = parse_range(path, name, json_object_get(entry, "data_offsets"), &tensor->offset, &end, err);
    if (st != STATUS_OK)
        return st;
    tensor->bytes = end - tensor->offset;
    return check_bytes(path, name, element, tensor, err);
}

static int compare_ranges(const void *a, const void *b)
{
    const struct stored_tensor *one = a;
    const struct stored_tensor *two = b;

    if (one->offset != two->offset)
        return one->offset < two->offset ? -1 : 1;
    if (one->bytes != two->bytes)
        return one->bytes < two->bytes ? -1 : 1;
    return strcmp(one->name, two->name);
}

/* One more tensor at its place: directly behind the one before it. */
static enum status check_place(const char *path, const struct safetensors *file, size_t i, uint64_t cursor,
                               struct error *err)
{
    const struct stored_tensor *tensor = &file->tensors[i];
    const char *before = i ? file->tensors[i - 1].name : "the header";

    if (tensor->offset < cursor)
        return error_set(err, STATUS_MODEL,
                         "%s: tensors '%.200s' and '%.200s' overlap: the second begins at %" PRIu64
                         ", the first ends at %" PRIu64,
                         path, before, tensor->name, tensor->offset, cursor);
    if (tensor->offset > cursor)
        return error_set(err, STATUS_MODEL,
                         "%s: %" PRIu64 " bytes between '%.200s' and '%.200s' belong to no tensor (data offset %" PRIu64
                         ")",
                         path, tensor->offset - cursor, before, tensor->name, cursor);
    return STATUS_OK;
}

static enum status check_places(const char *path, struct safetensors *file, uint64_t data_begin, struct error *err)
{
    uint64_t data_bytes = file->file_bytes - data_begin;
    const char *cut = NULL;
    uint64_t cursor = 0;

    qsort(file->tensors, file->count, sizeof *file->tensors, compare_ranges);
    for (size_t i = 0; i < file->count; i++) {
        enum status st = check_place(path, file, i, cursor, err);

        if (st != STATUS_OK)
            return st;
        cursor = file->tensors[i].offset + file->tensors[i].bytes;
        if (cursor > data_bytes && !cut)
            cut = file->tensors[i].name;
    }
    if (cut)
        return error_set(err, STATUS_MODEL,
                         "%s: the file was cut: %" PRIu64 " bytes wanted, %" PRIu64
                         " found; the first tensor affected is '%.200s'",
                         path, data_begin + cursor, file->file_bytes, cut);
    if (cursor < data_bytes)
        return error_set(err, STATUS_MODEL, "%s: %" PRIu64 " bytes behind the last tensor belong to no tensor", path,
                         data_bytes - cursor);
    for (size_t i = 0; i < file->count; i++)
        file->tensors[i].offset += data_begin;
    return STATUS_OK;
}

enum status safetensors_parse(const char *path, const char *header, size_t header_bytes, uint64_t file_bytes,
                              struct safetensors *ret, struct error *err)
{
    const char *name;
    json_t *entry;
    enum status st;

    ret->file_bytes = file_bytes;
    if (!header_bytes || header[0] != '{')
        return error_set(err, STATUS_MODEL, "%s: the header does not begin with '{': not a safetensors file", path);
    st = json_parse_object(path, header, header_bytes, &ret->header, err);
    if (st != STATUS_OK)
        return st;
    ret->tensors = calloc(json_object_size(ret->header) + 1, sizeof *ret->tensors);
    if (!ret->tensors)
        return error_set(err, STATUS_NOMEM, "%s: %zu tensors", path, json_object_size(ret->header));
    json_object_foreach(ret->header, name, entry)
    {
        if (!strcmp(name, "__metadata__"))
            continue;
        st = parse_tensor(path, name, entry, &ret->tensors[ret->count], err);
        if (st != STATUS_OK)
            return st;
        ret->count++;
    }
    return check_places(path, ret, LENGTH_BYTES + (uint64_t)header_bytes, err);
}

/* The header's length, believed only within the file and the format's limit. */
static enum status read_length(int descriptor, const char *path, uint64_t file_bytes, uint64_t *ret, struct error *err)
{
    unsigned char bytes[LENGTH_BYTES];
    uint64_t length = 0;
    enum status st;

    if (file_bytes < LENGTH_BYTES)
        return error_set(err, STATUS_MODEL, "%s: %" PRIu64 " bytes are too few for a safetensors file", path,
                         file_bytes);
    st = file_read(descriptor, path, 0, sizeof bytes, bytes, err);
    if (st != STATUS_OK)
        return st;
    for (int i = LENGTH_BYTES; i--;)
        length = length << 8 | bytes[i];
    if (length > file_bytes - LENGTH_BYTES || length > SAFETENSORS_HEADER_LIMIT || length < 2)
        return error_set(err, STATUS_MODEL,
                         "%s: the header's length says %" PRIu64 " bytes, the file has %" PRIu64
                         " (a header has 2 to %" PRIu64 ")",
                         path, length, file_bytes, SAFETENSORS_HEADER_LIMIT);
    *ret = length;
    return STATUS_OK;
}

enum status safetensors_read(const char *path, struct safetensors *ret, struct error *err)
{
    char *header = NULL;
    uint64_t file_bytes = 0;
    uint64_t length = 0;
    int descriptor = -1;
    enum status st = file_open(path, &descriptor, &file_bytes, err);

    if (st != STATUS_OK)
        return st;
    st = read_length(descriptor, path, file_bytes, &length, err);
    if (st == STATUS_OK && !(header = malloc(length)))
        st = error_set(err, STATUS_NOMEM, "%s: a header of %" PRIu64 " bytes", path, length);
    if (st == STATUS_OK)
        st = file_read(descriptor, path, LENGTH_BYTES, length, header, err);
    close(descriptor);
    if (st == STATUS_OK)
        st = safetensors_parse(path, header, length, file_bytes, ret, err);
    free(header);
    if (st != STATUS_OK)
        safetensors_done(ret);
    return st;
}

void safetensors_done(struct safetensors *file)
{
    json_decref(file->header);
    free(file->tensors);
    *file = (struct safetensors){0};
}
