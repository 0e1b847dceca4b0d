/* What a model makes of a plan: layers, heads, cuts, bytes; the small models of the parity tests. */
#include <inttypes.h>

#include "checkpoint/model_config.h"
#include "fixture.h"

static void topology_text(char yaml[512], const char *mesh, const char *more)
{
    snprintf(yaml, 512,
             "ferry: 1\nname: m\nmesh: {%s}\nworkload:\n  generate:\n    model: m\n    prompts: [a, b, c, d]\n"
             "    max_new_tokens: 4\n%s",
             mesh, more);
}

static void assert_stages(const char *model, const char *mesh, const char *more, const uint64_t *counts, int stages)
{
    char yaml[512];
    struct fixture f;
    uint64_t start = 0;

    topology_text(yaml, mesh, more);
    f = fixture_plan(yaml, model);
    for (int stage = 0; stage < stages; stage++) {
        ck_assert_uint_eq(f.plan->stage_layers[stage].start, start);
        ck_assert_uint_eq(f.plan->stage_layers[stage].count, counts[stage]);
        start += counts[stage];
    }
    ck_assert_uint_eq(start, f.plan->model->layer_count);
    fixture_close(&f);
}

/* B143: layers that do not divide.  A vocabulary of 8 keeps the head out of it. */
START_TEST(layers_that_do_not_divide_all_stand_on_one_stage_each)
{
    static const struct {
        unsigned layers;
        int stages;
        uint64_t counts[4];
    } cases[] = {{10, 3, {4, 3, 3}}, {7, 2, {4, 3}}, {5, 4, {2, 1, 1, 1}}, {8, 3, {3, 3, 2}}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[64];
        char mesh[32];

        write_config((struct config_facts){cases[i].layers, 4, 2, 8}, path);
        snprintf(mesh, sizeof mesh, "pipeline: %d", cases[i].stages);
        assert_stages(path, mesh, "", cases[i].counts, cases[i].stages);
        remove_config(path);
    }
}
END_TEST

START_TEST(layers_of_the_file_are_taken_or_refused_with_the_numbers)
{
    char path[64];
    char yaml[512];

    write_config((struct config_facts){5, 4, 2, 8}, path);
    assert_stages(path, "pipeline: 2", "    layers: [1, 4]\n", (uint64_t[]){1, 4}, 2);
    topology_text(yaml, "pipeline: 2", "    layers: [1, 3]\n");
    assert_refused(yaml, path, STATUS_TOPOLOGY, "the sum is 4, the model has 5 layers");
    topology_text(yaml, "pipeline: 6", "");
    assert_refused(yaml, path, STATUS_TOPOLOGY,
                   "6 stages, but the model has only 5 layers: at most 5 stages are possible");
    remove_config(path);
}
END_TEST

static void assert_heads(struct config_facts facts, const char *mesh, int parts, const uint64_t *heads,
                         const uint64_t *kv_start, const uint64_t *kv_count)
{
    char path[64];
    char yaml[512];
    struct fixture f;

    write_config(facts, path);
    topology_text(yaml, mesh, "");
    f = fixture_plan(yaml, path);
    for (int t = 0; t < parts; t++) {
        struct rank_plan rank;

        plan_rank(f.plan, t, &rank);
        ck_assert_uint_eq(rank.heads.count, heads[t]);
        ck_assert_uint_eq(rank.kv_heads.start, kv_start[t]);
        ck_assert_uint_eq(rank.kv_heads.count, kv_count[t]);
    }
    fixture_close(&f);
    remove_config(path);
}

/* B139, and the example of the architecture: 9 heads, 3 key/value heads, tensor 2. */
START_TEST(heads_that_do_not_divide_are_dealt_with_the_key_value_heads_they_read)
{
    assert_heads((struct config_facts){2, 6, 6, 8}, "tensor: 4", 4, (uint64_t[]){2, 2, 1, 1}, (uint64_t[]){0, 2, 4, 5},
                 (uint64_t[]){2, 2, 1, 1});
    assert_heads((struct config_facts){2, 8, 2, 8}, "tensor: 4", 4, (uint64_t[]){2, 2, 2, 2}, (uint64_t[]){0, 0, 1, 1},
                 (uint64_t[]){1, 1, 1, 1});
    assert_heads((struct config_facts){2, 9, 3, 8}, "tensor: 2", 2, (uint64_t[]){5, 4}, (uint64_t[]){0, 1},
                 (uint64_t[]){2, 2});
}
END_TEST

START_TEST(more_ranks_than_heads_are_refused_with_the_possible_numbers)
{
    char path[64];
    char yaml[512];

    write_config((struct config_facts){2, 6, 2, 97}, path);
    topology_text(yaml, "tensor: 7", "");
    assert_refused(yaml, path, STATUS_TOPOLOGY,
                   "mesh.tensor: query heads: 6 in units of 1 cannot be cut in 7 pieces, 1 to 6 are possible "
                   "(tensor 7, query heads 6, key/value heads 2)");
    topology_text(yaml, "tensor: 2", "compute: {pieces: 7}\n");
    assert_refused(yaml, path, STATUS_TOPOLOGY, "compute.pieces: query heads");
    remove_config(path);
}
END_TEST

/* B141 */
START_TEST(a_vocabulary_that_does_not_divide_is_dealt_whole)
{
    char path[64];
    char yaml[512];

    write_config((struct config_facts){2, 6, 2, 97}, path);
    for (int parts = 2; parts <= 3; parts++) {
        char mesh[32];
        struct fixture f;
        uint64_t next = 0;

        snprintf(mesh, sizeof mesh, "tensor: %d", parts);
        topology_text(yaml, mesh, "");
        f = fixture_plan(yaml, path);
        for (int t = 0; t < parts; t++) {
            struct rank_plan rank;

            plan_rank(f.plan, t, &rank);
            ck_assert_uint_eq(rank.vocab.start, next);
            next += rank.vocab.count;
        }
        ck_assert_uint_eq(next, 97);
        fixture_close(&f);
    }
    remove_config(path);
}
END_TEST

/* B153: what can be known before the tokenizer has seen the prompts. */
START_TEST(contexts_and_tokens_beyond_the_model_are_refused_with_both_numbers)
{
    char path[64];
    char yaml[512];
    struct fixture f;

    write_config((struct config_facts){2, 4, 2, 97}, path);
    topology_text(yaml, "tensor: 1", "    context: 65\n");
    assert_refused(yaml, path, STATUS_TOPOLOGY, "65 tokens, the model has 2 to 64");
    assert_refused("ferry: 1\nname: m\nmesh: {tensor: 1}\nworkload:\n  generate: {model: m, context: 3, "
                   "max_new_tokens: 1, prompts: [{tokens: [1, 2, 3, 4]}]}\n",
                   path, STATUS_TOPOLOGY, "4 tokens exceed the context of 3");
    assert_refused("ferry: 1\nname: m\nmesh: {tensor: 1}\nworkload:\n  generate: {model: m, max_new_tokens: 1, "
                   "prompts: [{tokens: [1, 97]}]}\n",
                   path, STATUS_TOPOLOGY, "token 97 is not in the vocabulary of 97");
    topology_text(yaml, "tensor: 1", "    context: 4\n");
    f = fixture_plan(yaml, path);
    ck_assert_uint_eq(f.plan->context, 4);
    ck_assert_ptr_nonnull(strstr(text_string(&f.plan->verdict), "generation stops at the context"));
    fixture_close(&f);
    topology_text(yaml, "tensor: 1", "");
    f = fixture_plan(yaml, path);
    ck_assert_uint_eq(f.plan->context, 64);
    fixture_close(&f);
    remove_config(path);
}
END_TEST

/* Weights minus replicas over a data line are the file's tensors, each once, on every mesh. */
static void assert_every_byte_once(const char *model, const char *mesh)
{
    char path[256];
    char yaml[512];
    struct fixture f;
    uint64_t owned = 0;
    uint64_t stored = 0;

    snprintf(path, sizeof path, "%s/%s", getenv("FERRY_MODELS"), model);
    topology_text(yaml, mesh, "");
    f = fixture_plan(yaml, path);
    for (int r = 0; r < f.plan->mesh.world / f.plan->mesh.size[AXIS_DATA]; r++) {
        struct rank_plan rank;

        plan_rank(f.plan, r, &rank);
        ck_assert_uint_ge(rank.weight_bytes, rank.replica_bytes);
        owned += rank.weight_bytes - rank.replica_bytes;
    }
    for (size_t i = 0; i < checkpoint_tensor_count(f.checkpoint); i++)
        stored += checkpoint_tensor(f.checkpoint, i)->bytes;
    ck_assert_msg(owned == stored, "%s on {%s}: %" PRIu64 " bytes owned, %" PRIu64 " stored", model, mesh, owned,
                  stored);
    fixture_close(&f);
}

static bool has_one_layer(const char *model)
{
    char path[256];
    struct checkpoint *checkpoint = NULL;
    bool one;

    snprintf(path, sizeof path, "%s/%s", getenv("FERRY_MODELS"), model);
    ck_assert_int_eq(checkpoint_open(path, &checkpoint, NULL), STATUS_OK);
    one = checkpoint_config(checkpoint)->layer_count == 1;
    checkpoint_close(checkpoint);
    return one;
}

START_TEST(every_stored_byte_is_owned_once_besides_replicas)
{
    static const char *const models[] = {"llama",        "llama-10-layers",   "llama-9-heads",
                                         "llama-bias",   "llama-odd",         "llama-shards",
                                         "llama-tied",   "mistral",           "qwen2",
                                         "qwen3",        "qwen2.gguf",        "qwen3.gguf",
                                         "llama-k.gguf", "llama-floats.gguf", "llama-rope-freqs.gguf"};
    static const char *const meshes[] = {"tensor: 1", "tensor: 2", "pipeline: 2", "pipeline: 2, tensor: 2, data: 2"};

    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t i = 0; i < (has_one_layer(models[m]) ? 2 : sizeof meshes / sizeof *meshes); i++)
            assert_every_byte_once(models[m], meshes[i]);
}
END_TEST

/* bf16, 2 layers of 4 heads and 2 key/value heads of 32, hidden 128, feed-forward 96, vocabulary 8, untied. */
START_TEST(bytes_without_weights_follow_from_the_declared_type)
{
    char path[64];
    char yaml[512];
    struct fixture f;
    struct rank_plan rank;
    uint64_t layer = 128 * 128 * 2 + 64 * 128 * 2 + 3 * 96 * 128 + 2 * 128;

    write_config((struct config_facts){2, 4, 2, 8}, path);
    topology_text(yaml, "pipeline: 2", "    microbatch: 3\n");
    f = fixture_plan(yaml, path);
    plan_rank(f.plan, 0, &rank);
    ck_assert_uint_eq(rank.weight_bytes, 2 * (layer + 8 * 128));
    ck_assert_uint_eq(rank.replica_bytes, 0);
    ck_assert_uint_eq(rank.cache_bytes_per_request, 2 * 4 * 2 * 32 * 64);
    ck_assert_uint_eq(rank.state_bytes, 6 * rank.cache_bytes_per_request);
    plan_rank(f.plan, 1, &rank);
    ck_assert_uint_eq(rank.weight_bytes, 2 * (layer + 128 + 8 * 128));
    ck_assert_ptr_nonnull(strstr(text_string(&f.plan->verdict), "not checked: the weights"));
    fixture_close(&f);
    remove_config(path);
}
END_TEST

START_TEST(the_bundles_follow_from_the_model)
{
    char path[64];
    char yaml[512];
    struct fixture f;
    const struct route_spec *forward;

    write_config((struct config_facts){2, 4, 2, 97}, path);
    topology_text(yaml, "pipeline: 2, tensor: 2", "    microbatch: 3\n    prompt_chunk: 16\ncompute: {pieces: 4}\n");
    f = fixture_plan(yaml, path);
    forward = &f.plan->routes[0];
    ck_assert_uint_eq(f.plan->slots, 3);
    ck_assert_uint_eq(f.plan->wave_rows, 16);
    ck_assert_str_eq(forward->tensors[0].role, "wave");
    ck_assert_uint_eq(forward->tensors[0].dim[0].low, 3);
    ck_assert_str_eq(forward->tensors[1].role, "hidden");
    ck_assert_uint_eq(forward->tensors[1].dim[0].high, 16);
    ck_assert_uint_eq(forward->tensors[1].dim[1].low, 128);
    ck_assert_uint_eq(forward->tensors[1].dim[1].high, 128);
    /* 16 rows of 4 pieces of 128 in f32. */
    ck_assert_uint_ge(f.plan->groups[1].max_bytes, 16 * 4 * 128 * 4);
    ck_assert_str_eq(f.plan->groups[1].name, "tensor/0");
    fixture_close(&f);
    remove_config(path);
}
END_TEST

START_TEST(caches_beyond_the_memory_are_refused_and_weights_beyond_it_told)
{
    const struct rank_plan rank = {.state_bytes = 3000, .weight_bytes = 7000};
    struct text warning = {0};
    struct error err = {0};

    ck_assert_int_eq(rank_plan_fits(&rank, (struct memory_space){2000, 20000}, &warning, &err), STATUS_NOMEM);
    ck_assert_msg(strstr(err.text, "caches take 3.0 kB, and 2.0 kB of memory are available: set "
                                   "workload.generate.microbatch"),
                  "%s", err.text);
    ck_assert_uint_eq(warning.length, 0);
    ck_assert_int_eq(rank_plan_fits(&rank, (struct memory_space){3000, MEMORY_UNKNOWN}, &warning, &err), STATUS_OK);
    ck_assert_msg(strstr(text_string(&warning), "caches and weights take 10.0 kB, and 3.0 kB"), "%s",
                  text_string(&warning));
    text_done(&warning);
    ck_assert_int_eq(rank_plan_fits(&rank, (struct memory_space){10000, 10000}, &warning, &err), STATUS_OK);
    ck_assert_int_eq(rank_plan_fits(&rank, (struct memory_space){MEMORY_UNKNOWN, 9}, &warning, &err), STATUS_OK);
    ck_assert_uint_eq(warning.length, 0);
}
END_TEST

CHECK_MAIN("plan-model", layers_that_do_not_divide_all_stand_on_one_stage_each,
           layers_of_the_file_are_taken_or_refused_with_the_numbers,
           heads_that_do_not_divide_are_dealt_with_the_key_value_heads_they_read,
           more_ranks_than_heads_are_refused_with_the_possible_numbers,
           a_vocabulary_that_does_not_divide_is_dealt_whole,
           contexts_and_tokens_beyond_the_model_are_refused_with_both_numbers,
           every_stored_byte_is_owned_once_besides_replicas, bytes_without_weights_follow_from_the_declared_type,
           the_bundles_follow_from_the_model, caches_beyond_the_memory_are_refused_and_weights_beyond_it_told)
