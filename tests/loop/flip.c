/* The operations, and the bit that is damaged on its way. */
#include "tests/loop/flip.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "comm/route.h"

enum { CANARY = 0xa5, SMALL = 24, LARGE = 20000, LONGEST = 1 << 17 };

const struct flip flips[] = {
    {FLIP_SUM, 0, 192},      {FLIP_LARGE_SUM, 0, 192}, {FLIP_GATHER, 0, 192},  {FLIP_UNEVEN_GATHER, 0, 192},
    {FLIP_EXCHANGE, 0, 192}, {FLIP_BROADCAST, 0, 192}, {FLIP_BARRIER, 0, 192}, {FLIP_AGREEMENT, 0, 192},
    {FLIP_BUNDLE, 0, 192},   {FLIP_BUNDLE, 1, 192},    {FLIP_BUNDLE, 2, 256},
};
const int flip_count = sizeof flips / sizeof flips[0];

const char *flip_name(enum flip_kind kind)
{
    static const char *const names[FLIP_KINDS] = {"sum",       "large sum", "gather",    "uneven gather", "exchange",
                                                  "broadcast", "barrier",   "agreement", "bundle"};

    return names[kind];
}

static const int members[] = {1, 0};
const struct group_spec flip_group = {.id = 1,
                                      .name = "pair",
                                      .size = 2,
                                      .members = members,
                                      .operations = OPERATIONS_ALL,
                                      .dtypes = DTYPES_ALL,
                                      .max_bytes = 1 << 20};
static const struct tensor_spec bundle[] = {
    {"scales", DTYPE_F32, 1, {{2, 2, -1}}},
    {"positions", DTYPE_I32, 2, {{1, 1, -1}, {2, 2, -1}}},
    {"nothing.with.a.name.that.is.too.long.to.stand.beside.an.extent", DTYPE_U8, 1, {{0, 0, -1}}},
};
const struct route_spec flip_route = {.id = 2,
                                      .name = "forward",
                                      .from = 0,
                                      .to = 1,
                                      .tensor_count = 3,
                                      .tensors = bundle,
                                      .depth = 1,
                                      .memory_tensors = 7};

static const struct transport_ops *undamaged;
static atomic_int messages_before; /* of rank 0; -1: nothing is damaged any more */
static atomic_int damaged_bit;
static unsigned char *damaged; /* the message on its way, until the next one is armed */

static atomic_int receipts_before; /* of device messages at rank 1; -1: none is damaged any more */
static unsigned char *in_band;     /* of the one, while it is received */
static const struct work *in_band_work;
static struct device_message_ops damaging_device;

static enum status damaging_send(struct transport *transport, int peer, uint32_t tag, const void *bytes, size_t count,
                                 struct work **ret, struct error *err)
{
    int bit = atomic_load(&damaged_bit);

    if (undamaged->rank(transport) || tag > 2 || atomic_load(&messages_before) < 0 ||
        atomic_fetch_sub(&messages_before, 1) > 0)
        return undamaged->send(transport, peer, tag, bytes, count, ret, err);
    damaged = malloc(count);
    if (!damaged || (size_t)bit / 8 >= count)
        return error_set(err, STATUS_INTERNAL, "nothing to damage in %zu bytes", count);
    memcpy(damaged, bytes, count);
    damaged[bit / 8] ^= (unsigned char)(1 << bit % 8);
    return undamaged->send(transport, peer, tag, damaged, count, ret, err);
}

static enum status damaging_device_send(struct transport *transport, int peer, uint32_t tag, const void *header,
                                        size_t header_bytes, struct memory *memory, void *payload, size_t bytes,
                                        bool headroom, struct work **ret, struct error *err)
{
    int bit = atomic_load(&damaged_bit);
    unsigned char copy[TENSOR_HEADROOM];

    memcpy(copy, header, header_bytes);
    if (!undamaged->rank(transport) && tag <= 2 && atomic_load(&messages_before) >= 0 &&
        atomic_fetch_sub(&messages_before, 1) == 0) {
        if ((size_t)bit / 8 >= header_bytes)
            return error_set(err, STATUS_INTERNAL, "nothing to damage in %zu bytes", header_bytes);
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    return undamaged->device->send(transport, peer, tag, copy, header_bytes, memory, payload, bytes, headroom, ret,
                                   err);
}

static enum status watching_receive(struct transport *transport, struct message *message, struct memory *memory,
                                    void *payload, size_t bytes, bool headroom, void *header, struct work **ret,
                                    struct error *err)
{
    enum status st = undamaged->device->receive(transport, message, memory, payload, bytes, headroom, header, ret, err);

    if (undamaged->rank(transport) == 1 && atomic_load(&receipts_before) >= 0 &&
        atomic_fetch_sub(&receipts_before, 1) == 0) {
        in_band = header;
        in_band_work = *ret;
    }
    return st;
}

static enum status damaging_test(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    bool watched = undamaged->rank(transport) == 1 && work == in_band_work;
    enum status st = undamaged->test(transport, work, ret, err);
    int bit = atomic_load(&damaged_bit);

    if (watched && *ret) {
        in_band[bit / 8] ^= (unsigned char)(1 << bit % 8);
        in_band_work = NULL;
    }
    return st;
}

struct transport_ops flip_transport(const struct transport_ops *ops)
{
    struct transport_ops copy = *ops;

    undamaged = ops;
    atomic_store(&receipts_before, -1);
    copy.send = damaging_send;
    if (ops->device) {
        damaging_device = *ops->device;
        damaging_device.send = damaging_device_send;
        damaging_device.receive = watching_receive;
        copy.device = &damaging_device;
        copy.test = damaging_test;
    }
    return copy;
}

void flip_arm_in_band(int message, int bit)
{
    in_band_work = NULL;
    atomic_store(&messages_before, -1);
    atomic_store(&damaged_bit, bit);
    atomic_store(&receipts_before, message);
}

void flip_arm(const struct flip *flip, int bit)
{
    free(damaged);
    damaged = NULL;
    atomic_store(&damaged_bit, bit);
    atomic_store(&messages_before, flip->message);
}

/* Waits for the copy: a tensor whose every byte is this one. */
static struct tensor *tensor_of_rows(struct memory *memory, uint64_t rows, unsigned char byte, struct error *err)
{
    struct shape shape = {2, {rows, 4}};
    struct tensor *tensor = NULL;
    unsigned char *bytes = malloc(rows * 4);

    if (bytes && tensor_create_in(memory, DTYPE_U8, &shape, &tensor, err) == STATUS_OK) {
        memset(bytes, byte, tensor->bytes);
        if (memory_copy(memory, tensor->data, bytes, tensor->bytes, err) != STATUS_OK ||
            memory_wait(memory, UINT64_MAX, err) != STATUS_OK) {
            tensor_release(tensor);
            tensor = NULL;
        }
    }
    free(bytes);
    return tensor;
}

/* Is any of its bytes not the canary? */
static bool is_written(struct tensor *tensor)
{
    unsigned char *bytes = malloc(tensor->bytes);
    bool written = !bytes || memory_copy(tensor->memory, bytes, tensor->data, tensor->bytes, NULL) != STATUS_OK ||
                   memory_wait(tensor->memory, UINT64_MAX, NULL) != STATUS_OK;

    for (size_t k = 0; !written && k < tensor->bytes; k++)
        written = bytes[k] != CANARY;
    free(bytes);
    return written;
}

static enum status await(enum status st, struct completion **completion, struct error *err)
{
    if (st == STATUS_OK)
        st = completion_wait(*completion, DEADLINE_NONE, err);
    completion_abandon(*completion);
    return st;
}

static enum status run_tensors(struct group *group, enum flip_kind kind, struct tensor *send, struct tensor *recv,
                               struct error *err)
{
    static const uint64_t uneven[] = {SMALL, SMALL};
    static const uint64_t halves[] = {SMALL / 2, SMALL / 2};
    struct completion *completion = NULL;
    enum status st;

    switch (kind) {
    case FLIP_GATHER:
        st = group_all_gather_even(group, send, recv, 0, &completion, err);
        break;
    case FLIP_UNEVEN_GATHER:
        st = group_all_gather_uneven(group, send, recv, 0, uneven, &completion, err);
        break;
    case FLIP_EXCHANGE:
        st = group_variable_all_to_all(group, send, recv, 0, halves, halves, &completion, err);
        break;
    case FLIP_BROADCAST:
        st = group_broadcast(group, recv, 1, &completion, err);
        break;
    default:
        st = group_all_reduce_sum(group, send, recv, &completion, err);
        break;
    }
    return await(st, &completion, err);
}

static enum status run_bundle(struct session *session, bool *ret_delivered, struct error *err)
{
    static const struct shape shapes[] = {{1, {2}}, {2, {1, 2}}, {1, {0}}};
    struct route *route = session_route(session, flip_route.id);
    struct completion *completion = NULL;
    struct bundle *taken = NULL;
    enum status st;

    if (session_rank(session) == 0) {
        st = route_acquire(route, &taken, err);
        return await(st == STATUS_OK ? route_send(route, taken, 3, &completion, err) : st, &completion, err);
    }
    st = route_receive(route, shapes, NULL, NULL, 3, &completion, err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    *ret_delivered = st == STATUS_OK;
    if (st == STATUS_OK)
        route_return(route, route_take(completion, NULL));
    completion_abandon(completion);
    return st;
}

enum status flip_run(struct session *session, struct memory *memory, enum flip_kind kind, bool *ret_delivered,
                     struct error *err)
{
    struct group *group = session_group(session, flip_group.id);
    uint64_t rows = kind == FLIP_LARGE_SUM ? LARGE : SMALL;
    struct completion *completion = NULL;
    struct tensor *send = NULL;
    struct tensor *recv = NULL;
    enum status st = STATUS_NOMEM;

    *ret_delivered = false;
    if (kind == FLIP_BUNDLE)
        return run_bundle(session, ret_delivered, err);
    if (kind == FLIP_BARRIER)
        return await(group_barrier(group, &completion, err), &completion, err);
    if (kind == FLIP_AGREEMENT)
        return await(group_failure_agreement(group, 1, &completion, err), &completion, err);
    send = tensor_of_rows(memory, rows, 1, err);
    recv = tensor_of_rows(memory, kind == FLIP_GATHER || kind == FLIP_UNEVEN_GATHER ? 2 * rows : rows, CANARY, err);
    if (send && recv)
        st = run_tensors(group, kind, send, recv, err);
    *ret_delivered = recv && is_written(recv);
    tensor_release(send);
    tensor_release(recv);
    return st;
}
