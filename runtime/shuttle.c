/* The ways are those of the registry: none is taken that is not in it. */
#include "runtime/shuttle.h"

#include <stdlib.h>

#include "base/clock.h"
#include "comm/session.h"

#define SPIN_NS (50 * NS_PER_US)
#define FIRST_REST_NS (10 * NS_PER_US)
#define LAST_REST_NS NS_PER_MS

struct shuttle {
    struct session *session;
    struct memory *device;
    struct memory *pinned;
    struct transfers *transfers;
    uint64_t timeout_ns;
};

enum status shuttle_create(struct session *session, struct memory *device, struct memory *pinned, uint64_t timeout_ns,
                           struct shuttle **ret, struct error *err)
{
    struct shuttle *shuttle = calloc(1, sizeof *shuttle);
    enum status st;

    if (!shuttle)
        return error_set(err, STATUS_NOMEM, "the way to %s", device->ops->name(device));
    *shuttle = (struct shuttle){.session = session, .device = device, .pinned = pinned, .timeout_ns = timeout_ns};
    st = transfers_of_device(device, pinned, &shuttle->transfers, err);
    if (st != STATUS_OK) {
        free(shuttle);
        return st;
    }
    *ret = shuttle;
    return STATUS_OK;
}

void shuttle_destroy(struct shuttle *shuttle)
{
    if (!shuttle)
        return;
    transfers_destroy(shuttle->transfers);
    free(shuttle);
}

enum status shuttle_tensor_here(struct shuttle *shuttle, enum dtype dtype, const struct shape *shape,
                                struct tensor **ret, struct error *err)
{
    return tensor_create_in(shuttle->pinned, dtype, shape, ret, err);
}

enum status shuttle_tensor_there(struct shuttle *shuttle, enum dtype dtype, const struct shape *shape,
                                 struct tensor **ret, struct error *err)
{
    return tensor_create_in(shuttle->device, dtype, shape, ret, err);
}

enum status shuttle_promote(struct shuttle *shuttle, struct tensor *here, struct tensor *there, struct transfer **ret,
                            struct error *err)
{
    const struct transfer_request request = {.from = here, .to = there->memory, .into = there};

    return transfer_begin(shuttle->transfers, &request, ret, err);
}

/* A moment for others, longer each time. */
static void rest(uint64_t start_ns, uint64_t *rest_ns)
{
    if (clock_ns() - start_ns < SPIN_NS)
        return;
    clock_sleep_ns(*rest_ns);
    *rest_ns = 2 * *rest_ns < LAST_REST_NS ? 2 * *rest_ns : LAST_REST_NS;
}

static enum status wait_moved(struct shuttle *shuttle, struct transfer *transfer, struct error *err)
{
    uint64_t start = clock_ns();
    uint64_t rest_ns = FIRST_REST_NS;
    bool moved = false;
    enum status st = transfer_test(transfer, &moved, err);

    while (st == STATUS_OK && !moved) {
        if (clock_ns() - start > shuttle->timeout_ns)
            return error_set(err, STATUS_TIMEOUT, "%s: a copy has not ended after %llu ms",
                             shuttle->device->ops->name(shuttle->device),
                             (unsigned long long)(shuttle->timeout_ns / NS_PER_MS));
        session_progress(shuttle->session);
        st = session_check(shuttle->session, err);
        if (st != STATUS_OK)
            return st;
        rest(start, &rest_ns);
        st = transfer_test(transfer, &moved, err);
    }
    return st;
}

enum status shuttle_settle(struct shuttle *shuttle, struct transfer **transfer, uint64_t *wait_ns, struct error *err)
{
    uint64_t start = clock_ns();
    enum status st = STATUS_OK;

    if (!*transfer)
        return STATUS_OK;
    st = wait_moved(shuttle, *transfer, err);
    transfer_release(*transfer);
    *transfer = NULL;
    *wait_ns += clock_ns() - start;
    return st;
}

enum status shuttle_demote(struct shuttle *shuttle, struct tensor *there, struct tensor *here, uint64_t *wait_ns,
                           struct error *err)
{
    const struct transfer_request request = {.from = there, .to = here->memory, .into = here};
    struct transfer *transfer = NULL;
    enum status st = transfer_begin(shuttle->transfers, &request, &transfer, err);

    return st == STATUS_OK ? shuttle_settle(shuttle, &transfer, wait_ns, err) : st;
}
