/* The sending half of a framed route between two programs: rank 0 measures, listen.c on rank 1 takes it in. */
#include <ferry.h>
#include <stdio.h>

static int fail(const struct ferry_error *error)
{
    if (error->speak)
        fprintf(stderr, "measure: %s: %s\n", ferry_status_name(error->status), error->text);
    return ferry_exit_code(error->status);
}

/* Fill a bundle of the route's pool with this many rows, and post it. */
static enum ferry_status post(struct ferry_route *route, uint64_t step, uint64_t rows, struct ferry_error *error)
{
    struct ferry_completion *sent = NULL;
    struct ferry_bundle *bundle = NULL;
    enum ferry_status status = ferry_acquire(route, &bundle, error);

    if (status != FERRY_OK)
        return status;
    struct ferry_tensor *count = ferry_bundle_tensor(bundle, 0);
    struct ferry_tensor *values = ferry_bundle_tensor(bundle, 1);
    struct ferry_tensor *times = ferry_bundle_tensor(bundle, 2);

    *(uint32_t *)ferry_tensor_data(count) = (uint32_t)rows;
    status = ferry_tensor_reshape(values, FERRY_F64, &(struct ferry_shape){2, {rows, 3}}, error);
    if (status == FERRY_OK)
        status = ferry_tensor_reshape(times, FERRY_U64, &(struct ferry_shape){1, {rows}}, error);
    for (uint64_t i = 0; status == FERRY_OK && i < rows; i++) {
        ((uint64_t *)ferry_tensor_data(times))[i] = 100 * step + i;
        for (int k = 0; k < 3; k++)
            ((double *)ferry_tensor_data(values))[3 * i + (uint64_t)k] = (double)step + (double)i / 16 + k;
    }
    if (status == FERRY_OK)
        status = ferry_send(route, bundle, step, &sent, error);
    if (status != FERRY_OK)
        ferry_bundle_return(route, bundle);
    return status == FERRY_OK ? ferry_finish(sent, error) : status;
}

int main(int argc, char **argv)
{
    static const uint64_t rows[] = {16, 1, 0, 5};
    struct ferry_session *session = NULL;
    struct ferry_route *route = NULL;
    struct ferry_error error = {0};
    enum ferry_status status = ferry_open(argc > 1 ? argv[1] : "route.yaml", NULL, &session, &error);

    if (status != FERRY_OK)
        return fail(&error);
    status = ferry_find_route(session, "readings", &route, &error);
    for (uint64_t step = 0; status == FERRY_OK && step < 4; step++)
        status = post(route, step, rows[step], &error);
    if (status != FERRY_OK)
        ferry_fail(session, status, error.text);
    return ferry_close(session, &error) == FERRY_OK ? 0 : fail(&error);
}
