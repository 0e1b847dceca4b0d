/* An uneven gather with a zero: member m of four brings its rows of a table, member 1 none, and everybody gets all rows
 * in member order. */
#include <ferry.h>
#include <stdio.h>

enum { MEMBERS = 4, COLUMNS = 3 };

static const uint64_t rows[MEMBERS] = {3, 0, 2, 1}; /* by member, not by rank */

static int fail(const struct ferry_error *error)
{
    if (error->speak)
        fprintf(stderr, "gather: %s: %s\n", ferry_status_name(error->status), error->text);
    return ferry_exit_code(error->status);
}

/* Row r of member m holds 100 * m + 10 * r + column. */
static uint32_t cell(uint64_t member, uint64_t row, uint64_t column)
{
    return (uint32_t)(100 * member + 10 * row + column);
}

static enum ferry_status gather(struct ferry_group *readers, struct ferry_tensor *own, struct ferry_tensor *all,
                                struct ferry_error *error)
{
    struct ferry_completion *gathered = NULL;
    const uint32_t *table = ferry_tensor_data(all);
    int me = ferry_group_rank(readers);
    int wrong = 0;
    enum ferry_status status;

    for (uint64_t i = 0; i < rows[me] * COLUMNS; i++)
        ((uint32_t *)ferry_tensor_data(own))[i] = cell((uint64_t)me, i / COLUMNS, i % COLUMNS);
    status = ferry_all_gather_uneven(readers, own, all, 0, rows, &gathered, error);
    if (status == FERRY_OK)
        status = ferry_finish(gathered, error);
    if (status != FERRY_OK)
        return status;
    for (uint64_t member = 0; member < MEMBERS; member++)
        for (uint64_t i = 0; i < rows[member] * COLUMNS; i++)
            wrong += *table++ != cell(member, i / COLUMNS, i % COLUMNS);
    printf("member %d (rank %d) gave %d rows and has %d, %d cells wrong\n", me, ferry_group_member(readers, me),
           (int)rows[me], (int)ferry_tensor_shape(all).dim[0], wrong);
    return wrong ? FERRY_CORRUPT : FERRY_OK;
}

int main(int argc, char **argv)
{
    struct ferry_shape shape = {2, {6, COLUMNS}};
    struct ferry_session *session = NULL;
    struct ferry_group *readers = NULL;
    struct ferry_tensor *own = NULL;
    struct ferry_tensor *all = NULL;
    struct ferry_error error = {0};
    enum ferry_status status = ferry_open(argc > 1 ? argv[1] : "gather.yaml", NULL, &session, &error);

    if (status != FERRY_OK)
        return fail(&error);
    status = ferry_find_group(session, "readers", &readers, &error);
    if (status == FERRY_OK)
        status = ferry_tensor_create(FERRY_U32, &shape, &all, &error);
    if (status == FERRY_OK) {
        shape.dim[0] = rows[ferry_group_rank(readers)];
        status = ferry_tensor_create(FERRY_U32, &shape, &own, &error);
    }
    if (status == FERRY_OK)
        status = gather(readers, own, all, &error);
    if (status != FERRY_OK)
        ferry_fail(session, status, status == FERRY_CORRUPT ? "the rows are wrong" : error.text);
    ferry_tensor_release(own);
    ferry_tensor_release(all);
    return ferry_close(session, &error) == FERRY_OK ? 0 : fail(&error);
}
