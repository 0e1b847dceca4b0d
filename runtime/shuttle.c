/* One executor with a queue of its own, and the ways of its device: none is taken that is not among them. */
#include "runtime/shuttle.h"

#include <stdlib.h>

#include "base/transfer.h"
#include "comm/device.h"
#include "comm/executor.h"
#include "runtime/wait.h"

/* More than the sums, logits and boundaries of a stage have under way. */
enum { CAPACITY = 64 };

struct shuttle {
    struct device *device;
    struct executor *executor;
    struct transfers *transfers;
};

enum status shuttle_create(struct session *session, const struct device_ops *devices, struct device *device,
                           struct shuttle **ret, struct error *err)
{
    struct shuttle *shuttle = calloc(1, sizeof *shuttle);
    enum status st;

    if (!shuttle)
        return error_set(err, STATUS_NOMEM, "the way to a device");
    shuttle->device = device;
    st = transfers_of_device(device->memory, device->pinned, &shuttle->transfers, err);
    if (st == STATUS_OK)
        st = executor_create_on(session, devices, device, CAPACITY, &shuttle->executor, err);
    if (st != STATUS_OK) {
        shuttle_destroy(shuttle);
        return st;
    }
    *ret = shuttle;
    return STATUS_OK;
}

void shuttle_destroy(struct shuttle *shuttle)
{
    if (!shuttle)
        return;
    executor_release(shuttle->executor);
    transfers_destroy(shuttle->transfers);
    free(shuttle);
}

enum status shuttle_tensor_here(struct shuttle *shuttle, enum dtype dtype, const struct shape *shape,
                                struct tensor **ret, struct error *err)
{
    return tensor_create_in(shuttle->device->pinned, dtype, shape, ret, err);
}

enum status shuttle_tensor_there(struct shuttle *shuttle, enum dtype dtype, const struct shape *shape,
                                 struct tensor **ret, struct error *err)
{
    return tensor_create_in(shuttle->device->memory, dtype, shape, ret, err);
}

enum status shuttle_promote(struct shuttle *shuttle, struct tensor *here, struct tensor *there, struct completion **ret,
                            struct error *err)
{
    return executor_transfer(shuttle->executor, shuttle->transfers, here, there, ret, err);
}

enum status shuttle_settle(struct completion **completion, uint64_t *wait_ns, struct error *err)
{
    struct completion *settled = *completion;

    *completion = NULL;
    return settled ? wait_and_release(settled, wait_ns, err) : STATUS_OK;
}

enum status shuttle_demote(struct shuttle *shuttle, struct tensor *there, struct tensor *here, uint64_t *wait_ns,
                           struct error *err)
{
    struct completion *completion = NULL;
    enum status st = executor_transfer(shuttle->executor, shuttle->transfers, there, here, &completion, err);

    return st == STATUS_OK ? wait_and_release(completion, wait_ns, err) : st;
}
