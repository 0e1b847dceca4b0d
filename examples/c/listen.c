/* The receiving half of a framed route between two programs: what measure.c sends.  The bundle's first tensor tells how
 * many rows follow; the file says how many there can be, and nothing else gets through. */
#include <ferry.h>
#include <stdio.h>

static int fail(const struct ferry_error *error)
{
    if (error->speak)
        fprintf(stderr, "listen: %s: %s\n", ferry_status_name(error->status), error->text);
    return ferry_exit_code(error->status);
}

/* count [1] has come and was compared: it tells the shapes of values and times. */
static enum ferry_status describe(void *context, struct ferry_tensor *count, struct ferry_shape *shapes,
                                  struct ferry_error *error)
{
    uint64_t rows = *(const uint32_t *)ferry_tensor_data(count);

    (void)context;
    (void)error;
    shapes[1] = (struct ferry_shape){2, {rows, 3}};
    shapes[2] = (struct ferry_shape){1, {rows}};
    return FERRY_OK;
}

static int wrong_values(struct ferry_bundle *bundle, uint64_t step)
{
    const double *values = ferry_tensor_data(ferry_bundle_tensor(bundle, 1));
    const uint64_t *times = ferry_tensor_data(ferry_bundle_tensor(bundle, 2));
    uint64_t rows = ferry_tensor_shape(ferry_bundle_tensor(bundle, 2)).dim[0];
    int wrong = 0;

    for (uint64_t i = 0; i < rows; i++) {
        wrong += times[i] != 100 * step + i;
        for (int k = 0; k < 3; k++)
            wrong += values[3 * i + (uint64_t)k] != (double)step + (double)i / 16 + k;
    }
    printf("step %d: %d rows, %d values wrong\n", (int)step, (int)rows, wrong);
    return wrong;
}

static enum ferry_status receive(struct ferry_route *route, struct ferry_error *error)
{
    struct ferry_completion *received = NULL;
    struct ferry_bundle *bundle;
    uint64_t step;
    enum ferry_status status = ferry_receive(route, NULL, describe, NULL, FERRY_ANY_STEP, &received, error);

    if (status == FERRY_OK && (status = ferry_wait(received, FERRY_FOREVER, error)) == FERRY_OK) {
        bundle = ferry_take(received, &step);
        status = wrong_values(bundle, step) ? FERRY_CORRUPT : FERRY_OK;
        ferry_bundle_return(route, bundle);
    }
    ferry_abandon(received);
    return status;
}

int main(int argc, char **argv)
{
    struct ferry_session *session = NULL;
    struct ferry_route *route = NULL;
    struct ferry_error error = {0};
    enum ferry_status status = ferry_open(argc > 1 ? argv[1] : "route.yaml", NULL, &session, &error);

    if (status != FERRY_OK)
        return fail(&error);
    status = ferry_find_route(session, "readings", &route, &error);
    for (int i = 0; status == FERRY_OK && i < 4; i++)
        status = receive(route, &error);
    if (status != FERRY_OK)
        ferry_fail(session, status, status == FERRY_CORRUPT ? "the readings are wrong" : error.text);
    return ferry_close(session, &error) == FERRY_OK ? 0 : fail(&error);
}
