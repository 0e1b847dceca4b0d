/* A device message from one rank to another: what it carries follows from its number, so both sides know it.
 *
 * Local, and none waits but transfer_send and transfer_check for the device's copies.  Device memory and the works are
 * the transfer's until transfer_dispose. */
#ifndef TESTS_NCCL_TRANSFER_H
#define TESTS_NCCL_TRANSFER_H

#include "tests/nccl/device_world.h"

enum { TRANSFER_HEADER = 192 };

struct transfer {
    int number;
    int from;
    int to;
    uint32_t tag;
    size_t bytes;
    bool headroom_out;
    bool headroom_in;
    unsigned char header[TRANSFER_HEADER];
    unsigned char in_band[TRANSFER_HEADER];
    unsigned char *host;
    unsigned char *out; /* device */
    unsigned char *in;
    struct work *send;
    struct work *receive;
    bool asked; /* the receive is posted */
    bool header_right;
    bool size_right;
    bool right; /* the bytes, and the header in band */
};

/* Sender: post it.  The transport's statuses, here and below. */
enum status transfer_send(const struct device_world *world, struct transfer *transfer);
/* Receiver: look once; if the message is there, compare what came ahead and post the receive (asked). */
enum status transfer_look(const struct device_world *world, struct transfer *transfer);
/* Is either half over that is under way here?  It leaves the transfer then, and *open counts down. */
enum status transfer_test(const struct device_world *world, struct transfer *transfer, int *open);
/* Receiver, when it is over: compare the bytes. */
void transfer_check(const struct device_world *world, struct transfer *transfer);
void transfer_dispose(const struct device_world *world, struct transfer *transfer);

#endif
