/* Which node a rank stands on: ranks fill the nodes' slots in the order that placement.order says. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/size.h"
#include "runtime/plan_private.h"

enum status plan_places(struct plan *plan, struct error *err)
{
    const struct topology_hosts *hosts = &plan->topology->launch.hosts;
    uint64_t each = plan->topology->placement.ranks_per_node.value;
    uint64_t *start;

    if (!hosts->count)
        return STATUS_OK;
    start = calloc(hosts->count + 1, sizeof *start);
    if (!start)
        return error_set(err, STATUS_NOMEM, "the slots of %zu hosts", hosts->count);
    for (size_t i = 0; i < hosts->count; i++) {
        uint64_t slots = hosts->item[i].slots.value ? hosts->item[i].slots.value : each;

        if (!slots) {
            free(start);
            return STATUS_OK;
        }
        if (size_add(start[i], slots, &start[i + 1]) != STATUS_OK)
            start[i + 1] = UINT64_MAX;
    }
    plan->store->host_start = start;
    return STATUS_OK;
}

int plan_slot(const struct plan *plan, int rank)
{
    struct coordinates at;
    int slot = 0;

    if (!plan->topology->mesh.at.line)
        return rank;
    at = mesh_coordinates(&plan->mesh, rank);
    for (int i = AXIS_COUNT - 1; i >= 0; i--) {
        enum topology_axis axis = plan->topology->placement.order.axis[i];

        slot = slot * plan->mesh.size[axis] + at.at[axis];
    }
    return slot;
}

int plan_node(const struct plan *plan, int rank)
{
    const uint64_t *start = plan->store->host_start;
    uint64_t each = plan->topology->placement.ranks_per_node.value;
    uint64_t slot = (uint64_t)plan_slot(plan, rank);
    size_t low = 0;
    size_t high = plan->topology->launch.hosts.count;

    if (!start)
        return each && !high ? (int)(slot / each) : -1;
    if (slot >= start[high])
        return -1;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (slot < start[middle])
            high = middle;
        else
            low = middle;
    }
    return (int)low;
}

void plan_add_node(struct text *out, const struct plan *plan, int rank)
{
    int node = plan_node(plan, rank);

    if (node >= 0 && plan->store->host_start)
        text_add(out, "%s", plan->topology->launch.hosts.item[node].name.value);
    else if (node >= 0)
        text_add(out, "node %d", node);
}
