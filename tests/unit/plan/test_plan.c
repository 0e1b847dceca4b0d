/* Groups, routes and ids of a topology without a model. */
#include <inttypes.h>

#include "base/clock.h"
#include "fixture.h"

#define EXAMPLE "ferry: 1\nname: example\nmesh: {tensor: 2, pipeline: 3, expert: 2, data: 2}\n"

static void assert_members(const struct plan *plan, uint32_t id, const char *name, const int *expected, int size)
{
    const struct group_spec *group = &plan->groups[id - 1];

    ck_assert_uint_eq(group->id, id);
    ck_assert_str_eq(group->name, name);
    ck_assert_int_eq(group->size, size);
    for (int i = 0; i < size; i++)
        ck_assert_int_eq(group->members[i], expected[i]);
}

START_TEST(rank_22_of_the_example_is_in_the_groups_of_the_specification)
{
    struct fixture f = fixture_plan(EXAMPLE, NULL);
    struct rank_plan rank;

    plan_rank(f.plan, 22, &rank);
    ck_assert_int_eq(rank.at.at[AXIS_TENSOR], 1);
    ck_assert_int_eq(rank.at.at[AXIS_PIPELINE], 2);
    ck_assert_int_eq(rank.at.at[AXIS_EXPERT], 0);
    ck_assert_int_eq(rank.at.at[AXIS_DATA], 1);
    assert_members(f.plan, rank.tensor_group, "tensor/10", (int[]){20, 22}, 2);
    assert_members(f.plan, rank.pipeline_group, "pipeline/6", (int[]){14, 18, 22}, 3);
    assert_members(f.plan, rank.expert_group, "expert/11", (int[]){22, 23}, 2);
    assert_members(f.plan, rank.data_group, "data/10", (int[]){10, 22}, 2);
    assert_members(f.plan, rank.stage_group, "stage/2", (int[]){8, 9, 10, 11, 20, 21, 22, 23}, 8);
    ck_assert_uint_eq(rank.world_group, 1);
    ck_assert_str_eq(f.plan->groups[0].name, "world/0");
    ck_assert_int_eq(f.plan->groups[0].size, 24);
    fixture_close(&f);
}
END_TEST

START_TEST(the_example_has_16_forward_routes_and_the_first_goes_from_0_to_4)
{
    struct fixture f = fixture_plan(EXAMPLE, NULL);

    ck_assert_uint_eq(f.plan->route_count, 16);
    ck_assert_int_eq(f.plan->routes[0].from, 0);
    ck_assert_int_eq(f.plan->routes[0].to, 4);
    ck_assert_str_eq(f.plan->routes[0].name, "forward/0-4");
    ck_assert_str_eq(f.plan->routes[15].name, "forward/19-23");
    fixture_close(&f);
}
END_TEST

START_TEST(ids_are_dense_from_1_over_groups_then_routes_and_names_are_unique)
{
    struct fixture f = fixture_plan(EXAMPLE "groups:\n  - {name: some, members: [3, 1]}\n"
                                            "routes:\n  - {name: tap, from: 3, to: 0, bundle: "
                                            "[{role: x, dtype: f32, shape: [4]}]}\n",
                                    NULL);
    size_t all = f.plan->group_count + f.plan->route_count;

    /* 1 world, 12 tensor, 8 pipeline, 12 data, 12 expert, 3 stages, 1 of the file; 16 forward, 1 of the file. */
    ck_assert_uint_eq(f.plan->group_count, 49);
    ck_assert_uint_eq(f.plan->route_count, 17);
    for (size_t i = 0; i < all; i++) {
        bool is_group = i < f.plan->group_count;
        const char *name = is_group ? f.plan->groups[i].name : f.plan->routes[i - f.plan->group_count].name;
        uint32_t id = is_group ? f.plan->groups[i].id : f.plan->routes[i - f.plan->group_count].id;

        ck_assert_uint_eq(id, i + 1);
        for (size_t j = 0; is_group && j < i; j++)
            ck_assert_str_ne(name, f.plan->groups[j].name);
    }
    fixture_close(&f);
}
END_TEST

static bool holds(const struct group_spec *group, int rank)
{
    int found = 0;

    for (int i = 0; i < group->size; i++)
        found += group->members[i] == rank;
    ck_assert_int_le(found, 1);
    return found;
}

/* What plan_rank computes agrees with the lists, for every rank: in its groups and no other of the kind. */
static void assert_ranks_agree(const struct plan *plan)
{
    for (int r = 0; r < plan->mesh.world; r++) {
        struct rank_plan rank;
        size_t groups = 0;
        size_t routes = 0;

        plan_rank(plan, r, &rank);
        uint32_t ids[] = {rank.world_group, rank.tensor_group, rank.pipeline_group,
                          rank.data_group,  rank.expert_group, rank.stage_group};
        uint32_t ways[] = {rank.forward_in, rank.forward_out, rank.token_in, rank.token_out, rank.result_out};
        bool incoming[] = {true, false, true, false, false};

        for (size_t i = 0; i < plan->group_count; i++)
            groups += holds(&plan->groups[i], r);
        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
            if (ids[i]) {
                ck_assert(holds(&plan->groups[ids[i] - 1], r));
                groups--;
            }
        }
        ck_assert_uint_eq(groups, 0);
        for (size_t i = 0; i < plan->route_count; i++)
            routes += plan->routes[i].from == r || (plan->routes[i].to == r && strncmp(plan->routes[i].name, "r", 1));
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            const struct route_spec *route = NULL;

            if (!ways[i])
                continue;
            route = &plan->routes[ways[i] - plan->group_count - 1];
            ck_assert_int_eq(incoming[i] ? route->to : route->from, r);
            routes--;
        }
        ck_assert_uint_eq(routes, 0);
    }
}

START_TEST(every_rank_finds_its_groups_and_routes_on_every_mesh)
{
    for (int mesh = 0; mesh < 81; mesh++) {
        char yaml[256];
        struct fixture f;

        snprintf(yaml, sizeof yaml, "ferry: 1\nname: m\nmesh: {data: %d, pipeline: %d, tensor: %d, expert: %d}\n",
                 1 + mesh % 3, 1 + mesh / 3 % 3, 1 + mesh / 9 % 3, 1 + mesh / 27);
        f = fixture_plan(yaml, NULL);
        assert_ranks_agree(f.plan);
        fixture_close(&f);
    }
}
END_TEST

START_TEST(generation_adds_token_and_result_routes)
{
    struct fixture f = fixture_plan("ferry: 1\nname: g\nmesh: {data: 2, pipeline: 2, tensor: 2}\nworkload:\n"
                                    "  generate: {model: nowhere, prompts: [a], max_new_tokens: 4}\n",
                                    NULL);
    struct rank_plan rank;

    assert_ranks_agree(f.plan);
    /* 4 forward, 4 token, results of ranks 2 and 6. */
    ck_assert_uint_eq(f.plan->route_count, 10);
    ck_assert_str_eq(f.plan->routes[4].name, "token/2-0");
    ck_assert_str_eq(f.plan->routes[8].name, "result/2-0");
    ck_assert_str_eq(f.plan->routes[9].name, "result/6-0");
    ck_assert_uint_eq(plan_result_route(f.plan, 1), f.plan->routes[9].id);
    plan_rank(f.plan, 7, &rank);
    ck_assert_uint_eq(rank.result_out, 0);
    ck_assert_ptr_nonnull(strstr(text_string(&f.plan->verdict), "not checked: the model"));
    fixture_close(&f);

    f = fixture_plan("ferry: 1\nname: g\nmesh: {data: 3}\nworkload:\n"
                     "  generate: {model: nowhere, prompts: [a, b, c], max_new_tokens: 4}\n",
                     NULL);
    assert_ranks_agree(f.plan);
    ck_assert_uint_eq(f.plan->route_count, 2);
    ck_assert_uint_eq(plan_result_route(f.plan, 0), 0);
    ck_assert_uint_eq(plan_result_route(f.plan, 2), f.plan->routes[1].id);
    ck_assert_str_eq(f.plan->routes[1].name, "result/2-0");
    fixture_close(&f);
}
END_TEST

START_TEST(groups_and_routes_of_the_file_keep_order_masks_limits_and_extents)
{
    struct fixture f = fixture_plan("ferry: 1\nname: f\nworld: 4\n"
                                    "groups:\n"
                                    "  - name: evaluators\n    members: [3, 1]\n"
                                    "    operations: [all_gather_uneven, barrier]\n    dtypes: [f32, bf16]\n"
                                    "    limits: {max_bytes: 64MiB}\n"
                                    "  - {name: free, members: [2]}\n"
                                    "routes:\n"
                                    "  - name: tap\n    from: {group: evaluators, member: 0}\n    to: 0\n"
                                    "    extents: {rows: 1..64}\n    bundle:\n"
                                    "      - {role: hidden, dtype: f32, shape: [rows, 576]}\n"
                                    "      - {role: positions, dtype: u32, shape: [rows]}\n",
                                    NULL);
    const struct group_spec *group = &f.plan->groups[1];
    const struct route_spec *route = &f.plan->routes[0];
    struct rank_plan rank;

    ck_assert_uint_eq(f.plan->group_count, 3);
    assert_members(f.plan, 2, "evaluators", (int[]){3, 1}, 2);
    ck_assert_uint_eq(group->operations, OPERATION_BIT(OPERATION_ALL_GATHER_UNEVEN) | OPERATION_BIT(OPERATION_BARRIER));
    ck_assert_uint_eq(group->dtypes, DTYPE_BIT(DTYPE_F32) | DTYPE_BIT(DTYPE_BF16));
    ck_assert_uint_eq(group->max_bytes, 64 << 20);
    ck_assert_uint_eq(f.plan->groups[2].max_bytes, UINT64_MAX);
    ck_assert_uint_eq(f.plan->groups[2].dtypes, DTYPES_ALL);
    ck_assert_int_eq(route->from, 3);
    ck_assert_int_eq(route->to, 0);
    ck_assert_int_eq(route->tensor_count, 2);
    ck_assert_int_eq(route->extent_count, 1);
    ck_assert_int_eq(route->tensors[0].dim[0].extent, 0);
    ck_assert_uint_eq(route->tensors[0].dim[0].high, 64);
    ck_assert_uint_eq(route->tensors[0].dim[1].low, 576);
    ck_assert_int_eq(route->tensors[0].dim[1].extent, -1);
    ck_assert_str_eq(route->tensors[1].role, "positions");
    plan_rank(f.plan, 3, &rank);
    ck_assert(rank.first && rank.last);
    ck_assert_uint_eq(rank.stage_group + rank.tensor_group + rank.forward_in + rank.forward_out, 0);
    fixture_close(&f);
}
END_TEST

START_TEST(forward_routes_carry_the_boundary_or_a_probe)
{
    struct fixture f = fixture_plan("ferry: 1\nname: b\nmesh: {pipeline: 2}\nboundary:\n  extents: {n: 1..8}\n"
                                    "  bundle: [{role: state, dtype: f64, shape: [n, 3]}]\n",
                                    NULL);

    ck_assert_str_eq(f.plan->routes[0].tensors[0].role, "state");
    ck_assert_int_eq(f.plan->routes[0].tensors[0].dtype, DTYPE_F64);
    fixture_close(&f);
    f = fixture_plan("ferry: 1\nname: b\nmesh: {pipeline: 2}\n", NULL);
    ck_assert_str_eq(f.plan->routes[0].tensors[0].role, "probe");
    ck_assert_int_eq(f.plan->routes[0].tensors[0].dtype, DTYPE_U8);
    ck_assert_ptr_nonnull(strstr(text_string(&f.plan->verdict), "probe"));
    fixture_close(&f);
}
END_TEST

START_TEST(equal_plans_have_equal_digests_and_other_plans_others)
{
    struct fixture a = fixture_plan("ferry: 1\nname: a\nmesh: {pipeline: 2}\n", NULL);
    struct fixture b = fixture_plan("name: a\nferry: 1\nmesh:\n  pipeline: 2\n  tensor: 1\n", NULL);
    struct fixture c = fixture_plan("ferry: 1\nname: a\nmesh: {tensor: 2}\n", NULL);
    struct fixture d =
        fixture_plan("ferry: 1\nname: a\nmesh: {pipeline: 2}\ngroups: [{name: x, members: [0, 1]}]\n", NULL);
    struct fixture e =
        fixture_plan("ferry: 1\nname: a\nmesh: {pipeline: 2}\ngroups: [{name: x, members: [1, 0]}]\n", NULL);

    ck_assert_uint_eq(plan_digest(a.plan), plan_digest(b.plan));
    ck_assert_uint_ne(plan_digest(a.plan), plan_digest(c.plan));
    ck_assert_uint_ne(plan_digest(a.plan), plan_digest(d.plan));
    ck_assert_uint_ne(plan_digest(d.plan), plan_digest(e.plan));
    fixture_close(&a);
    fixture_close(&b);
    fixture_close(&c);
    fixture_close(&d);
    fixture_close(&e);
}
END_TEST

#define ONE "ferry: 1\nname: x\nworld: 2\n"

START_TEST(what_no_transport_could_do_is_refused_where_it_is_written)
{
    assert_refused(ONE "groups: [{name: g, members: [0], operations: [all_reduce_sum], dtypes: [bool]}]\n", NULL,
                   STATUS_TOPOLOGY, "a sum of bool is not defined");
    assert_refused(ONE "groups: [{name: g, members: [0], operations: [broadcast], dtypes: [f64], "
                       "limits: {max_bytes: 4B}}]\n",
                   NULL, STATUS_TOPOLOGY, "test.yaml:4:");
    assert_refused(ONE "routes: [{name: r, from: 0, to: 1, bundle: [{role: x, dtype: u8, shape: "
                       "[4294967295, 2147483648]}]}]\n",
                   NULL, STATUS_TOPOLOGY, "more bytes than can be addressed");
}
END_TEST

START_TEST(what_is_not_built_is_refused_by_name)
{
    assert_refused(ONE "compute: {backend: cuda}\n", NULL, STATUS_TOPOLOGY, "cuda is not built");
    assert_refused(ONE "communication: {reduction: native, transport: mpi}\n", NULL, STATUS_TOPOLOGY,
                   "communication.reduction: mpi offers no native sum; use ordered, or transport nccl");
    assert_refused(ONE "communication: {reduction: native, transport: loopback}\n", NULL, STATUS_TOPOLOGY,
                   "loopback offers no native sum");
    assert_refused(ONE "communication: {transport: nccl, memory: host}\n", NULL, STATUS_TOPOLOGY,
                   "communication.memory: nccl moves tensors in device memory; use device or auto, or transport mpi");
    assert_refused(ONE "communication: {transport: loopback, memory: device}\n", NULL, STATUS_TOPOLOGY,
                   "communication.memory: loopback has no devices");
    assert_refused(ONE "communication: {memory: host, reduction: native}\n", NULL, STATUS_TOPOLOGY,
                   "communication.reduction: native sums are nccl's, which communication.memory: host rules out");
    assert_refused(ONE "workload:\n  generate: {model: m, prompts: [a], max_new_tokens: 1}\n", NULL, STATUS_TOPOLOGY,
                   "mesh: needed with a workload");
    assert_refused("ferry: 1\nname: x\nmesh: {expert: 2}\nworkload:\n"
                   "  generate: {model: m, prompts: [a], max_new_tokens: 1}\n",
                   NULL, STATUS_TOPOLOGY, "expert models are not built");
}
END_TEST

/* What a transport needs of the machines is not known here, and said. */
START_TEST(nccl_and_auto_are_planned_without_a_gpu)
{
    static const struct {
        const char *communication;
        const char *line;
        const char *note;
    } cases[] = {
        {"{transport: nccl}", "transport  nccl; reduction auto, ", "MPI, GPUs, CUDA, NCCL, interfaces"},
        {"{transport: nccl, reduction: native}", "transport  nccl; reduction native, ", "GPUs, CUDA, NCCL"},
        {"{transport: auto}", "transport  auto; reduction auto, ",
         "which transport auto takes: nccl where every rank finds a GPU of its own and the CUDA plugin, "
         "else mpi\n"},
        {"{reduction: native}", "transport  auto; reduction native, ",
         "else mpi, which is refused for want of a native sum\n"},
        {"{transport: mpi}", "tensors    in host memory\n", "memory, MPI, interfaces"},
        {"{transport: mpi, memory: device}", "tensors    in device memory, staged through pinned host memory\n",
         "memory, MPI, GPUs, CUDA, interfaces"},
        {"{memory: device}", "tensors    in device memory, staged through pinned host memory where mpi moves them\n",
         "else mpi through pinned memory, for which every rank needs a GPU, too\n"},
        {"{memory: host}", "tensors    in host memory\n", "transport auto takes mpi: communication.memory: host\n"},
        {"{transport: nccl, memory: device}", "tensors    in device memory\n", "GPUs, CUDA, NCCL"},
        {"{transport: auto}", "tensors    in device memory where nccl moves them, else host memory\n", "else mpi\n"},
        {"{transport: mpi, reduction: ordered}", "transport  mpi; reduction ordered, ", "memory, MPI, interfaces"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text tree = {0};
        struct fixture f;
        char yaml[256];

        snprintf(yaml, sizeof yaml, ONE "communication: %s\n", cases[i].communication);
        f = fixture_plan(yaml, NULL);
        plan_tree(f.plan, &tree);
        ck_assert_msg(strstr(text_string(&tree), cases[i].line), "%s", text_string(&tree));
        ck_assert_msg(strstr(text_string(&tree), cases[i].note), "%s", text_string(&tree));
        text_done(&tree);
        fixture_close(&f);
    }
}
END_TEST

START_TEST(all_errors_are_in_one_report)
{
    struct fixture f =
        fixture_open(ONE "communication: {transport: mpi, reduction: native}\ncompute: {backend: cuda}\n", NULL);

    ck_assert_int_eq(f.st, STATUS_TOPOLOGY);
    ck_assert_ptr_nonnull(strstr(f.err.text, "native"));
    ck_assert_ptr_nonnull(strstr(f.err.text, "cuda"));
    ck_assert_ptr_nonnull(strstr(f.err.text, "^"));
    fixture_close(&f);
}
END_TEST

START_TEST(a_plan_of_100000_ranks_is_cheap)
{
    uint64_t start = clock_ns();
    struct fixture f = fixture_plan("ferry: 1\nname: big\nmesh: {data: 25, pipeline: 1000, tensor: 4}\n", NULL);
    struct rank_plan rank;
    struct text tree = {0};
    uint64_t digest = plan_digest(f.plan);

    for (int r = 0; r < 100000; r++)
        plan_rank(f.plan, r, &rank);
    plan_tree(f.plan, &tree);
    ck_assert_uint_eq(f.plan->route_count, 99900);
    ck_assert_uint_ne(digest, 0);
    ck_assert_uint_lt(tree.length, 20000);
    printf("100000 ranks planned, digested and shown in %.3f s\n", (double)(clock_ns() - start) / 1e9);
    text_done(&tree);
    fixture_close(&f);
}
END_TEST

CHECK_MAIN("plan", rank_22_of_the_example_is_in_the_groups_of_the_specification,
           the_example_has_16_forward_routes_and_the_first_goes_from_0_to_4,
           ids_are_dense_from_1_over_groups_then_routes_and_names_are_unique,
           every_rank_finds_its_groups_and_routes_on_every_mesh, generation_adds_token_and_result_routes,
           groups_and_routes_of_the_file_keep_order_masks_limits_and_extents,
           forward_routes_carry_the_boundary_or_a_probe, equal_plans_have_equal_digests_and_other_plans_others,
           what_no_transport_could_do_is_refused_where_it_is_written, what_is_not_built_is_refused_by_name,
           nccl_and_auto_are_planned_without_a_gpu, all_errors_are_in_one_report, a_plan_of_100000_ranks_is_cheap)
