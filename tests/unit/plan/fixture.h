/* Plans from a topology's text, and models that are only a config.json. */
#ifndef TESTS_UNIT_PLAN_FIXTURE_H
#define TESTS_UNIT_PLAN_FIXTURE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "runtime/plan.h"
#include "topology/topology.h"
#include "tests/suite.h"

struct fixture {
    struct topology *topology;
    struct checkpoint *checkpoint;
    struct plan *plan;
    struct error err;
    enum status st;
};

/* model: a path, or NULL.  The topology must parse; the plan may fail. */
static inline struct fixture fixture_open(const char *yaml, const char *model)
{
    struct fixture fixture = {0};
    struct text messages = {0};

    if (topology_parse(yaml, strlen(yaml), "test.yaml", NULL, 0, &fixture.topology, &messages, &fixture.err) !=
        STATUS_OK)
        ck_abort_msg("%s", text_string(&messages));
    if (model && checkpoint_open(model, &fixture.checkpoint, &fixture.err) != STATUS_OK)
        ck_abort_msg("%s", fixture.err.text);
    fixture.st = plan_create(fixture.topology, fixture.checkpoint, &fixture.plan, &fixture.err);
    text_done(&messages);
    return fixture;
}

static inline struct fixture fixture_plan(const char *yaml, const char *model)
{
    struct fixture fixture = fixture_open(yaml, model);

    ck_assert_msg(fixture.st == STATUS_OK, "%s", fixture.err.text);
    return fixture;
}

static inline void fixture_close(struct fixture *fixture)
{
    plan_destroy(fixture->plan);
    checkpoint_close(fixture->checkpoint);
    topology_destroy(fixture->topology);
}

/* The file is refused with this status and a sentence that contains text. */
static inline void assert_refused(const char *yaml, const char *model, enum status st, const char *text)
{
    struct fixture fixture = fixture_open(yaml, model);

    ck_assert_int_eq(fixture.st, st);
    ck_assert_msg(strstr(fixture.err.text, text) != NULL, "'%s' is not in:\n%s", text, fixture.err.text);
    fixture_close(&fixture);
}

struct config_facts {
    unsigned layers;
    unsigned heads;
    unsigned kv_heads;
    unsigned vocab;
};

/* A folder with config.json alone: hidden 32 per head, feed-forward 96, context 64; path [64]. */
static inline void write_config(struct config_facts facts, char *path)
{
    char file[96];
    FILE *out;

    strcpy(path, "/tmp/ferry-plan-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(path));
    snprintf(file, sizeof file, "%s/config.json", path);
    out = fopen(file, "w");
    ck_assert_ptr_nonnull(out);
    fprintf(out,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": %u, "
            "\"intermediate_size\": 96, \"num_hidden_layers\": %u, \"num_attention_heads\": %u, "
            "\"num_key_value_heads\": %u, \"vocab_size\": %u, \"max_position_embeddings\": 64, "
            "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false, "
            "\"torch_dtype\": \"bfloat16\", \"hidden_act\": \"silu\", \"eos_token_id\": 2}",
            32 * facts.heads, facts.layers, facts.heads, facts.kv_heads, facts.vocab);
    fclose(out);
}

static inline void remove_config(const char *path)
{
    char file[96];

    snprintf(file, sizeof file, "%s/config.json", path);
    unlink(file);
    rmdir(path);
}

#define CHECK_MAIN(name, ...)                                                                                          \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        const TTest *const list[] = {__VA_ARGS__};                                                                     \
        Suite *suite = suite_create(name);                                                                             \
        TCase *tests = tcase_create(name);                                                                             \
                                                                                                                       \
        tcase_set_timeout(tests, 60);                                                                                  \
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)                                                        \
            tcase_add_test(tests, list[i]);                                                                            \
        suite_add_tcase(suite, tests);                                                                                 \
        return suite_run(suite);                                                                                       \
    }

#endif
