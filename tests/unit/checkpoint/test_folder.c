/* A Hugging Face folder: which files are read, and what config.json and generation_config.json mean. */
#include <check.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "files.h"
#include "tests/suite.h"

/* One F32 tensor of one element. */
static void write_one_tensor(const char *file, const char *name, const char *data)
{
    struct text header = {0};

    text_add(&header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", name);
    (void)scratch_write_safetensors(file, text_string(&header), UINT64_MAX, data, 4);
    text_done(&header);
}

static void write_three_shards(void)
{
    small_config("");
    write_one_tensor("model-00001-of-00003.safetensors", "a", "aaaa");
    write_one_tensor("model-00002-of-00003.safetensors", "b", "bbbb");
    write_one_tensor("model-00003-of-00003.safetensors", "c", "cccc");
    (void)scratch_write_text("model.safetensors.index.json",
                             "{\"metadata\": {}, \"weight_map\": {\"a\": \"model-00001-of-00003.safetensors\","
                             "\"b\": \"model-00002-of-00003.safetensors\","
                             "\"c\": \"model-00003-of-00003.safetensors\"}}");
}

START_TEST(a_folder_with_only_a_config_opens_without_weights)
{
    struct checkpoint *checkpoint;

    small_config("");
    checkpoint = expect_open(scratch_path(""));
    ck_assert(!checkpoint_has_weights(checkpoint));
    ck_assert(!checkpoint_is_gguf(checkpoint));
    ck_assert_uint_eq(checkpoint_config(checkpoint)->hidden_size, 32);
    ck_assert_ptr_null(checkpoint_find(checkpoint, "a"));
    ck_assert_str_eq(checkpoint_notes(checkpoint), "");
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(shards_are_read_through_their_index)
{
    struct checkpoint *checkpoint;
    const struct stored_tensor *tensor;
    struct error err = {0};
    char value[4];

    write_three_shards();
    checkpoint = expect_open(scratch_path(""));
    ck_assert_uint_eq(checkpoint_tensor_count(checkpoint), 3);
    ck_assert_int_eq(checkpoint_shard_count(checkpoint), 3);
    tensor = checkpoint_find(checkpoint, "b");
    ck_assert_ptr_nonnull(strstr(checkpoint_shard_path(checkpoint, tensor->shard), "model-00002-of-00003"));
    ck_assert_int_eq(checkpoint_read(checkpoint, tensor, 0, 4, value, &err), STATUS_OK);
    ck_assert_mem_eq(value, "bbbb", 4);
    checkpoint_close(checkpoint);
}
END_TEST

/* B104 */
START_TEST(missing_shards_are_listed)
{
    write_three_shards();
    ck_assert_int_eq(unlink(scratch_path("model-00002-of-00003.safetensors")), 0);
    ck_assert_int_eq(unlink(scratch_path("model-00003-of-00003.safetensors")), 0);
    expect_refusal(scratch_path(""), STATUS_MODEL, "2 files that cannot be read");
    expect_refusal(scratch_path(""), STATUS_MODEL, "model-00002-of-00003.safetensors");
    expect_refusal(scratch_path(""), STATUS_MODEL, "model-00003-of-00003.safetensors");
}
END_TEST

START_TEST(a_tensor_that_its_shard_lacks_is_named)
{
    write_three_shards();
    write_one_tensor("model-00002-of-00003.safetensors", "other", "bbbb");
    expect_refusal(scratch_path(""), STATUS_MODEL, "b (model-00002-of-00003.safetensors)");
}
END_TEST

/* B106 */
START_TEST(a_stray_weight_file_is_noted_and_not_read)
{
    struct checkpoint *checkpoint;

    write_three_shards();
    write_one_tensor("model.safetensors", "a", "zzzz");
    checkpoint = expect_open(scratch_path(""));
    ck_assert_uint_eq(checkpoint_tensor_count(checkpoint), 3);
    ck_assert_ptr_nonnull(strstr(checkpoint_notes(checkpoint), "model.safetensors.index.json decides"));
    ck_assert_ptr_nonnull(strstr(checkpoint_notes(checkpoint), "not read: model.safetensors\n"));
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(an_index_that_leaves_the_folder_is_refused)
{
    small_config("");
    (void)scratch_write_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../x.safetensors\"}}");
    expect_refusal(scratch_path(""), STATUS_MODEL, "'../x.safetensors'");
    (void)scratch_write_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": 3}}");
    expect_refusal(scratch_path(""), STATUS_MODEL, "expected the name of a file");
    (void)scratch_write_text("model.safetensors.index.json", "{\"weight_map\": {}}");
    expect_refusal(scratch_path(""), STATUS_MODEL, "names no tensor");
    (void)scratch_write_text("model.safetensors.index.json", "{}");
    expect_refusal(scratch_path(""), STATUS_MODEL, "weight_map is absent");
    (void)scratch_write_text("model.safetensors.index.json", "{\"weight_map\": {\"abc\": \"x\", \"abc\": \"y\"}}");
    expect_refusal(scratch_path(""), STATUS_MODEL, "duplicate name 'abc'");
}
END_TEST

START_TEST(shards_without_an_index_are_no_model_without_weights)
{
    small_config("");
    write_one_tensor("model-00001-of-00002.safetensors", "a", "aaaa");
    expect_refusal(scratch_path(""), STATUS_MODEL, "model-00001-of-00002.safetensors");
}
END_TEST

START_TEST(what_is_no_file_does_not_hang)
{
    small_config("");
    ck_assert_int_eq(mkfifo(scratch_path("model.safetensors"), 0600), 0);
    expect_refusal(scratch_path(""), STATUS_STORAGE, "not a regular file");
}
END_TEST

static struct model_config open_config(const char *json)
{
    struct checkpoint *checkpoint;
    struct model_config config;

    (void)scratch_write_text("config.json", json);
    checkpoint = expect_open(scratch_path(""));
    config = *checkpoint_config(checkpoint);
    checkpoint_close(checkpoint);
    return config;
}

static struct model_config open_small(const char *extra)
{
    struct checkpoint *checkpoint;
    struct model_config config;

    small_config(extra);
    checkpoint = expect_open(scratch_path(""));
    config = *checkpoint_config(checkpoint);
    checkpoint_close(checkpoint);
    return config;
}

START_TEST(every_fact_of_the_config_arrives)
{
    struct model_config config =
        open_small(", \"head_dim\": 16, \"tie_word_embeddings\": true, \"attention_bias\": true, \"mlp_bias\": true,"
                   "\"bos_token_id\": 1, \"eos_token_id\": [2, 3, 2], \"torch_dtype\": \"bfloat16\"");

    ck_assert_int_eq(config.architecture, ARCH_LLAMA);
    ck_assert_str_eq(config.architecture_name, "LlamaForCausalLM");
    ck_assert_uint_eq(config.vocab_size, 8);
    ck_assert_uint_eq(config.ffn_size, 64);
    ck_assert_uint_eq(config.layer_count, 2);
    ck_assert_uint_eq(config.head_count, 4);
    ck_assert_uint_eq(config.kv_head_count, 2);
    ck_assert_uint_eq(config.head_dim, 16);
    ck_assert_uint_eq(config.context_length, 64);
    ck_assert_double_eq(config.norm_epsilon, 1e-5);
    ck_assert(config.tied && config.attention_bias && config.attention_output_bias && config.mlp_bias);
    ck_assert(!config.qk_norm && !config.rope_scaling.llama3 && !config.rope_theta_default);
    ck_assert_int_eq(config.rope_layout, ROPE_HALVES);
    ck_assert_int_eq(config.bos_token, 1);
    ck_assert_int_eq(config.stop_token_count, 2);
    ck_assert_uint_eq(config.stop_token[1], 3);
    ck_assert_str_eq(config.torch_dtype, "bfloat16");
    ck_assert_uint_eq(open_small("").head_dim, 8);
    ck_assert_int_eq(open_small("").bos_token, -1);
    ck_assert_int_eq(open_small("").stop_token_count, 0);
}
END_TEST

START_TEST(generation_config_decides_the_stop_tokens)
{
    (void)scratch_write_text("generation_config.json", "{\"eos_token_id\": [5, 6]}");
    ck_assert_uint_eq(open_small(", \"eos_token_id\": 2, \"bos_token_id\": 1").stop_token[0], 5);
    ck_assert_int_eq(open_small(", \"eos_token_id\": 2, \"bos_token_id\": 1").stop_token_count, 2);
    ck_assert_int_eq(open_small(", \"eos_token_id\": 2, \"bos_token_id\": 1").bos_token, 1);
    (void)scratch_write_text("generation_config.json", "{}");
    ck_assert_uint_eq(open_small(", \"eos_token_id\": 2").stop_token[0], 2);
    (void)scratch_write_text("generation_config.json", "{\"eos_token_id\": \"</s>\"}");
    small_config("");
    expect_refusal(scratch_path(""), STATUS_MODEL, "generation_config.json: eos_token_id is the string");
}
END_TEST

/* B145: both spellings of the type key, and both of the section. */
START_TEST(llama3_scaling_is_read_in_every_spelling)
{
    static const char *const spellings[] = {
        ", \"rope_scaling\": {\"type\": \"llama3\"",
        ", \"rope_scaling\": {\"rope_type\": \"llama3\"",
        ", \"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\"",
    };

    for (size_t i = 0; i < 3; i++) {
        struct text extra = {0};
        struct model_config config;

        text_add(&extra,
                 "%s, \"factor\": 8, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"
                 "\"original_max_position_embeddings\": 16}",
                 spellings[i]);
        config = open_small(text_string(&extra));
        text_done(&extra);
        ck_assert(config.rope_scaling.llama3);
        ck_assert_double_eq(config.rope_scaling.factor, 8);
        ck_assert_double_eq(config.rope_scaling.high_freq_factor, 4);
        ck_assert_double_eq(config.rope_scaling.original_context, 16);
        ck_assert_double_eq(config.rope_theta, i == 2 ? 500000 : 10000);
    }
}
END_TEST

/* B146 */
START_TEST(a_missing_base_frequency_is_the_default_and_noted)
{
    const char *without = "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 8, \"hidden_size\": 32,"
                          "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
                          "\"max_position_embeddings\": 64, \"rope_scaling\": null}";
    struct checkpoint *checkpoint;

    ck_assert_double_eq(open_config(without).rope_theta, 10000);
    ck_assert(open_config(without).rope_theta_default);
    ck_assert_uint_eq(open_config(without).kv_head_count, 4);
    checkpoint = expect_open(scratch_path(""));
    ck_assert_ptr_nonnull(strstr(checkpoint_notes(checkpoint), "rope_theta is missing, the default 10000 is used"));
    checkpoint_close(checkpoint);
    ck_assert(!open_small(", \"rope_scaling\": {\"type\": \"default\"}").rope_scaling.llama3);
    ck_assert(!open_small(", \"rope_parameters\": {\"rope_type\": null, \"rope_theta\": 1e6}").rope_scaling.llama3);
    ck_assert_double_eq(open_small(", \"rope_parameters\": {\"rope_theta\": 1000000}").rope_theta, 1e6);
}
END_TEST

START_TEST(families_differ_where_transformers_says_so)
{
    const char *qwen3 = "{\"architectures\": [\"Qwen3ForCausalLM\"], \"vocab_size\": 8, \"hidden_size\": 96,"
                        "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 64,"
                        "\"rope_theta\": 1e6, \"max_position_embeddings\": 64, \"use_sliding_window\": false}";
    const char *qwen2 = "{\"model_type\": \"qwen2\", \"vocab_size\": 8, \"hidden_size\": 32, \"rope_theta\": 1e6,"
                        "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
                        "\"num_key_value_heads\": null, \"max_position_embeddings\": 64, \"sliding_window\": 16}";
    const char *mistral = "{\"architectures\": [\"MistralForCausalLM\"], \"vocab_size\": 8, \"hidden_size\": 64,"
                          "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 16,"
                          "\"rope_theta\": 1e6, \"max_position_embeddings\": 64, \"sliding_window\": 64}";
    struct model_config config = open_config(qwen3);

    ck_assert(config.qk_norm && !config.attention_bias);
    ck_assert_uint_eq(config.head_dim, 128);
    ck_assert_uint_eq(config.kv_head_count, 32);
    config = open_config(qwen2);
    ck_assert(config.attention_bias && !config.attention_output_bias && !config.qk_norm);
    ck_assert_uint_eq(config.kv_head_count, 4);
    config = open_config(mistral);
    ck_assert_int_eq(config.architecture, ARCH_MISTRAL);
    ck_assert_uint_eq(config.kv_head_count, 8);
}
END_TEST

START_TEST(what_is_not_built_is_refused_by_name)
{
    static const struct {
        enum status status;
        const char *extra;
        const char *sentence;
    } rows[] = {
        {STATUS_UNSUPPORTED, ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}", "type 'yarn'"},
        {STATUS_UNSUPPORTED, ", \"rope_scaling\": {\"rope_type\": \"foo\"}", "type 'foo'"},
        {STATUS_MODEL, ", \"rope_scaling\": {\"factor\": 2}", "neither rope_scaling.type nor"},
        {STATUS_MODEL, ", \"rope_scaling\": {\"type\": \"llama3\", \"rope_type\": \"yarn\"}", "rope_type is 'yarn'"},
        {STATUS_MODEL, ", \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}", "low_freq_factor is missing"},
        {STATUS_MODEL, ", \"rope_scaling\": 4", "rope_scaling is a number"},
        {STATUS_UNSUPPORTED, ", \"rope_parameters\": {\"full\": {\"rope_theta\": 1e6}}", "differs by layer"},
        {STATUS_UNSUPPORTED, ", \"rope_parameters\": {\"rope_theta\": 1e6}, \"rope_scaling\": {\"type\": \"yarn\"}",
         "type 'yarn'"},
        {STATUS_UNSUPPORTED, ", \"partial_rotary_factor\": 0.5", "partial_rotary_factor 0.5"},
        {STATUS_UNSUPPORTED, ", \"hidden_act\": \"gelu\"", "hidden_act 'gelu'"},
        {STATUS_UNSUPPORTED, ", \"quantization_config\": {\"bits\": 4}", "quantization_config"},
        {STATUS_UNSUPPORTED, ", \"layer_types\": [\"sliding_attention\"]", "'sliding_attention'"},
        {STATUS_MODEL, ", \"head_dim\": 7", "head_dim 7 is odd"},
        {STATUS_MODEL, ", \"head_dim\": 0", "config.json: head_dim is 0, expected a whole number from 1"},
        {STATUS_MODEL, ", \"tie_word_embeddings\": \"yes\"", "expected true or false"},
        {STATUS_MODEL, ", \"eos_token_id\": -1", "eos_token_id is -1"},
        {STATUS_MODEL, ", \"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "more than 16 stop tokens"},
        {STATUS_MODEL, ", \"vocab_size\": 9", "duplicate name 'vocab_size'"},
        {STATUS_MODEL, ",", "not valid JSON"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        small_config(rows[i].extra);
        expect_refusal(scratch_path(""), rows[i].status, rows[i].sentence);
    }
}
END_TEST

START_TEST(wrong_numbers_name_file_key_and_range)
{
    static const struct {
        enum status status;
        const char *architecture;
        const char *facts;
        const char *sentence;
    } rows[] = {
        {STATUS_UNSUPPORTED, "GPT2LMHeadModel", "\"hidden_size\": 32",
         "'GPT2LMHeadModel' is not supported; known: Llama"},
        {STATUS_MODEL, "LlamaForCausalLM", "\"hidden_size\": 32", "vocab_size is missing"},
        {STATUS_MODEL, "LlamaForCausalLM", "\"vocab_size\": 8, \"hidden_size\": 1048577", "from 1 to 1048576"},
        {STATUS_MODEL, "LlamaForCausalLM", "\"vocab_size\": 8, \"hidden_size\": 32.0",
         "hidden_size is 32, expected a whole"},
        {STATUS_MODEL, "LlamaForCausalLM", "\"vocab_size\": -8", "vocab_size is -8"},
        {STATUS_MODEL, "LlamaForCausalLM", "\"vocab_size\": 99999999999999999999", "not valid JSON"},
        {STATUS_MODEL, "LlamaForCausalLM",
         "\"vocab_size\": 8, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 4097", "4097"},
        {STATUS_MODEL, "LlamaForCausalLM",
         "\"vocab_size\": 8, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 8, \"num_key_value_heads\": 3, \"max_position_embeddings\": 64",
         "8 query heads are no multiple of 3"},
        {STATUS_MODEL, "LlamaForCausalLM",
         "\"vocab_size\": 8, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 5, \"max_position_embeddings\": 64",
         "hidden_size 32 is no multiple of num_attention_heads 5"},
        {STATUS_MODEL, "LlamaForCausalLM",
         "\"vocab_size\": 8, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"rope_theta\": \"500000.0\"",
         "rope_theta is the string \"500000.0\""},
        {STATUS_MODEL, "LlamaForCausalLM",
         "\"vocab_size\": 8, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"rms_norm_eps\": 0",
         "rms_norm_eps is 0"},
        {STATUS_UNSUPPORTED, "MistralForCausalLM",
         "\"vocab_size\": 8, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 8, \"max_position_embeddings\": 64, \"sliding_window\": 32",
         "sliding_window 32 below the context of 64"},
        {STATUS_UNSUPPORTED, "Qwen2ForCausalLM",
         "\"vocab_size\": 8, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2,"
         "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"max_position_embeddings\": 64,"
         "\"use_sliding_window\": true",
         "use_sliding_window true"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct text json = {0};

        text_add(&json, "{\"architectures\": [\"%s\"], %s}", rows[i].architecture, rows[i].facts);
        (void)scratch_write_text("config.json", text_string(&json));
        text_done(&json);
        expect_refusal(scratch_path(""), rows[i].status, rows[i].sentence);
        expect_refusal(scratch_path(""), rows[i].status, "config.json");
    }
    ck_assert_int_eq(unlink(scratch_path("config.json")), 0);
    expect_refusal(scratch_path(""), STATUS_STORAGE, "config.json: cannot open");
    expect_refusal(scratch_path("nothing"), STATUS_STORAGE, "No such file");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("folder");
    TCase *tcase = tcase_create("folder");

    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_folder_with_only_a_config_opens_without_weights);
    tcase_add_test(tcase, shards_are_read_through_their_index);
    tcase_add_test(tcase, missing_shards_are_listed);
    tcase_add_test(tcase, a_tensor_that_its_shard_lacks_is_named);
    tcase_add_test(tcase, a_stray_weight_file_is_noted_and_not_read);
    tcase_add_test(tcase, an_index_that_leaves_the_folder_is_refused);
    tcase_add_test(tcase, shards_without_an_index_are_no_model_without_weights);
    tcase_add_test(tcase, what_is_no_file_does_not_hang);
    tcase_add_test(tcase, every_fact_of_the_config_arrives);
    tcase_add_test(tcase, generation_config_decides_the_stop_tokens);
    tcase_add_test(tcase, llama3_scaling_is_read_in_every_spelling);
    tcase_add_test(tcase, a_missing_base_frequency_is_the_default_and_noted);
    tcase_add_test(tcase, families_differ_where_transformers_says_so);
    tcase_add_test(tcase, what_is_not_built_is_refused_by_name);
    tcase_add_test(tcase, wrong_numbers_name_file_key_and_range);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
