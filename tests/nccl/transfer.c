#include "tests/nccl/transfer.h"

#include <stdlib.h>
#include <string.h>

static void fill(const struct transfer *transfer, unsigned char *bytes, size_t count)
{
    uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(transfer->number + 1);

    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (unsigned char)(state >> 24);
    }
}

enum status transfer_send(const struct device_world *world, struct transfer *transfer)
{
    fill(transfer, transfer->header, TRANSFER_HEADER);
    transfer->host = malloc(transfer->bytes + 1);
    CHECK(transfer->host);
    fill(transfer, transfer->host, transfer->bytes);
    transfer->out = device_room(world, transfer->bytes);
    if (transfer->bytes)
        device_put(world, transfer->out, transfer->host, transfer->bytes);
    return world->ops->device->send(world->transport, transfer->to, transfer->tag, transfer->header, TRANSFER_HEADER,
                                    world->memory, transfer->out, transfer->bytes, transfer->headroom_out,
                                    &transfer->send, NULL);
}

enum status transfer_look(const struct device_world *world, struct transfer *transfer)
{
    struct message *message = NULL;
    const unsigned char *ahead = NULL;
    unsigned char expected[TRANSFER_HEADER];
    size_t bytes = 0;
    size_t header_bytes = 0;
    enum status st = world->ops->probe(world->transport, transfer->from, transfer->tag, &message, &bytes, NULL);

    if (st != STATUS_OK || !message)
        return st;
    ahead = world->ops->device->ahead(message, &header_bytes);
    fill(transfer, expected, TRANSFER_HEADER);
    transfer->size_right = bytes == TRANSFER_HEADER + transfer->bytes;
    transfer->header_right = ahead && header_bytes == TRANSFER_HEADER && memcmp(ahead, expected, TRANSFER_HEADER) == 0;
    transfer->in = device_room(world, transfer->bytes);
    transfer->asked = true;
    return world->ops->device->receive(world->transport, message, world->memory, transfer->in, transfer->bytes,
                                       transfer->headroom_in, transfer->in_band, &transfer->receive, NULL);
}

static enum status test_once(const struct device_world *world, struct work **work, int *open)
{
    bool over = false;
    enum status st = *work ? world->ops->test(world->transport, *work, &over, NULL) : STATUS_OK;

    if (over) {
        *work = NULL;
        (*open)--;
    }
    return st;
}

enum status transfer_test(const struct device_world *world, struct transfer *transfer, int *open)
{
    enum status st = test_once(world, &transfer->send, open);

    return st == STATUS_OK ? test_once(world, &transfer->receive, open) : st;
}

void transfer_check(const struct device_world *world, struct transfer *transfer)
{
    unsigned char *expected = malloc(transfer->bytes + 1);
    unsigned char *got = malloc(transfer->bytes + 1);
    unsigned char header[TRANSFER_HEADER];

    CHECK(expected && got);
    fill(transfer, expected, transfer->bytes);
    fill(transfer, header, TRANSFER_HEADER);
    if (transfer->bytes)
        device_get(world, got, transfer->in, transfer->bytes);
    transfer->right =
        memcmp(expected, got, transfer->bytes) == 0 && memcmp(header, transfer->in_band, TRANSFER_HEADER) == 0;
    free(expected);
    free(got);
}

void transfer_dispose(const struct device_world *world, struct transfer *transfer)
{
    free(transfer->host);
    if (transfer->out)
        device_free(world, transfer->out);
    if (transfer->in)
        device_free(world, transfer->in);
}
