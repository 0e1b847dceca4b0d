/* What is refused, and in which words: real users' failures (B..) and the rules of the format. */
#include "topology_case.h"
#include "tests/suite.h"

START_TEST(repeated_keys_name_both_lines_B01)
{
    REFUSED("world: 2\n" HEAD "world: 4\n",
            "t.yaml:4:1: error: `world` is given twice: first on line 1, again on line 4");
    REFUSED(PAIR "groups:\n - name: g\n   members: [0]\n   members: [1]\n", "`members` is given twice",
            "first on line 6, again on line 7");
}
END_TEST

START_TEST(tab_as_indentation_is_said_B02)
{
    REFUSED(PAIR "groups:\n\t- name: g\n", "t.yaml:5:1: error: a tab may not indent a line: use spaces");
    REFUSED(PAIR "mesh:\n  data: 2\n  \ttensor: 1\n", "t.yaml:6:3: error: a tab may not indent");
}
END_TEST

START_TEST(flag_takes_only_true_and_false_B04)
{
    REFUSED(PAIR "workload: {generate: {model: m, ignore_eos: yes}}\n",
            "workload.generate.ignore_eos: expected true or false, got `yes`");
}
END_TEST

START_TEST(numbers_that_do_not_fit_are_never_cut_B06)
{
    static const char *const value[] = {
        "4294967298", "-1", "99999999999999999999", "2x", "1_000", "1e1", "\"\"", "010", "\"2\"", "0x2",
        "2.0",        "+2", "18446744073709551618", "0"};

    for (size_t i = 0; i < sizeof value / sizeof *value; i++) {
        char text[128];
        char got[64];

        (void)snprintf(text, sizeof text, HEAD "world: %s\n", value[i]);
        (void)snprintf(got, sizeof got, *value[i] == '"' ? "got %s" : "got `%s`", value[i]);
        REFUSED(text, "t.yaml:3:8: error: world: expected a whole number 1..1048576, ", got);
    }
    REFUSED(HEAD "world:\n", "world: expected a whole number 1..1048576, got nothing (null)");
}
END_TEST

START_TEST(misspelt_keys_get_the_nearest_one_B10)
{
    REFUSED(PAIR "paralellism: 3\n", "t.yaml:4:1: error: unknown key `paralellism`; did you mean `mesh`?",
            "\n  paralellism: 3\n  ^\n");
    REFUSED(PAIR "groups: [{name: g, rnaks: [0]}]\n", "groups[g]: unknown key `rnaks`; did you mean `members`?");
    REFUSED(PAIR "workload: {generate: {model: m, micro_batchs: 3}}\n",
            "workload.generate: unknown key `micro_batchs`; did you mean `microbatch`?");
    REFUSED(HEAD "mesh: {tensr: 2}\n", "mesh: unknown key `tensr`; did you mean `tensor`?");
    REFUSED(PAIR "communication: {checks: ful}\n", "expected one of off, light, full, got `ful`; did you mean `full`?");
}
END_TEST

START_TEST(misplaced_keys_get_their_section_B11)
{
    REFUSED(PAIR "timeout: 3s\n", "unknown key `timeout`; it belongs in `communication`");
    REFUSED(PAIR "micro-batches: 3\n",
            "unknown key `micro-batches`; did you mean `microbatch` in `workload.generate`?");
    REFUSED(PAIR "workload: {generate: {model: m, micro-batch: 3}}\n", "did you mean `microbatch`?");
    REFUSED(PAIR "launch: {world: 2}\n", "launch: unknown key `world`; it belongs at the top level");
    REFUSED(PAIR "nodes: 2\n", "it belongs in `launch.slurm`");
}
END_TEST

START_TEST(byte_order_mark_does_not_shift_columns_B12)
{
    REFUSED("\357\273\277ferrx: 1\n", "t.yaml:1:1: error: unknown key `ferrx`; did you mean `ferry`?");
    REFUSED("\377\376f", "UTF-16");
}
END_TEST

START_TEST(second_document_is_refused_B14)
{
    REFUSED(PAIR "---\n" HEAD "world: 4\n", "a second document starts at line 4");
    REFUSED(PAIR "---\nferry: [ {\n", "a second document starts at line 4");
    REFUSED(PAIR "...\n# end\n\nworld: 3\n", "a second document starts at line 7");
}
END_TEST

START_TEST(root_that_is_no_mapping_is_said_B15)
{
    REFUSED("", "the top level must be a mapping, and the file is empty");
    REFUSED("# x\n", "the top level must be a mapping, and the file is empty");
    REFUSED("~", "the top level must be a mapping of keys to values, not nothing (null)");
    REFUSED("[]", "the top level must be a mapping of keys to values, not a list");
    REFUSED("hello", "the top level must be a mapping of keys to values, not a text");
    REFUSED(PAIR "groups: ~\n", "groups: expected a list, got nothing (null)");
    REFUSED(PAIR "run_dir: ~\n", "run_dir: expected a text on one line, got nothing (null)");
    REFUSED(PAIR "mesh:\n", "mesh: expected a mapping, got nothing (null)");
}
END_TEST

START_TEST(empty_file_has_no_line_to_show)
{
    struct topology *topology = NULL;
    struct text messages = {0};
    struct error err = {0};

    ck_assert_int_eq(topology_parse("", 0, "t.yaml", NULL, 0, &topology, &messages, &err), STATUS_TOPOLOGY);
    ck_assert_str_eq(text_string(&messages),
                     "t.yaml:1:1: error: the top level must be a mapping, and the file is empty\n");
    text_done(&messages);
}
END_TEST

START_TEST(text_without_its_quotes_is_one_complaint)
{
    struct topology *topology = NULL;
    struct text messages = {0};
    struct error err = {0};
    static const char file[] = PAIR "workload: {generate: {model: m, prompts: [What is: this]}}\n";

    REFUSED(file, "prompts[0]: unknown key `What is`", "; a text that holds `: ` needs quotes");
    ck_assert_int_eq(topology_parse(file, sizeof file - 1, "t.yaml", NULL, 0, &topology, &messages, &err),
                     STATUS_TOPOLOGY);
    ck_assert_str_eq(err.text, "t.yaml: 1 error");
    text_done(&messages);
    REFUSED(PAIR "workload: {generate: {model: m, prompts: [{}]}}\n",
            "prompts[0]: expected a text, {messages: [..]} or {tokens: [..]}");
}
END_TEST

START_TEST(paths_that_a_shell_would_expand_are_refused)
{
    REFUSED(PAIR "run_dir: ~/runs\n", "t.yaml:4:10: error: run_dir: ~ and variables are not expanded", "./~...");
    REFUSED(PAIR "workload: {generate: {model: $HOME/m, prompts: [a]}}\n",
            "workload.generate.model: ~ and variables are not expanded", "./$...");
    REFUSED(PAIR "workload: {generate: {model: m, prompts_file: ~me/p}}\n", "workload.generate.prompts_file: ~ and");
}
END_TEST

START_TEST(member_listed_twice_names_group_and_rank_B18)
{
    REFUSED(PAIR "groups: [{name: g, members: [0, 0]}]\n", "group `g`: rank 0 is a member twice");
    REFUSED(PAIR "groups: [{name: h, members: [0, 1, 1]}]\n", "group `h`: rank 1 is a member twice");
}
END_TEST

START_TEST(members_outside_the_world_name_group_and_range_B22)
{
    static const char *const value[] = {"2", "-1", "0.5", "{}", "[0]", "4294967296"};

    for (size_t i = 0; i < sizeof value / sizeof *value; i++) {
        char text[128];

        (void)snprintf(text, sizeof text, PAIR "groups: [{name: g, members: [0, %s]}]\n", value[i]);
        REFUSED(text, "groups[g].members[1]: expected a world rank 0..1, got ");
    }
    REFUSED(PAIR "groups: [{name: g, members: ['a']}]\n",
            "groups[g].members[0]: expected a world rank 0..1, got \"a\"");
    REFUSED(PAIR "groups: [{name: g, members: {}}]\n", "groups[g].members: expected a list, got a mapping");
    REFUSED(PAIR "groups: [{name: g, members: []}]\n", "groups[g].members: at least one item is needed");
    REFUSED("groups: [{name: g, members: [4]}]\n" HEAD "mesh: {tensor: 2, pipeline: 2}\n", "rank 0..3, got `4`");
}
END_TEST

START_TEST(required_keys_and_the_world_are_asked_for)
{
    REFUSED("{}", "the key `ferry` is missing", "the key `name` is missing", "give `mesh` or `world`");
    REFUSED(PAIR "routes: [{}]\n", "routes[0]: the key `from` is missing", "`to`", "`bundle`");
    REFUSED("ferry: 2\nname: a\nworld: 1\n", "ferry: expected 1, got `2`");
    REFUSED(PAIR "workload: {}\n", "workload: expected `generate` or `train`");
    REFUSED(PAIR "workload: {generate: {}}\n", "workload.generate: the key `model` is missing");
}
END_TEST

START_TEST(world_and_mesh_must_agree)
{
    REFUSED(HEAD "mesh: {tensor: 2}\nworld: 3\n", "world: 3 is not the product of the mesh (line 3), 2");
    REFUSED(HEAD "mesh: {tensor: 1024, data: 1024, pipeline: 2}\n", "more than the limit of 1048576 ranks");
    REFUSED(HEAD "mesh: {tensor: 1048576, data: 1048576, pipeline: 1048576, expert: 1048576}\n", "more than the limit");
    REFUSED(HEAD "mesh: {tensor: 0}\n", "mesh.tensor: expected a whole number 1..1048576, got `0`");
}
END_TEST

START_TEST(names_are_checked_and_unique)
{
    REFUSED("ferry: 1\nname: A b\nworld: 1\n", "name: expected a name of lower-case letters");
    REFUSED("ferry: 1\nname: -a\nworld: 1\n", "name: expected a name of lower-case letters");
    REFUSED(PAIR "groups: [{name: tensor/0, members: [0]}]\n", "expected a name of lower-case letters");
    REFUSED(PAIR "groups:\n - {name: g, members: [0]}\n - {name: g, members: [1]}\n",
            "t.yaml:6:11: error: two groups are named `g`: the first on line 5");
    REFUSED(PAIR "routes:\n - &r {name: r, from: 0, to: 1, bundle: [{role: a, dtype: u8, shape: []}]}\n - *r\n",
            "two routes are named `r`");
}
END_TEST

#define ROUTE(rest) PAIR "groups: [{name: g, members: [1]}]\nroutes: [{name: r, " rest "}]\n"
#define BUNDLE "bundle: [{role: a, dtype: u8, shape: [1]}]"

START_TEST(ends_of_routes_are_resolved_or_refused)
{
    REFUSED(ROUTE("from: 0, to: 0, " BUNDLE), "route `r`: both ends are rank 0");
    REFUSED(ROUTE("from: {group: g, member: 0}, to: 1, " BUNDLE), "route `r`: both ends are rank 1");
    REFUSED(ROUTE("from: 0, to: 2, " BUNDLE), "routes[r].to: expected a world rank 0..1, got `2`");
    REFUSED(ROUTE("from: 0, to: [1], " BUNDLE), "expected a world rank, or {group: NAME, member: INDEX}, got a list");
    REFUSED(ROUTE("from: 0, to: {group: h, member: 0}, " BUNDLE), "route `r`: no group is named `h`");
    REFUSED(ROUTE("from: 0, to: {group: g, member: 1}, " BUNDLE), "group `g` (line 4) has members 0..0, not 1");
    REFUSED(ROUTE("from: 0, to: {group: g}, " BUNDLE), "routes[r].to: the key `member` is missing");
}
END_TEST

START_TEST(bundles_are_checked)
{
    REFUSED(ROUTE("from: 0, to: 1, bundle: []"), "at least one item is needed");
    REFUSED(ROUTE("from: 0, to: 1, extents: {rows: 1..4}, bundle: [{role: a, dtype: u8, shape: [row]}]"),
            "shape: no extent is named `row`; did you mean `rows`?");
    REFUSED(ROUTE("from: 0, to: 1, extents: {rows: 4..1}, " BUNDLE), "expected a range such as 1..64", "got `4..1`");
    REFUSED(ROUTE("from: 0, to: 1, extents: {rows: 1...4}, " BUNDLE), "got `1...4`");
    REFUSED(ROUTE("from: 0, to: 1, bundle: [{role: a, dtype: u8, shape: [1]}, {role: a, dtype: u8, shape: [1]}]"),
            "role `a` is in the bundle twice");
    REFUSED(ROUTE("from: 0, to: 1, bundle: [{role: a, dtype: f31, shape: [1]}]"), "did you mean `f32`?");
    REFUSED(ROUTE("from: 0, to: 1, bundle: [{role: a, dtype: u8, shape: [1,1,1,1,1,1,1,1,1]}]"),
            "9 items are more than the limit of 8");
    REFUSED(ROUTE("from: 0, to: 1, bundle: [{role: a, dtype: u8, shape: [4294967296, 4294967296]}]"),
            "its bytes do not fit 64 bits");
    REFUSED(PAIR "workload: {train: {}}\nboundary: {" BUNDLE "}\n", "boundary: the workload (line 4) decides");
}
END_TEST

START_TEST(what_is_said_twice_must_agree)
{
    REFUSED(HEAD "mesh: {pipeline: 2}\nworkload: {generate: {model: m, layers: [1, 2, 3]}}\n",
            "layers: 3 entries for a pipeline of 2 stages (line 3)");
    REFUSED(HEAD "mesh: {tensor: 4}\ncompute: {pieces: 2}\nworkload: {generate: {model: m}}\n",
            "compute.pieces: 2 pieces are fewer than the tensor size 4 (line 3)");
    REFUSED(HEAD "world: 4\nplacement: {ranks_per_node: 2}\nlaunch: {hosts: [{name: a, slots: 4}]}\n",
            "`a` has 4 slots, and placement.ranks_per_node is 2 (line 4)");
    REFUSED(HEAD "world: 4\nlaunch: {hosts: [{name: a, slots: 2}, {name: b, slots: 1}]}\n",
            "3 slots are too few for the world of 4 ranks (line 3)");
    REFUSED(HEAD "world: 4\nlaunch: {hosts: [{name: a, slots: 2}, {name: a, slots: 2}]}\n", "two hosts are named `a`");
    REFUSED(HEAD "world: 4\nlaunch: {hosts: [{name: a}]}\n", "`a` has no slots");
    REFUSED(HEAD "world: 4\nplacement: {ranks_per_node: 2}\nlaunch: {slurm: {nodes: 3}}\n", "2 nodes are needed");
    REFUSED(HEAD "world: 4\nlaunch: {slurm: {nodes: 3}, hosts: [{name: a, slots: 4}]}\n", "has 1 hosts");
    REFUSED(PAIR "workload: {generate: {model: m, prompts: [a], prompts_file: b}}\n", "or prompts_file, not both");
    REFUSED_SET(PAIR, "workload={generate: {model: m, prompts: [a], prompts_file: b}}", "or prompts_file, not both");
    REFUSED(PAIR "workload: {generate: {model: m}, train: {}}\n", "generate (line 4) or train, not both");
    REFUSED(PAIR "workload: {generate: {model: m, prompts: [{}]}}\n", "prompts[0]: expected a text");
}
END_TEST

START_TEST(values_with_units_and_words_are_strict)
{
    static const char *const timeout[] = {
        "30", "1.5s", "30S", "s", "-1s", "1h30m", "1ms", "200h", "99999999999999999h"};

    for (size_t i = 0; i < sizeof timeout / sizeof *timeout; i++) {
        char text[128];

        (void)snprintf(text, sizeof text, PAIR "communication: {timeout: %s}\n", timeout[i]);
        REFUSED(text, "communication.timeout: expected a duration 10ms..168h (units ms, s, m, h), got `");
    }
    REFUSED(PAIR "communication: {timeout: 30}\n", "the unit is missing");
    REFUSED(PAIR "groups: [{name: g, members: [0], limits: {max_bytes: 64}}]\n", "expected a size",
            "the unit is missing");
    REFUSED(PAIR "groups: [{name: g, members: [0], limits: {max_bytes: 64mib}}]\n", "expected a size", "got `64mib`");
    REFUSED(PAIR "groups: [{name: g, members: [0], operations: [barrier, barrier]}]\n",
            "`barrier` stands in the list twice");
    REFUSED(PAIR "groups: [{name: g, members: [0], dtypes: [none]}]\n", "expected one of f32, f16");
    REFUSED(PAIR "placement: {order: [tensor, tensor]}\n", "`tensor` stands in the list twice");
    REFUSED(PAIR "workload: {generate: {model: m, sampling: {top_p: 1.1}}}\n", "expected a number 0..1");
    REFUSED(PAIR "workload: {generate: {model: m, sampling: {temperature: 1e1}}}\n", "expected a number 0..100");
    REFUSED(PAIR "launch: {env: {A=B: c}}\n", "expected the name of a variable");
    REFUSED(PAIR "launch: {env: {A: [c]}}\n", "launch.env.A: expected a text, got a list");
    REFUSED(PAIR "launch: {env: {A: \"a\\0b\"}}\n", "launch.env.A: expected a text without a NUL character");
    /* B51 */
    REFUSED(PAIR "launch: {env: {A: \"c d;e,f=g\", B: \"one\\ntwo\"}}\n",
            "launch.env.B: expected a text without a line break");
    REFUSED(PAIR "launch: {slurm: {account: \"a\\nb\"}}\n", "launch.slurm.account: expected a text on one line");
}
END_TEST

START_TEST(yaml_that_is_not_used_here_is_refused)
{
    REFUSED(PAIR "run_dir: &x y\ncommunication: {<<: *x}\n", "merge keys (<<) are not used here");
    REFUSED(PAIR "groups: *x\n", "t.yaml:4:9: error: alias `*x`: no anchor of this name stands before it");
    REFUSED(PAIR "groups: &g [*g]\n", "alias `*g`: it stands inside the value that it names");
    REFUSED("ferry: !!int 1\nname: a\nworld: 2\n", "tags (`tag:yaml.org,2002:int`) are not used here");
    REFUSED(PAIR "workload:\n  generate:\n    model: m\n    prompts_file: -\n", "(the text - alone is written \"-\")");
    REFUSED("%TAG ! x\n---\n" PAIR, "directives are not used here");
    REFUSED(PAIR "? [a]\n: b\n", "a key must be a word, not a list");
    REFUSED(PAIR "mesh: {tensor: 2\ncompute: {}\n", "YAML: did not find expected ',' or '}'", "starts on line 4");
    REFUSED("ferry: 1\nname: a\001\n", "t.yaml:2:8: error: control characters are not allowed");
    REFUSED("ferry: 1\nname: a\xff\n", "t.yaml:2:8: error: invalid leading UTF-8 octet");
}
END_TEST

START_TEST(all_errors_are_reported_sorted_and_at_most_twenty)
{
    struct topology *topology = NULL;
    struct text text = {0};
    struct text messages = {0};
    struct error err = {0};
    const char *last = NULL;
    int count = 0;

    text_add(&text, "world: 0\n");
    for (int i = 0; i < 30; i++)
        text_add(&text, "zz%d: 1\n", i);
    text_add(&text, "ferry: 2\n");
    ck_assert_int_eq(topology_parse(text.bytes, text.length, "t.yaml", NULL, 0, &topology, &messages, &err),
                     STATUS_TOPOLOGY);
    for (const char *p = text_string(&messages); (p = strstr(p, ": error: ")); p++, count++)
        last = p;
    ck_assert_int_eq(count, TOPOLOGY_MAX_ERRORS);
    ck_assert_ptr_nonnull(strstr(last, "zz17")); /* lines 1 (twice), 2, 3 .. 19 */
    ck_assert_ptr_nonnull(strstr(text_string(&messages), "13 more errors are not shown"));
    ck_assert_str_eq(err.text, "t.yaml: 33 errors");
    text_done(&text);
    text_done(&messages);
}
END_TEST

START_TEST(overrides_are_checked_like_the_file)
{
    REFUSED_SET(PAIR, "mesh.tensor=0",
                "--set mesh.tensor=0: error: mesh.tensor: expected a whole number 1..1048576, got `0`",
                "\n  mesh.tensor=0\n              ^\n");
    REFUSED_SET(PAIR, "mesh.tensr=2", "--set mesh.tensr=2: error: mesh: unknown key `tensr`; did you mean `tensor`?");
    REFUSED_SET(PAIR, "mesh", "expected key.path=value");
    REFUSED_SET(PAIR, "=1", "expected key.path=value");
    REFUSED_SET(PAIR, "mesh..tensor=2", "expected key.path=value");
    REFUSED_SET(PAIR, "name.x=2", "`name` has no keys in the file");
    REFUSED_SET(PAIR, "groups[0].name=g", "`groups` has no item `0`");
    REFUSED_SET(PAIR, "run_dir=", "the value is empty");
    REFUSED_SET(PAIR, "run_dir=a: b", "quote it");
    REFUSED_SET(PAIR, "mesh={tensor: 2", "YAML: did not find expected ',' or '}'");
    REFUSED_SET(HEAD "mesh: {tensor: 2}\n", "world=3", "world: 3 is not the product of the mesh (line 3), 2");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology-errors");
    TCase *tcase = tcase_create("errors");

    tcase_add_test(tcase, repeated_keys_name_both_lines_B01);
    tcase_add_test(tcase, tab_as_indentation_is_said_B02);
    tcase_add_test(tcase, empty_file_has_no_line_to_show);
    tcase_add_test(tcase, text_without_its_quotes_is_one_complaint);
    tcase_add_test(tcase, paths_that_a_shell_would_expand_are_refused);
    tcase_add_test(tcase, flag_takes_only_true_and_false_B04);
    tcase_add_test(tcase, numbers_that_do_not_fit_are_never_cut_B06);
    tcase_add_test(tcase, misspelt_keys_get_the_nearest_one_B10);
    tcase_add_test(tcase, misplaced_keys_get_their_section_B11);
    tcase_add_test(tcase, byte_order_mark_does_not_shift_columns_B12);
    tcase_add_test(tcase, second_document_is_refused_B14);
    tcase_add_test(tcase, root_that_is_no_mapping_is_said_B15);
    tcase_add_test(tcase, member_listed_twice_names_group_and_rank_B18);
    tcase_add_test(tcase, members_outside_the_world_name_group_and_range_B22);
    tcase_add_test(tcase, required_keys_and_the_world_are_asked_for);
    tcase_add_test(tcase, world_and_mesh_must_agree);
    tcase_add_test(tcase, names_are_checked_and_unique);
    tcase_add_test(tcase, ends_of_routes_are_resolved_or_refused);
    tcase_add_test(tcase, bundles_are_checked);
    tcase_add_test(tcase, what_is_said_twice_must_agree);
    tcase_add_test(tcase, values_with_units_and_words_are_strict);
    tcase_add_test(tcase, yaml_that_is_not_used_here_is_refused);
    tcase_add_test(tcase, all_errors_are_reported_sorted_and_at_most_twenty);
    tcase_add_test(tcase, overrides_are_checked_like_the_file);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
