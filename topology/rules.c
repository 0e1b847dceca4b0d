/* Each rule looks at values that are well formed and says what contradicts what, with both places.  A value that was
 * refused before is recognised (0, NULL, UINT32_MAX) and passed over, so that one mistake gives one message. */
#include "topology/rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "topology/keys.h"
#include "topology/reader.h"
#include "topology/source.h"

/* " (line 7)" for a message that names a second place; lent until the text is done. */
static const char *place(const struct topology *topology, struct topology_position at, struct text *text)
{
    text_clear(text);
    source_describe(topology->source, at, text);
    return text_string(text);
}

/* ------------------------------------------------------------------------------------------------------- world */

static void check_world(struct topology *topology)
{
    const struct topology_number *axis = topology->mesh.axis;
    uint64_t world = reader_world(topology);
    struct topology_position at = topology->mesh.at.line ? topology->mesh.at : topology->world.at;
    struct text text = {0};

    if (!at.line)
        source_error(topology->source, (struct topology_position){0, 1, 1},
                     "the number of ranks is missing: give `mesh` or `world`");
    else if (world > TOPOLOGY_MAX_RANKS)
        source_error(topology->source, at,
                     "mesh: data %" PRIu64 " x pipeline %" PRIu64 " x tensor %" PRIu64 " x expert %" PRIu64
                     " is more than the limit of %d ranks",
                     axis[TOPOLOGY_DATA].value, axis[TOPOLOGY_PIPELINE].value, axis[TOPOLOGY_TENSOR].value,
                     axis[TOPOLOGY_EXPERT].value, TOPOLOGY_MAX_RANKS);
    else if (topology->mesh.at.line && topology->world.value && world && topology->world.value != world)
        source_error(topology->source, topology->world.at,
                     "world: %" PRIu64 " is not the product of the mesh (%s), %" PRIu64, topology->world.value,
                     place(topology, topology->mesh.at, &text), world);
    else
        topology->world_size = (uint32_t)world;
    text_done(&text);
}

/* ------------------------------------------------------------------------------------------------------- names */

static int compare_names(const void *a, const void *b)
{
    const struct topology_string *left = *(const struct topology_string *const *)a;
    const struct topology_string *right = *(const struct topology_string *const *)b;
    int order = strcmp(left->value, right->value);

    if (order)
        return order;
    if (left->at.line != right->at.line)
        return left->at.line < right->at.line ? -1 : 1;
    return left->at.column < right->at.column ? -1 : left->at.column > right->at.column;
}

/* The names of a list whose items are stride bytes apart must differ: sorted, equal ones are neighbours. */
static enum status check_names(struct topology *topology, const char *what, const struct topology_string *first,
                               size_t count, size_t stride)
{
    const struct topology_string **name = calloc(count ? count : 1, sizeof(const struct topology_string *));
    struct text text = {0};
    size_t used = 0;

    if (!name)
        return STATUS_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct topology_string *one = (const void *)((const char *)first + i * stride);

        if (one->value)
            name[used++] = one;
    }
    qsort(name, used, sizeof *name, compare_names);
    for (size_t i = 1; i < used; i++) {
        if (!strcmp(name[i]->value, name[i - 1]->value))
            source_error(topology->source, name[i]->at, "two %s are named `%s`: the first on %s", what, name[i]->value,
                         place(topology, name[i - 1]->at, &text));
    }
    text_done(&text);
    free(name);
    return STATUS_OK;
}

/* The groups with a name, sorted by it; lent by the arena. */
struct group_index {
    const struct topology_group **group;
    size_t count;
};

static int compare_groups(const void *a, const void *b)
{
    const struct topology_group *left = *(const struct topology_group *const *)a;
    const struct topology_group *right = *(const struct topology_group *const *)b;

    return strcmp(left->name.value, right->name.value);
}

static enum status index_groups(struct topology *topology, struct group_index *ret)
{
    size_t count = topology->groups.count;

    ret->group = arena_take(&topology->source->arena, count, sizeof(const struct topology_group *));
    ret->count = 0;
    if (count && !ret->group)
        return STATUS_NOMEM;
    for (size_t i = 0; i < count; i++) {
        if (topology->groups.item[i].name.value)
            ret->group[ret->count++] = &topology->groups.item[i];
    }
    if (ret->count)
        qsort(ret->group, ret->count, sizeof(const struct topology_group *), compare_groups);
    return STATUS_OK;
}

static const struct topology_group *find_group(const struct group_index *index, char *name)
{
    const struct topology_group key = {.name = {.value = name}};
    const struct topology_group *const wanted = &key;
    const struct topology_group *const *found =
        index->count ? bsearch(&wanted, index->group, index->count, sizeof wanted, compare_groups) : NULL;

    return found ? *found : NULL;
}

/* ------------------------------------------------------------------------------------------------------ groups */

/* seen[rank] is 1 + the index of the last group that has it, first[rank] the place there. */
static void check_members(struct topology *topology, size_t index, uint32_t *seen, struct topology_position *first)
{
    const struct topology_group *group = &topology->groups.item[index];
    const char *name = group->name.value ? group->name.value : "?";
    struct text text = {0};

    for (size_t i = 0; i < group->members.count; i++) {
        const struct topology_rank *member = &group->members.item[i];

        if (member->value >= TOPOLOGY_MAX_RANKS)
            continue;
        if (seen[member->value] != index + 1)
            first[member->value] = member->at;
        else
            source_error(topology->source, member->at, "group `%s`: rank %u is a member twice, first on %s column %u",
                         name, member->value, place(topology, first[member->value], &text),
                         first[member->value].column);
        seen[member->value] = (uint32_t)index + 1;
    }
    text_done(&text);
}

static enum status check_groups(struct topology *topology)
{
    uint32_t *seen = calloc(TOPOLOGY_MAX_RANKS, sizeof *seen);
    struct topology_position *first = calloc(TOPOLOGY_MAX_RANKS, sizeof *first);
    enum status st = seen && first ? STATUS_OK : STATUS_NOMEM;

    for (size_t i = 0; st == STATUS_OK && i < topology->groups.count; i++)
        check_members(topology, i, seen, first);
    free(seen);
    free(first);
    if (st == STATUS_OK && topology->groups.count)
        st = check_names(topology, "groups", &topology->groups.item[0].name, topology->groups.count,
                         sizeof *topology->groups.item);
    return st;
}

/* ----------------------------------------------------------------------------------------------------- bundles */

static void resolve_dim(struct topology *topology, const struct topology_extents *extents, struct topology_dim *dim)
{
    const char **name;
    const char *nearest;

    if (!dim->name.value)
        return;
    for (size_t i = 0; i < extents->count; i++) {
        if (extents->item[i].name.value && !strcmp(extents->item[i].name.value, dim->name.value)) {
            dim->extent = (int)i;
            dim->low = extents->item[i].low;
            dim->high = extents->item[i].high;
            return;
        }
    }
    name =
        source_has_room(topology->source) ? arena_take(&topology->source->arena, extents->count, sizeof *name) : NULL;
    for (size_t i = 0; name && i < extents->count; i++)
        name[i] = extents->item[i].name.value;
    nearest = name ? topology_nearest(dim->name.value, name, extents->count) : NULL;
    source_error(topology->source, dim->at, "shape: no extent is named `%s`%s%s%s", dim->name.value,
                 nearest ? "; did you mean `" : "", nearest ? nearest : "", nearest ? "`?" : "");
}

static void check_bundle(struct topology *topology, const struct topology_extents *extents,
                         const struct topology_bundle *bundle)
{
    for (size_t i = 0; i < bundle->count; i++) {
        const struct topology_tensor *tensor = &bundle->item[i];
        size_t bytes = dtype_bytes((enum dtype)tensor->dtype.value);
        bool fits = true;

        for (size_t dim = 0; dim < tensor->shape.count; dim++) {
            resolve_dim(topology, extents, &tensor->shape.item[dim]);
            fits = fits && size_mul(bytes, tensor->shape.item[dim].high, &bytes) == STATUS_OK;
        }
        if (!fits)
            source_error(topology->source, tensor->shape.at, "shape: its bytes do not fit 64 bits");
        for (size_t other = 0; tensor->role.value && other < i; other++) {
            if (bundle->item[other].role.value && !strcmp(bundle->item[other].role.value, tensor->role.value))
                source_error(topology->source, tensor->role.at, "role `%s` is in the bundle twice", tensor->role.value);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------ routes */

static void suggest_group(const struct topology *topology, const char *name, struct text *text)
{
    for (size_t i = 0; source_has_room(topology->source) && i < topology->groups.count; i++) {
        const char *const other = topology->groups.item[i].name.value;

        if (other && topology_nearest(name, &other, 1)) {
            text_add(text, "; did you mean `%s`?", other);
            return;
        }
    }
}

/* The world rank of an end, UINT32_MAX when it is wrong. */
static void resolve_end(struct topology *topology, const struct group_index *index, const char *route,
                        struct topology_end *end)
{
    const struct topology_group *group;
    struct text text = {0};

    if (!end->group.at.line)
        return;
    end->world_rank = UINT32_MAX;
    group = end->group.value ? find_group(index, end->group.value) : NULL;
    if (group && end->member.value < group->members.count) {
        end->world_rank = group->members.item[end->member.value].value;
    } else if (group && group->members.count) {
        source_error(topology->source, end->member.at, "route `%s`: group `%s` (%s) has members 0..%zu, not %" PRIu64,
                     route, end->group.value, place(topology, group->at, &text), group->members.count - 1,
                     end->member.value);
    } else if (!group && end->group.value) {
        suggest_group(topology, end->group.value, &text);
        source_error(topology->source, end->group.at, "route `%s`: no group is named `%s`%s", route, end->group.value,
                     text_string(&text));
    }
    text_done(&text);
}

static enum status check_routes(struct topology *topology)
{
    struct group_index index;

    if (index_groups(topology, &index) != STATUS_OK)
        return STATUS_NOMEM;
    for (size_t i = 0; i < topology->routes.count; i++) {
        struct topology_route *route = &topology->routes.item[i];
        const char *name = route->name.value ? route->name.value : "?";

        resolve_end(topology, &index, name, &route->from);
        resolve_end(topology, &index, name, &route->to);
        if (route->from.at.line && route->to.at.line && route->from.world_rank != UINT32_MAX &&
            route->from.world_rank == route->to.world_rank)
            source_error(topology->source, route->to.at, "route `%s`: both ends are rank %u", name,
                         route->to.world_rank);
        check_bundle(topology, &route->extents, &route->bundle);
    }
    if (topology->groups.count + topology->routes.count > TOPOLOGY_MAX_GROUPS_AND_ROUTES)
        source_error(topology->source, topology->routes.at, "%zu groups and %zu routes are more than the limit of %d",
                     topology->groups.count, topology->routes.count, TOPOLOGY_MAX_GROUPS_AND_ROUTES);
    if (!topology->routes.count)
        return STATUS_OK;
    return check_names(topology, "routes", &topology->routes.item[0].name, topology->routes.count,
                       sizeof *topology->routes.item);
}

/* ------------------------------------------------------------------------------------------------------ launch */

static uint64_t check_slots(struct topology *topology)
{
    const struct topology_number *per_node = &topology->placement.ranks_per_node;
    uint64_t total = 0;
    struct text text = {0};

    for (size_t i = 0; i < topology->launch.hosts.count; i++) {
        const struct topology_host *host = &topology->launch.hosts.item[i];
        const char *name = host->name.value ? host->name.value : "?";

        if (host->slots.value && per_node->value && host->slots.value != per_node->value)
            source_error(topology->source, host->slots.at,
                         "launch.hosts: `%s` has %" PRIu64 " slots, and placement.ranks_per_node is %" PRIu64 " (%s)",
                         name, host->slots.value, per_node->value, place(topology, per_node->at, &text));
        if (!host->slots.value && !host->slots.at.line && !per_node->at.line)
            source_error(topology->source, host->at,
                         "launch.hosts: `%s` has no slots, and placement.ranks_per_node is absent", name);
        total += host->slots.value ? host->slots.value : per_node->value;
    }
    text_done(&text);
    return total;
}

static void check_nodes(struct topology *topology)
{
    const struct topology_number *nodes = &topology->launch.slurm.nodes;
    const struct topology_number *per_node = &topology->placement.ranks_per_node;
    uint64_t world = topology->world_size;
    struct text text = {0};

    if (nodes->value && topology->launch.hosts.count && nodes->value != topology->launch.hosts.count)
        source_error(topology->source, nodes->at,
                     "launch.slurm.nodes: %" PRIu64 " nodes, and launch.hosts (%s) has %zu hosts", nodes->value,
                     place(topology, topology->launch.hosts.at, &text), topology->launch.hosts.count);
    if (nodes->value && per_node->value && world && nodes->value != (world + per_node->value - 1) / per_node->value)
        source_error(topology->source, nodes->at,
                     "launch.slurm.nodes: %" PRIu64 " nodes with %" PRIu64
                     " ranks each (%s) do not fit a world of %" PRIu64 ": %" PRIu64 " nodes are needed",
                     nodes->value, per_node->value, place(topology, per_node->at, &text), world,
                     (world + per_node->value - 1) / per_node->value);
    text_done(&text);
}

static enum status check_launch(struct topology *topology)
{
    const struct topology_hosts *hosts = &topology->launch.hosts;
    uint64_t slots = check_slots(topology);
    struct topology_position at = topology->mesh.at.line ? topology->mesh.at : topology->world.at;
    struct text text = {0};

    check_nodes(topology);
    if (hosts->count && slots && slots < topology->world_size)
        source_error(topology->source, hosts->at,
                     "launch.hosts: %" PRIu64 " slots are too few for the world of %u ranks (%s)", slots,
                     topology->world_size, place(topology, at, &text));
    text_done(&text);
    if (!hosts->count)
        return STATUS_OK;
    return check_names(topology, "hosts", &hosts->item[0].name, hosts->count, sizeof *hosts->item);
}

/* ---------------------------------------------------------------------------------------------------- workload */

static void check_prompt(struct topology *topology, const struct topology_prompt *prompt, size_t index)
{
    if (prompt->messages.at.line && prompt->tokens.at.line)
        source_error(topology->source, prompt->tokens.at, "prompts[%zu]: messages or tokens, not both", index);
    if (!prompt->messages.at.line && !prompt->tokens.at.line && !prompt->text.at.line && prompt->at.line)
        source_error(topology->source, prompt->at,
                     "workload.generate.prompts[%zu]: expected a text, {messages: [..]} or {tokens: [..]}", index);
}

/* prompts and prompts_file are one choice: an override of one takes the place of the other in the file, and of an
 * earlier override.  Only two of the same source contradict each other. */
static void choose_prompts(struct topology_generate *generate)
{
    if (!generate->prompts.at.line || !generate->prompts_file.at.line)
        return;
    if (generate->prompts_file.at.source > generate->prompts.at.source)
        generate->prompts = (struct topology_prompts){0};
    else if (generate->prompts.at.source > generate->prompts_file.at.source)
        generate->prompts_file = (struct topology_string){0};
}

/* Nothing expands them here, and a folder called ~ is no one's wish. */
static void check_path(struct topology *topology, const char *key, const struct topology_string *path)
{
    if (path->value && (path->value[0] == '~' || path->value[0] == '$'))
        source_error(topology->source, path->at,
                     "%s: ~ and variables are not expanded: write the path out, or ./%c... for a file by that name",
                     key, path->value[0]);
}

static void check_generate(struct topology *topology)
{
    const struct topology_generate *generate = &topology->workload.generate;
    const struct topology_number *stages = &topology->mesh.axis[TOPOLOGY_PIPELINE];
    const struct topology_number *tensor = &topology->mesh.axis[TOPOLOGY_TENSOR];
    const struct topology_number *pieces = &topology->compute.pieces;
    struct text text = {0};

    if (generate->layers.count && stages->value && generate->layers.count != stages->value)
        source_error(topology->source, generate->layers.at,
                     "workload.generate.layers: %zu entries for a pipeline of %" PRIu64 " stages (%s)",
                     generate->layers.count, stages->value,
                     place(topology, stages->at.line ? stages->at : generate->layers.at, &text));
    if (pieces->value && tensor->value && pieces->value < tensor->value)
        source_error(topology->source, pieces->at,
                     "compute.pieces: %" PRIu64 " pieces are fewer than the tensor size %" PRIu64 " (%s)",
                     pieces->value, tensor->value, place(topology, tensor->at, &text));
    if (generate->prompts.at.line && generate->prompts_file.at.line)
        source_error(topology->source, generate->prompts_file.at,
                     "workload.generate: prompts (%s) or prompts_file, not both",
                     place(topology, generate->prompts.at, &text));
    for (size_t i = 0; i < generate->prompts.count; i++)
        check_prompt(topology, &generate->prompts.item[i], i);
    text_done(&text);
}

static void check_workload(struct topology *topology)
{
    struct topology_position generate = topology->workload.generate.at;
    struct topology_position train = topology->workload.train.at;
    struct text text = {0};

    if (topology->workload.at.line && !generate.line && !train.line)
        source_error(topology->source, topology->workload.at, "workload: expected `generate` or `train`");
    if (generate.line && train.line)
        source_error(topology->source, train, "workload: generate (%s) or train, not both",
                     place(topology, generate, &text));
    if (topology->workload.at.line && topology->boundary.at.line)
        source_error(topology->source, topology->boundary.at,
                     "boundary: the workload (%s) decides what forward routes carry",
                     place(topology, topology->workload.at, &text));
    text_done(&text);
}

enum status rules_check(struct topology *topology)
{
    enum status st;

    check_world(topology);
    st = topology->groups.count ? check_groups(topology) : STATUS_OK;
    if (st == STATUS_OK)
        st = check_routes(topology);
    if (st != STATUS_OK)
        return st;
    check_bundle(topology, &topology->boundary.extents, &topology->boundary.bundle);
    check_workload(topology);
    choose_prompts(&topology->workload.generate);
    check_generate(topology);
    check_path(topology, "run_dir", &topology->run_dir);
    check_path(topology, "workload.generate.model", &topology->workload.generate.model);
    check_path(topology, "workload.generate.prompts_file", &topology->workload.generate.prompts_file);
    return check_launch(topology);
}
