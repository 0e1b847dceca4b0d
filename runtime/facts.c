/* Keys and values become one list, sorted for the consensus; their digests are of the values' bytes. */
#include "runtime/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/text.h"
#include "comm/session.h"
#include "runtime/plan.h"
#include "topology/topology.h"

/* Keys and values live in one text; a key's offsets stay valid while it grows. */
struct keys {
    struct text text;
    size_t count;
    size_t capacity;
    struct key {
        size_t key;
        size_t value;
    } * key;
    bool failed;
};

static void add_key(struct keys *keys, const char *key, size_t key_length, const char *value, size_t value_length)
{
    if (keys->count == keys->capacity) {
        size_t capacity = keys->capacity ? 2 * keys->capacity : 256;
        struct key *list = realloc(keys->key, capacity * sizeof *list);

        if (!list) {
            keys->failed = true;
            return;
        }
        keys->key = list;
        keys->capacity = capacity;
    }
    keys->key[keys->count].key = keys->text.length;
    text_add_bytes(&keys->text, key, key_length);
    text_add_bytes(&keys->text, "", 1);
    keys->key[keys->count++].value = keys->text.length;
    text_add_bytes(&keys->text, value, value_length);
    text_add_bytes(&keys->text, "", 1);
}

static void add_pair(struct keys *keys, const char *key, const char *value)
{
    add_key(keys, key, strlen(key), value, strlen(value));
}

static uint64_t add_topology(struct keys *keys, const struct topology *topology)
{
    struct text canonical = {0};
    const char *cursor;
    const char *key;
    const char *value;
    size_t key_length;
    size_t value_length;
    uint64_t digest;

    topology_canonical(topology, &canonical);
    cursor = text_string(&canonical);
    while (topology_canonical_next(&cursor, &key, &key_length, &value, &value_length))
        add_key(keys, key, key_length, value, value_length);
    digest = XXH3_64bits(text_string(&canonical), canonical.length);
    keys->failed |= canonical.failed;
    text_done(&canonical);
    return digest;
}

/* Variables that change numbers or messages of a run. */
static uint64_t add_environment(struct keys *keys)
{
    extern char **environ;
    uint64_t digest = 0;

    for (char **variable = environ; *variable; variable++) {
        const char *equals = strchr(*variable, '=');
        char key[256];

        if (strncmp(*variable, "FERRY_", 6) || !equals)
            continue;
        (void)snprintf(key, sizeof key, "environment.%.*s", (int)(equals - *variable), *variable);
        add_pair(keys, key, equals + 1);
        digest ^= XXH3_64bits(*variable, strlen(*variable));
    }
    return digest;
}

static uint64_t add_build(struct keys *keys, const struct facts *facts)
{
    add_pair(keys, "build.version", FERRY_VERSION);
    add_pair(keys, "build.transport", facts->transport);
    for (size_t i = 0; i < facts->count; i++)
        add_pair(keys, facts->more[i].key, facts->more[i].value);
    return XXH3_64bits(FERRY_VERSION, strlen(FERRY_VERSION));
}

static int compare_keys(const void *left, const void *right)
{
    return strcmp(((const struct manifest_key *)left)->key, ((const struct manifest_key *)right)->key);
}

static struct manifest_key *list_keys(const struct keys *keys)
{
    struct manifest_key *list = calloc(keys->count ? keys->count : 1, sizeof *list);

    for (size_t i = 0; list && i < keys->count; i++) {
        list[i].key = keys->text.bytes + keys->key[i].key;
        list[i].value = keys->text.bytes + keys->key[i].value;
        list[i].digest = XXH3_64bits(list[i].value, strlen(list[i].value));
    }
    if (list)
        qsort(list, keys->count, sizeof *list, compare_keys);
    return list;
}

enum status facts_agree(const struct facts *facts, struct session *session, struct error *err)
{
    struct keys keys = {0};
    struct manifest manifest = {.status = facts->prepared, .why = facts->why};
    struct manifest_key *list;
    enum status st;

    if (facts->topology)
        manifest.topology_digest = add_topology(&keys, facts->topology);
    if (facts->plan)
        manifest.plan_digest = plan_digest(facts->plan);
    manifest.environment_digest = add_environment(&keys);
    manifest.build_digest = add_build(&keys, facts);
    list = keys.failed || keys.text.failed ? NULL : list_keys(&keys);
    if (!list) {
        manifest.status = STATUS_NOMEM;
        manifest.why = "the manifest's keys";
    }
    manifest.keys = list;
    manifest.key_count = list ? keys.count : 0;
    st = session_consensus(session, &manifest, err);
    free(list);
    free(keys.key);
    text_done(&keys.text);
    return st;
}
