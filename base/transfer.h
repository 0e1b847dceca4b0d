/* Moving tensors between memories: who may move what from where to where, and what is checked of it.
 *
 * An endpoint is one memory, not a class of them: another device is another endpoint, however alike.  A registry holds
 * one provider for a pair of endpoints; it is filled, frozen, and only then asked, and it never makes a way out of two
 * others.  What a provider returns is compared with what was asked before anybody sees it. */
#ifndef BASE_TRANSFER_H
#define BASE_TRANSFER_H

#include <stdbool.h>

#include "base/memory.h"
#include "base/tensor.h"

/* Two names of the process's own memory, NULL and memory_host(), are one endpoint. */
struct endpoint {
    const struct memory *memory; /* NULL: the process's own */
};

struct endpoint endpoint_of(const struct memory *memory);
bool endpoint_same(struct endpoint left, struct endpoint right);
/* "host", "pinned", "cuda:0".  Lends as long as the memory. */
const char *endpoint_name(struct endpoint endpoint);

struct transfer_request {
    struct tensor *from;
    struct memory *to;   /* NULL: the process's own */
    struct tensor *into; /* lies in `to`, of from's dtype and shape; NULL: the provider makes one */
};

/* Moves tensors from one endpoint to another.  Lives as long as the registries that hold it. */
struct transfer_provider {
    const char *name;
    /* Begin: *ret (returns) is request->into, or a tensor made in request->to, and *ret_queue the memory in whose queue
     * the move stands.  Does not wait.  STATUS_NOMEM, STATUS_ENVIRONMENT. */
    enum status (*move)(const struct transfer_provider *provider, const struct transfer_request *request,
                        struct tensor **ret, struct memory **ret_queue, struct error *err);
    void *context;
};

/* One copy in the queue of the end that is no memory of the host. */
extern const struct transfer_provider transfer_by_copy;

struct transfers; /* the registry */

/* STATUS_NOMEM. */
enum status transfers_create(struct transfers **ret, struct error *err);
void transfers_destroy(struct transfers *transfers);

/* STATUS_INVALID: frozen, or the pair has a provider already.  STATUS_NOMEM. */
enum status transfers_add(struct transfers *transfers, struct endpoint from, struct endpoint to,
                          const struct transfer_provider *provider, struct error *err);

/* From now on it can be asked, by any thread, and not be changed. */
void transfers_freeze(struct transfers *transfers);

/* The provider of exactly this pair.  STATUS_INVALID: not frozen.  STATUS_UNSUPPORTED names both ends, and what ways
 * there are. */
enum status transfers_find(const struct transfers *transfers, struct endpoint from, struct endpoint to,
                           const struct transfer_provider **ret, struct error *err);

/* The ways of one device, frozen: between it and the process's own memory, and between it and its pinned memory (NULL:
 * it has none), each by one copy. */
enum status transfers_of_device(struct memory *device, struct memory *pinned, struct transfers **ret,
                                struct error *err);

/* One tensor under way; both sides are retained until it has been moved. */
struct transfer;

/* Look the provider up and begin (returns).  Nothing waits.  The caller must not write `from` before it is done.
 * STATUS_UNSUPPORTED (no such way), STATUS_INVALID (from's shape and bytes contradict each other; into is not what the
 * request says), STATUS_INTERNAL (the provider returned another element count, dtype, shape or length, a tensor that
 * lies elsewhere, or the source's memory under the destination's name), the provider's own. */
enum status transfer_begin(const struct transfers *transfers, const struct transfer_request *request,
                           struct transfer **ret, struct error *err);

/* Has it been moved?  STATUS_ENVIRONMENT: the device failed, in its own words. */
enum status transfer_test(struct transfer *transfer, bool *ret, struct error *err);

/* The mark behind which it has been moved, and its queue, for another queue that follows it (base/memory.h); lends
 * until the next transfer_test or transfer_release.  NULL: nothing of it is queued any more. */
const struct memory_mark *transfer_mark(const struct transfer *transfer, const struct memory **ret_queue);

/* Lend the moved tensor until transfer_release.  STATUS_INVALID: it has not been moved, or was never seen to be. */
enum status transfer_result(const struct transfer *transfer, struct tensor **ret, struct error *err);

/* Let go of both sides.  One that is still under way is waited for, a second at most: if it is not over then, both
 * sides keep their memory to the end of the process.  NULL is allowed. */
void transfer_release(struct transfer *transfer);

#endif
