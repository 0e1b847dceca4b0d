/* Strict JSON from files: one object, no duplicate keys, every message names the file. */
#ifndef CHECKPOINT_JSON_H
#define CHECKPOINT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Parse bytes, which came from the file path, to an object (returns; json_decref).  STATUS_MODEL. */
enum status json_parse_object(const char *path, const char *bytes, size_t count, json_t **ret, struct error *err);

/* The same from the file.  STATUS_STORAGE, STATUS_MODEL (also: longer than limit), STATUS_NOMEM. */
enum status json_read_object(const char *path, size_t limit, json_t **ret, struct error *err);

/* A value's kind for a message: "a string", "null"; "absent" for NULL. */
const char *json_kind(const json_t *value);

/* A number as text for a message; otherwise its kind.  Lends text. */
const char *json_show(const json_t *value, char *text, size_t text_bytes);

/* One object of a file, and how it is called in messages ("" or "rope_scaling."). */
struct json_section {
    const char *path;
    const char *prefix;
    const json_t *object;
};

/* The key's value; NULL when it is absent or null, so that null always means the default. */
const json_t *json_section_get(const struct json_section *section, const char *key);

/* Leave *ret as it is when the key is absent or null.  STATUS_MODEL: another kind, or outside min..max. */
enum status json_get_u64(const struct json_section *section, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
                         struct error *err);
enum status json_get_f64(const struct json_section *section, const char *key, double min, double max, double *ret,
                         struct error *err);
enum status json_get_bool(const struct json_section *section, const char *key, bool *ret, struct error *err);
/* Lends the string until the object is released. */
enum status json_get_string(const struct json_section *section, const char *key, const char **ret, struct error *err);

/* The key must be there.  STATUS_MODEL. */
enum status json_require_u64(const struct json_section *section, const char *key, uint64_t min, uint64_t max,
                             uint64_t *ret, struct error *err);

#endif
