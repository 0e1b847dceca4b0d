/* The registry is a short list: a process has a host and a device or two.  Checks come in the order in which a reader
 * would ask: as many elements, of that kind, in that shape, as many bytes, there, and really there. */
#include "base/transfer.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"

#define RELEASE_NS NS_PER_S

/* ---- endpoints ---- */

struct endpoint endpoint_of(const struct memory *memory)
{
    return (struct endpoint){memory == memory_host() ? NULL : memory};
}

bool endpoint_same(struct endpoint left, struct endpoint right)
{
    return endpoint_of(left.memory).memory == endpoint_of(right.memory).memory;
}

const char *endpoint_name(struct endpoint endpoint)
{
    const struct memory *memory = endpoint.memory ? endpoint.memory : memory_host();

    return memory->ops->name(memory);
}

/* ---- the registry ---- */

struct way {
    struct endpoint from;
    struct endpoint to;
    const struct transfer_provider *provider;
};

struct transfers {
    struct way *ways;
    size_t count;
    bool frozen;
};

enum status transfers_create(struct transfers **ret, struct error *err)
{
    struct transfers *transfers = calloc(1, sizeof *transfers);

    if (!transfers)
        return error_set(err, STATUS_NOMEM, "the registry of transfers");
    *ret = transfers;
    return STATUS_OK;
}

void transfers_destroy(struct transfers *transfers)
{
    if (!transfers)
        return;
    free(transfers->ways);
    free(transfers);
}

static const struct way *look(const struct transfers *transfers, struct endpoint from, struct endpoint to)
{
    for (size_t i = 0; i < transfers->count; i++) {
        if (endpoint_same(transfers->ways[i].from, from) && endpoint_same(transfers->ways[i].to, to))
            return &transfers->ways[i];
    }
    return NULL;
}

enum status transfers_add(struct transfers *transfers, struct endpoint from, struct endpoint to,
                          const struct transfer_provider *provider, struct error *err)
{
    const struct way *way = look(transfers, from, to);
    struct way *ways;

    if (transfers->frozen)
        return error_set(err, STATUS_INVALID, "a way from %s to %s: the registry of transfers is frozen",
                         endpoint_name(from), endpoint_name(to));
    if (way)
        return error_set(err, STATUS_INVALID, "a way from %s to %s: %s has it already, %s cannot have it too",
                         endpoint_name(from), endpoint_name(to), way->provider->name, provider->name);
    ways = reallocarray(transfers->ways, transfers->count + 1, sizeof *ways);
    if (!ways)
        return error_set(err, STATUS_NOMEM, "the registry of transfers");
    transfers->ways = ways;
    ways[transfers->count++] = (struct way){from, to, provider};
    return STATUS_OK;
}

void transfers_freeze(struct transfers *transfers)
{
    transfers->frozen = true;
}

static enum status no_way(const struct transfers *transfers, struct endpoint from, struct endpoint to,
                          struct error *err)
{
    struct text list = {0};
    enum status st;

    for (size_t i = 0; i < transfers->count; i++)
        text_add(&list, "%s%s to %s", i ? ", " : "", endpoint_name(transfers->ways[i].from),
                 endpoint_name(transfers->ways[i].to));
    st = error_set(err, STATUS_UNSUPPORTED, "no way from %s to %s (ways: %s)", endpoint_name(from), endpoint_name(to),
                   list.length ? text_string(&list) : "none");
    text_done(&list);
    return st;
}

enum status transfers_find(const struct transfers *transfers, struct endpoint from, struct endpoint to,
                           const struct transfer_provider **ret, struct error *err)
{
    const struct way *way;

    if (!transfers->frozen)
        return error_set(err, STATUS_INVALID, "a way from %s to %s: the registry of transfers is still being filled",
                         endpoint_name(from), endpoint_name(to));
    way = look(transfers, from, to);
    if (!way)
        return no_way(transfers, from, to, err);
    *ret = way->provider;
    return STATUS_OK;
}

enum status transfers_of_device(struct memory *device, struct memory *pinned, struct transfers **ret, struct error *err)
{
    const struct endpoint here = endpoint_of(device);
    const struct endpoint ends[] = {endpoint_of(NULL), endpoint_of(pinned)};
    struct transfers *transfers = NULL;
    enum status st = transfers_create(&transfers, err);

    for (size_t i = 0; i < sizeof ends / sizeof *ends && st == STATUS_OK; i++) {
        if (i && endpoint_same(ends[i], ends[0]))
            continue;
        st = transfers_add(transfers, ends[i], here, &transfer_by_copy, err);
        if (st == STATUS_OK)
            st = transfers_add(transfers, here, ends[i], &transfer_by_copy, err);
    }
    if (st != STATUS_OK) {
        transfers_destroy(transfers);
        return st;
    }
    transfers_freeze(transfers);
    *ret = transfers;
    return STATUS_OK;
}

/* ---- one copy ---- */

static enum status copy(const struct transfer_provider *provider, const struct transfer_request *request,
                        struct tensor **ret, struct memory **ret_queue, struct error *err)
{
    struct tensor *to = NULL;
    enum status st = STATUS_OK;

    (void)provider;
    if (request->into)
        to = tensor_retain(request->into);
    else
        st = tensor_create_in(request->to, request->from->dtype, &request->from->shape, &to, err);
    if (st != STATUS_OK)
        return st;
    *ret_queue = memory_host_view(request->to) ? request->from->memory : request->to;
    st = memory_copy(*ret_queue, to->data, request->from->data, request->from->bytes, err);
    if (st != STATUS_OK) {
        tensor_release(to);
        return st;
    }
    *ret = to;
    return STATUS_OK;
}

const struct transfer_provider transfer_by_copy = {.name = "copy", .move = copy};

/* ---- the contract ---- */

static enum status check_source(const struct transfer_request *request, struct error *err)
{
    const struct tensor *from = request->from;
    char text[256];
    size_t bytes = 0;
    enum status st = shape_bytes(&from->shape, from->dtype, &bytes, err);

    if (st != STATUS_OK)
        return error_wrap(err, STATUS_INVALID, "the source's element count");
    if (bytes == from->bytes && bytes <= from->capacity_bytes)
        return STATUS_OK;
    shape_text(&from->shape, from->dtype, text, sizeof text);
    return error_set(err, STATUS_INVALID, "the source is %s of %zu bytes, but says %zu", text, bytes, from->bytes);
}

/* Is left what from says?  what: whose it is, in a sentence. */
static enum status check_elements(const struct tensor *from, const struct tensor *to, enum status kind,
                                  const char *what, struct error *err)
{
    char expected[256];
    char found[256];
    size_t bytes = 0;
    bool same = from->dtype == to->dtype && from->shape.ndim == to->shape.ndim;

    for (int i = 0; i < from->shape.ndim && same; i++)
        same = from->shape.dim[i] == to->shape.dim[i];
    shape_text(&from->shape, from->dtype, expected, sizeof expected);
    shape_text(&to->shape, to->dtype, found, sizeof found);
    if (!same)
        return error_set(err, kind, "%s is %s, expected %s", what, found, expected);
    if (shape_bytes(&to->shape, to->dtype, &bytes, err) != STATUS_OK || to->bytes != bytes ||
        to->capacity_bytes < bytes)
        return error_set(err, kind, "%s is %s in %zu bytes of %zu, expected %zu", what, found, to->bytes,
                         to->capacity_bytes, from->bytes);
    return STATUS_OK;
}

static bool overlap(const struct tensor *left, const struct tensor *right)
{
    uintptr_t a = (uintptr_t)left->data;
    uintptr_t b = (uintptr_t)right->data;

    return left->bytes && right->bytes && a < b + right->bytes && b < a + left->bytes;
}

/* There by its name, and there by its address. */
static enum status check_place(const struct transfer_request *request, const struct tensor *to, struct error *err)
{
    struct endpoint wanted = endpoint_of(request->to);
    struct endpoint found = endpoint_of(to->memory);
    const struct memory *memory = request->to;

    if (!endpoint_same(wanted, found))
        return error_set(err, STATUS_INTERNAL, "the result lies in %s, expected %s", endpoint_name(found),
                         endpoint_name(wanted));
    if (request->into && to != request->into)
        return error_set(err, STATUS_INTERNAL, "the result is another tensor than the one to move into");
    if (to != request->from && overlap(to, request->from))
        return error_set(err, STATUS_INTERNAL, "the result is the source's own memory under the name of %s",
                         endpoint_name(wanted));
    if (memory && memory->ops->holds && to->bytes && !memory->ops->holds(memory, to->data, to->bytes))
        return error_set(err, STATUS_INTERNAL, "the result says that it lies in %s, but %s does not hold it",
                         endpoint_name(wanted), endpoint_name(wanted));
    return STATUS_OK;
}

static enum status check_result(const struct transfer_request *request, const struct tensor *to, struct error *err)
{
    enum status st = check_elements(request->from, to, STATUS_INTERNAL, "the result", err);

    return st == STATUS_OK ? check_place(request, to, err) : st;
}

/* ---- one tensor under way ---- */

struct transfer {
    struct tensor *from;
    struct tensor *to;
    struct memory *queue;
    struct memory_mark *mark; /* NULL: reached, or failed */
    bool moved;
};

static enum status check_request(const struct transfer_request *request, struct error *err)
{
    enum status st = check_source(request, err);

    if (st != STATUS_OK || !request->into)
        return st;
    if (!endpoint_same(endpoint_of(request->to), endpoint_of(request->into->memory)))
        return error_set(err, STATUS_INVALID, "the tensor to move into lies in %s, not in %s",
                         endpoint_name(endpoint_of(request->into->memory)), endpoint_name(endpoint_of(request->to)));
    return check_elements(request->from, request->into, STATUS_INVALID, "the tensor to move into", err);
}

static enum status wait_over(struct memory *queue, struct error *err)
{
    return memory_wait(queue, clock_ns() + RELEASE_NS, err);
}

/* Ask the provider, and compare.  What a wrong one has begun may still run: its memory is kept where it does. */
static enum status move(const struct transfer_provider *provider, const struct transfer_request *request,
                        struct transfer *transfer, struct error *err)
{
    enum status st = provider->move(provider, request, &transfer->to, &transfer->queue, err);

    if (st != STATUS_OK)
        return st;
    st = check_result(request, transfer->to, err);
    if (st == STATUS_OK && transfer->queue)
        st = transfer->queue->ops->mark(transfer->queue, &transfer->mark, err);
    if (st == STATUS_OK)
        return STATUS_OK;
    if (wait_over(transfer->queue, NULL) == STATUS_OK)
        tensor_release(transfer->to);
    return error_wrap(err, st, "provider %s, from %s to %s", provider->name,
                      endpoint_name(endpoint_of(request->from->memory)), endpoint_name(endpoint_of(request->to)));
}

enum status transfer_begin(const struct transfers *transfers, const struct transfer_request *request,
                           struct transfer **ret, struct error *err)
{
    const struct transfer_provider *provider = NULL;
    struct transfer *transfer;
    enum status st =
        transfers_find(transfers, endpoint_of(request->from->memory), endpoint_of(request->to), &provider, err);

    if (st == STATUS_OK)
        st = check_request(request, err);
    if (st != STATUS_OK)
        return st;
    transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return error_set(err, STATUS_NOMEM, "a transfer");
    st = move(provider, request, transfer, err);
    if (st != STATUS_OK) {
        free(transfer);
        return st;
    }
    transfer->from = tensor_retain(request->from);
    *ret = transfer;
    return STATUS_OK;
}

enum status transfer_test(struct transfer *transfer, bool *ret, struct error *err)
{
    bool reached = true;
    enum status st = STATUS_OK;

    if (transfer->mark)
        st = transfer->queue->ops->reached(transfer->queue, transfer->mark, &reached, err);
    if (st != STATUS_OK || reached)
        transfer->mark = NULL;
    if (st == STATUS_OK && reached)
        transfer->moved = true;
    *ret = transfer->moved;
    return st;
}

const struct memory_mark *transfer_mark(const struct transfer *transfer, const struct memory **ret_queue)
{
    *ret_queue = transfer->queue;
    return transfer->mark;
}

enum status transfer_result(const struct transfer *transfer, struct tensor **ret, struct error *err)
{
    if (!transfer->moved)
        return error_set(err, STATUS_INVALID, "a tensor on its way from %s to %s was asked for before it was there",
                         endpoint_name(endpoint_of(transfer->from->memory)),
                         endpoint_name(endpoint_of(transfer->to->memory)));
    *ret = transfer->to;
    return STATUS_OK;
}

void transfer_release(struct transfer *transfer)
{
    bool over;

    if (!transfer)
        return;
    over = !transfer->mark || wait_over(transfer->queue, NULL) == STATUS_OK;
    if (transfer->mark)
        transfer->queue->ops->forget(transfer->queue, transfer->mark);
    if (over) {
        tensor_release(transfer->from);
        tensor_release(transfer->to);
    }
    free(transfer);
}
