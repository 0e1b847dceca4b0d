/* Sums behind compute: an executor makes the next block while the sum of the one before is under way. */
#include <ferry.h>
#include <stdio.h>

enum { BLOCKS = 8, COUNT = 100000 };

struct block {
    struct ferry_session *session;
    struct ferry_tensor *tensor;
    struct ferry_completion *sum;
    int number;
};

/* Called on the executor's thread. */
static enum ferry_status make(void *context, struct ferry_error *error)
{
    struct block *block = context;
    float *numbers = ferry_tensor_data(block->tensor);

    for (int k = 0; k < COUNT; k++) {
        if (k % 1000 == 0 && ferry_progress(block->session, error) != FERRY_OK) /* moves the sums of earlier blocks */
            return error->status;
        numbers[k] = (float)(block->number + ferry_rank(block->session));
    }
    return FERRY_OK;
}

/* Make the block, and sum it over all ranks when it is made; waits for neither. */
static enum ferry_status queue(struct ferry_executor *executor, struct ferry_group *all, struct block *block,
                               struct ferry_error *error)
{
    const struct ferry_shape shape = {1, {COUNT}};
    struct ferry_completion *made = NULL;
    enum ferry_status status = ferry_tensor_create(FERRY_F32, &shape, &block->tensor, error);

    if (status == FERRY_OK)
        status = ferry_executor_submit(executor, make, block, &made, error);
    if (status == FERRY_OK)
        status = ferry_group_after(all, made, error);
    if (status == FERRY_OK)
        status = ferry_all_reduce_sum(all, block->tensor, block->tensor, &block->sum, error);
    ferry_abandon(made);
    return status;
}

int main(int argc, char **argv)
{
    static struct block blocks[BLOCKS];
    struct ferry_session *session = NULL;
    struct ferry_executor *executor = NULL;
    struct ferry_group *all = NULL;
    struct ferry_error error = {0};
    enum ferry_status status = ferry_open(argc > 1 ? argv[1] : "overlap.yaml", NULL, &session, &error);
    int size = status == FERRY_OK ? ferry_size(session) : 0, ranks = size * (size - 1) / 2, wrong = 0;

    if (status == FERRY_OK && (status = ferry_find_group(session, "all", &all, &error)) == FERRY_OK)
        status = ferry_executor_create(session, "cpu/0", BLOCKS, &executor, &error);
    for (int b = 0; b < BLOCKS && status == FERRY_OK; b++) {
        blocks[b] = (struct block){.session = session, .number = b};
        status = queue(executor, all, &blocks[b], &error);
    }
    for (int b = 0; b < BLOCKS && status == FERRY_OK; b++) {
        status = ferry_finish(blocks[b].sum, &error);
        for (int k = 0; k < COUNT && status == FERRY_OK; k++)
            wrong += ((float *)ferry_tensor_data(blocks[b].tensor))[k] != (float)(size * b + ranks);
        ferry_tensor_release(blocks[b].tensor);
    }
    ferry_executor_release(executor);
    if (status == FERRY_OK)
        printf("rank %d: %d blocks made and summed, %d wrong\n", ferry_rank(session), BLOCKS, wrong);
    else if (error.speak)
        fprintf(stderr, "overlap: %s: %s\n", ferry_status_name(status), error.text);
    if (status != FERRY_OK || wrong) /* the others must not wait for this rank */
        ferry_fail(session, status = status ? status : FERRY_CORRUPT, "the blocks are not summed");
    return ferry_close(session, &error) == FERRY_OK ? ferry_exit_code(status) : ferry_exit_code(error.status);
}
