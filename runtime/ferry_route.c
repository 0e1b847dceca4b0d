/* libferry's routes: comm's, each receipt with a completion that can ask the program for shapes. */
#include <inttypes.h>

#include "runtime/ferry_private.h"

_Static_assert(FERRY_ANY_STEP == EPOCH_ANY, "any step is any epoch");

const char *ferry_route_name(const struct ferry_route *route)
{
    return route ? route_spec(route->route)->name : "";
}

int ferry_route_from(const struct ferry_route *route)
{
    return route ? route_spec(route->route)->from : -1;
}

int ferry_route_to(const struct ferry_route *route)
{
    return route ? route_spec(route->route)->to : -1;
}

int ferry_route_tensors(const struct ferry_route *route)
{
    return route ? route_spec(route->route)->tensor_count : 0;
}

struct ferry_tensor *ferry_bundle_tensor(struct ferry_bundle *bundle, int index)
{
    struct bundle *own = (struct bundle *)bundle;

    return own && index >= 0 && index < own->count ? (struct ferry_tensor *)own->tensor[index] : NULL;
}

enum ferry_status ferry_acquire(struct ferry_route *route, struct ferry_bundle **ret, struct ferry_error *error)
{
    struct error err = {0};
    enum status st;
    enum ferry_status given = GIVEN(error, NAMED(route), NAMED(ret));

    if (given == FERRY_OK)
        given = ferry_here(route->session, error);
    if (given != FERRY_OK)
        return given;
    st = route_acquire(route->route, (struct bundle **)ret, &err);
    return ferry_result(route->session, st, &err, error);
}

enum ferry_status ferry_send(struct ferry_route *route, struct ferry_bundle *bundle, uint64_t step,
                             struct ferry_completion **ret, struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(route), NAMED(bundle), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (!posting_begin(&p, route->session))
        return posting_end(&p, ret, error);
    if (step == FERRY_ANY_STEP)
        p.status =
            error_set(&p.err, STATUS_INVALID, "route %s: FERRY_ANY_STEP is for receivers: a sender says its step",
                      route_spec(route->route)->name);
    else if (step < route->step)
        p.status =
            error_set(&p.err, STATUS_INVALID, "route %s: step %" PRIu64 " after step %" PRIu64 ": steps do not fall",
                      route_spec(route->route)->name, step, route->step);
    else
        p.status = route_send(route->route, (struct bundle *)bundle, step, &p.completion->completion, &p.err);
    if (p.status == STATUS_OK)
        route->step = step;
    return posting_end(&p, ret, error);
}

/* Asks the program.  Its sentence goes on with its status. */
static enum status describe(void *context, const struct tensor *description, struct shape *shapes, struct error *err)
{
    const struct ferry_completion *completion = context;
    struct ferry_error error = {.status = FERRY_OK};
    /* The program looks at it through the same functions as at its own tensors. */
    struct ferry_tensor *tensor = (struct ferry_tensor *)(uintptr_t)description;
    enum ferry_status status = completion->describe(completion->context, tensor, (struct ferry_shape *)shapes, &error);

    return ferry_called(status, &error, err);
}

/* The shapes of a bundle whose every extent is fixed. */
static enum status fixed_shapes(const struct route_spec *spec, struct shape *shapes, struct error *err)
{
    for (int t = 0; t < spec->tensor_count; t++) {
        const struct tensor_spec *tensor = &spec->tensors[t];

        shapes[t].ndim = tensor->ndim;
        for (int i = 0; i < tensor->ndim; i++) {
            if (tensor->dim[i].low != tensor->dim[i].high)
                return error_set(err, STATUS_INVALID,
                                 "route %s, tensor %s: dimension %d is left open by the file, so the receiver must say "
                                 "it: shapes, or describe",
                                 spec->name, tensor->role, i);
            shapes[t].dim[i] = tensor->dim[i].low;
        }
    }
    return STATUS_OK;
}

enum ferry_status ferry_receive(struct ferry_route *route, const struct ferry_shape *shapes,
                                ferry_describe *describe_by, void *context, uint64_t step,
                                struct ferry_completion **ret, struct ferry_error *error)
{
    struct shape fixed[ROUTE_MAX_TENSORS] = {{0}};
    const struct shape *expected = (const struct shape *)shapes;
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(route), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (!posting_begin(&p, route->session))
        return posting_end(&p, ret, error);
    p.completion->describe = describe_by;
    p.completion->context = context;
    if (describe_by && route_spec(route->route)->tensor_count == 1) {
        p.status = error_set(&p.err, STATUS_INVALID,
                             "route %s: describe tells the shapes of tensors 1 and up, and the route has one tensor",
                             route_spec(route->route)->name);
    } else if (!shapes && !describe_by) {
        p.status = fixed_shapes(route_spec(route->route), fixed, &p.err);
        expected = fixed;
    }
    if (p.status == STATUS_OK)
        p.status = route_receive(route->route, expected, describe_by ? describe : NULL, p.completion, step,
                                 &p.completion->completion, &p.err);
    return posting_end(&p, ret, error);
}

struct ferry_bundle *ferry_take(struct ferry_completion *completion, uint64_t *ret_step)
{
    return completion ? (struct ferry_bundle *)route_take(completion->completion, ret_step) : NULL;
}

void ferry_bundle_return(struct ferry_route *route, struct ferry_bundle *bundle)
{
    if (route && bundle)
        route_return(route->route, (struct bundle *)bundle);
}
