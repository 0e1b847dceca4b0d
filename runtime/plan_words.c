/* The words that the views share. */
#include <inttypes.h>

#include "runtime/plan_private.h"

enum { MAX_RUNS = 6 };

void plan_add_ranks(struct text *out, const int *ranks, size_t count)
{
    size_t runs = 0;

    for (size_t i = 0; i < count;) {
        size_t end = i + 1;

        while (end < count && ranks[end] == ranks[end - 1] + 1)
            end++;
        if (runs++ == MAX_RUNS) {
            text_add(out, ", ... (%zu in all)", count);
            return;
        }
        if (i)
            text_add(out, ", ");
        if (end - i > 2)
            text_add(out, "%d..%d", ranks[i], ranks[end - 1]);
        else
            text_add(out, end - i == 2 ? "%d, %d" : "%d", ranks[i], ranks[end - 1]);
        i = end;
    }
}

void plan_add_tensor(struct text *out, const struct route_spec *route, const struct tensor_spec *tensor)
{
    text_add(out, "%s[", dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->ndim; i++) {
        const struct dim_spec *dim = &tensor->dim[i];

        if (i)
            text_add(out, ",");
        if (dim->extent >= 0)
            text_add(out, "%s ", route->extents[dim->extent].name);
        if (dim->low == dim->high)
            text_add(out, "%" PRIu64, dim->low);
        else
            text_add(out, "%" PRIu64 "..%" PRIu64, dim->low, dim->high);
    }
    text_add(out, "]");
}

const char *plan_transport_name(const struct plan *plan)
{
    static const char *const words[] = {"auto", "mpi", "nccl", "loopback"};

    return words[plan->topology->communication.transport.value];
}

const char *plan_memory_words(const struct plan *plan)
{
    enum topology_transport transport = (enum topology_transport)plan->topology->communication.transport.value;

    switch ((enum topology_memory)plan->topology->communication.memory.value) {
    case TOPOLOGY_MEMORY_HOST:
        return "host memory";
    case TOPOLOGY_MEMORY_DEVICE:
        return transport == TOPOLOGY_NCCL  ? "device memory"
               : transport == TOPOLOGY_MPI ? "device memory, staged through pinned host memory"
                                           : "device memory, staged through pinned host memory where mpi moves them";
    case TOPOLOGY_MEMORY_AUTO:
        break;
    }
    return transport == TOPOLOGY_NCCL             ? "device memory"
           : transport == TOPOLOGY_TRANSPORT_AUTO ? "device memory where nccl moves them, else host memory"
                                                  : "host memory";
}

const char *plan_reduction_name(const struct plan *plan)
{
    static const char *const words[] = {"auto", "ordered", "native"};

    return words[plan->topology->communication.reduction.value];
}
