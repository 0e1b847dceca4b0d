/* Asked before anything is started, by whoever starts a job. */
#include "runtime/wishes.h"

#include <stdlib.h>

#include "base/clock.h"
#include "comm/session.h"
#include "topology/topology.h"

enum status wishes_check(const struct topology *t, struct error *err)
{
    if (t->communication.transport.value == TOPOLOGY_LOOPBACK)
        return error_set(err, STATUS_UNSUPPORTED,
                         "communication.transport: loopback is for tests, between threads; mpi and nccl can run here");
    if (t->compute.backend.value == TOPOLOGY_CUDA)
        return error_set(err, STATUS_UNSUPPORTED, "compute.backend: cuda is not built; cpu is");
    for (size_t i = 0; i < t->launch.require_env.count; i++)
        if (!getenv(t->launch.require_env.item[i].value))
            return error_set(err, STATUS_ENVIRONMENT, "launch.require_env: the variable %s is not set",
                             t->launch.require_env.item[i].value);
    return STATUS_OK;
}

enum status wishes_check_program(const struct topology *t, struct error *err)
{
    enum status st = wishes_check(t, err);

    if (st != STATUS_OK)
        return st;
    if (t->communication.transport.value == TOPOLOGY_NCCL)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "communication.transport: nccl moves tensors in device memory, a program's lie in host memory; mpi moves "
            "them: open the file with the override communication.transport=mpi, or have auto in it");
    if (t->communication.memory.value == TOPOLOGY_MEMORY_DEVICE)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "communication.memory: device: a program's tensors lie in host memory; set it to host or auto");
    if (t->communication.reduction.value == TOPOLOGY_REDUCTION_NATIVE)
        return error_set(err, STATUS_UNSUPPORTED,
                         "communication.reduction: native sums are nccl's, a program's groups run over mpi: open the "
                         "file with the override communication.reduction=ordered, or have auto in it");
    return STATUS_OK;
}

void wishes_session(const struct topology *topology, struct session_options *ret)
{
    static const enum reduction reductions[] = {[TOPOLOGY_REDUCTION_AUTO] = REDUCTION_AUTO,
                                                [TOPOLOGY_REDUCTION_ORDERED] = REDUCTION_ORDERED,
                                                [TOPOLOGY_REDUCTION_NATIVE] = REDUCTION_NATIVE};

    ret->timeout_ns = topology ? topology->communication.timeout_ns.value : 30 * NS_PER_S;
    ret->startup_timeout_ns = topology ? topology->communication.startup_timeout_ns.value : 600 * NS_PER_S;
    ret->checks = topology ? (enum checks)topology->communication.checks.value : CHECKS_FULL;
    ret->on_timeout = topology ? (enum on_timeout)topology->communication.on_timeout.value : ON_TIMEOUT_ABORT;
    ret->reduction = topology ? reductions[topology->communication.reduction.value] : REDUCTION_AUTO;
    ret->payload_integrity = topology && topology->communication.integrity.value == TOPOLOGY_INTEGRITY_PAYLOAD;
}
