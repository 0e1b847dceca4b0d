/* keys    count u32; each: folded u8, name, value
 * reply   rank u32, bytes that follow u32, why (length u16, bytes), count u8; each: key, value at rank 0, value here
 * name    length u8, bytes (a longer key is cut)          value   present u8, digest u64, name
 *
 * When the keys do not fit, all that lie deeper than some level are folded into their ancestors there: one digest over
 * their names and digests.  A receiver folds its own keys under the same ancestor in the same way. */
#include "comm/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "comm/manifest_private.h"

static void append_number(struct text *text, uint64_t value, int bytes)
{
    unsigned char field[8];

    put_u64(field, value);
    text_add_bytes(text, field, (size_t)bytes);
}

static void append_name(struct text *text, const char *name, size_t length, size_t limit)
{
    length = length < limit ? length : limit;
    append_number(text, length, 1);
    text_add_bytes(text, name, length);
}

static void append_value(struct text *text, const struct manifest_value *value)
{
    append_number(text, value->present, 1);
    append_number(text, value->digest, 8);
    append_name(text, value->text, strlen(value->text), MANIFEST_VALUE_BYTES);
}

uint64_t read_number(struct reader *reader, int bytes)
{
    unsigned char field[8] = {0};

    if (reader->left < (size_t)bytes) {
        reader->failed = true;
        reader->left = 0;
        return 0;
    }
    memcpy(field, reader->at, (size_t)bytes);
    reader->at += bytes;
    reader->left -= (size_t)bytes;
    return get_u64(field);
}

void read_name(struct reader *reader, char *text)
{
    size_t length = read_number(reader, 1);

    if (reader->left < length) {
        reader->failed = true;
        length = reader->left = 0;
    }
    if (length)
        memcpy(text, reader->at, length);
    text[length] = '\0';
    reader->at += length;
    reader->left -= length;
}

void read_value(struct reader *reader, struct manifest_value *ret)
{
    char text[MANIFEST_KEY_BYTES + 1];

    ret->present = read_number(reader, 1) != 0;
    ret->digest = read_number(reader, 8);
    read_name(reader, text);
    (void)snprintf(ret->text, sizeof ret->text, "%.*s", MANIFEST_VALUE_BYTES, text);
}

/* "0.1.0" as 0x000100. */
static uint32_t version_number(void)
{
    unsigned part[3] = {0};

    (void)sscanf(FERRY_VERSION, "%u.%u.%u", &part[0], &part[1], &part[2]);
    return part[0] << 16 | part[1] << 8 | part[2];
}

void manifest_record(const struct manifest *manifest, unsigned char record[MANIFEST_RECORD_BYTES])
{
    memset(record, 0, MANIFEST_RECORD_BYTES);
    put_u32(record + RECORD_MAGIC, MANIFEST_MAGIC);
    put_u32(record + RECORD_PROTOCOL, MANIFEST_PROTOCOL);
    put_u32(record + RECORD_VERSION, version_number());
    put_u32(record + RECORD_STATUS, manifest->status);
    put_u64(record + RECORD_DIGESTS, manifest->topology_digest);
    put_u64(record + RECORD_DIGESTS + 8, manifest->plan_digest);
    put_u64(record + RECORD_DIGESTS + 16, manifest->environment_digest);
    put_u64(record + RECORD_DIGESTS + 24, manifest->build_digest);
}

/* Length of the ancestor of key at level (its first level components), or of all of it when it is not deeper. */
static size_t ancestor_length(const char *key, int level)
{
    const char *at = key;

    while (level-- > 0) {
        at = strchr(at, '.');
        if (!at)
            return strlen(key);
        if (level)
            at++;
    }
    return (size_t)(at - key);
}

static bool under(const char *key, const char *ancestor, size_t length)
{
    return strncmp(key, ancestor, length) == 0 && (length == 0 || key[length] == '.');
}

/* One digest over the keys from first on that lie under ancestor; *ret_end: the first that does not. */
static uint64_t fold(const struct manifest *manifest, size_t first, const char *ancestor, size_t length,
                     size_t *ret_end)
{
    struct text all = {0};
    uint64_t digest;
    size_t i = first;

    for (; i < manifest->key_count && under(manifest->keys[i].key, ancestor, length); i++) {
        text_add_bytes(&all, manifest->keys[i].key, strlen(manifest->keys[i].key) + 1);
        append_number(&all, manifest->keys[i].digest, 8);
    }
    digest = XXH3_64bits(text_string(&all), all.length);
    text_done(&all);
    *ret_end = i;
    return digest;
}

static void value_of(const struct manifest_key *key, struct manifest_value *ret)
{
    *ret = (struct manifest_value){.present = true, .digest = key->digest};
    (void)snprintf(ret->text, sizeof ret->text, "%s", key->value ? key->value : "");
}

static void folded_value(uint64_t digest, struct manifest_value *ret)
{
    *ret = (struct manifest_value){.present = true, .digest = digest};
    (void)snprintf(ret->text, sizeof ret->text, "digest %016llx", (unsigned long long)digest);
}

/* All keys, those deeper than level folded; level < 0: none folded. */
static void list_keys(const struct manifest *manifest, int level, struct text *ret)
{
    size_t count_at = ret->length;
    uint32_t count = 0;
    size_t next;

    append_number(ret, 0, 4);
    for (size_t i = 0; i < manifest->key_count; i = next, count++) {
        const char *key = manifest->keys[i].key;
        size_t length = level < 0 ? strlen(key) : ancestor_length(key, level);
        bool folded = key[length] != '\0';
        struct manifest_value value;

        next = i + 1;
        if (folded)
            folded_value(fold(manifest, i, key, length, &next), &value);
        else
            value_of(&manifest->keys[i], &value);
        append_number(ret, folded, 1);
        append_name(ret, key, length, MANIFEST_KEY_BYTES);
        append_value(ret, &value);
    }
    if (!ret->failed)
        put_u32((unsigned char *)ret->bytes + count_at, count);
}

void manifest_keys(const struct manifest *manifest, struct text *ret)
{
    static const int levels[] = {-1, 4, 3, 2, 1, 0};

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        text_clear(ret);
        list_keys(manifest, levels[i], ret);
        if (ret->length <= MANIFEST_KEYS_BYTES)
            return;
    }
}

struct reply {
    struct text *text;
    int differences;
};

static void add_difference(struct reply *reply, const char *key, const struct manifest_value *theirs,
                           const struct manifest_value *ours)
{
    if (reply->differences == MANIFEST_DIFFERENCES)
        return;
    reply->differences++;
    append_name(reply->text, key, strlen(key), MANIFEST_KEY_BYTES);
    append_value(reply->text, theirs);
    append_value(reply->text, ours);
}

/* Both lists are sorted: our keys before name are missing at rank 0.  Returns the first not before it. */
static size_t add_extra(struct reply *reply, const struct manifest *manifest, size_t at, const char *name)
{
    static const struct manifest_value absent;
    struct manifest_value ours;

    for (; at < manifest->key_count && (!name || strncmp(manifest->keys[at].key, name, MANIFEST_KEY_BYTES) < 0); at++) {
        value_of(&manifest->keys[at], &ours);
        add_difference(reply, manifest->keys[at].key, &absent, &ours);
    }
    return at;
}

static void compare_keys(const struct manifest *manifest, struct reader *keys, struct reply *reply)
{
    size_t count = read_number(keys, 4);
    size_t at = 0;

    for (size_t i = 0; i < count && !keys->failed; i++) {
        bool folded = read_number(keys, 1) != 0;
        char name[MANIFEST_KEY_BYTES + 1];
        struct manifest_value theirs;
        struct manifest_value ours = {0};
        size_t next;

        read_name(keys, name);
        read_value(keys, &theirs);
        at = add_extra(reply, manifest, at, name);
        next = at;
        if (folded)
            folded_value(fold(manifest, at, name, strlen(name), &next), &ours);
        else if (at < manifest->key_count && strncmp(manifest->keys[at].key, name, MANIFEST_KEY_BYTES) == 0)
            value_of(&manifest->keys[next++], &ours);
        ours.present = next > at;
        at = next;
        if (!ours.present || ours.digest != theirs.digest)
            add_difference(reply, name, &theirs, &ours);
    }
    (void)add_extra(reply, manifest, at, NULL);
}

enum status manifest_reply(const struct manifest *manifest, int rank, const unsigned char *keys, size_t key_bytes,
                           struct text *ret, struct error *err)
{
    struct reader reader = {keys, key_bytes, false};
    struct text differences = {0};
    struct reply reply = {&differences, 0};
    const char *why = manifest->status && manifest->why ? manifest->why : "";
    size_t why_bytes = strnlen(why, MANIFEST_WHY_BYTES);

    if (!manifest->status)
        compare_keys(manifest, &reader, &reply);
    if (manifest->status || reply.differences) {
        append_number(ret, (uint64_t)rank, 4);
        append_number(ret, 2 + why_bytes + 1 + differences.length, 4);
        append_number(ret, why_bytes, 2);
        text_add_bytes(ret, why, why_bytes);
        append_number(ret, (uint64_t)reply.differences, 1);
        text_add_bytes(ret, differences.bytes, differences.length);
    }
    ret->failed |= differences.failed;
    text_done(&differences);
    if (reader.failed)
        return error_set(err, STATUS_CORRUPT, "consensus: rank 0's keys are cut");
    return ret->failed ? error_set(err, STATUS_NOMEM, "consensus") : STATUS_OK;
}
