/* What lies at the ends of the numbers: tags, sequence counters, pieces, counts past 2^31. */
#include "tests/loop/ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/suite.h"

static const int members[] = {1, 0};
static const struct tensor_spec bundle[] = {
    {"values", DTYPE_U32, 1, {{0, 100, -1}}},
    {"a role whose name makes the header as long as a header may be", DTYPE_U8, 1, {{0, 300, -1}}},
};

#define ROUTE(number)                                                                                                  \
    {                                                                                                                  \
        .id = (number), .name = "route/" #number, .from = 0, .to = 1, .tensor_count = 2, .tensors = bundle, .depth = 2 \
    }

/* One bundle there, its contents following from turn. */
static enum status pass(struct rank *self, struct route *route, int turn)
{
    struct shape shapes[] = {{1, {(uint64_t)turn % 101}}, {1, {300 - (uint64_t)turn}}};
    struct bundle *taken = NULL;
    struct completion *completion = NULL;
    enum status st;

    if (self->rank == 0) {
        st = route_acquire(route, &taken, &self->err);
        if (st != STATUS_OK)
            return st;
        for (int t = 0; t < 2; t++) {
            EXPECT(tensor_reshape(taken->tensor[t], bundle[t].dtype, &shapes[t], &self->err) == STATUS_OK);
            memset(taken->tensor[t]->data, turn + t + 1, taken->tensor[t]->bytes);
        }
        return finish(route_send(route, taken, 0, &completion, &self->err), &completion, &self->err);
    }
    st = route_receive(route, shapes, NULL, NULL, 0, &completion, &self->err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, &self->err);
    if (st == STATUS_OK) {
        taken = route_take(completion, NULL);
        for (int t = 0; t < 2; t++) {
            EXPECT(taken->tensor[t]->bytes == (t ? 300 - (size_t)turn : 4 * ((size_t)turn % 101)));
            for (size_t k = 0; k < taken->tensor[t]->bytes; k++)
                EXPECT(taken->tensor[t]->data[k] == (unsigned char)(turn + t + 1));
        }
        route_return(route, taken);
    }
    completion_abandon(completion);
    return st;
}

static enum status add(struct rank *self, struct group *group, int turn)
{
    struct tensor *tensor = TENSOR(DTYPE_U32, 7);
    struct completion *completion = NULL;
    enum status st;

    for (uint32_t k = 0; k < 7; k++)
        ((uint32_t *)tensor->data)[k] = (uint32_t)turn * 10 + (uint32_t)self->rank + k;
    st = finish(group_all_reduce_sum(group, tensor, tensor, &completion, &self->err), &completion, &self->err);
    for (uint32_t k = 0; k < 7 && st == STATUS_OK; k++)
        EXPECT(((uint32_t *)tensor->data)[k] == (uint32_t)turn * 20 + 1 + 2 * k);
    tensor_release(tensor);
    return st;
}

/* A hundred of each; context: the ids of the group and of the route. */
static enum status hundred_body(struct rank *self)
{
    const uint32_t *ids = self->context;
    enum status st = STATUS_OK;

    for (int turn = 0; turn < 100 && st == STATUS_OK; turn++) {
        st = add(self, session_group(self->session, ids[0]), turn);
        if (st == STATUS_OK)
            st = pass(self, session_route(self->session, ids[1]), turn);
    }
    return st;
}

/* B34: counters that pass 32 bits, and that begin anew after 64. */
START_TEST(sequences_run_past_every_limit)
{
    static const uint64_t firsts[] = {INT32_MAX - 50, UINT32_MAX - 50, INT64_MAX - 50, UINT64_MAX - 50};
    static const struct group_spec groups[] = {GROUP(1, 2, members)};
    static const struct route_spec routes[] = {ROUTE(2)};
    uint32_t ids[] = {1, 2};
    struct ranks ranks = {.size = 2,
                          .session = {.first_sequence = firsts[_i], .checks = CHECKS_FULL},
                          .groups = groups,
                          .group_count = 1,
                          .routes = routes,
                          .route_count = 1,
                          .body = hundred_body,
                          .context = ids};

    ranks_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

/* B34: ids are tags.  The largest one of the transport is the session's own, the one below is the last for groups and
 * routes. */
START_TEST(ids_up_to_the_largest_tag_work)
{
    static const struct group_spec groups[] = {GROUP(32765, 2, members)};
    static const struct route_spec routes[] = {ROUTE(32766)};
    uint32_t ids[] = {32765, 32766};
    struct ranks ranks = {.size = 2,
                          .loopback.max_tag = 32767,
                          .session.checks = CHECKS_FULL,
                          .groups = groups,
                          .group_count = 1,
                          .routes = routes,
                          .route_count = 1,
                          .body = hundred_body,
                          .context = ids};

    ranks_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

static enum status nothing_body(struct rank *self)
{
    (void)self;
    return STATUS_OK;
}

START_TEST(ids_above_the_largest_tag_are_refused_on_every_rank)
{
    static const struct group_spec groups[] = {GROUP(32767, 2, members), GROUP(32768, 2, members),
                                               GROUP(0x80000000, 2, members), GROUP(0xffffffff, 2, members)};
    static const struct route_spec routes[] = {ROUTE(32767), ROUTE(32768), ROUTE(0x80000000), ROUTE(0xffffffff)};

    for (int i = 0; i < 8; i++) {
        struct ranks ranks = {.size = 2, .loopback.max_tag = 32767, .body = nothing_body};
        char text[100];

        if (i < 4)
            ranks.groups = &groups[i];
        else
            ranks.routes = &routes[i - 4];
        ranks.group_count = i < 4;
        ranks.route_count = i >= 4;
        (void)snprintf(text, sizeof text, "%s: id %" PRIu32 " is above the transport's largest, 32766",
                       i < 4 ? groups[i].name : routes[i - 4].name, i < 4 ? groups[i].id : routes[i - 4].id);
        ranks_run(&ranks);
        for (int rank = 0; rank < 2; rank++) {
            ck_assert_int_eq(ranks.rank[rank].status, STATUS_OVERFLOW);
            ck_assert_msg(strstr(ranks.rank[rank].err.text, text) != NULL, "%s", ranks.rank[rank].err.text);
        }
    }
}
END_TEST

/* The smallest messages that hold a header: one byte of payload behind the longest, 64 behind the others. */
START_TEST(payloads_travel_in_pieces_of_one_byte)
{
    static const struct group_spec groups[] = {GROUP(1, 2, members)};
    static const struct route_spec routes[] = {ROUTE(2)};
    uint32_t ids[] = {1, 2};
    struct ranks ranks = {.size = 2,
                          .loopback = {.max_message = 257, .eager_bytes = _i ? 1000 : 0},
                          .session = {.checks = CHECKS_FULL, .payload_integrity = _i},
                          .groups = groups,
                          .group_count = 1,
                          .routes = routes,
                          .route_count = 1,
                          .body = hundred_body,
                          .context = ids};

    ranks_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("limits");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, sequences_run_past_every_limit, 0, 4);
    tcase_add_test(all, ids_up_to_the_largest_tag_work);
    tcase_add_test(all, ids_above_the_largest_tag_are_refused_on_every_rank);
    tcase_add_loop_test(all, payloads_travel_in_pieces_of_one_byte, 0, 2);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
