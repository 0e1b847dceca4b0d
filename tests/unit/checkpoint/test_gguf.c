/* GGUF: the reference file of the Python package, and files that lie. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_config.h"
#include "files.h"
#include "tests/suite.h"

enum { F32 = 0, Q4_0 = 2, Q8_0 = 8 };

static const char *write_file(const char *name, struct text *file)
{
    const char *path = scratch_write(name, file->bytes, file->length);

    text_done(file);
    return path;
}

START_TEST(metadata_of_every_kind_reads_as_the_reference_wrote_it)
{
    struct checkpoint *checkpoint = expect_open(data_path("reference.gguf"));
    const struct gguf *gguf = checkpoint_gguf(checkpoint);
    const char *string = NULL;
    size_t length = 0;
    uint64_t number = 0;
    int64_t whole = 0;
    double real = 0;
    bool flag = false;

    ck_assert(gguf_get_u64(gguf, "test.u8", &number) && number == 200);
    ck_assert(gguf_get_i64(gguf, "test.i8", &whole) && whole == -7);
    ck_assert(!gguf_get_u64(gguf, "test.i8", &number));
    ck_assert(gguf_get_u64(gguf, "test.u16", &number) && number == 65535);
    ck_assert(gguf_get_i64(gguf, "test.i16", &whole) && whole == -32768);
    ck_assert(gguf_get_f64(gguf, "test.i32", &real) && real < -4.9 && real > -5.1);
    ck_assert(gguf_get_u64(gguf, "test.u64", &number) && number == (UINT64_C(1) << 63) + 5);
    ck_assert(!gguf_get_i64(gguf, "test.u64", &whole));
    ck_assert(gguf_get_i64(gguf, "test.i64", &whole) && whole == INT64_MIN);
    ck_assert(gguf_get_f64(gguf, "test.f64", &real));
    ck_assert_double_eq(real, 0.1);
    ck_assert(gguf_get_bool(gguf, "test.bool", &flag) && flag);
    ck_assert(gguf_get_string(gguf, "test.string", &string, &length));
    ck_assert_uint_eq(length, strlen("größer"));
    ck_assert_mem_eq(string, "größer", length);
    ck_assert(!gguf_get_string(gguf, "test.bool", &string, &length));
    ck_assert(!gguf_get_bool(gguf, "absent", &flag));

    ck_assert_uint_eq(gguf_array_count(gguf, "test.strings"), 4);
    ck_assert_int_eq(gguf_array_type(gguf, "test.strings"), GGUF_STRING);
    string = gguf_array_string(gguf, "test.strings", 2, &length);
    ck_assert_mem_eq(string, "größer", length);
    ck_assert_ptr_nonnull(gguf_array_string(gguf, "test.strings", 1, &length));
    ck_assert_uint_eq(length, 0);
    ck_assert_ptr_nonnull(gguf_array_string(gguf, "test.strings", 3, &length));
    ck_assert_uint_eq(length, 300);
    ck_assert_ptr_null(gguf_array_string(gguf, "test.strings", 4, &length));
    ck_assert_ptr_null(gguf_array_string(gguf, "test.ints", 0, &length));
    ck_assert(gguf_array_i64(gguf, "test.ints", 1, &whole) && whole == -4);
    ck_assert(!gguf_array_i64(gguf, "test.ints", 3, &whole));
    ck_assert(!gguf_array_i64(gguf, "test.strings", 0, &whole));
    ck_assert(gguf_array_f64(gguf, "test.floats", 1, &real) && real < -1.2 && real > -1.3);
    ck_assert_str_eq(gguf_key(gguf, 0), "general.architecture");
    ck_assert_ptr_null(gguf_key(gguf, gguf_key_count(gguf)));
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(the_reference_model_reads_as_it_was_written)
{
    struct checkpoint *checkpoint = expect_open(data_path("reference.gguf"));
    const struct model_config *config = checkpoint_config(checkpoint);
    const struct stored_tensor *tensor = checkpoint_find(checkpoint, "blk.0.attn_q.weight");
    const unsigned char *packed = NULL;
    struct error err = {0};
    float values[64];

    ck_assert_int_eq(config->architecture, ARCH_QWEN3);
    ck_assert_int_eq(config->rope_layout, ROPE_HALVES);
    ck_assert(config->qk_norm && config->tied && config->gguf && !config->attention_bias);
    ck_assert_uint_eq(config->vocab_size, 10);
    ck_assert_uint_eq(config->head_dim, 32);
    ck_assert_uint_eq(config->kv_head_count, 2);
    ck_assert_double_eq(config->rope_theta, 1e6);
    ck_assert_int_eq(config->bos_token, 1);
    ck_assert_int_eq(config->stop_token_count, 2);
    ck_assert_uint_eq(config->stop_token[1], 5);
    ck_assert_int_eq(tensor->ndim, 2);
    ck_assert_uint_eq(tensor->dim[0], 10);
    ck_assert_uint_eq(tensor->dim[1], 64);
    ck_assert_uint_eq(tensor->row_bytes, 68);
    /* Row 9 of the ramp runs from 9 to 9 + 63/64. */
    ck_assert_int_eq(checkpoint_map(checkpoint, tensor, 9 * 68, 68, &packed, &err), STATUS_OK);
    weight_decode(WEIGHT_Q8_0, packed, 64, values);
    ck_assert_float_eq_tol(values[0], 9.0f, 0.05f);
    ck_assert_float_eq_tol(values[63], 9.984f, 0.05f);
    checkpoint_close(checkpoint);
}
END_TEST

/* B113 */
START_TEST(magics_and_byte_orders_have_their_own_messages)
{
    expect_refusal(scratch_write("m", "GGML\3\0\0\0", 8), STATUS_UNSUPPORTED, "older format");
    expect_refusal(scratch_write("m", "FUGG\3\0\0\0", 8), STATUS_UNSUPPORTED, "big-endian");
    expect_refusal(scratch_write("m", "GGUF\0\0\0\3", 8), STATUS_UNSUPPORTED, "big-endian");
    expect_refusal(scratch_write("m", "PK\3\4", 4), STATUS_MODEL, "not a GGUF file");
    expect_refusal(scratch_write("m", "GG", 2), STATUS_MODEL, "the magic needs 4 bytes");
    expect_refusal(scratch_write("m", "", 0), STATUS_MODEL, "the magic needs 4 bytes");
}
END_TEST

/* A small model of this version whose data begins at a multiple of alignment; no key for 32. */
static const char *write_model(const char *name, uint32_t version, uint32_t alignment)
{
    static const uint64_t dims[] = {32, 4};
    static const uint64_t norm[] = {32};
    struct text file = {0};
    uint64_t second = (136 + alignment - 1) / alignment * alignment;
    size_t start;

    put_head(&file, version, 2, MODEL_KEYS + (alignment != 32));
    put_model_keys(&file);
    if (alignment != 32)
        put_key_u32(&file, "general.alignment", alignment);
    put_tensor(&file, "token_embd.weight", 2, dims, Q8_0, 0);
    put_tensor(&file, "output_norm.weight", 1, norm, F32, second);
    put_padding(&file, alignment);
    start = file.length;
    for (int i = 0; i < 136; i++)
        text_add_bytes(&file, &(char){(char)i}, 1);
    while (file.length < start + second)
        text_add_bytes(&file, "", 1);
    for (int i = 0; i < 32; i++) {
        float value = (float)i;

        text_add_bytes(&file, &value, 4);
    }
    return write_file(name, &file);
}

static void expect_model(const char *path)
{
    struct checkpoint *checkpoint = expect_open(path);
    const unsigned char *bytes = NULL;
    struct error err = {0};
    float values[32];

    ck_assert_int_eq(checkpoint_map(checkpoint, checkpoint_find(checkpoint, "token_embd.weight"), 0, 136, &bytes, &err),
                     STATUS_OK);
    for (int i = 0; i < 136; i++)
        ck_assert_uint_eq(bytes[i], i);
    ck_assert_int_eq(
        checkpoint_read(checkpoint, checkpoint_find(checkpoint, "output_norm.weight"), 0, 128, values, &err),
        STATUS_OK);
    ck_assert_float_eq(values[31], 31.0f);
    ck_assert_uint_eq(checkpoint_config(checkpoint)->head_dim, 16);
    ck_assert_int_eq(checkpoint_config(checkpoint)->rope_layout, ROPE_PAIRS);
    ck_assert(checkpoint_config(checkpoint)->rope_theta_default);
    checkpoint_close(checkpoint);
}

/* B114 */
START_TEST(versions_two_and_three_read_alike_and_others_are_refused)
{
    static const uint32_t others[] = {0, 1, 4, 3000000000u};
    struct text number = {0};

    expect_model(write_model("m.gguf", 2, 32));
    expect_model(write_model("m.gguf", 3, 32));
    for (size_t i = 0; i < 4; i++) {
        text_clear(&number);
        text_add(&number, "GGUF version %u is not supported", others[i]);
        expect_refusal(write_model("m.gguf", others[i], 32), STATUS_UNSUPPORTED, text_string(&number));
    }
    text_done(&number);
}
END_TEST

/* B116 */
START_TEST(the_alignment_key_is_honoured)
{
    expect_model(write_model("m.gguf", 3, 64));
    expect_model(write_model("m.gguf", 3, 8));
    expect_model(write_model("m.gguf", 3, 4096));
    expect_refusal(write_model("m.gguf", 3, 4), STATUS_MODEL, "general.alignment is 4");
    for (uint32_t alignment = 0; alignment < 2; alignment++) {
        struct text file = {0};

        put_head(&file, 3, 0, 1);
        put_key_u32(&file, "general.alignment", alignment ? 1u << 31 : 0);
        expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "general.alignment is");
    }
}
END_TEST

/* B117: counts and lengths of a file that has no such bytes. */
START_TEST(huge_counts_cost_neither_time_nor_memory)
{
    static const struct {
        uint64_t tensors;
        uint64_t keys;
    } rows[] = {{UINT64_C(1) << 60, 0}, {0, UINT64_C(1) << 60}, {UINT64_MAX, UINT64_MAX}, {1000000, 0}, {0, 65536}};
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_C(1) << 60, 1000};
    struct rusage before;
    struct rusage after;
    uint64_t start = clock_ns();

    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct text file = {0};

        put_head(&file, 3, rows[i].tensors, rows[i].keys);
        while (file.length < 100)
            text_add_bytes(&file, "\1", 1);
        expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "m.gguf");
    }
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (uint32_t type = 0; type < 13; type++) {
            struct text file = {0};

            put_head(&file, 3, 0, 1);
            put_string(&file, "k");
            put_u32(&file, 9);
            put_u32(&file, type);
            put_u64(&file, lengths[i]);
            expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "items of type");
        }
        struct text file = {0};

        put_head(&file, 3, 0, 1);
        put_u64(&file, lengths[i]);
        expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "m.gguf");
        put_head(&file, 3, 0, 1);
        put_string(&file, "k");
        put_u32(&file, 8);
        put_u64(&file, lengths[i]);
        expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "m.gguf");
    }
    getrusage(RUSAGE_SELF, &after);
    ck_assert_uint_lt(clock_ns() - start, NS_PER_S);
    ck_assert_int_lt(after.ru_maxrss - before.ru_maxrss, 50 * 1024);
}
END_TEST

/* A model with one more tensor. */
static const char *write_with(const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    static const uint64_t embedding[] = {32, 4};
    struct text file = {0};

    put_head(&file, 3, 2, MODEL_KEYS);
    put_model_keys(&file);
    put_tensor(&file, "token_embd.weight", 2, embedding, Q8_0, 0);
    put_tensor(&file, name, ndim, dims, type, offset);
    put_padding(&file, 32);
    for (int i = 0; i < 512; i++)
        text_add_bytes(&file, "x", 1);
    return write_file("m.gguf", &file);
}

/* B119 */
START_TEST(extents_that_overflow_or_are_too_many_name_the_tensor)
{
    static const uint64_t odd[] = {33};
    static const uint64_t huge[] = {(UINT64_C(1) << 42) + 1, UINT64_C(1) << 42, 8, 1};
    static const uint64_t wide[] = {UINT64_C(1) << 63};
    static const uint64_t small[] = {32, 1, 1, 1, 1, 1, 1, 1};

    expect_refusal(write_with("w", 5, small, F32, 160), STATUS_MODEL, "tensor 'w': 5 dimensions");
    expect_refusal(write_with("w", 1u << 31, small, F32, 160), STATUS_MODEL, "tensor 'w': 2147483648 dimensions");
    expect_refusal(write_with("w", 4, huge, F32, 160), STATUS_MODEL, "tensor 'w': its dimensions overflow");
    expect_refusal(write_with("w", 1, wide, F32, 160), STATUS_MODEL, "tensor 'w': a row of 9223372036854775808");
    expect_refusal(write_with("w", 1, odd, Q4_0, 160), STATUS_MODEL, "tensor 'w': rows of 33 elements");
    expect_refusal(write_with("w", 1, small, F32, UINT64_MAX - 31), STATUS_MODEL, "tensor 'w': offset and size");
    expect_refusal(write_with("w", 1, small, F32, 16), STATUS_MODEL, "tensor 'w': its offset 16 is no multiple of");
    expect_refusal(write_with("w", 1, small, F32, 448), STATUS_MODEL, "tensor 'w': the file was cut");
    expect_refusal(write_with("w", 1, small, F32, 128), STATUS_MODEL, "tensor 'w': it overlaps 'token_embd.weight'");
    expect_refusal(write_with("token_embd.weight", 1, small, F32, 160), STATUS_MODEL,
                   "duplicate tensor name 'token_embd.weight'");
    expect_refusal(write_with("", 1, small, F32, 160), STATUS_MODEL, "a name of 0 bytes");
    expect_refusal(write_with("a\nb", 1, small, F32, 160), STATUS_MODEL, "control character 10");
}
END_TEST

/* B122 */
START_TEST(unknown_types_are_listed_against_the_known)
{
    static const uint32_t types[] = {39, 42, 4, 200, UINT32_MAX};
    static const uint64_t dims[] = {32};
    struct text sentence = {0};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        text_clear(&sentence);
        text_add(&sentence, "tensor 'w': type %u is not supported; known: F32 (0), F16 (1), Q4_0 (2)", types[i]);
        expect_refusal(write_with("w", 1, dims, types[i], 160), STATUS_UNSUPPORTED, text_string(&sentence));
    }
    text_done(&sentence);
}
END_TEST

/* B126 */
START_TEST(empty_tensors_are_accepted_and_disturb_nothing)
{
    static const uint64_t dims[] = {32, 0};
    struct checkpoint *checkpoint = expect_open(write_with("w", 2, dims, Q8_0, 64));
    const struct stored_tensor *tensor = checkpoint_find(checkpoint, "w");
    const unsigned char *bytes = NULL;
    struct error err = {0};

    ck_assert_uint_eq(tensor->bytes, 0);
    ck_assert_int_eq(checkpoint_map(checkpoint, tensor, 0, 0, &bytes, &err), STATUS_OK);
    ck_assert_int_eq(checkpoint_map(checkpoint, checkpoint_find(checkpoint, "token_embd.weight"), 0, 136, &bytes, &err),
                     STATUS_OK);
    ck_assert_uint_eq(bytes[135], 'x');
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(damaged_metadata_is_refused)
{
    struct text file = {0};

    put_head(&file, 3, 0, 2);
    put_key_u32(&file, "a.b", 1);
    put_key_u32(&file, "a.b", 1);
    expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "duplicate key 'a.b'");
    put_head(&file, 3, 0, 1);
    put_string(&file, "k");
    put_u32(&file, 13);
    put_u64(&file, 0);
    expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "k has the unknown value type 13");
    put_head(&file, 3, 0, 1);
    put_string(&file, "k");
    put_u32(&file, 7);
    text_add_bytes(&file, "\2", 1);
    expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "bool of value 2");
    put_head(&file, 3, 0, 1);
    put_string(&file, "");
    put_u32(&file, 4);
    put_u32(&file, 4);
    expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "an empty key");
    put_head(&file, 3, 0, 1);
    put_string(&file, "k");
    put_u32(&file, 9);
    for (int depth = 0; depth < 100; depth++) {
        put_u32(&file, 9);
        put_u64(&file, 1);
    }
    put_u32(&file, 0);
    put_u64(&file, 0);
    expect_refusal(write_file("m.gguf", &file), STATUS_MODEL, "nested deeper than 4");
}
END_TEST

/* Every prefix of a good file is refused, and none crashes. */
START_TEST(every_cut_of_a_model_is_refused)
{
    const char *path = write_model("m.gguf", 3, 32);
    struct checkpoint *checkpoint = expect_open(path);
    const struct stored_tensor *last = checkpoint_find(checkpoint, "output_norm.weight");
    off_t bytes = (off_t)(last->offset + last->bytes);

    checkpoint_close(checkpoint);
    ck_assert_int_eq(truncate(path, bytes), 0);
    while (bytes--) {
        ck_assert_int_eq(truncate(path, bytes), 0);
        expect_refusal(path, STATUS_MODEL, "m.gguf");
    }
}
END_TEST

/* Part number (from 0) of count, holding one F32 tensor of 32 elements, all of them the part's number. */
static void write_part(const char *name, uint32_t number, uint32_t count)
{
    static const char *const names[] = {"token_embd.weight", "b", "c"};
    static const uint64_t dims[] = {32, 1};
    struct text file = {0};
    float value = (float)number;

    put_head(&file, 3, 1, (number ? 0 : MODEL_KEYS) + 3);
    if (!number)
        put_model_keys(&file);
    put_key_u32(&file, "split.no", number);
    put_key_u32(&file, "split.count", count);
    put_key_u32(&file, "split.tensors.count", count);
    put_tensor(&file, names[number], 2, dims, F32, 0);
    put_padding(&file, 32);
    for (int i = 0; i < 32; i++)
        text_add_bytes(&file, &value, 4);
    (void)write_file(name, &file);
}

static void write_parts(void)
{
    write_part("m-00001-of-00003.gguf", 0, 3);
    write_part("m-00002-of-00003.gguf", 1, 3);
    write_part("m-00003-of-00003.gguf", 2, 3);
}

/* B124 */
START_TEST(parts_are_read_as_one_file)
{
    struct checkpoint *checkpoint;
    struct error err = {0};
    float value;

    write_parts();
    checkpoint = expect_open(scratch_path("m-00001-of-00003.gguf"));
    ck_assert_uint_eq(checkpoint_tensor_count(checkpoint), 3);
    ck_assert_int_eq(checkpoint_shard_count(checkpoint), 3);
    ck_assert_int_eq(checkpoint_read(checkpoint, checkpoint_find(checkpoint, "c"), 124, 4, &value, &err), STATUS_OK);
    ck_assert_float_eq(value, 2.0f);
    checkpoint_close(checkpoint);
}
END_TEST

/* B124 */
START_TEST(a_wrong_missing_or_renamed_part_is_named)
{
    write_parts();
    expect_refusal(scratch_path("m-00002-of-00003.gguf"), STATUS_MODEL,
                   "part 2 of 3: open the first part, m-00001-of-00003.gguf");
    ck_assert_int_eq(rename(scratch_path("m-00003-of-00003.gguf"), scratch_path("away")), 0);
    expect_refusal(scratch_path("m-00001-of-00003.gguf"), STATUS_MODEL, "m-00003-of-00003.gguf");
    write_part("m-00003-of-00003.gguf", 1, 3);
    expect_refusal(scratch_path("m-00001-of-00003.gguf"), STATUS_MODEL,
                   "by its name part 3 of 3, by its metadata part 2 of 3");
    ck_assert_int_eq(rename(scratch_path("m-00001-of-00003.gguf"), scratch_path("model.gguf")), 0);
    expect_refusal(scratch_path("model.gguf"), STATUS_MODEL, "must end in -00001-of-00003.gguf");
}
END_TEST

/* The keys of the small model with one more. */
static const char *write_keys(const char *key, uint32_t number, const char *string)
{
    static const uint64_t embedding[] = {32, 4};
    struct text file = {0};

    put_head(&file, 3, 1, MODEL_KEYS + 1);
    put_model_keys(&file);
    if (string)
        put_key_string(&file, key, string);
    else
        put_key_u32(&file, key, number);
    put_tensor(&file, "token_embd.weight", 2, embedding, Q8_0, 0);
    put_padding(&file, 32);
    for (int i = 0; i < 136; i++)
        text_add_bytes(&file, "x", 1);
    return write_file("m.gguf", &file);
}

/* The small model with tensors (F32 [32], each in its own place) beside its embedding. */
static struct model_config open_with_tensors(const char *const *names, uint64_t count)
{
    static const uint64_t embedding[] = {32, 4};
    struct checkpoint *checkpoint;
    struct model_config config;
    struct text file = {0};

    put_head(&file, 3, 1 + count, MODEL_KEYS);
    put_model_keys(&file);
    put_tensor(&file, "token_embd.weight", 2, embedding, F32, 0);
    for (uint64_t i = 0; i < count; i++)
        put_tensor(&file, names[i], 1, embedding, F32, 512 + 128 * i);
    put_padding(&file, 32);
    for (uint64_t i = 0; i < 512 + 128 * count; i++)
        text_add_bytes(&file, "", 1);
    checkpoint = expect_open(write_file("m.gguf", &file));
    config = *checkpoint_config(checkpoint);
    checkpoint_close(checkpoint);
    return config;
}

START_TEST(the_tensors_tell_what_the_keys_do_not)
{
    static const char *const names[] = {"output.weight", "rope_freqs.weight", "blk.0.attn_q.bias",
                                        "blk.0.attn_output.bias", "blk.0.ffn_up.bias"};
    struct model_config config = open_with_tensors(names, 5);

    ck_assert(!config.tied && config.rope_freqs && config.attention_bias && config.attention_output_bias);
    ck_assert(config.mlp_bias && !config.qk_norm);
    ck_assert_uint_eq(config.vocab_size, 4);
    config = open_with_tensors(NULL, 0);
    ck_assert(config.tied && !config.rope_freqs && !config.attention_bias && !config.attention_output_bias);
    ck_assert(!config.mlp_bias);
    ck_assert_int_eq(config.bos_token, -1);
}
END_TEST

START_TEST(what_is_not_built_is_refused_by_name)
{
    expect_refusal(write_keys("llama.rope.scaling.type", 0, "yarn"), STATUS_UNSUPPORTED, "type 'yarn'");
    expect_refusal(write_keys("llama.rope.scaling.type", 0, "linear"), STATUS_UNSUPPORTED, "type 'linear'");
    expect_refusal(write_keys("llama.expert_count", 8, NULL), STATUS_UNSUPPORTED, "llama.expert_count 8");
    expect_refusal(write_keys("llama.rope.dimension_count", 8, NULL), STATUS_UNSUPPORTED, "8 of a head's 16");
    expect_refusal(write_keys("llama.attention.sliding_window", 8, NULL), STATUS_UNSUPPORTED, "sliding window of 8");
    expect_refusal(write_keys("llama.attention.head_count_kv", 0, "x"), STATUS_MODEL, "is of type string");
    expect_refusal(write_keys("llama.attention.head_count_kv", 3, NULL), STATUS_MODEL, "no multiple of 3");
    expect_refusal(write_keys("llama.attention.key_length", 100000, NULL), STATUS_MODEL, "key_length is 100000");
    expect_refusal(write_keys("llama.rope.freq_base", 0, NULL), STATUS_MODEL, "rope.freq_base is 0");
    checkpoint_close(expect_open(write_keys("llama.rope.scaling.type", 0, "none")));
    struct text file = {0};

    put_head(&file, 3, 0, 1);
    put_key_string(&file, "general.architecture", "gemma");
    expect_refusal(write_file("m.gguf", &file), STATUS_UNSUPPORTED, "'gemma' is not supported; known: llama, qwen2");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf");
    TCase *tcase = tcase_create("file");

    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, metadata_of_every_kind_reads_as_the_reference_wrote_it);
    tcase_add_test(tcase, the_reference_model_reads_as_it_was_written);
    tcase_add_test(tcase, magics_and_byte_orders_have_their_own_messages);
    tcase_add_test(tcase, versions_two_and_three_read_alike_and_others_are_refused);
    tcase_add_test(tcase, the_alignment_key_is_honoured);
    tcase_add_test(tcase, huge_counts_cost_neither_time_nor_memory);
    tcase_add_test(tcase, extents_that_overflow_or_are_too_many_name_the_tensor);
    tcase_add_test(tcase, unknown_types_are_listed_against_the_known);
    tcase_add_test(tcase, empty_tensors_are_accepted_and_disturb_nothing);
    tcase_add_test(tcase, damaged_metadata_is_refused);
    tcase_add_test(tcase, every_cut_of_a_model_is_refused);
    tcase_add_test(tcase, parts_are_read_as_one_file);
    tcase_add_test(tcase, a_wrong_missing_or_renamed_part_is_named);
    tcase_add_test(tcase, the_tensors_tell_what_the_keys_do_not);
    tcase_add_test(tcase, what_is_not_built_is_refused_by_name);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
