/* A sum over a named group: every worker holds a thousand numbers and gets their elementwise sum. */
#include <ferry.h>
#include <stdio.h>

enum { COUNT = 1000 };

static int fail(const struct ferry_error *error)
{
    if (error->speak)
        fprintf(stderr, "sum: %s: %s\n", ferry_status_name(error->status), error->text);
    return ferry_exit_code(error->status);
}

/* Member m brings k + m at place k, so the sum over n members is n * k + n * (n - 1) / 2. */
static int wrong_sums(const float *sums, int members)
{
    int ranks = members * (members - 1) / 2;
    int wrong = 0;

    for (int k = 0; k < COUNT; k++)
        wrong += sums[k] != (float)(members * k + ranks);
    return wrong;
}

static enum ferry_status add_up(struct ferry_group *workers, struct ferry_error *error)
{
    const struct ferry_shape shape = {1, {COUNT}};
    struct ferry_completion *sum = NULL;
    struct ferry_tensor *tensor = NULL;
    float *numbers;
    enum ferry_status status = ferry_tensor_create(FERRY_F32, &shape, &tensor, error);

    if (status != FERRY_OK)
        return status;
    numbers = ferry_tensor_data(tensor);
    for (int k = 0; k < COUNT; k++)
        numbers[k] = (float)(k + ferry_group_rank(workers));
    status = ferry_all_reduce_sum(workers, tensor, tensor, &sum, error); /* in place; returns at once */
    if (status == FERRY_OK)
        status = ferry_finish(sum, error);
    if (status == FERRY_OK) {
        int wrong = wrong_sums(numbers, ferry_group_size(workers));

        printf("member %d of %s: %d sums, the last is %g, %d wrong\n", ferry_group_rank(workers),
               ferry_group_name(workers), COUNT, numbers[COUNT - 1], wrong);
        status = wrong ? FERRY_CORRUPT : FERRY_OK;
    }
    ferry_tensor_release(tensor);
    return status;
}

int main(int argc, char **argv)
{
    struct ferry_session *session = NULL;
    struct ferry_group *workers = NULL;
    struct ferry_error error = {0};
    enum ferry_status status = ferry_open(argc > 1 ? argv[1] : "sum.yaml", NULL, &session, &error);

    if (status != FERRY_OK)
        return fail(&error);
    status = ferry_find_group(session, "workers", &workers, &error);
    if (status == FERRY_OK && ferry_group_rank(workers) >= 0)
        status = add_up(workers, &error);
    if (status != FERRY_OK) /* the others must not wait for this rank */
        ferry_fail(session, status, status == FERRY_CORRUPT ? "the sums are wrong" : error.text);
    return ferry_close(session, &error) == FERRY_OK ? 0 : fail(&error);
}
