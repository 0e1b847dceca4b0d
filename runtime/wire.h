/* The transport of a run: MPI first, and NCCL over it where the topology wants it and every rank can.  Where tensors
 * are to lie in devices' memory and NCCL cannot be used, MPI moves them through pinned memory of the host.
 *
 * MPI is opened whatever the topology says, and carries the choice: no rank opens NCCL before all have agreed to, so
 * that a rank without a GPU strands nobody.  What this rank lacks is a problem for the consensus, not a failure. */
#ifndef RUNTIME_WIRE_H
#define RUNTIME_WIRE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/device.h"
#include "comm/transport.h"

struct session_options;
struct topology;

struct wire {
    const struct transport_ops *ops; /* of the transport in use */
    struct transport *transport;     /* until a session takes it */
    const struct device_ops *devices;
    struct device *device; /* that this rank works on; NULL: host memory alone */
    struct memory *shared; /* that the ranks of this host can read (base/memory_shared.h); NULL: none */
    bool lends_all;        /* all of them read there, and not those alone that do so quickly */
    char plugin[PATH_MAX]; /* the file that the transport comes from */
    char about[512];       /* how it describes itself */
    char why[2304];        /* why this one and no other: "asked for", "every rank has a GPU of its own" */
    enum status problem;   /* of this rank, for the consensus; its sentence: */
    struct error complaint;
};

/* Open MPI's plugin and MPI.  Collective, blocks.  STATUS_ENVIRONMENT, and those of the transport's open. */
enum status wire_start(struct wire *wire, const struct transport_options *options, struct error *err);

/* Choose for all ranks, and open what was chosen.  topology NULL: it could not be read here, or this rank will not run.
 * Collective over the world, before a session takes the transport; blocks, at most startup_timeout_ns for each part.
 * What a rank lacks, or what NCCL's opening complains of, is left in wire->problem, and the transport is fit for the
 * consensus; what is returned leaves none that is: STATUS_TIMEOUT (the ranks that did not come), STATUS_MISMATCH,
 * STATUS_NOMEM, the transport's. */
enum status wire_choose(struct wire *wire, const struct topology *topology, const struct transport_options *options,
                        struct error *err);

/* What one rank by itself would take here. */
struct wire_preview {
    enum status status; /* STATUS_ENVIRONMENT: why says what is missing */
    const char *transport;
    const char *memory; /* as wire_memory */
    char device[24];    /* "cuda:0"; "": none */
    char why[2048];
};

/* With transport: auto, and memory: device or auto.  Local: opens the plugins for GPUs, but neither MPI nor a device.
 */
void wire_preview(bool device_memory, struct wire_preview *ret);

/* Where tensors lie, in words: "host memory", "host memory, read in place by ranks of the host", "device memory",
 * "device memory, staged through pinned host memory". */
const char *wire_memory(const struct wire *wire);

/* Tell a session of the memories. */
void wire_session(const struct wire *wire, struct session_options *ret);

/* Where host tensors lie best that groups are given: they go with one copy to ranks of this host that read quickly.
 * NULL: the process's own memory.  Lends until wire_end. */
struct memory *wire_shared(const struct wire *wire);

/* After the session's close, and when no tensor is left in the device's memory. */
void wire_end(struct wire *wire);

#endif
