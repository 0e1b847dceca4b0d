/* One safetensors file: every way in which header and data can contradict each other, and the element types. */
#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dtype.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "files.h"
#include "tests/suite.h"

#define NO_LENGTH UINT64_MAX

static void expect_header_refused(const char *header, const char *data, size_t data_bytes, enum status status,
                                  const char *sentence)
{
    small_config("");
    (void)scratch_write_safetensors("model.safetensors", header, NO_LENGTH, data, data_bytes);
    expect_refusal(scratch_path(""), status, sentence);
}

/* Map a whole tensor of the folder's model. */
static const unsigned char *mapped(struct checkpoint *checkpoint, const char *name, uint64_t bytes)
{
    const struct stored_tensor *tensor = checkpoint_find(checkpoint, name);
    const unsigned char *memory = NULL;
    struct error err = {0};

    ck_assert_msg(tensor != NULL, "no tensor %s", name);
    ck_assert_uint_eq(tensor->bytes, bytes);
    ck_assert_msg(checkpoint_map(checkpoint, tensor, 0, bytes, &memory, &err) == STATUS_OK, "%s", err.text);
    return memory;
}

/* B88 */
START_TEST(header_length_outside_the_file_is_refused)
{
    static const uint64_t lengths[] = {0, 1, 40 + 8, 40 + 1, UINT64_C(200000000), UINT64_MAX, UINT64_C(1) << 63};
    char header[41];

    memset(header, ' ', 40);
    memcpy(header, "{}", 2);
    header[40] = '\0';
    small_config("");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        if (lengths[i] == UINT64_MAX)
            continue;
        (void)scratch_write_safetensors("model.safetensors", header, lengths[i], "", 0);
        expect_refusal(scratch_path(""), STATUS_MODEL, "the file has 48");
    }
    (void)scratch_write("model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    expect_refusal(scratch_path(""), STATUS_MODEL, "18446744073709551615");
    (void)scratch_write("model.safetensors", "\x02\0\0", 3);
    expect_refusal(scratch_path(""), STATUS_MODEL, "too few");
}
END_TEST

/* B88: the file is as long as it says, but sparse; nothing of that size is read. */
START_TEST(header_above_the_format_limit_is_refused)
{
    const char *path;

    small_config("");
    path = scratch_write("model.safetensors", "\x01\xe1\xf5\x05\0\0\0\0{}", 10);
    ck_assert_int_eq(truncate(path, 200000000), 0);
    expect_refusal(scratch_path(""), STATUS_MODEL, "100000001 bytes");
}
END_TEST

/* B91 */
START_TEST(cut_data_names_sizes_and_the_first_tensor)
{
    const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}";

    expect_header_refused(header, "0123456789abcde", 15, STATUS_MODEL, "first tensor affected is 'b'");
    expect_header_refused(header, "0123456", 7, STATUS_MODEL, "first tensor affected is 'a'");
    expect_header_refused(header, "0123456", 7, STATUS_MODEL, "bytes wanted");
}
END_TEST

/* B93 */
START_TEST(overlaps_and_holes_name_both_tensors)
{
    expect_header_refused("{\"k\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                          "\"v\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}",
                          "01234567", 8, STATUS_MODEL, "tensors 'k' and 'v' overlap");
    expect_header_refused("{\"k\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                          "\"v\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[6,14]}}",
                          "0123456789abcd", 14, STATUS_MODEL, "tensors 'k' and 'v' overlap");
    expect_header_refused("{\"k\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                          "\"v\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[10,18]}}",
                          "0123456789abcdef01", 18, STATUS_MODEL, "2 bytes between 'k' and 'v'");
    expect_header_refused("{\"k\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}", "0123456789", 10,
                          STATUS_MODEL, "2 bytes behind the last tensor");
}
END_TEST

/* B94 */
START_TEST(shape_and_range_must_agree)
{
    static const struct {
        const char *header;
        const char *sentence;
    } rows[] = {
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]}}", "take 4000000 bytes"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "end lies before the begin"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", "end lies before the begin"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", "two whole numbers"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0.0,4.0]}}", "two whole numbers"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", "two whole numbers"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":\"1\",\"data_offsets\":[0,4]}}", "expected an array"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "dimension 0 is -1"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", "9 dimensions"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4611686018427387904,4],\"data_offsets\":[0,4]}}",
         "overflow"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "was cut"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,0],\"data_offsets\":[0,4]}}", "overflow"},
        {"{\"w\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,4]}}", "no whole bytes"},
        {"{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "no dtype"},
        {"{\"w\":7}", "tensor 'w'"},
        {"[1]", "does not begin with '{'"},
        {"{\"w\":", "not valid JSON"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_header_refused(rows[i].header, "0123", 4, STATUS_MODEL, rows[i].sentence);
}
END_TEST

/* B96 */
START_TEST(duplicate_names_are_named)
{
    expect_header_refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                          "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                          "01234567", 8, STATUS_MODEL, "duplicate name 'w'");
    expect_header_refused("{\"model.layers.0.self_attn.q_proj.weight\":1,"
                          "\"model.layers.0.self_attn.q_proj.weight\":2}",
                          "", 0, STATUS_MODEL, "duplicate name 'model.layers.0.self_attn.q_proj.weight'");
}
END_TEST

/* B97, B101: the file was written by the Python package safetensors. */
START_TEST(every_element_type_is_known_and_lies_where_the_reference_put_it)
{
    struct safetensors file = {0};
    struct error err = {0};
    unsigned char expected_bf16[] = {0x80, 0x3f, 0x80, 0x7f, 0xc1, 0xff, 0x01, 0x00, 0x00, 0x80};
    struct checkpoint *checkpoint;
    float scalar;
    uint64_t bits;

    ck_assert_msg(safetensors_read(data_path("reference.safetensors"), &file, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_eq(file.count, 12);
    safetensors_done(&file);

    small_config("");
    ck_assert_int_eq(symlink(data_path("reference.safetensors"), scratch_path("model.safetensors")), 0);
    checkpoint = expect_open(scratch_path(""));
    ck_assert_mem_eq(mapped(checkpoint, "bf16", 10), expected_bf16, 10);
    memcpy(&scalar, mapped(checkpoint, "scalar", 4), 4);
    ck_assert_float_eq(scalar, 2.5f);
    ck_assert_int_eq(checkpoint_find(checkpoint, "scalar")->ndim, 0);
    ck_assert_uint_eq(checkpoint_find(checkpoint, "scalar")->row_bytes, 4);
    memcpy(&bits, mapped(checkpoint, "f64", 8), 8);
    ck_assert_uint_eq(bits, UINT64_C(0x3fb999999999999a));
    ck_assert_mem_eq(mapped(checkpoint, "u8", 3), "\x01\x02\xff", 3);
    ck_assert_mem_eq(mapped(checkpoint, "f8_e4m3", 2), "\x38\x7f", 2);
    ck_assert_uint_eq(checkpoint_find(checkpoint, "empty")->bytes, 0);
    ck_assert_int_eq(checkpoint_find(checkpoint, "f16")->type, WEIGHT_F16);
    ck_assert_int_eq(checkpoint_find(checkpoint, "f64")->type, WEIGHT_NONE);
    ck_assert_str_eq(checkpoint_find(checkpoint, "f8_e5m2")->type_name, "F8_E5M2");
    ck_assert_ptr_null(checkpoint_find(checkpoint, "f"));
    checkpoint_close(checkpoint);
    ck_assert_int_eq(unlink(scratch_path("model.safetensors")), 0);
    expect_header_refused("{\"w\":{\"dtype\":\"Q7\",\"shape\":[1],\"data_offsets\":[0,4]}}", "0123", 4,
                          STATUS_UNSUPPORTED, "tensor 'w' has unsupported type 'Q7'");
}
END_TEST

/* B99: three bytes first, the header's length odd. */
START_TEST(unaligned_tensors_have_the_right_values)
{
    const char *header = "{\"u8\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                         "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[3,11]},"
                         "\"h\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[11,13]}}";
    unsigned char data[13] = {1, 2, 3, 0, 0, 0x20, 0x40, 0, 0, 0x80, 0xbf, 0x00, 0x3c};
    struct checkpoint *checkpoint;
    float values[2];

    ck_assert_uint_eq(strlen(header) % 2, 1);
    small_config("");
    (void)scratch_write_safetensors("model.safetensors", header, NO_LENGTH, data, sizeof data);
    checkpoint = expect_open(scratch_path(""));
    weight_decode(WEIGHT_F32, mapped(checkpoint, "f", 8), 2, values);
    ck_assert_float_eq(values[0], 2.5f);
    ck_assert_float_eq(values[1], -1.0f);
    weight_decode(WEIGHT_F16, mapped(checkpoint, "h", 2), 1, values);
    ck_assert_float_eq(values[0], 1.0f);
    checkpoint_close(checkpoint);
}
END_TEST

/* B110 */
START_TEST(offsets_past_four_gib_are_right)
{
    static const uint64_t places[] = {(UINT64_C(1) << 31) + 8, (UINT64_C(1) << 32) + 8};
    struct text header = {0};
    struct error err = {0};
    struct checkpoint *checkpoint;
    struct stat facts;
    const char *path;
    int descriptor;
    float value;

    text_add(&header,
             "{\"a\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]},"
             "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%llu,%llu]},"
             "\"c\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]},"
             "\"d\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%llu,%llu]}}",
             (unsigned long long)places[0], (unsigned long long)places[0], (unsigned long long)places[0],
             (unsigned long long)places[0] + 4, (unsigned long long)(places[1] - places[0] - 4),
             (unsigned long long)places[0] + 4, (unsigned long long)places[1], (unsigned long long)places[1],
             (unsigned long long)places[1] + 4);
    small_config("");
    path = scratch_write_safetensors("model.safetensors", header.bytes, NO_LENGTH, "", 0);
    descriptor = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(descriptor, "\0\0\x20\x40", 4, (off_t)(8 + header.length + places[0])), 4);
    ck_assert_int_eq(pwrite(descriptor, "\0\0\x80\xbf", 4, (off_t)(8 + header.length + places[1])), 4);
    close(descriptor);
    text_done(&header);

    checkpoint = expect_open(scratch_path(""));
    weight_decode(WEIGHT_F32, mapped(checkpoint, "b", 4), 1, &value);
    ck_assert_float_eq(value, 2.5f);
    ck_assert_int_eq(checkpoint_read(checkpoint, checkpoint_find(checkpoint, "d"), 0, 4, &value, &err), STATUS_OK);
    ck_assert_float_eq(value, -1.0f);
    checkpoint_close(checkpoint);
    ck_assert_int_eq(stat(path, &facts), 0);
    ck_assert_int_lt(facts.st_blocks, 1024);
}
END_TEST

START_TEST(names_with_control_characters_are_refused)
{
    expect_header_refused("{\"a\\u001b[2J\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "0123", 4,
                          STATUS_MODEL, "control character 27");
    expect_header_refused("{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "0123", 4, STATUS_MODEL,
                          "a name of 0 bytes");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *tcase = tcase_create("file");

    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, header_length_outside_the_file_is_refused);
    tcase_add_test(tcase, header_above_the_format_limit_is_refused);
    tcase_add_test(tcase, cut_data_names_sizes_and_the_first_tensor);
    tcase_add_test(tcase, overlaps_and_holes_name_both_tensors);
    tcase_add_test(tcase, shape_and_range_must_agree);
    tcase_add_test(tcase, duplicate_names_are_named);
    tcase_add_test(tcase, every_element_type_is_known_and_lies_where_the_reference_put_it);
    tcase_add_test(tcase, unaligned_tensors_have_the_right_values);
    tcase_add_test(tcase, offsets_past_four_gib_are_right);
    tcase_add_test(tcase, names_with_control_characters_are_refused);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
