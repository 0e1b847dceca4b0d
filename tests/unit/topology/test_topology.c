/* What a good file means: values, defaults, overrides, the canonical text, the generated reference. */
#include <stdlib.h>

#include "topology_case.h"
#include "tests/suite.h"

/* The folder of this test's data, and the project's root. */
static const char *data_path(const char *name, char *path, size_t size)
{
    (void)snprintf(path, size, "%s/%s", getenv("FERRY_SOURCE") ? getenv("FERRY_SOURCE") : ".", name);
    return path;
}

static struct topology *load(const char *const *overrides, size_t count)
{
    struct topology *topology = NULL;
    struct text messages = {0};
    struct error err = {0};
    char path[4096];
    enum status st = topology_load(data_path("tests/unit/topology/every-key.yaml", path, sizeof path), overrides, count,
                                   &topology, &messages, &err);

    ck_assert_msg(st == STATUS_OK, "%s\n%s", err.text, text_string(&messages));
    text_done(&messages);
    return topology;
}

START_TEST(every_key_reaches_its_field)
{
    struct topology *t = load(NULL, 0);
    const struct topology_route *route = &t->routes.item[0];
    const struct topology_generate *generate = &t->workload.generate;

    ck_assert_str_eq(t->name.value, "smollm-pp2-tp2");
    ck_assert_uint_eq(t->world_size, 4);
    ck_assert_uint_eq(t->mesh.axis[TOPOLOGY_PIPELINE].value, 2);
    ck_assert_uint_eq(t->mesh.axis[TOPOLOGY_DATA].value, 1);
    ck_assert_uint_eq(t->mesh.axis[TOPOLOGY_DATA].at.line, 0);
    ck_assert_uint_eq(t->mesh.axis[TOPOLOGY_TENSOR].at.line, 6);
    ck_assert_uint_eq(t->mesh.axis[TOPOLOGY_TENSOR].at.column, 11);
    ck_assert_uint_eq(t->groups.item[0].members.item[0].value, 3);
    ck_assert_uint_eq(t->groups.item[0].members.item[1].value, 1);
    ck_assert_uint_eq(t->groups.item[0].operations.value, 1u << TOPOLOGY_ALL_GATHER_UNEVEN | 1u << TOPOLOGY_BARRIER);
    ck_assert_uint_eq(t->groups.item[0].dtypes.value, 1u << DTYPE_F32 | 1u << DTYPE_BF16);
    ck_assert_uint_eq(t->groups.item[0].limits.max_bytes.value, 67108864);
    ck_assert_uint_eq(route->from.world_rank, 3);
    ck_assert_uint_eq(route->to.world_rank, 1);
    ck_assert_int_eq(route->bundle.item[0].dtype.value, DTYPE_F32);
    ck_assert_int_eq(route->bundle.item[0].shape.item[0].extent, 0);
    ck_assert_uint_eq(route->bundle.item[0].shape.item[0].high, 64);
    ck_assert_int_eq(route->bundle.item[0].shape.item[1].extent, -1);
    ck_assert_uint_eq(route->bundle.item[0].shape.item[1].low, 576);
    ck_assert_uint_eq(t->communication.timeout_ns.value, UINT64_C(30000000000));
    ck_assert_uint_eq(t->communication.startup_timeout_ns.value, UINT64_C(600000000000));
    ck_assert_int_eq(t->placement.order.axis[0], TOPOLOGY_TENSOR);
    ck_assert(t->placement.threads.automatic);
    ck_assert_uint_eq(t->compute.pieces.value, 4);
    ck_assert_str_eq(t->launch.hosts.item[1].name.value, "node2");
    ck_assert_str_eq(t->launch.env.item[0].value.value, "cores");
    ck_assert_str_eq(t->launch.slurm.time.value, "00:30:00");
    ck_assert(t->launch.slurm.requeue.value);
    ck_assert_str_eq(t->launch.slurm.setup.item[0].value, "module load openmpi");
    ck_assert_uint_eq(generate->layers.item[1].value, 14);
    ck_assert_str_eq(generate->prompts.item[0].text.value, "The capital of France is");
    ck_assert_str_eq(generate->prompts.item[1].messages.item[0].content.value, "Hello");
    ck_assert_uint_eq(generate->prompts.item[2].tokens.item[1].value, 2);
    ck_assert(generate->sampling.top_p.value == 1.0);
    ck_assert_uint_eq(generate->sampling.seed.value, 7);
    topology_destroy(t);
}
END_TEST

START_TEST(absent_keys_have_the_documented_defaults)
{
    struct topology *t = accepted_text(HEAD "world: 3\ngroups: [{name: g, members: [2]}]\n");

    ck_assert_uint_eq(t->world_size, 3);
    ck_assert_uint_eq(t->mesh.at.line, 0);
    ck_assert_uint_eq(t->workload.at.line, 0);
    ck_assert_int_eq(t->communication.checks.value, TOPOLOGY_CHECKS_FULL);
    ck_assert_uint_eq(t->communication.timeout_ns.value, UINT64_C(30000000000));
    ck_assert_str_eq(t->run_dir.value, "runs");
    ck_assert_int_eq(t->placement.order.axis[0], TOPOLOGY_EXPERT);
    ck_assert_int_eq(t->placement.order.axis[3], TOPOLOGY_DATA);
    ck_assert_uint_eq(t->groups.item[0].operations.value, (1u << TOPOLOGY_OPERATION_COUNT) - 1);
    ck_assert_uint_eq(t->groups.item[0].dtypes.value, (1u << DTYPE_COUNT) - 2);
    ck_assert_uint_eq(t->compute.pieces.value, 0);
    topology_destroy(t);
}
END_TEST

START_TEST(words_of_yaml_stay_names_B04)
{
    struct topology *t = accepted_text(PAIR "groups:\n"
                                            " - {name: no, members: [0]}\n"
                                            " - {name: on, members: [0]}\n"
                                            " - {name: y, members: [0]}\n"
                                            " - {name: null, members: [0]}\n");

    ck_assert_str_eq(t->groups.item[0].name.value, "no");
    ck_assert_str_eq(t->groups.item[1].name.value, "on");
    ck_assert_str_eq(t->groups.item[2].name.value, "y");
    ck_assert_str_eq(t->groups.item[3].name.value, "null");
    topology_destroy(t);
}
END_TEST

START_TEST(byte_order_mark_line_ends_and_tabs_change_nothing_B12)
{
    static const char *const form[] = {
        "ferry: 1\nname: a\nmesh: {data: 2}\n",
        "\357\273\277ferry: 1\nname: a\nmesh: {data: 2}\n",
        "ferry: 1\r\nname: a\r\nmesh: {data: 2}\r\n",
        "ferry:\t1\nname:\ta\t\nmesh:\t{data:\t2}\t# x\n",
        "%YAML 1.2\n---\nferry: 1\nname: 'a'\nmesh:\n  data: 2\n...\n# end\n",
        "{ferry: 1, name: a, mesh: {data: 2}}",
        "ferry: 1\nname: a\nmesh: {data: 2}\nworld: 2\n",
    };
    struct topology *t = accepted_text(form[0]);
    struct text first = canonical(t);

    topology_destroy(t);
    for (size_t i = 1; i < sizeof form / sizeof *form; i++) {
        struct topology *other = accepted_text(form[i]);
        struct text text = canonical(other);

        ck_assert_str_eq(text_string(&text), text_string(&first));
        text_done(&text);
        topology_destroy(other);
    }
    text_done(&first);
}
END_TEST

START_TEST(overrides_win_and_the_later_one_wins)
{
    const char *const set[] = {"mesh.tensor=1",
                               "mesh.data=3",
                               "mesh.data=2",
                               "groups[evaluators].members=[0, 2]",
                               "groups[0].limits.max_bytes=1KiB",
                               "workload.generate.sampling.temperature=0.25",
                               "routes=[]",
                               "compute={pieces: 8}",
                               "workload.generate.prompts=[\"a: b\"]"};
    struct topology *t = load(set, sizeof set / sizeof *set);

    ck_assert_uint_eq(t->world_size, 4);
    ck_assert_uint_eq(t->mesh.axis[TOPOLOGY_DATA].value, 2);
    ck_assert_uint_eq(t->mesh.axis[TOPOLOGY_DATA].at.source, 3);
    ck_assert_uint_eq(t->groups.item[0].members.item[1].value, 2);
    ck_assert_uint_eq(t->groups.item[0].limits.max_bytes.value, 1024);
    ck_assert(t->workload.generate.sampling.temperature.value == 0.25);
    ck_assert_uint_eq(t->routes.count, 0);
    ck_assert_uint_eq(t->compute.pieces.value, 8);
    ck_assert_str_eq(t->workload.generate.prompts.item[0].text.value, "a: b");
    topology_destroy(t);
}
END_TEST

START_TEST(override_of_a_lone_dash_is_a_text)
{
    static const char text[] = PAIR "workload: {generate: {model: m}}\n";
    struct topology *t = accepted(text, strlen(text), (const char *const[]){"workload.generate.prompts_file=-"}, 1);

    ck_assert_str_eq(t->workload.generate.prompts_file.value, "-");
    ck_assert_uint_eq(t->workload.generate.prompts_file.at.source, 1);
    ck_assert_uint_eq(t->workload.generate.prompts_file.at.column, 32);
    topology_destroy(t);
}
END_TEST

START_TEST(override_of_prompts_or_their_file_takes_the_place_of_the_other)
{
    static const char listed[] = PAIR "workload: {generate: {model: m, prompts: [a, b]}}\n";
    static const char filed[] = PAIR "workload: {generate: {model: m, prompts_file: p}}\n";
    const char *const set[] = {"workload.generate.prompts_file=q", "workload.generate.prompts=[c]"};
    struct topology *t = accepted(listed, strlen(listed), set, 1);

    ck_assert_str_eq(t->workload.generate.prompts_file.value, "q");
    ck_assert_uint_eq(t->workload.generate.prompts.count, 0);
    topology_destroy(t);
    t = accepted(filed, strlen(filed), set + 1, 1);
    ck_assert_ptr_null(t->workload.generate.prompts_file.value);
    ck_assert_uint_eq(t->workload.generate.prompts.count, 1);
    topology_destroy(t);
    t = accepted(listed, strlen(listed), set, 2); /* the later of the two */
    ck_assert_ptr_null(t->workload.generate.prompts_file.value);
    ck_assert_str_eq(t->workload.generate.prompts.item[0].text.value, "c");
    topology_destroy(t);
}
END_TEST

START_TEST(override_of_an_alias_leaves_its_anchor_alone)
{
    static const char text[] = PAIR "groups:\n - {name: g, members: [0], limits: &l {max_bytes: 1B}}\n"
                                    " - {name: h, members: [0], limits: *l}\n";
    struct topology *t = accepted(text, strlen(text), (const char *const[]){"groups[1].limits.max_bytes=2B"}, 1);

    ck_assert_uint_eq(t->groups.item[0].limits.max_bytes.value, 1);
    ck_assert_uint_eq(t->groups.item[1].limits.max_bytes.value, 2);
    topology_destroy(t);
}
END_TEST

START_TEST(canonical_text_is_sorted_and_walks)
{
    struct topology *t = load(NULL, 0);
    struct text text = canonical(t);
    const char *cursor = text_string(&text);
    const char *key = NULL;
    const char *value = NULL;
    size_t key_length = 0;
    size_t value_length = 0;
    const char *before = NULL;
    size_t lines = 0;
    bool seen = false;

    while (topology_canonical_next(&cursor, &key, &key_length, &value, &value_length)) {
        lines++;
        ck_assert(!before || strncmp(before, key, strcspn(before, "\n") + 1) < 0);
        before = key;
        if (key_length == 14 && !memcmp(key, "routes[0].from", 14)) {
            seen = true;
            ck_assert_uint_eq(value_length, 1);
            ck_assert_int_eq(*value, '3');
        }
    }
    ck_assert(seen);
    ck_assert_uint_gt(lines, 50);
    ck_assert_ptr_nonnull(strstr(text_string(&text), "\nworld=4\n"));
    text_done(&text);
    topology_destroy(t);
}
END_TEST

START_TEST(plan_errors_take_the_same_form)
{
    struct topology *t = accepted_text(HEAD "mesh: {tensor: 2}\n");
    struct text messages = {0};
    struct error err = {0};

    ck_assert_int_eq(topology_report(t, &messages, &err), STATUS_OK);
    topology_error_at(t, t->mesh.axis[TOPOLOGY_TENSOR].at, "mesh.tensor: %d heads", 3);
    ck_assert_int_eq(topology_report(t, &messages, &err), STATUS_TOPOLOGY);
    ck_assert_str_eq(text_string(&messages), "t.yaml:3:16: error: mesh.tensor: 3 heads\n  mesh: {tensor: 2}\n"
                                             "                 ^\n");
    ck_assert_int_eq(topology_report(t, NULL, &err), STATUS_TOPOLOGY);
    ck_assert_str_eq(err.text, "t.yaml:3:16: error: mesh.tensor: 3 heads");
    text_done(&messages);
    topology_destroy(t);
}
END_TEST

START_TEST(columns_count_characters)
{
    struct text messages = {0};
    struct error err = {0};
    struct topology *t = NULL;
    static const char text[] =
        "ferry: 1\nname: \"\xc3\xa4\xe2\x82\xac\"\nmesh: {data: 1}\nlaunch: {env: {A: \"\xc3\xa4\", B: []}}\n";

    ck_assert_int_eq(topology_parse(text, strlen(text), "t.yaml", NULL, 0, &t, &messages, &err), STATUS_TOPOLOGY);
    ck_assert_ptr_nonnull(strstr(text_string(&messages), "t.yaml:4:27: error: launch.env.B"));
    text_done(&messages);
}
END_TEST

START_TEST(paths_are_relative_to_the_file)
{
    struct topology *t = NULL;
    struct text text = {0};
    struct error err = {0};
    static const char file[] = HEAD "world: 1\n";

    ck_assert_int_eq(topology_parse(file, strlen(file), "a/b/t.yaml", NULL, 0, &t, NULL, &err), STATUS_OK);
    topology_path(t, "../m", &text);
    ck_assert_str_eq(text_string(&text), "a/b/../m");
    text_clear(&text);
    topology_path(t, "/m", &text);
    ck_assert_str_eq(text_string(&text), "/m");
    text_done(&text);
    topology_destroy(t);
}
END_TEST

START_TEST(missing_file_is_a_storage_error)
{
    struct topology *t = NULL;
    struct error err = {0};

    ck_assert_int_eq(topology_load("/nonexistent/t.yaml", NULL, 0, &t, NULL, &err), STATUS_STORAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/t.yaml: No such file"));
    ck_assert_int_eq(topology_load("/", NULL, 0, &t, NULL, &err), STATUS_STORAGE);
}
END_TEST

static void compare_with_file(const char *name, const struct text *text)
{
    char path[4096];
    FILE *file = fopen(data_path(name, path, sizeof path), "rb");
    char *bytes = calloc(1, text->length + 2);
    size_t count;

    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(bytes);
    count = fread(bytes, 1, text->length + 1, file);
    ck_assert_msg(count == text->length && !memcmp(bytes, text->bytes, count),
                  "%s is not what topology-reference writes: generate it again", path);
    free(bytes);
    (void)fclose(file);
}

START_TEST(committed_reference_and_schema_are_the_generated_ones)
{
    struct text text = {0};

    topology_reference(&text);
    compare_with_file("docs/topology.md", &text);
    text_clear(&text);
    topology_schema(&text);
    compare_with_file("share/topology.schema.json", &text);
    text_done(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology");
    TCase *tcase = tcase_create("meaning");

    tcase_add_test(tcase, every_key_reaches_its_field);
    tcase_add_test(tcase, absent_keys_have_the_documented_defaults);
    tcase_add_test(tcase, words_of_yaml_stay_names_B04);
    tcase_add_test(tcase, byte_order_mark_line_ends_and_tabs_change_nothing_B12);
    tcase_add_test(tcase, overrides_win_and_the_later_one_wins);
    tcase_add_test(tcase, override_of_prompts_or_their_file_takes_the_place_of_the_other);
    tcase_add_test(tcase, override_of_a_lone_dash_is_a_text);
    tcase_add_test(tcase, override_of_an_alias_leaves_its_anchor_alone);
    tcase_add_test(tcase, canonical_text_is_sorted_and_walks);
    tcase_add_test(tcase, plan_errors_take_the_same_form);
    tcase_add_test(tcase, columns_count_characters);
    tcase_add_test(tcase, paths_are_relative_to_the_file);
    tcase_add_test(tcase, missing_file_is_a_storage_error);
    tcase_add_test(tcase, committed_reference_and_schema_are_the_generated_ones);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
