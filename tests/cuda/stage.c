#include "tests/cuda/stage.h"

/* Of each rank, and the last one of nobody.  A device stays open until the session has joined its executors. */
static struct device *devices[MOST_RANKS];

enum status stage_open(struct rank *self, struct stage *stage, uint32_t capacity)
{
    const struct plugin *plugin = NULL;
    enum status st = plugin_open("cuda", &plugin, NULL, 0, &self->err);

    *stage = (struct stage){0};
    if (st == STATUS_OK) {
        stage->devices = plugin->devices;
        st = stage->devices->open(self->rank, &devices[self->rank], &self->err);
        stage->device = devices[self->rank];
    }
    if (st == STATUS_OK)
        st = transfers_of_device(stage->device->memory, stage->device->pinned, &stage->transfers, &self->err);
    if (st == STATUS_OK)
        st = executor_create_on(self->session, stage->devices, stage->device, capacity, &stage->executor, &self->err);
    EXPECT(st == STATUS_OK && stage->device);
    return st;
}

void stage_close(struct stage *stage)
{
    executor_release(stage->executor);
    transfers_destroy(stage->transfers);
}

struct tensor *tensor_in(struct memory *memory, uint64_t count)
{
    struct shape shape = {1, {count}};
    struct tensor *tensor = NULL;

    EXPECT(tensor_create_in(memory, DTYPE_U32, &shape, &tensor, NULL) == STATUS_OK);
    return tensor;
}

struct tensor *counting(uint32_t first)
{
    struct tensor *tensor = tensor_in(NULL, COUNT);

    for (uint32_t k = 0; k < COUNT; k++)
        ((uint32_t *)(void *)tensor->data)[k] = first + k;
    return tensor;
}

bool counts(const struct tensor *tensor, uint32_t first, uint32_t step)
{
    for (uint32_t k = 0; k < COUNT; k++) {
        if (((const uint32_t *)(const void *)tensor->data)[k] != first + k * step)
            return false;
    }
    return true;
}

enum status add(void *context, struct memory *memory, struct error *err)
{
    struct addition *addition = context;

    for (int i = 0; i < addition->times; i++) {
        enum status st = memory->ops->add(memory, DTYPE_U32, addition->sum->data, addition->term->data, COUNT, err);

        if (st != STATUS_OK)
            return st;
    }
    return addition->result == STATUS_OK ? STATUS_OK : error_set(err, addition->result, "token 7 is not finite");
}

enum status move(struct stage *stage, struct tensor *from, struct tensor *into, struct error *err)
{
    struct completion *completion = NULL;

    return finish(executor_transfer(stage->executor, stage->transfers, from, into, &completion, err), &completion, err);
}

enum status stage_open_other(struct stage *stage, int index, struct device **ret, struct error *err)
{
    enum status st = stage->devices->open(index, &devices[MOST_RANKS - 1], err);

    *ret = devices[MOST_RANKS - 1];
    return st;
}

void stage_run(struct ranks *ranks)
{
    ranks_run(ranks);
    for (int i = 0; i < MOST_RANKS; i++)
        plugin_here()->devices->close(devices[i]);
}

TCase *stage_machine(Suite *suite, const char *name, void (*prepare)(void))
{
    TCase *tests = tcase_create(name);

    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, prepare, NULL);
    suite_add_tcase(suite, tests);
    return tests;
}
