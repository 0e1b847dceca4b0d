/* Every collective against a serial reference: sizes 1 to 16, permuted members, any axis, zeros, pieces. */
#include "tests/loop/sample.h"
#include "tests/suite.h"

#include <stdatomic.h>
#include <string.h>

static int size_table[] = {1, 2, 3, 4, 5, 8, 9, 16};
enum { SIZES = sizeof size_table / sizeof size_table[0] };

/* Cost is kept down by few large cases: the element counts stand on both sides of each algorithm's limit. */
START_TEST(sum_is_the_balanced_tree_over_member_order_on_every_member)
{
    static const uint64_t elements[] = {0, 1, 7, 4099, 20011};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I8, DTYPE_I64};
    int size = size_table[_i];
    int members[MOST];

    sample_permute(size, members);
    for (size_t e = 0; e < sizeof elements / sizeof elements[0]; e++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
            struct sample sample = {.dtype = dtypes[d], .elements = elements[e], .in_place = (e + d) % 2};

            sample_run(size, members, &sample, sample_sum, NULL);
        }
    }
}
END_TEST

/* B161: values whose order of adding shows at once, in sizes on both sides of each limit, ten times. */
static enum status cancelling_body(struct rank *self)
{
    static const float values[] = {1e8f, 1.0f, -1e8f, 1e-3f};
    const struct sample *sample = self->context;
    struct group *group = session_group(self->session, 1);
    struct tensor *send = TENSOR(DTYPE_F32, sample->elements);
    struct tensor *recv = TENSOR(DTYPE_F32, sample->elements);
    enum status st = STATUS_OK;

    for (uint64_t k = 0; k < sample->elements; k++)
        ((float *)send->data)[k] = values[((uint64_t)group_rank(group) + k) % 4];
    for (int turn = 0; turn < 10 && st == STATUS_OK; turn++) {
        struct completion *completion = NULL;

        st = finish(group_all_reduce_sum(group, send, recv, &completion, &self->err), &completion, &self->err);
        for (uint64_t k = 0; k < sample->elements && st == STATUS_OK; k++) {
            float in[MOST] = {0};
            float expected = 0;

            for (int i = 0; i < self->size; i++)
                in[i] = values[((uint64_t)i + k) % 4];
            expected = sample_tree(in, self->size);
            EXPECT(!memcmp(&expected, (float *)recv->data + k, sizeof expected));
        }
    }
    tensor_release(send);
    tensor_release(recv);
    return st;
}

START_TEST(sum_has_the_same_bits_on_every_rank_and_repeat)
{
    static const uint64_t elements[] = {1, 4, 8192, 8193, 70000};
    int size = size_table[_i];
    int members[MOST];

    sample_permute(size, members);
    for (size_t e = 0; e < sizeof elements / sizeof elements[0]; e++) {
        struct sample sample = {.elements = elements[e]};

        sample_run(size, members, &sample, cancelling_body, NULL);
    }
}
END_TEST

START_TEST(even_gather_concatenates_in_member_order_on_any_axis)
{
    int size = size_table[_i];
    int members[MOST];

    sample_permute(size, members);
    for (int axis = 0; axis < 3; axis++) {
        for (int large = 0; large < 2; large++) {
            struct sample sample = {
                .dtype = DTYPE_F32, .even = true, .axis = axis, .ndim = 3, .dims = {3, large ? 701 : 5, 7}};
            uint64_t count = axis == 1 && large ? 701 : sample.dims[axis];

            for (int i = 0; i < size; i++)
                sample.counts[i] = count;
            sample.dims[axis] = count * (uint64_t)size;
            sample_run(size, members, &sample, sample_gather, NULL);
        }
    }
}
END_TEST

START_TEST(uneven_gather_on_a_middle_axis_with_a_zero)
{
    static const int members[] = {2, 0, 1};
    struct sample sample = {.dtype = DTYPE_BF16, .axis = 1, .ndim = 3, .dims = {4, 5, 3}, .counts = {3, 0, 2}};

    sample_run(3, members, &sample, sample_gather, NULL);
}
END_TEST

/* B32 */
START_TEST(uneven_gather_of_416_0_560_1_is_exact)
{
    static const int members[] = {1, 3, 0, 2};
    struct sample sample = {.dtype = DTYPE_F32, .axis = 0, .ndim = 2, .dims = {977, 3}, .counts = {416, 0, 560, 1}};

    sample_run(4, members, &sample, sample_gather, NULL);
}
END_TEST

START_TEST(uneven_gather_of_any_size_and_counts)
{
    int size = size_table[_i];
    int members[MOST];
    uint64_t state = 7 + (uint64_t)size;

    sample_permute(size, members);
    for (int turn = 0; turn < 4; turn++) {
        struct sample sample = {.dtype = DTYPE_U8, .axis = turn % 2, .ndim = 2, .dims = {3, 3}};
        uint64_t total = 0;

        for (int i = 0; i < size; i++)
            total += sample.counts[i] = random_next(&state) % (turn < 2 ? 5 : 9000);
        sample.dims[sample.axis] = total;
        sample_run(size, members, &sample, sample_gather, NULL);
    }
}
END_TEST

/* B30 */
START_TEST(all_to_all_there_and_back_is_the_identity_for_every_pattern)
{
    int size = size_table[_i];
    int members[MOST];
    uint64_t state = 99 + (uint64_t)size;

    sample_permute(size, members);
    for (int pattern = 0; pattern < 4 + (size == 4 ? 50 : 50 / size); pattern++) {
        struct sample sample = {.dtype = DTYPE_I32, .axis = pattern % 3, .ndim = 3, .dims = {2, 3, 2}};

        for (int i = 0; i < size; i++) {
            for (int k = 0; k < size; k++) {
                bool some = pattern == 1   ? i == k
                            : pattern == 2 ? i == 0 && k == size - 1
                            : pattern == 3 ? i == size / 2
                                           : pattern > 3 && random_next(&state) % 3 == 0;

                sample.matrix[i][k] = some ? 1 + random_next(&state) % 40 : 0;
            }
        }
        sample_run(size, members, &sample, sample_exchange, NULL);
    }
}
END_TEST

START_TEST(broadcast_takes_its_root_as_a_member_index)
{
    int size = size_table[_i];
    int members[MOST];

    sample_permute(size, members);
    for (int root = 0; root < size; root += 1 + size / 5) {
        struct sample sample = {.elements = root % 2 ? 30001 : 5, .root = root};

        sample_run(size, members, &sample, sample_broadcast, NULL);
    }
}
END_TEST

static enum status agreement_body(struct rank *self)
{
    const struct sample *sample = self->context;
    struct group *group = session_group(self->session, 1);
    struct completion *completion = NULL;
    uint32_t flags = group_rank(group) == sample->root ? 0xf0f0 : 0xffff;
    enum status st = finish(group_barrier(group, &completion, &self->err), &completion, &self->err);

    if (st == STATUS_OK)
        st = group_failure_agreement(group, flags, &completion, &self->err);
    if (st != STATUS_OK)
        return st;
    st = completion_wait(completion, DEADLINE_NONE, &self->err);
    if (st == STATUS_OK)
        EXPECT(completion_flags(completion) == (sample->root < 0 ? 0xffffu : 0xf0f0u));
    completion_abandon(completion);
    return st;
}

START_TEST(agreement_is_false_everywhere_when_one_says_so)
{
    int size = size_table[_i];
    int members[MOST];

    sample_permute(size, members);
    for (int root = -1; root < size; root++) {
        struct sample sample = {.root = root};

        sample_run(size, members, &sample, agreement_body, NULL);
    }
}
END_TEST

/* The same results when every payload travels in many pieces, unreceived messages lie at their sender, every payload
 * is summed, and checks are lighter. */
START_TEST(pieces_and_rendezvous_and_lighter_checks_change_nothing)
{
    static const enum checks checks[] = {CHECKS_FULL, CHECKS_LIGHT, CHECKS_OFF};
    int size = size_table[_i];
    int members[MOST];

    sample_permute(size, members);
    for (int turn = 0; turn < 3; turn++) {
        struct ranks ranks = {.loopback = {.max_message = turn == 1 ? 300 : 4096, .eager_bytes = turn == 2 ? 0 : 1000},
                              .session = {.checks = checks[turn], .payload_integrity = turn != 2}};
        struct sample sum = {.dtype = DTYPE_F32, .elements = turn ? 10007 : 501, .in_place = true};
        struct sample gather = {.dtype = DTYPE_U8, .axis = 1, .ndim = 2, .dims = {7, 0}};
        struct sample broadcast = {.elements = 3000, .root = size - 1};
        struct sample exchange = {.dtype = DTYPE_U8, .axis = 0, .ndim = 2, .dims = {0, 77}};

        for (int i = 0; i < size; i++) {
            gather.dims[1] += gather.counts[i] = (uint64_t)(i % 3) * 100;
            for (int k = 0; k < size; k++)
                exchange.matrix[i][k] = (uint64_t)((i + 2 * k) % 4) * 5;
        }
        sample_run(size, members, &sum, sample_sum, &ranks);
        sample_run(size, members, &gather, sample_gather, &ranks);
        sample_run(size, members, &broadcast, sample_broadcast, &ranks);
        sample_run(size, members, &exchange, sample_exchange, &ranks);
    }
}
END_TEST

/* Groups {0,1}, {1,2}, {2,3}, {3,0} and all four work at once; every operation is posted before any is waited for. */
static enum status overlap_body(struct rank *self)
{
    struct completion *completion[5] = {NULL};
    struct tensor *tensor[5] = {NULL};
    int count = 0;
    enum status st = STATUS_OK;

    for (uint32_t id = 1; id <= 5 && st == STATUS_OK; id++) {
        struct group *group = session_group(self->session, id);

        if (group_rank(group) < 0)
            continue;
        tensor[count] = TENSOR(DTYPE_I32, 5000);
        for (int k = 0; k < 5000; k++)
            ((int32_t *)tensor[count]->data)[k] = (self->rank + 1) * 1000 + (int32_t)id;
        st = group_all_reduce_sum(group, tensor[count], tensor[count], &completion[count], &self->err);
        count++;
    }
    for (int i = 0; i < count; i++) {
        st = finish(st, &completion[i], &self->err);
        tensor_release(tensor[i]);
    }
    return st;
}

START_TEST(overlapping_groups_work_at_once)
{
    static const int pair[4][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 0}};
    static const int all[] = {3, 1, 0, 2};
    const struct group_spec groups[] = {GROUP(1, 2, pair[0]), GROUP(2, 2, pair[1]), GROUP(3, 2, pair[2]),
                                        GROUP(4, 2, pair[3]), GROUP(5, 4, all)};
    struct ranks ranks = {.size = 4, .groups = groups, .group_count = 5, .body = overlap_body};

    ranks_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

/* Many operations posted to one group without waiting: they run in order. */
static enum status queue_body(struct rank *self)
{
    struct group *group = session_group(self->session, 1);
    struct completion *completion[40];
    struct tensor *tensor[40];
    enum status st = STATUS_OK;

    for (int i = 0; i < 40 && st == STATUS_OK; i++) {
        tensor[i] = TENSOR(DTYPE_U32, 33);
        for (int k = 0; k < 33; k++)
            ((uint32_t *)tensor[i]->data)[k] = (uint32_t)(i * 100 + self->rank);
        st = i % 2 ? group_broadcast(group, tensor[i], 1, &completion[i], &self->err)
                   : group_all_reduce_sum(group, tensor[i], tensor[i], &completion[i], &self->err);
    }
    for (int i = 0; i < 40; i++) {
        st = finish(st, &completion[i], &self->err);
        if (st == STATUS_OK)
            EXPECT(((uint32_t *)tensor[i]->data)[7] == (i % 2 ? (uint32_t)(i * 100 + 1) : (uint32_t)(i * 300 + 3)));
        tensor_release(tensor[i]);
    }
    return st;
}

START_TEST(operations_of_one_group_queue_in_order)
{
    static const int members[] = {0, 1, 2};
    struct sample sample = {0};

    sample_run(3, members, &sample, queue_body, NULL);
}
END_TEST

/* B29: zero elements behind null pointers. */
static enum status nothing_body(struct rank *self)
{
    struct group *group = session_group(self->session, 1);
    struct tensor none = {.dtype = DTYPE_F32, .shape = {2, {0, 3}}};
    struct completion *completion = NULL;
    uint64_t zeros[MOST] = {0};
    enum status st = STATUS_OK;

    atomic_init(&none.references, 1000);
    st = finish(group_all_reduce_sum(group, &none, &none, &completion, &self->err), &completion, &self->err);
    if (st == STATUS_OK)
        st = finish(group_all_gather_even(group, &none, &none, 0, &completion, &self->err), &completion, &self->err);
    if (st == STATUS_OK)
        st = finish(group_all_gather_uneven(group, &none, &none, 0, zeros, &completion, &self->err), &completion,
                    &self->err);
    if (st == STATUS_OK)
        st = finish(group_broadcast(group, &none, 0, &completion, &self->err), &completion, &self->err);
    struct tensor other = {.dtype = DTYPE_F32, .shape = {2, {0, 3}}};

    atomic_init(&other.references, 1000);
    if (st == STATUS_OK)
        st = finish(group_variable_all_to_all(group, &none, &other, 0, zeros, zeros, &completion, &self->err),
                    &completion, &self->err);
    return st;
}

START_TEST(zero_elements_behind_null_pointers_succeed)
{
    int size = size_table[_i];
    int members[MOST];
    struct sample sample = {0};

    sample_permute(size, members);
    sample_run(size, members, &sample, nothing_body, NULL);
}
END_TEST

/* A transport that lends its messages, each in a place of its own. */
enum { LENT_MOST = 4096, LENT_BYTES = 1024 };
static _Alignas(64) unsigned char lent[LENT_MOST][LENT_BYTES];
static atomic_int lent_count;
static _Thread_local size_t probed_bytes;

static enum status lending_probe(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                                 size_t *ret_bytes, struct error *err)
{
    enum status st = loopback_ops.probe(transport, peer, tag, ret, ret_bytes, err);

    probed_bytes = *ret_bytes;
    return st;
}

static unsigned char *lending_lend(struct transport *transport, struct message *message)
{
    unsigned char *bytes = lent[atomic_fetch_add(&lent_count, 1) % LENT_MOST];
    struct work *work = NULL;
    bool over = false;

    EXPECT(probed_bytes <= LENT_BYTES);
    EXPECT(loopback_ops.receive(transport, message, bytes, probed_bytes, &work, NULL) == STATUS_OK);
    while (!over)
        EXPECT(loopback_ops.test(transport, work, &over, NULL) == STATUS_OK);
    return bytes;
}

static void lending_give_back(struct transport *transport, struct message *message, uint64_t read_ns)
{
    (void)transport;
    (void)read_ns;
    (void)message; /* received when it was lent */
}

/* Whoever lends may be written to by others: what a checksum was taken of must be what is used. */
START_TEST(payloads_whose_checksum_is_taken_are_never_read_where_they_lie)
{
    int members[] = {0, 1, 2, 3};
    struct transport_ops ops = loopback_ops;
    struct group_spec group = GROUP(1, 4, members);
    struct sample sample = {.elements = 7};
    struct ranks ranks = {.size = 4, .ops = &ops, .groups = &group, .group_count = 1, .body = cancelling_body};

    ops.probe = lending_probe;
    ops.lend = lending_lend;
    ops.give_back = lending_give_back;
    ranks.context = &sample;
    ranks.session.checks = CHECKS_FULL;
    ranks.session.payload_integrity = _i == 1;
    ranks_run(&ranks);
    ranks_check(&ranks);
    if (_i == 1)
        ck_assert_int_eq(atomic_load(&lent_count), 0);
    else
        ck_assert_int_gt(atomic_load(&lent_count), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collectives");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, sum_is_the_balanced_tree_over_member_order_on_every_member, 0, SIZES);
    tcase_add_loop_test(all, sum_has_the_same_bits_on_every_rank_and_repeat, 0, 4);
    tcase_add_loop_test(all, even_gather_concatenates_in_member_order_on_any_axis, 0, SIZES);
    tcase_add_test(all, uneven_gather_on_a_middle_axis_with_a_zero);
    tcase_add_test(all, uneven_gather_of_416_0_560_1_is_exact);
    tcase_add_loop_test(all, uneven_gather_of_any_size_and_counts, 0, SIZES);
    tcase_add_loop_test(all, all_to_all_there_and_back_is_the_identity_for_every_pattern, 0, SIZES);
    tcase_add_loop_test(all, broadcast_takes_its_root_as_a_member_index, 0, SIZES);
    tcase_add_loop_test(all, agreement_is_false_everywhere_when_one_says_so, 0, SIZES);
    tcase_add_loop_test(all, pieces_and_rendezvous_and_lighter_checks_change_nothing, 0, SIZES);
    tcase_add_loop_test(all, payloads_whose_checksum_is_taken_are_never_read_where_they_lie, 0, 2);
    tcase_add_test(all, overlapping_groups_work_at_once);
    tcase_add_test(all, operations_of_one_group_queue_in_order);
    tcase_add_loop_test(all, zero_elements_behind_null_pointers_succeed, 0, SIZES);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
