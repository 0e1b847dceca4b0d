/* A device of each rank as a stage of work: an executor on it, the ways to it, tensors, something to add. */
#ifndef TESTS_CUDA_STAGE_H
#define TESTS_CUDA_STAGE_H

#include "comm/executor.h"
#include "tests/cuda/opened.h"
#include "tests/loop/ranks.h"

enum { COUNT = 1000, MOST_RANKS = 4 };

/* Of one rank. */
struct stage {
    const struct device_ops *devices;
    struct device *device;
    struct transfers *transfers;
    struct executor *executor;
};

/* The device with the rank's number.  It stays open until the session has joined its executors: stage_run closes it. */
enum status stage_open(struct rank *self, struct stage *stage, uint32_t capacity);
void stage_close(struct stage *stage);

/* One more device, which is nobody's; stage_run closes it. */
enum status stage_open_other(struct stage *stage, int index, struct device **ret, struct error *err);

/* Run the ranks, then close their devices. */
void stage_run(struct ranks *ranks);

struct tensor *tensor_in(struct memory *memory, uint64_t count);

/* COUNT numbers of the host: first, first + 1, ... */
struct tensor *counting(uint32_t first);

/* Is element k of the host's tensor first + k * step? */
bool counts(const struct tensor *tensor, uint32_t first, uint32_t step);

/* sum += term, times times, then return result. */
struct addition {
    struct tensor *sum;
    struct tensor *term;
    int times;
    enum status result;
};

/* A device's work; context: an addition. */
enum status add(void *context, struct memory *memory, struct error *err);

/* From one memory into the other; waits for it. */
enum status move(struct stage *stage, struct tensor *from, struct tensor *into, struct error *err);

/* A case of the suite on a machine that prepare describes. */
TCase *stage_machine(Suite *suite, const char *name, void (*prepare)(void));

#endif
