/* Asked before anything is started, by whoever starts a job. */
#include "runtime/wishes.h"

#include <stdlib.h>

#include "base/clock.h"
#include "comm/session.h"
#include "topology/topology.h"

enum status wishes_check(const struct topology *t, struct error *err)
{
    if (t->communication.transport.value != TOPOLOGY_TRANSPORT_AUTO && t->communication.transport.value != TOPOLOGY_MPI)
        return error_set(err, STATUS_UNSUPPORTED, "communication.transport: only mpi can run here");
    if (t->compute.backend.value == TOPOLOGY_CUDA)
        return error_set(err, STATUS_UNSUPPORTED, "compute.backend: cuda is not built; cpu is");
    if (t->communication.reduction.value == TOPOLOGY_REDUCTION_NATIVE)
        return error_set(err, STATUS_UNSUPPORTED,
                         "communication.reduction: native sums are not built; ordered ones are");
    for (size_t i = 0; i < t->launch.require_env.count; i++)
        if (!getenv(t->launch.require_env.item[i].value))
            return error_set(err, STATUS_ENVIRONMENT, "launch.require_env: the variable %s is not set",
                             t->launch.require_env.item[i].value);
    return STATUS_OK;
}

void wishes_session(const struct topology *topology, struct session_options *ret)
{
    ret->timeout_ns = topology ? topology->communication.timeout_ns.value : 30 * NS_PER_S;
    ret->startup_timeout_ns = topology ? topology->communication.startup_timeout_ns.value : 600 * NS_PER_S;
    ret->checks = topology ? (enum checks)topology->communication.checks.value : CHECKS_FULL;
    ret->on_timeout = topology ? (enum on_timeout)topology->communication.on_timeout.value : ON_TIMEOUT_ABORT;
    ret->payload_integrity = topology && topology->communication.integrity.value == TOPOLOGY_INTEGRITY_PAYLOAD;
}
