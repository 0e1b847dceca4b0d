/* Frames as bytes: a golden header, sizes, every single bit, texts.  Layouts, reductions, words. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "comm/frame.h"
#include "comm/layout.h"
#include "comm/reduce.h"
#include "tests/suite.h"

/* Written by hand from docs/frame.md; the checksum is XXH3-64 of these bytes with its own place zero, computed with
 * the xxhash package for Python. */
static const unsigned char golden[192] = {
    'F',  'R',  'R',  'Y',  2,    0,    1,    0,    0xc0, 0,    0,    0,    1,    0,    0, 0,    /* 0 */
    0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 9,    0,    0,    0,    8,    0,    0, 0,    /* 16 */
    5,    0,    0,    0,    0,    0,    0,    0,    2,    0,    0,    0,    3,    0,    0, 0,    /* 32 */
    0x04, 0x03, 0x02, 0x01, 0,    0,    0,    0,    0x11, 0,    0,    0,    0,    0,    0, 0x22, /* 48 */
    6,    0,    0,    0,    0,    0,    0,    0,    7,    0,    0,    0,    0,    0,    0, 0,    /* 64 */
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1,    0,    2,    0,    3,    0,    2, 0,    /* 80 */
    4,    0,    0,    0,    0,    0,    0,    0,    0x40, 2,    0,    0,    0,    0,    0, 0,    /* 96 */
    'h',  'i',  'd',  'd',  'e',  'n',  0,    0,    0,    0,    0,    0,    0,    0,    0, 0,    /* 112 */
    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0, 0,    /* 128 */
    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0, 0,    /* 144 */
    0,    0x12, 0,    0,    0,    0,    0,    0,    0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0, 0x11, /* 160 */
    0xd8, 0xa7, 0xb0, 0xd1, 0x6c, 0x5c, 0x3d, 0xdd, 6,    0,    0,    0,    0,    0,    0, 0,    /* 176 */
};

static struct frame example(void)
{
    return (struct frame){.flags = FRAME_PAYLOAD_CHECKED,
                          .kind = FRAME_ROUTE,
                          .session_digest = 0x0123456789abcdef,
                          .object_id = 9,
                          .operation = OPERATION_SEND_RECEIVE,
                          .from = 5,
                          .piece = 2,
                          .piece_count = 3,
                          .sequence = 0x01020304,
                          .epoch = 0x2200000000000011,
                          .send_count = 6,
                          .receive_count = 7,
                          .schema_digest = 0x1122334455667788,
                          .role_ordinal = 1,
                          .role_count = 2,
                          .dtype = DTYPE_BF16,
                          .shape = {2, {4, 576}},
                          .payload_bytes = 4608,
                          .payload_checksum = 0x1100ffeeddccbbaa,
                          .role = "hidden"};
}

START_TEST(frame_encodes_to_the_golden_bytes)
{
    struct frame frame = example();
    unsigned char bytes[FRAME_MAX_BYTES];

    memset(bytes, 0xff, sizeof bytes);
    ck_assert_uint_eq(frame_bytes(&frame), sizeof golden);
    frame_encode(&frame, bytes);
    for (size_t i = 0; i < sizeof golden; i++)
        ck_assert_msg(bytes[i] == golden[i], "byte %zu: %02x, golden %02x", i, bytes[i], golden[i]);
}
END_TEST

/* The example, with a name too long to stand beside two extents. */
static struct frame long_example(void)
{
    struct frame frame = example();

    frame.role = "blocks.12.attention.output.hidden.of.the.long.names";
    return frame;
}

START_TEST(frame_puts_a_role_beside_the_extents_or_grows)
{
    static const struct {
        int ndim;
        size_t role;
        size_t bytes;
        size_t place;
    } cases[] = {{2, 0, 192, 112},  {2, 48, 192, 112}, {2, 49, 256, 192}, {0, 63, 192, 96},
                 {1, 56, 192, 104}, {1, 63, 256, 192}, {8, 0, 192, 192},  {8, 1, 256, 192}};
    struct frame frame = example();

    frame.role = NULL;
    ck_assert_uint_eq(frame_bytes(&frame), 192);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char role[64] = {0};
        char read[64] = {0};
        unsigned char bytes[FRAME_MAX_BYTES];
        struct frame back;

        memset(role, 'r', cases[i].role);
        frame.role = role;
        frame.shape.ndim = cases[i].ndim;
        ck_assert_uint_eq(frame_bytes(&frame), cases[i].bytes);
        frame_encode(&frame, bytes);
        ck_assert_mem_eq(bytes + cases[i].place, role, cases[i].role);
        ck_assert(frame_read(bytes, cases[i].bytes, &back, read));
        ck_assert_str_eq(read, role);
    }
}
END_TEST

START_TEST(frame_refuses_every_flipped_bit_and_names_the_field)
{
    struct frame frame = _i ? long_example() : example();
    unsigned char expected[FRAME_MAX_BYTES];
    unsigned char got[FRAME_MAX_BYTES];
    size_t header = frame_bytes(&frame);

    frame_encode(&frame, expected);
    for (size_t bit = 0; bit < 8 * header; bit++) {
        struct text text = {0};
        bool checksum = bit / 8 >= 176 && bit / 8 < 184;

        memcpy(got, expected, header);
        got[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert(!frame_compare(expected, header, got, header, &text));
        ck_assert_msg(strstr(text_string(&text), ": expected ") != NULL, "bit %zu: %s", bit, text_string(&text));
        ck_assert_msg((strstr(text_string(&text), "header checksum") != NULL) == checksum, "bit %zu: %s", bit,
                      text_string(&text));
        ck_assert_msg(!strchr(text_string(&text), ';'), "bit %zu, more than one field: %s", bit, text_string(&text));
        text_done(&text);
    }
    memcpy(got, expected, header);
    ck_assert(frame_compare(expected, header, got, header, &(struct text){0}));
}
END_TEST

struct difference {
    size_t at;
    unsigned char value;
    const char *text;
};

START_TEST(frame_names_fields_in_words)
{
    static const struct difference differences[] = {
        {12, 2, "kind: expected route, got collective"},
        {28, 1, "operation: expected send_receive, got all_reduce_sum"},
        {92, 1, "dtype: expected bf16, got f32"},
        {92, 77, "dtype: expected bf16, got 0x4d"},
        {96, 5, "extent 0: expected 4, got 5"},
        {48, 5, "sequence: expected 16909060, got 16909061"},
        {112, 'H', "role: expected hidden, got Hidden"},
        {118, 'x', "padding byte 118: expected 0x0, got 0x78"},
        {159, 1, "padding byte 159: expected 0x0, got 0x1"},
        {94, 1, "ndim: expected 2, got 1"},
    };

    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        struct text text = {0};
        unsigned char got[sizeof golden];

        memcpy(got, golden, sizeof got);
        got[differences[i].at] = differences[i].value;
        frame_seal(got, sizeof got);
        ck_assert(!frame_compare(golden, sizeof golden, got, sizeof got, &text));
        ck_assert_str_eq(text_string(&text), differences[i].text);
        text_done(&text);
    }
}
END_TEST

/* Names stand where a header's own numbers say: told as they are, and extents as far as both have them. */
START_TEST(frame_compares_names_in_different_places)
{
    struct frame one = example();
    struct frame other = example();
    unsigned char expected[FRAME_MAX_BYTES];
    unsigned char got[FRAME_MAX_BYTES] = {0};
    struct text text = {0};

    other.shape = (struct shape){1, {4}};
    frame_encode(&one, expected);
    frame_encode(&other, got);
    ck_assert(!frame_compare(expected, 192, got, 192, &text));
    ck_assert_str_eq(text_string(&text), "ndim: expected 2, got 1");
    text_done(&text);
    text = (struct text){0};
    other.role = "token";
    frame_encode(&other, got);
    ck_assert(!frame_compare(expected, 192, got, 192, &text));
    ck_assert_str_eq(text_string(&text), "ndim: expected 2, got 1; role length: expected 6, got 5; "
                                         "role: expected hidden, got token");
    text_done(&text);
    text = (struct text){0};
    other = long_example();
    frame_encode(&other, got);
    ck_assert(!frame_compare(expected, 192, got, 256, &text));
    ck_assert_str_eq(text_string(&text),
                     "header bytes: expected 192, got 256; role length: expected 6, got 51; "
                     "role: expected hidden, got blocks.12.attention.output.hidden.of.the.long.names");
    text_done(&text);
}
END_TEST

START_TEST(frame_compare_reads_no_further_than_the_message)
{
    for (size_t bytes = 0; bytes < sizeof golden; bytes++) {
        struct text text = {0};
        unsigned char *got = malloc(bytes ? bytes : 1);

        memcpy(got, golden, bytes);
        ck_assert(!frame_compare(golden, sizeof golden, got, bytes, &text));
        ck_assert_msg(strstr(text_string(&text), "message bytes: expected at least 192, got ") != NULL, "%s",
                      text_string(&text));
        text_done(&text);
        free(got);
    }
}
END_TEST

START_TEST(schema_digest_depends_on_every_part)
{
    struct tensor_spec tensor = {"a", DTYPE_F32, 1, {{1, 2, -1}}};
    struct extent_spec extent = {"rows", 1, 2};
    struct route_spec spec = {.tensor_count = 1, .tensors = &tensor, .extent_count = 1, .extents = &extent};
    uint64_t digest[7];

    digest[0] = route_spec_digest(&spec);
    tensor.role = "b";
    digest[1] = route_spec_digest(&spec);
    tensor.dtype = DTYPE_F16;
    digest[2] = route_spec_digest(&spec);
    tensor.dim[0].high = 3;
    digest[3] = route_spec_digest(&spec);
    tensor.dim[0].extent = 0;
    digest[4] = route_spec_digest(&spec);
    extent.low = 2;
    digest[5] = route_spec_digest(&spec);
    extent.name = "columns";
    digest[6] = route_spec_digest(&spec);
    for (int i = 0; i < 7; i++) {
        for (int k = 0; k < i; k++)
            ck_assert_uint_ne(digest[i], digest[k]);
    }
}
END_TEST

START_TEST(operations_have_words)
{
    for (int i = OPERATION_NONE + 1; i < OPERATION_COUNT; i++)
        ck_assert_int_eq(operation_from_name(operation_name((enum operation)i)), i);
    ck_assert_int_eq(operation_from_name("all_reduce"), OPERATION_NONE);
    ck_assert_str_eq(operation_name((enum operation)99), "unknown");
}
END_TEST

START_TEST(layout_refuses_counts_that_overflow)
{
    uint64_t counts[] = {3, 0, 2};
    uint64_t huge[] = {UINT64_MAX, 1};
    struct layout layout = {0};
    struct error err = {0};

    ck_assert_int_eq(layout_init(&layout, huge, 2, &err), STATUS_OVERFLOW);
    ck_assert_int_eq(layout_init(&layout, counts, 3, &err), STATUS_OK);
    ck_assert_uint_eq(layout.start[2], 3);
    ck_assert_uint_eq(layout_count(&layout, 1), 0);
    ck_assert_uint_eq(layout_total(&layout), 5);
    layout_done(&layout);
}
END_TEST

START_TEST(slab_packs_and_unpacks_a_middle_axis)
{
    struct shape shape = {3, {2, 3, 2}};
    struct slab slab = {0};
    struct error err = {0};
    unsigned char tensor[12];
    unsigned char packed[8] = {0};
    unsigned char back[12] = {0};
    static const unsigned char expected[8] = {2, 3, 4, 5, 8, 9, 10, 11};

    for (int i = 0; i < 12; i++)
        tensor[i] = (unsigned char)i;
    ck_assert_int_eq(slab_of(&shape, DTYPE_U8, 3, &slab, &err), STATUS_INVALID);
    ck_assert_int_eq(slab_of(&shape, DTYPE_U8, 1, &slab, &err), STATUS_OK);
    (void)slab_pack(NULL, &slab, tensor, 1, 2, slab_rows(&slab), packed, NULL);
    ck_assert_mem_eq(packed, expected, 8);
    (void)slab_unpack(NULL, &slab, back, 1, 2, slab_rows(&slab), packed, NULL);
    (void)slab_pack(NULL, &slab, tensor, 0, 1, slab_rows(&slab), packed, NULL);
    (void)slab_unpack(NULL, &slab, back, 0, 1, slab_rows(&slab), packed, NULL);
    ck_assert_mem_eq(back, tensor, 12);
    shape = (struct shape){3, {5, 0, 7}};
    ck_assert_int_eq(slab_of(&shape, DTYPE_F32, 1, &slab, &err), STATUS_OK);
    ck_assert_uint_eq(slab_bytes(&slab, 0), 0);
    ck_assert_uint_eq(slab_bytes(&slab, 1), 140);
}
END_TEST

/* In f32 the order shows: 1 is lost beside 1e8. */
START_TEST(sum_follows_the_balanced_tree)
{
    const float a = 1.0f;
    const float b = 1e8f;
    const float c = -1e8f;
    const float d = 1.0f;
    const void *in[] = {&a, &b, &c, &d};
    const int8_t small = 100;
    const void *wrap[] = {&small, &small, &small};
    int8_t wrapped = 0;
    float sum = 0;

    reduce_tree(DTYPE_F32, in, 3, 1, &sum);
    ck_assert(sum == 0.0f);
    reduce_tree(DTYPE_F32, in, 4, 1, &sum);
    ck_assert(sum == 0.0f);
    const void *other[] = {&b, &c, &a, &d};
    reduce_tree(DTYPE_F32, other, 4, 1, &sum);
    ck_assert(sum == 2.0f);
    reduce_tree(DTYPE_I8, wrap, 3, 1, &wrapped);
    ck_assert_int_eq(wrapped, 44);
    ck_assert(!reduce_supports(DTYPE_BOOL));
}
END_TEST

/* 256 + 1 + 1 + ...: in bf16 each step would be lost, in f32 partials it is not. */
START_TEST(half_types_are_summed_in_single_and_rounded_once)
{
    const uint16_t large = f32_to_bf16(256.0f);
    const uint16_t one = f32_to_bf16(1.0f);
    const void *in[] = {&large, &one, &one, &one, &one};
    uint16_t sum = 0;

    reduce_tree(DTYPE_BF16, in, 5, 1, &sum);
    ck_assert(bf16_to_f32(sum) == 260.0f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("frame");
    TCase *all = tcase_create("all");

    tcase_add_test(all, frame_encodes_to_the_golden_bytes);
    tcase_add_test(all, frame_puts_a_role_beside_the_extents_or_grows);
    tcase_add_loop_test(all, frame_refuses_every_flipped_bit_and_names_the_field, 0, 2);
    tcase_add_test(all, frame_names_fields_in_words);
    tcase_add_test(all, frame_compares_names_in_different_places);
    tcase_add_test(all, frame_compare_reads_no_further_than_the_message);
    tcase_add_test(all, schema_digest_depends_on_every_part);
    tcase_add_test(all, operations_have_words);
    tcase_add_test(all, layout_refuses_counts_that_overflow);
    tcase_add_test(all, slab_packs_and_unpacks_a_middle_axis);
    tcase_add_test(all, sum_follows_the_balanced_tree);
    tcase_add_test(all, half_types_are_summed_in_single_and_rounded_once);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
