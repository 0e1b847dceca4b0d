/* There and back, as a layer of experts does it: each rank sends its tokens to the ranks that own their experts, these
 * work on them, and every token comes home to its place. */
#include <ferry.h>
#include <stdio.h>

enum { TOKENS = 10, WIDTH = 8, MAX_EXPERTS = 16 };

static int fail(const struct ferry_error *error)
{
    if (error->speak)
        fprintf(stderr, "experts: %s: %s\n", ferry_status_name(error->status), error->text);
    return ferry_exit_code(error->status);
}

/* How many tokens of a rank go to an expert: uneven, some none, together TOKENS. */
static uint64_t dealt(int rank, int expert, int experts)
{
    int favourite = rank / 2;

    return (uint64_t)((expert == favourite ? TOKENS - rank : 0) + (expert == (rank + 1) % experts ? rank : 0));
}

static enum ferry_status exchange(struct ferry_group *group, struct ferry_tensor *send, struct ferry_tensor *recv,
                                  const uint64_t *to, const uint64_t *from, struct ferry_error *error)
{
    struct ferry_completion *sent = NULL;
    enum ferry_status status = ferry_variable_all_to_all(group, send, recv, 0, to, from, &sent, error);

    return status == FERRY_OK ? ferry_finish(sent, error) : status;
}

static enum ferry_status visit(struct ferry_group *group, struct ferry_error *error)
{
    int experts = ferry_group_size(group), me = ferry_group_rank(group), wrong = 0;
    uint64_t to[MAX_EXPERTS], from[MAX_EXPERTS], guests = 0;
    struct ferry_tensor *mine = NULL, *theirs = NULL;
    enum ferry_status status;

    for (int i = 0; i < experts; i++) {
        to[i] = dealt(me, i, experts);
        guests += from[i] = dealt(i, me, experts);
    }
    status = ferry_tensor_create(FERRY_F32, &(struct ferry_shape){2, {TOKENS, WIDTH}}, &mine, error);
    if (status == FERRY_OK)
        status = ferry_tensor_create(FERRY_F32, &(struct ferry_shape){2, {guests, WIDTH}}, &theirs, error);
    for (int k = 0; status == FERRY_OK && k < TOKENS * WIDTH; k++)
        ((float *)ferry_tensor_data(mine))[k] = (float)(1000 * me + k);
    if (status == FERRY_OK)
        status = exchange(group, mine, theirs, to, from, error);
    for (uint64_t k = 0; status == FERRY_OK && k < guests * WIDTH; k++)
        ((float *)ferry_tensor_data(theirs))[k] *= -1; /* the expert's work */
    if (status == FERRY_OK)
        status = exchange(group, theirs, mine, from, to, error);
    for (int k = 0; status == FERRY_OK && k < TOKENS * WIDTH; k++)
        wrong += ((float *)ferry_tensor_data(mine))[k] != -(float)(1000 * me + k);
    if (status == FERRY_OK)
        printf("expert %d worked on %d tokens, its own %d are home, %d values wrong\n", me, (int)guests, TOKENS, wrong);
    status = wrong ? FERRY_CORRUPT : status;
    ferry_tensor_release(mine);
    ferry_tensor_release(theirs);
    return status;
}

int main(int argc, char **argv)
{
    struct ferry_session *session = NULL;
    struct ferry_group *group = NULL;
    struct ferry_error error = {0};
    enum ferry_status status = ferry_open(argc > 1 ? argv[1] : "experts.yaml", NULL, &session, &error);

    if (status != FERRY_OK)
        return fail(&error);
    status = ferry_find_line(session, "expert", &group, &error);
    if (status == FERRY_OK)
        status = visit(group, &error);
    if (status != FERRY_OK)
        ferry_fail(session, status, status == FERRY_CORRUPT ? "tokens came home wrong" : error.text);
    return ferry_close(session, &error) == FERRY_OK ? 0 : fail(&error);
}
