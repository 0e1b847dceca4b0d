/* A double for a device's memory, where there is no device: whoever touches it, and whoever forgets a mark, is caught.
 *
 * Its addresses can be neither read nor written by anybody (a touch ends the process); the bytes lie elsewhere, and
 * only the thread that runs its queue knows where.  The queue runs late on purpose: a caller that reads what it asked
 * for without waiting for a mark finds old bytes, and one that gives back or changes what is still queued spoils it. An
 * operation outside its block, on a block that was released, or with sides that overlap ends the process by name. */
#ifndef TESTS_LOOP_LATE_MEMORY_H
#define TESTS_LOOP_LATE_MEMORY_H

#include "base/memory.h"
#include "base/tensor.h"
#include "comm/device.h"

/* "late:0" (returns).  late_us: the longest that an operation is held back. */
struct memory *late_memory_create(int number, unsigned late_us);
/* Everything queued happens first; every block was released (CHECK).  NULL is allowed. */
void late_memory_destroy(struct memory *memory);

/* Hold the queue, and let it run again. */
void late_memory_hold(struct memory *memory, bool hold);
/* From now on nothing that is queued happens, and every mark that is asked for is lost. */
void late_memory_break(struct memory *memory);
/* From now on nothing is allocated. */
void late_memory_fill(struct memory *memory);
/* Has everything that was queued happened? */
bool late_memory_idle(struct memory *memory);
/* Blocks that have been allocated and not been released (what is queued counts as done). */
int late_memory_blocks(struct memory *memory);

/* Of a device whose executors share the one queue of its memory: fork and join alone. */
extern const struct device_ops late_device_ops;

/* The whole capacity of a tensor, to and from the host, wherever it lies: waits for the queue. */
void tensor_put(struct tensor *tensor, const void *bytes);
void tensor_get(struct tensor *tensor, void *bytes);

#endif
