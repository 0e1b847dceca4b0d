/* Consensus: what the verdict says. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "comm/manifest.h"
#include "tests/suite.h"

enum { MAX_RANKS = 8 };

/* The digest of a value here is a cheap one: the product brings XXH3. */
static uint64_t digest_of(const char *value)
{
    uint64_t digest = 5381;

    while (*value)
        digest = digest * 33 + (unsigned char)*value++;
    return digest;
}

static void set_key(struct manifest_key *key, const char *name, const char *value)
{
    *key = (struct manifest_key){.key = name, .value = value, .digest = digest_of(value)};
}

/* All of a consensus but the transport. */
static enum status decide(const struct manifest *manifests, int size, struct error *err)
{
    unsigned char records[MAX_RANKS * MANIFEST_RECORD_BYTES];
    struct text keys = {0};
    struct text replies = {0};
    enum status st;

    for (int rank = 0; rank < size; rank++)
        manifest_record(&manifests[rank], records + rank * MANIFEST_RECORD_BYTES);
    ck_assert_int_eq(manifest_protocols(records, size, err), STATUS_OK);
    manifest_keys(&manifests[0], &keys);
    ck_assert_uint_le(keys.length, MANIFEST_KEYS_BYTES);
    for (int rank = 0; rank < size; rank++)
        ck_assert_int_eq(manifest_reply(&manifests[rank], rank, (const unsigned char *)text_string(&keys), keys.length,
                                        &replies, err),
                         STATUS_OK);
    st = manifest_verdict(records, size, (const unsigned char *)text_string(&replies), replies.length, err);
    text_done(&keys);
    text_done(&replies);
    return st;
}

START_TEST(equal_manifests_are_agreed)
{
    struct manifest_key keys[2];
    struct manifest manifest = {.topology_digest = 1, .key_count = 2, .keys = keys};
    struct manifest all[] = {manifest, manifest, manifest};
    struct error err = {0};

    set_key(&keys[0], "mesh.data", "1");
    set_key(&keys[1], "mesh.tensor", "2");
    ck_assert_int_eq(decide(all, 3, &err), STATUS_OK);
}
END_TEST

START_TEST(a_difference_names_key_values_and_ranks)
{
    struct manifest_key two[1];
    struct manifest_key four[1];
    struct manifest even = {.topology_digest = 1, .key_count = 1, .keys = two};
    struct manifest odd = {.topology_digest = 2, .key_count = 1, .keys = four};
    struct manifest all[] = {even, odd, even, even};
    struct error err = {0};

    set_key(two, "mesh.tensor", "2");
    set_key(four, "mesh.tensor", "4");
    ck_assert_int_eq(decide(all, 4, &err), STATUS_MISMATCH);
    ck_assert_str_eq(err.text, "ranks were told different things: mesh.tensor: 2 on ranks 0, 2, 3; 4 on rank 1");
}
END_TEST

START_TEST(missing_keys_are_told_both_ways)
{
    struct manifest_key ab[2];
    struct manifest_key bc[2];
    struct manifest zero = {.key_count = 2, .keys = ab};
    struct manifest one = {.key_count = 2, .keys = bc};
    struct manifest all[] = {zero, one};
    struct error err = {0};

    set_key(&ab[0], "a", "1");
    set_key(&ab[1], "b", "");
    set_key(&bc[0], "b", "x\ny");
    set_key(&bc[1], "c", "3");
    ck_assert_int_eq(decide(all, 2, &err), STATUS_MISMATCH);
    ck_assert_str_eq(err.text, "ranks were told different things: a: 1 on rank 0; absent on rank 1 | "
                               "b: (empty) on rank 0; x?y on rank 1 | c: absent on rank 0; 3 on rank 1");
}
END_TEST

START_TEST(failed_ranks_speak_word_for_word)
{
    struct manifest well = {.status = STATUS_OK};
    struct manifest bad = {.status = STATUS_TOPOLOGY, .why = "x.yaml:3:5: unknown key meesh"};
    struct manifest gone = {.status = STATUS_STORAGE, .why = "/m/config.json: No such file or directory"};
    struct manifest some[] = {well, gone, bad, gone};
    struct manifest everybody[] = {bad, bad, bad};
    struct error err = {0};

    ck_assert_int_eq(decide(some, 4, &err), STATUS_STORAGE);
    ck_assert_str_eq(err.text, "ranks 1, 3: /m/config.json: No such file or directory\n"
                               "rank 2: x.yaml:3:5: unknown key meesh");
    ck_assert_int_eq(decide(everybody, 3, &err), STATUS_TOPOLOGY);
    ck_assert_str_eq(err.text, bad.why);
}
END_TEST

START_TEST(the_only_one_that_failed_or_differs_is_to_blame)
{
    const struct manifest well = {.topology_digest = 1};
    const struct manifest odd = {.topology_digest = 2};
    const struct manifest third = {.topology_digest = 3};
    const struct manifest bad = {.status = STATUS_MODEL, .topology_digest = 2};
    const struct {
        int size;
        struct manifest all[4];
        int culprit;
    } cases[] = {
        {2, {well, bad}, 1},
        {2, {bad, bad}, -1},
        {2, {well, odd}, -1},
        {3, {well, odd, well}, 1},
        {3, {odd, well, well}, 0},
        {3, {well, well, odd}, 2},
        {3, {well, odd, third}, -1},
        {4, {well, odd, well, odd}, -1},
        {4, {odd, well, bad, well}, 2},
        {4, {well, bad, well, bad}, -1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char records[4 * MANIFEST_RECORD_BYTES];

        for (int rank = 0; rank < cases[i].size; rank++)
            manifest_record(&cases[i].all[rank], records + rank * MANIFEST_RECORD_BYTES);
        ck_assert_int_eq(manifest_culprit(records, cases[i].size), cases[i].culprit);
    }
}
END_TEST

START_TEST(a_failed_rank_is_told_before_differences)
{
    struct manifest_key key[1];
    struct manifest zero = {.status = STATUS_MODEL, .why = NULL};
    struct manifest one = {.key_count = 1, .keys = key};
    struct manifest all[] = {zero, one};
    struct error err = {0};

    set_key(key, "a", "1");
    ck_assert_int_eq(decide(all, 2, &err), STATUS_MODEL);
    ck_assert_str_eq(err.text, "rank 0: failed: model");
}
END_TEST

/* 40,000 keys of 30 bytes do not fit in 64 KiB. */
START_TEST(too_many_keys_fold_into_their_parents)
{
    enum { KEYS = 40000 };
    struct manifest_key *keys = calloc(KEYS, sizeof *keys);
    struct manifest_key *other = calloc(KEYS, sizeof *other);
    char(*names)[40] = calloc(KEYS, sizeof *names);
    struct manifest zero = {.key_count = KEYS, .keys = keys};
    struct manifest one = {.key_count = KEYS, .keys = other};
    struct manifest all[] = {zero, zero, one};
    struct error err = {0};

    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(names[i], sizeof names[i], "g%d.members.%05d.some", i / 20000, i);
        set_key(&keys[i], names[i], "1");
        set_key(&other[i], names[i], i == 30000 ? "2" : "1");
    }
    ck_assert_int_eq(decide(all, 2, &err), STATUS_OK);
    ck_assert_int_eq(decide(all, 3, &err), STATUS_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.text, "things: g1.members: digest "));
    ck_assert_ptr_nonnull(strstr(err.text, " on rank 2"));
    free(keys);
    free(other);
    free(names);
}
END_TEST

START_TEST(digests_without_a_key_are_told_too)
{
    struct manifest zero = {.build_digest = 1};
    struct manifest one = {.build_digest = 2};
    struct manifest all[] = {zero, one, zero};
    struct error err = {0};

    ck_assert_int_eq(decide(all, 3, &err), STATUS_MISMATCH);
    ck_assert_str_eq(err.text, "ranks were told different things: build: digest 0000000000000001 on ranks 0, 2; "
                               "digest 0000000000000002 on rank 1");
}
END_TEST

START_TEST(equal_looking_values_show_their_digests)
{
    struct manifest_key a[1] = {{.key = "long", .digest = 16, .value = "same"}};
    struct manifest_key b[1] = {{.key = "long", .digest = 32, .value = "same"}};
    struct manifest all[] = {{.key_count = 1, .keys = a}, {.key_count = 1, .keys = b}};
    struct error err = {0};

    ck_assert_int_eq(decide(all, 2, &err), STATUS_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.text, "same (digest 0000000000000010) on rank 0"));
}
END_TEST

/* B64 */
START_TEST(two_protocols_are_named_with_versions_and_ranks)
{
    unsigned char records[4 * MANIFEST_RECORD_BYTES];
    struct manifest manifest = {0};
    struct error err = {0};

    for (int rank = 0; rank < 4; rank++)
        manifest_record(&manifest, records + rank * MANIFEST_RECORD_BYTES);
    put_u32(records + 1 * MANIFEST_RECORD_BYTES + 4, 9);
    put_u32(records + 1 * MANIFEST_RECORD_BYTES + 8, 0x020304);
    ck_assert_int_eq(manifest_protocols(records, 4, &err), STATUS_MISMATCH);
    ck_assert_str_eq(err.text, "ranks run different versions of Ferry: protocol 1 (Ferry 0.1.0) on ranks 0, 2, 3; "
                               "protocol 9 (Ferry 2.3.4) on rank 1");
    put_u32(records + 2 * MANIFEST_RECORD_BYTES, 0);
    ck_assert_int_eq(manifest_protocols(records, 4, &err), STATUS_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.text, "rank 2 runs is no Ferry"));
}
END_TEST

/* Every cut and every changed byte of keys and replies is refused or survived, never read past its end. */
START_TEST(damaged_bytes_are_survived)
{
    struct manifest_key keys[2];
    struct manifest manifest = {.key_count = 2, .keys = keys};
    struct manifest failed = {.status = STATUS_MODEL, .why = "why"};
    unsigned char records[2 * MANIFEST_RECORD_BYTES];
    struct text sent = {0};
    struct text replies = {0};
    struct text out = {0};
    struct error err = {0};

    set_key(&keys[0], "a", "1");
    set_key(&keys[1], "b", "2");
    manifest_record(&manifest, records);
    manifest_record(&failed, records + MANIFEST_RECORD_BYTES);
    manifest_keys(&manifest, &sent);
    for (size_t i = 0; i < sent.length; i++) {
        unsigned char *copy = malloc(i + 1);

        memcpy(copy, sent.bytes, i + 1);
        copy[i] ^= 0xff;
        text_clear(&out);
        (void)manifest_reply(&manifest, 0, copy, i + 1, &out, &err);
        free(copy);
    }
    ck_assert_int_eq(manifest_reply(&manifest, 0, (unsigned char *)sent.bytes, sent.length - 1, &out, &err),
                     STATUS_CORRUPT);
    keys[0].digest++;
    (void)manifest_reply(&manifest, 0, (unsigned char *)sent.bytes, sent.length, &replies, &err);
    (void)manifest_reply(&failed, 1, (unsigned char *)sent.bytes, sent.length, &replies, &err);
    for (size_t i = 0; i < replies.length; i++) {
        unsigned char *copy = malloc(replies.length);

        memcpy(copy, replies.bytes, replies.length);
        copy[i] ^= 0xff;
        (void)manifest_verdict(records, 2, copy, replies.length, &err);
        (void)manifest_verdict(records, 2, copy, i, &err);
        free(copy);
    }
    text_done(&sent);
    text_done(&replies);
    text_done(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("manifest");
    TCase *tests = tcase_create("manifest");

    tcase_add_test(tests, equal_manifests_are_agreed);
    tcase_add_test(tests, a_difference_names_key_values_and_ranks);
    tcase_add_test(tests, missing_keys_are_told_both_ways);
    tcase_add_test(tests, failed_ranks_speak_word_for_word);
    tcase_add_test(tests, a_failed_rank_is_told_before_differences);
    tcase_add_test(tests, the_only_one_that_failed_or_differs_is_to_blame);
    tcase_add_test(tests, too_many_keys_fold_into_their_parents);
    tcase_add_test(tests, digests_without_a_key_are_told_too);
    tcase_add_test(tests, equal_looking_values_show_their_digests);
    tcase_add_test(tests, two_protocols_are_named_with_versions_and_ranks);
    tcase_add_test(tests, damaged_bytes_are_survived);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
