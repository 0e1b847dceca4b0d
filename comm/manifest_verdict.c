/* The verdict: one sentence for every rank, composed on rank 0 from all records and replies. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "comm/manifest.h"
#include "comm/manifest_private.h"

enum { MAX_VARIANTS = 8 };

/* One rank's reply, lent by the bytes that came. */
struct reply {
    const char *why;
    size_t why_bytes;
    bool present;
    int differences;
    struct reader rest; /* of the differences */
};

/* Ranks that share something: mark[rank] == variant. */
struct verdict {
    const unsigned char *records;
    int size;
    struct reply *replies; /* [size] */
    unsigned char *mark;   /* [size] */
    struct text text;
};

static const unsigned char *record_of(const unsigned char *records, int rank)
{
    return records + (size_t)rank * MANIFEST_RECORD_BYTES;
}

static enum status status_of(const struct verdict *verdict, int rank)
{
    uint32_t value = get_u32(record_of(verdict->records, rank) + RECORD_STATUS);

    return value < STATUS_COUNT ? (enum status)value : STATUS_INTERNAL;
}

/* "rank 1", "ranks 0, 2, 5-9": those marked with variant. */
static void add_ranks(struct text *text, const unsigned char *mark, int size, int variant)
{
    int count = 0;
    const char *comma = "";

    for (int rank = 0; rank < size; rank++)
        count += mark[rank] == variant;
    text_add(text, count == 1 ? "rank " : "ranks ");
    for (int rank = 0; rank < size; rank++) {
        int end = rank;

        if (mark[rank] != variant)
            continue;
        while (end + 1 < size && mark[end + 1] == variant)
            end++;
        if (end - rank < 2)
            end = rank;
        text_add(text, end == rank ? "%s%d" : "%s%d-%d", comma, rank, end);
        comma = ", ";
        rank = end;
    }
}

/* Group ranks by a number; marks from 1 on, at most MAX_VARIANTS, the rest shares the last. */
static int mark_by(const unsigned char *records, int size, int offset, int bytes, unsigned char *mark)
{
    uint64_t seen[MAX_VARIANTS];
    int count = 0;

    for (int rank = 0; rank < size; rank++) {
        const unsigned char *at = record_of(records, rank) + offset;
        uint64_t value = bytes == 4 ? get_u32(at) : get_u64(at);
        int i = 0;

        while (i < count && seen[i] != value)
            i++;
        if (i == count && count < MAX_VARIANTS)
            seen[count++] = value;
        mark[rank] = (unsigned char)(i < count ? i + 1 : MAX_VARIANTS);
    }
    return count;
}

static int first_marked(const unsigned char *mark, int size, int variant)
{
    for (int rank = 0; rank < size; rank++) {
        if (mark[rank] == variant)
            return rank;
    }
    return 0;
}

static enum status foreign(const unsigned char *records, int size, struct error *err)
{
    for (int rank = 0; rank < size; rank++) {
        if (get_u32(record_of(records, rank) + RECORD_MAGIC) != MANIFEST_MAGIC)
            return error_set(err, STATUS_MISMATCH, "consensus: what rank %d runs is no Ferry", rank);
    }
    return STATUS_OK;
}

enum status manifest_protocols(const unsigned char *records, int size, struct error *err)
{
    unsigned char *mark = calloc((size_t)size, 1);
    struct text text = {0};
    int variants;
    enum status st;

    if (!mark)
        return error_set(err, STATUS_NOMEM, "consensus of %d ranks", size);
    st = foreign(records, size, err);
    variants = mark_by(records, size, RECORD_PROTOCOL, 4, mark);
    for (int v = 1; st == STATUS_OK && variants > 1 && v <= variants; v++) {
        const unsigned char *record = record_of(records, first_marked(mark, size, v));
        uint32_t version = get_u32(record + RECORD_VERSION);

        text_add(&text, "%sprotocol %" PRIu32 " (Ferry %u.%u.%u) on ", v > 1 ? "; " : "",
                 get_u32(record + RECORD_PROTOCOL), version >> 16, version >> 8 & 255, version & 255);
        add_ranks(&text, mark, size, v);
    }
    if (text.length)
        st = error_set(err, STATUS_MISMATCH, "ranks run different versions of Ferry: %s", text_string(&text));
    text_done(&text);
    free(mark);
    return st;
}

/* The only rank that failed; -1: none did, or several. */
static int lone_failure(const unsigned char *records, int size, int *ret_count)
{
    int lone = -1;

    *ret_count = 0;
    for (int rank = 0; rank < size; rank++) {
        if (get_u32(record_of(records, rank) + RECORD_STATUS) != STATUS_OK && !(*ret_count)++)
            lone = rank;
    }
    return *ret_count == 1 ? lone : -1;
}

static bool same_record(const unsigned char *records, int one, int other)
{
    return memcmp(record_of(records, one), record_of(records, other), MANIFEST_RECORD_BYTES) == 0;
}

int manifest_culprit(const unsigned char *records, int size)
{
    int count = 0;
    int lone = lone_failure(records, size, &count);
    int common = 0;

    if (count || size < 3)
        return lone;
    if (!same_record(records, 0, 1) && !same_record(records, 0, 2))
        common = 1;
    for (int rank = 0; rank < size; rank++) {
        if (!same_record(records, rank, common) && !count++)
            lone = rank;
    }
    return count == 1 ? lone : -1;
}

static enum status index_replies(struct verdict *verdict, const unsigned char *bytes, size_t count, struct error *err)
{
    struct reader reader = {bytes, count, false};

    while (reader.left) {
        uint64_t rank = read_number(&reader, 4);
        uint64_t length = read_number(&reader, 4);
        struct reader body = {reader.at, (size_t)length, false};
        struct reply reply = {.present = true};

        if (reader.failed || rank >= (uint64_t)verdict->size || length > reader.left)
            return error_set(err, STATUS_CORRUPT, "consensus: a reply is cut");
        reply.why_bytes = read_number(&body, 2);
        reply.why = (const char *)body.at;
        if (reply.why_bytes > body.left)
            return error_set(err, STATUS_CORRUPT, "consensus: the reply of rank %d is cut", (int)rank);
        body.at += reply.why_bytes;
        body.left -= reply.why_bytes;
        reply.differences = (int)read_number(&body, 1);
        reply.rest = body;
        verdict->replies[rank] = reply;
        reader.at += length;
        reader.left -= (size_t)length;
    }
    return STATUS_OK;
}

static bool same_why(const struct reply *a, const struct reply *b)
{
    return a->present == b->present && a->why_bytes == b->why_bytes &&
           (!a->why_bytes || memcmp(a->why, b->why, a->why_bytes) == 0);
}

/* Group failed ranks by what they say. */
static int mark_failed(struct verdict *verdict, int *leader)
{
    int count = 0;

    for (int rank = 0; rank < verdict->size; rank++) {
        int i = 0;

        verdict->mark[rank] = 0;
        if (!status_of(verdict, rank))
            continue;
        while (i < count && (!same_why(&verdict->replies[leader[i]], &verdict->replies[rank]) ||
                             status_of(verdict, leader[i]) != status_of(verdict, rank)))
            i++;
        if (i == count && count < MAX_VARIANTS)
            leader[count++] = rank;
        verdict->mark[rank] = (unsigned char)(i < count ? i + 1 : MAX_VARIANTS + 1);
    }
    return count;
}

static void add_why(struct verdict *verdict, int rank)
{
    const struct reply *reply = &verdict->replies[rank];

    if (reply->why_bytes)
        text_add_bytes(&verdict->text, reply->why, reply->why_bytes);
    else
        text_add(&verdict->text, "failed: %s", status_name(status_of(verdict, rank)));
}

/* The failed ranks with what they say, word for word; when all say the same, that alone. */
static enum status failures(struct verdict *verdict, struct error *err)
{
    int leader[MAX_VARIANTS];
    int count = mark_failed(verdict, leader);
    bool all = count == 1 && !memchr(verdict->mark, 0, (size_t)verdict->size);

    if (!count)
        return STATUS_OK;
    for (int i = 0; i < count; i++) {
        if (!all) {
            text_add(&verdict->text, i ? "\n" : "");
            add_ranks(&verdict->text, verdict->mark, verdict->size, i + 1);
            text_add(&verdict->text, ": ");
        }
        add_why(verdict, leader[i]);
    }
    if (memchr(verdict->mark, MAX_VARIANTS + 1, (size_t)verdict->size)) {
        text_add(&verdict->text, "\nand ");
        add_ranks(&verdict->text, verdict->mark, verdict->size, MAX_VARIANTS + 1);
    }
    return error_set(err, status_of(verdict, leader[0]), "%s", text_string(&verdict->text));
}

/* The difference of a rank with this key. */
static bool find_difference(const struct reply *reply, const char *key, struct manifest_value *theirs,
                            struct manifest_value *ours)
{
    struct reader reader = reply->rest;
    char name[MANIFEST_KEY_BYTES + 1];

    for (int i = 0; i < reply->differences && !reader.failed; i++) {
        read_name(&reader, name);
        read_value(&reader, theirs);
        read_value(&reader, ours);
        if (!reader.failed && strcmp(name, key) == 0)
            return true;
    }
    return false;
}

/* The least key after previous that somebody finds different. */
static bool next_key(const struct verdict *verdict, const char *previous, char *ret)
{
    bool found = false;

    for (int rank = 0; rank < verdict->size; rank++) {
        struct reader reader = verdict->replies[rank].rest;
        struct manifest_value value;
        char name[MANIFEST_KEY_BYTES + 1];

        for (int i = 0; i < verdict->replies[rank].differences && !reader.failed; i++) {
            read_name(&reader, name);
            read_value(&reader, &value);
            read_value(&reader, &value);
            if (reader.failed || strcmp(name, previous) <= 0 || (found && strcmp(name, ret) >= 0))
                continue;
            memcpy(ret, name, sizeof name);
            found = true;
        }
    }
    return found;
}

static void add_value(struct text *text, const struct manifest_value *value, bool twice)
{
    if (!value->present) {
        text_add(text, "absent");
        return;
    }
    if (!value->text[0])
        text_add(text, "(empty)");
    for (const char *at = value->text; *at; at++)
        text_add(text, "%c", (unsigned char)*at < 0x20 ? '?' : *at);
    if (twice)
        text_add(text, " (digest %016" PRIx64 ")", value->digest);
}

static bool same_value(const struct manifest_value *a, const struct manifest_value *b)
{
    return a->present == b->present && (!a->present || a->digest == b->digest);
}

/* Mark every rank with its value of key; who says nothing has rank 0's. */
static int mark_values(struct verdict *verdict, const char *key, struct manifest_value *values)
{
    int count = 1;

    for (int rank = 0; rank < verdict->size; rank++) {
        struct manifest_value theirs;
        struct manifest_value ours;
        int i = 0;

        verdict->mark[rank] = 1;
        if (!find_difference(&verdict->replies[rank], key, &theirs, &ours))
            continue;
        values[0] = theirs;
        for (i = 1; i < count && !same_value(&values[i], &ours);)
            i++;
        if (i == count && count < MAX_VARIANTS)
            values[count++] = ours;
        verdict->mark[rank] = (unsigned char)(i < count ? i + 1 : MAX_VARIANTS);
    }
    return count;
}

/* "mesh.tensor: 2 on ranks 0, 2, 3; 4 on rank 1" */
static void add_key(struct verdict *verdict, const char *key)
{
    struct manifest_value values[MAX_VARIANTS] = {0};
    int count = mark_values(verdict, key, values);

    text_add(&verdict->text, "%s%s: ", verdict->text.length ? " | " : "", key);
    for (int i = 0; i < count; i++) {
        bool twice = false;

        for (int j = 0; j < count; j++)
            twice |= i != j && strcmp(values[i].text, values[j].text) == 0;
        text_add(&verdict->text, i ? "; " : "");
        add_value(&verdict->text, &values[i], twice);
        text_add(&verdict->text, " on ");
        add_ranks(&verdict->text, verdict->mark, verdict->size, i + 1);
    }
}

/* Digests differ, but no key tells why. */
static void add_digests(struct verdict *verdict)
{
    static const char *const what[] = {"topology", "plan", "environment", "build"};

    for (int i = 0; i < RECORD_DIGEST_COUNT; i++) {
        int offset = RECORD_DIGESTS + 8 * i;
        int count = mark_by(verdict->records, verdict->size, offset, 8, verdict->mark);

        for (int v = 1; count > 1 && v <= count; v++) {
            int rank = first_marked(verdict->mark, verdict->size, v);

            text_add(&verdict->text, v == 1 ? "%s%s: " : "; ", verdict->text.length ? " | " : "", what[i]);
            text_add(&verdict->text, "digest %016" PRIx64 " on ", get_u64(record_of(verdict->records, rank) + offset));
            add_ranks(&verdict->text, verdict->mark, verdict->size, v);
        }
    }
}

static enum status differences(struct verdict *verdict, struct error *err)
{
    char key[MANIFEST_KEY_BYTES + 1] = "";
    char next[MANIFEST_KEY_BYTES + 1];

    for (int i = 0; i < MANIFEST_DIFFERENCES && next_key(verdict, key, next); i++) {
        memcpy(key, next, sizeof key);
        add_key(verdict, key);
    }
    if (!verdict->text.length)
        add_digests(verdict);
    if (!verdict->text.length)
        return STATUS_OK;
    return error_set(err, STATUS_MISMATCH, "ranks were told different things: %s", text_string(&verdict->text));
}

enum status manifest_verdict(const unsigned char *records, int size, const unsigned char *replies, size_t reply_bytes,
                             struct error *err)
{
    struct verdict verdict = {.records = records, .size = size};
    enum status st = STATUS_OK;

    verdict.replies = calloc((size_t)size, sizeof *verdict.replies);
    verdict.mark = calloc((size_t)size, 1);
    if (!verdict.replies || !verdict.mark)
        st = error_set(err, STATUS_NOMEM, "consensus of %d ranks", size);
    if (st == STATUS_OK)
        st = index_replies(&verdict, replies, reply_bytes, err);
    if (st == STATUS_OK)
        st = failures(&verdict, err);
    if (st == STATUS_OK)
        st = differences(&verdict, err);
    if (st == STATUS_OK && verdict.text.failed)
        st = error_set(err, STATUS_NOMEM, "consensus of %d ranks", size);
    text_done(&verdict.text);
    free(verdict.replies);
    free(verdict.mark);
    return st;
}
