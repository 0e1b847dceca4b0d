/* The parameter tables: which rows apply, their names and shapes. */
#include <check.h>

#include "runtime/family.h"
#include "tests/suite.h"

static bool applies(const struct model_config *config, enum parameter parameter)
{
    int count;
    const struct parameter_rule *const *rules = family_rules(config, &count);
    int found = 0;

    for (int i = 0; i < count; i++)
        found += rules[i]->parameter == parameter;
    ck_assert_int_le(found, 1);
    return found;
}

START_TEST(each_fact_switches_its_own_rows_and_no_others)
{
    for (unsigned facts = 0; facts < 64; facts++) {
        struct model_config config = {.rope_freqs = facts & 1,
                                      .attention_bias = facts & 2,
                                      .qk_norm = facts & 4,
                                      .attention_output_bias = facts & 8,
                                      .mlp_bias = facts & 16,
                                      .tied = facts & 32};
        int count;

        family_rules(&config, &count);
        ck_assert_int_eq(count, 11 + config.rope_freqs + 3 * config.attention_bias + 2 * config.qk_norm +
                                    config.attention_output_bias + 3 * config.mlp_bias + !config.tied);
        ck_assert(applies(&config, PARAMETER_EMBEDDING) && applies(&config, PARAMETER_OUTPUT_NORM));
        ck_assert(applies(&config, PARAMETER_ROPE_FREQS) == config.rope_freqs);
        ck_assert(applies(&config, PARAMETER_K_BIAS) == config.attention_bias);
        ck_assert(applies(&config, PARAMETER_K_NORM) == config.qk_norm);
        ck_assert(applies(&config, PARAMETER_O_BIAS) == config.attention_output_bias);
        ck_assert(applies(&config, PARAMETER_DOWN_BIAS) == config.mlp_bias);
        ck_assert(applies(&config, PARAMETER_HEAD) == !config.tied);
    }
}
END_TEST

START_TEST(names_follow_the_format_and_carry_the_layer)
{
    struct model_config config = {.tied = false};
    int count;
    const struct parameter_rule *const *rules = family_rules(&config, &count);
    char name[96];

    for (int i = 0; i < count; i++) {
        if (rules[i]->parameter != PARAMETER_DOWN)
            continue;
        family_tensor_name(&config, rules[i], 17, name, sizeof name);
        ck_assert_str_eq(name, "model.layers.17.mlp.down_proj.weight");
        config.gguf = true;
        family_tensor_name(&config, rules[i], 17, name, sizeof name);
        ck_assert_str_eq(name, "blk.17.ffn_down.weight");
    }
    family_tensor_name(&config, rules[0], 0, name, sizeof name);
    ck_assert_str_eq(name, "token_embd.weight");
}
END_TEST

/* SmolLM2-135M has 134,515,008 parameters, the tied embedding once. */
START_TEST(the_table_sums_to_the_published_number_of_parameters)
{
    struct model_config config = {.vocab_size = 49152,
                                  .hidden_size = 576,
                                  .ffn_size = 1536,
                                  .layer_count = 30,
                                  .head_count = 9,
                                  .kv_head_count = 3,
                                  .head_dim = 64,
                                  .tied = true};
    int count;
    const struct parameter_rule *const *rules = family_rules(&config, &count);
    uint64_t parameters = 0;

    for (int i = 0; i < count; i++)
        parameters += family_extent(&config, rules[i]->rows) * family_extent(&config, rules[i]->cols) *
                      (rules[i]->place == PLACE_LAYER ? config.layer_count : 1);
    ck_assert_uint_eq(parameters, 134515008);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("family");
    TCase *tests = tcase_create("family");

    tcase_add_test(tests, each_fact_switches_its_own_rows_and_no_others);
    tcase_add_test(tests, names_follow_the_format_and_carry_the_layer);
    tcase_add_test(tests, the_table_sums_to_the_published_number_of_parameters);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
