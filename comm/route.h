/* Framed transfer of a route's exact bundle, header and payload of each tensor in one native message.
 *
 * The receiver builds the header that it expects and compares it byte for byte before anybody may use the data.  A
 * mismatch names the route, the ranks and every differing field as expected and got; nothing is delivered. */
#ifndef COMM_ROUTE_H
#define COMM_ROUTE_H

#include "base/tensor.h"
#include "comm/completion.h"
#include "comm/spec.h"

struct route;

/* The tensors of one transfer, from the route's pool (each with headroom and the schema's largest extents). */
struct bundle {
    int count;
    struct tensor *tensor[ROUTE_MAX_TENSORS];
};

const struct route_spec *route_spec(const struct route *route);

/* Statuses of all: STATUS_INVALID (this rank is not that end of the route; shapes that break the schema: the first
 * that does is named), STATUS_NOMEM, STATUS_TIMEOUT (quarantined), the session's first failure. */

/* Transfers submitted at this end from now on begin when the completion (of an executor, a group, another route) is
 * done: a send that is ordered after its producer leaves when the producer is done, not before.  Several calls add up.
 * The completion may be released or abandoned at once.  STATUS_INVALID also: of another session. */
enum status route_after(struct route *route, struct completion *completion, struct error *err);

/* Sender: take a free bundle of the pool.  Blocks while all are in flight (progressing, under the session's timeout
 * rule); with none in flight, so that waiting could not help, STATUS_INVALID.  The caller fills tensors after
 * tensor_reshape; lends until route_send or route_return. */
enum status route_acquire(struct route *route, struct bundle **ret, struct error *err);

/* Post the bundle (its tensors' present shapes must fit the schema).  Does not block.  Takes bundle, back to the
 * pool at completion, which may come only when the receiver has read it: two ranks that both wait for what they send
 * before they post what they receive may wait for each other.  epoch: the step; carried and compared. */
enum status route_send(struct route *route, struct bundle *bundle, uint64_t epoch, struct completion **ret,
                       struct error *err);

/* Tells the shapes of tensors 1.. from the contents of tensor 0 (a description of fixed shape), which it validates
 * against the plan's ranges: fills shapes[1] to shapes[tensor_count - 1] (shapes[0] is tensor 0's).  May refuse with a
 * status, which fails the transfer and the session.  Called under the session's lock, perhaps by the control thread:
 * it must not call comm. */
typedef enum status route_describe(void *context, const struct tensor *description, struct shape *shapes,
                                   struct error *err);

/* Receiver: post the receipt of the next bundle.  Does not block.  shapes [tensor_count] are the expected ones; with
 * describe, shapes[1..] are asked from it once tensor 0 has been compared (shapes may then be NULL).
 * After completion route_take lends the bundle until route_return. */
enum status route_receive(struct route *route, const struct shape *shapes, route_describe *describe, void *context,
                          uint64_t epoch, struct completion **ret, struct error *err);
/* With epoch EPOCH_ANY the sender's step is taken as it comes, but must not be lower than the last one. */
#define EPOCH_ANY UINT64_MAX

/* The bundle of a done receive; and its epoch (ret_epoch may be NULL).  Once a completion. */
struct bundle *route_take(struct completion *completion, uint64_t *ret_epoch);

/* Give a bundle back to the pool unsent, or after use. */
void route_return(struct route *route, struct bundle *bundle);

#endif
