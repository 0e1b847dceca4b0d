/* jansson does the parsing; here stands what it does not say: the file, and which key was there twice. */
#include "checkpoint/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/file.h"

/* The parser stopped right behind the second key's closing quote: find its opening one. */
static int repeated_key(const char *bytes, int position, const char **ret)
{
    int end = position - 1;
    int begin = end - 1;

    if (end < 1 || bytes[end] != '"')
        return 0;
    while (begin > 0 && !(bytes[begin] == '"' && bytes[begin - 1] != '\\'))
        begin--;
    *ret = bytes + begin + 1;
    return end - begin - 1;
}

enum status json_parse_object(const char *path, const char *bytes, size_t count, json_t **ret, struct error *err)
{
    json_error_t problem;
    json_t *object = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &problem);
    const char *key = "";

    if (json_is_object(object)) {
        *ret = object;
        return STATUS_OK;
    }
    if (object) {
        const char *kind = json_kind(object);

        json_decref(object);
        return error_set(err, STATUS_MODEL, "%s: expected a JSON object, found %s", path, kind);
    }
    if (json_error_code(&problem) == json_error_duplicate_key) {
        int length = repeated_key(bytes, problem.position, &key);

        return error_set(err, STATUS_MODEL, "%s: duplicate name '%.*s' (line %d)", path, length < 300 ? length : 300,
                         key, problem.line);
    }
    return error_set(err, STATUS_MODEL, "%s:%d:%d: not valid JSON: %s", path, problem.line, problem.column,
                     problem.text);
}

enum status json_read_object(const char *path, size_t limit, json_t **ret, struct error *err)
{
    char *bytes;
    size_t count;
    enum status st = file_read_all(path, limit, &bytes, &count, err);

    if (st != STATUS_OK)
        return st;
    st = json_parse_object(path, bytes, count, ret, err);
    free(bytes);
    return st;
}

const char *json_kind(const json_t *value)
{
    if (!value)
        return "absent";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return json_is_true(value) ? "true" : "false";
    }
}

const char *json_show(const json_t *value, char *text, size_t text_bytes)
{
    if (json_is_integer(value))
        (void)snprintf(text, text_bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(text, text_bytes, "%.17g", json_real_value(value));
    else if (json_is_string(value))
        (void)snprintf(text, text_bytes, "the string \"%.60s\"", json_string_value(value));
    else
        (void)snprintf(text, text_bytes, "%s", json_kind(value));
    return text;
}

const json_t *json_section_get(const struct json_section *section, const char *key)
{
    const json_t *value = json_object_get(section->object, key);

    return json_is_null(value) ? NULL : value;
}

enum status json_get_u64(const struct json_section *section, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
                         struct error *err)
{
    const json_t *value = json_section_get(section, key);
    json_int_t number = json_integer_value(value);
    char shown[96];

    if (!value)
        return STATUS_OK;
    if (!json_is_integer(value) || number < 0 || (uint64_t)number < min || (uint64_t)number > max)
        return error_set(err, STATUS_MODEL, "%s: %s%s is %s, expected a whole number from %" PRIu64 " to %" PRIu64,
                         section->path, section->prefix, key, json_show(value, shown, sizeof shown), min, max);
    *ret = (uint64_t)number;
    return STATUS_OK;
}

enum status json_get_f64(const struct json_section *section, const char *key, double min, double max, double *ret,
                         struct error *err)
{
    const json_t *value = json_section_get(section, key);
    double number = json_number_value(value);
    char shown[96];

    if (!value)
        return STATUS_OK;
    if (!json_is_number(value) || !(number >= min && number <= max))
        return error_set(err, STATUS_MODEL, "%s: %s%s is %s, expected a number from %g to %g", section->path,
                         section->prefix, key, json_show(value, shown, sizeof shown), min, max);
    *ret = number;
    return STATUS_OK;
}

enum status json_get_bool(const struct json_section *section, const char *key, bool *ret, struct error *err)
{
    const json_t *value = json_section_get(section, key);
    char shown[96];

    if (!value)
        return STATUS_OK;
    if (!json_is_boolean(value))
        return error_set(err, STATUS_MODEL, "%s: %s%s is %s, expected true or false", section->path, section->prefix,
                         key, json_show(value, shown, sizeof shown));
    *ret = json_is_true(value);
    return STATUS_OK;
}

enum status json_get_string(const struct json_section *section, const char *key, const char **ret, struct error *err)
{
    const json_t *value = json_section_get(section, key);
    char shown[96];

    if (!value)
        return STATUS_OK;
    if (!json_is_string(value))
        return error_set(err, STATUS_MODEL, "%s: %s%s is %s, expected a string", section->path, section->prefix, key,
                         json_show(value, shown, sizeof shown));
    *ret = json_string_value(value);
    return STATUS_OK;
}

enum status json_require_u64(const struct json_section *section, const char *key, uint64_t min, uint64_t max,
                             uint64_t *ret, struct error *err)
{
    if (!json_section_get(section, key))
        return error_set(err, STATUS_MODEL, "%s: %s%s is missing", section->path, section->prefix, key);
    return json_get_u64(section, key, min, max, ret, err);
}
