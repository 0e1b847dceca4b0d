/* Rows on their way through a device whose queue stands still: what is sent waits for its promotion, and what is filled
 * again for the copy out of it.  A promotion is begun only when it is the executor's first, so that with two of them
 * the order of the queue alone keeps nothing right. */
#include "tests/loop/ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/device.h"
#include "runtime/boundary.h"
#include "runtime/mirror.h"
#include "tests/loop/late_memory.h"
#include "tests/suite.h"

enum { ROWS = 4, COLS = 8, COUNT = ROWS * COLS, SLOTS = 2, HOLD_MS = 50 };

static const int members[] = {0, 1};
static const struct group_spec groups[] = {GROUP(1, 2, members)};
static const struct tensor_spec bundle_spec[] = {
    {"wave", DTYPE_U32, 2, {{SLOTS, SLOTS, -1}, {WAVE_FIELDS, WAVE_FIELDS, -1}}},
    {"hidden", DTYPE_F32, 2, {{0, ROWS, -1}, {COLS, COLS, -1}}},
};
static const struct route_spec routes[] = {{.id = 2,
                                            .name = "forward",
                                            .from = 0,
                                            .to = 1,
                                            .tensor_count = 2,
                                            .tensors = bundle_spec,
                                            .depth = 4,
                                            .memory_tensors = 2}};
static const struct transport_ops *const ways[] = {&loopback_ops, &loopback_device_ops};
enum { WAYS = sizeof ways / sizeof ways[0] };

static void run(const struct transport_ops *ops, rank_body *body, void *context)
{
    struct ranks ranks = {.size = 2,
                          .ops = ops,
                          .late_memory = true,
                          .groups = groups,
                          .group_count = 1,
                          .routes = routes,
                          .route_count = 1,
                          .body = body,
                          .context = context};

    ranks_run(&ranks);
    ranks_check(&ranks);
}

static struct shuttle *shuttle_of(struct rank *self, struct device *device)
{
    struct shuttle *shuttle = NULL;

    device->memory = self->memory;
    EXPECT(shuttle_create(self->session, &late_device_ops, device, &shuttle, &self->err) == STATUS_OK);
    return shuttle;
}

static float value(int what, int k)
{
    return (float)(what * 1000 + k);
}

static void fill(float *rows, int what)
{
    for (int k = 0; k < COUNT; k++)
        rows[k] = value(what, k);
}

/* ---- sums ---- */

static void mirror_filled(struct shuttle *shuttle, int what, struct mirror *ret)
{
    const struct shape shape = {2, {ROWS, COLS}};

    EXPECT(mirror_init(shuttle, NULL, DTYPE_F32, &shape, ret, NULL) == STATUS_OK);
    fill((float *)(void *)ret->here->data, what);
}

static enum status sum_body(struct rank *self)
{
    struct device device = {0};
    struct shuttle *shuttle = shuttle_of(self, &device);
    struct group *group = session_group(self->session, 1);
    struct mirror other;
    struct mirror summed;
    struct completion *first = NULL;
    struct completion *sum = NULL;
    uint64_t wait_ns = 0;
    const float *rows = NULL;
    enum status st;

    mirror_filled(shuttle, 7, &other);
    mirror_filled(shuttle, 1 + self->rank, &summed);
    late_memory_hold(self->memory, true);
    EXPECT(shuttle_promote(shuttle, other.here, other.there, &first, &self->err) == STATUS_OK);
    EXPECT(mirror_promote(&summed, group, &self->err) == STATUS_OK);
    st = group_all_reduce_sum(group, summed.there, summed.there, &sum, &self->err);
    EXPECT(st == STATUS_OK && completion_test(sum) == COMPLETION_PENDING);
    late_memory_hold(self->memory, false);
    st = finish(st, &sum, &self->err);
    if (st == STATUS_OK)
        st = mirror_demote(&summed, &wait_ns, &self->err);
    EXPECT(st != STATUS_OK || !summed.leaving);
    if (st == STATUS_OK)
        st = shuttle_settle(&first, &wait_ns, &self->err);
    rows = (const float *)(const void *)summed.here->data;
    for (int k = 0; k < COUNT && st == STATUS_OK; k++)
        EXPECT(rows[k] == value(1, k) + value(2, k));
    mirror_done(&other);
    mirror_done(&summed);
    shuttle_destroy(shuttle);
    return st;
}

START_TEST(a_sum_begins_when_what_it_adds_has_been_promoted)
{
    run(ways[_i], sum_body, NULL);
}
END_TEST

/* ---- waves ---- */

static void *let_go_after_a_while(void *memory)
{
    clock_sleep_ns(HOLD_MS * NS_PER_MS);
    late_memory_hold(memory, false);
    return NULL;
}

static const struct wave wave = {.slot_count = SLOTS, .rows = ROWS, .slot = {{.rows = ROWS}}};

static enum status send_waves(struct rank *self, struct boundary *boundary, int first, int end)
{
    enum status st = STATUS_OK;

    for (int i = first; i < end && st == STATUS_OK; i++) {
        float hidden[COUNT];

        fill(hidden, i);
        st = boundary_send_wave(boundary, 0, &wave, hidden, &self->err);
    }
    return st;
}

/* Rows of the host that are free are filled while the device stands still; more than there are wait for it. */
static enum status send_held(struct rank *self, struct boundary *boundary, int count)
{
    pthread_t thread;
    enum status st;

    late_memory_hold(self->memory, true);
    st = send_waves(self, boundary, 0, LEAVING_ROWS);
    EXPECT(!pthread_create(&thread, NULL, let_go_after_a_while, self->memory));
    if (st == STATUS_OK)
        st = send_waves(self, boundary, LEAVING_ROWS, count);
    EXPECT(!pthread_join(thread, NULL));
    return st;
}

static enum status take_waves(struct rank *self, struct boundary *boundary, int count)
{
    enum status st = STATUS_OK;

    for (int i = 0; i < count && st == STATUS_OK; i++) {
        struct bundle *bundle = NULL;
        const float *hidden = NULL;
        struct wave came;

        st = boundary_take_wave(boundary, 0, &came, &bundle, &hidden, &self->err);
        for (int k = 0; k < COUNT && st == STATUS_OK; k++)
            EXPECT(hidden[k] == value(i, k));
        if (st == STATUS_OK)
            boundary_return_wave(boundary, bundle);
    }
    return st;
}

static enum status wave_body(struct rank *self)
{
    struct device device = {0};
    struct shuttle *shuttle = shuttle_of(self, &device);
    struct route *route = session_route(self->session, 2);
    struct boundary boundary = {.forward_in = self->rank ? route : NULL,
                                .forward_out = self->rank ? NULL : route,
                                .limits = {.slots = SLOTS, .used = SLOTS, .rows = ROWS, .requests = 1, .context = ROWS},
                                .hidden_size = COLS};
    const int *count = self->context;
    enum status st = boundary_use_device(&boundary, shuttle, &self->err);

    if (st == STATUS_OK)
        st = self->rank ? take_waves(self, &boundary, *count) : send_held(self, &boundary, *count);
    if (st == STATUS_OK)
        st = boundary_finish(&boundary, true, &self->err);
    boundary_done(&boundary);
    shuttle_destroy(shuttle);
    return st;
}

START_TEST(a_wave_leaves_when_its_rows_have_been_promoted)
{
    int count = LEAVING_ROWS;

    run(ways[_i], wave_body, &count);
}
END_TEST

START_TEST(rows_of_the_host_are_filled_again_when_they_have_been_promoted)
{
    int count = LEAVING_ROWS + 1;

    run(ways[_i], wave_body, &count);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_rows");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, a_sum_begins_when_what_it_adds_has_been_promoted, 0, WAYS);
    tcase_add_loop_test(all, a_wave_leaves_when_its_rows_have_been_promoted, 0, WAYS);
    tcase_add_loop_test(all, rows_of_the_host_are_filled_again_when_they_have_been_promoted, 0, WAYS);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
