/* libferry's operations on a group: comm's, each with a completion that knows its session. */
#include "runtime/ferry_private.h"

static struct tensor *own(struct ferry_tensor *tensor)
{
    return (struct tensor *)tensor;
}

const char *ferry_group_name(const struct ferry_group *group)
{
    return group ? group_spec(group->group)->name : "";
}

int ferry_group_size(const struct ferry_group *group)
{
    return group ? group_size(group->group) : 0;
}

int ferry_group_rank(const struct ferry_group *group)
{
    return group ? group_rank(group->group) : -1;
}

int ferry_group_member(const struct ferry_group *group, int index)
{
    const struct group_spec *spec = group ? group_spec(group->group) : NULL;

    return spec && index >= 0 && index < spec->size ? spec->members[index] : -1;
}

enum ferry_status ferry_all_reduce_sum(struct ferry_group *group, struct ferry_tensor *send, struct ferry_tensor *recv,
                                       struct ferry_completion **ret, struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(group), NAMED(send), NAMED(recv), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (posting_begin(&p, group->session))
        p.status = group_all_reduce_sum(group->group, own(send), own(recv), &p.completion->completion, &p.err);
    return posting_end(&p, ret, error);
}

enum ferry_status ferry_all_gather_even(struct ferry_group *group, struct ferry_tensor *send, struct ferry_tensor *recv,
                                        int axis, struct ferry_completion **ret, struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(group), NAMED(send), NAMED(recv), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (posting_begin(&p, group->session))
        p.status = group_all_gather_even(group->group, own(send), own(recv), axis, &p.completion->completion, &p.err);
    return posting_end(&p, ret, error);
}

enum ferry_status ferry_all_gather_uneven(struct ferry_group *group, struct ferry_tensor *send,
                                          struct ferry_tensor *recv, int axis, const uint64_t *counts,
                                          struct ferry_completion **ret, struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(group), NAMED(send), NAMED(recv), NAMED(counts), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (posting_begin(&p, group->session))
        p.status = group_all_gather_uneven(group->group, own(send), own(recv), axis, counts, &p.completion->completion,
                                           &p.err);
    return posting_end(&p, ret, error);
}

enum ferry_status ferry_variable_all_to_all(struct ferry_group *group, struct ferry_tensor *send,
                                            struct ferry_tensor *recv, int axis, const uint64_t *send_counts,
                                            const uint64_t *recv_counts, struct ferry_completion **ret,
                                            struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given =
        GIVEN(error, NAMED(group), NAMED(send), NAMED(recv), NAMED(send_counts), NAMED(recv_counts), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (posting_begin(&p, group->session))
        p.status = group_variable_all_to_all(group->group, own(send), own(recv), axis, send_counts, recv_counts,
                                             &p.completion->completion, &p.err);
    return posting_end(&p, ret, error);
}

enum ferry_status ferry_broadcast(struct ferry_group *group, struct ferry_tensor *tensor, int root,
                                  struct ferry_completion **ret, struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(group), NAMED(tensor), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (posting_begin(&p, group->session))
        p.status = group_broadcast(group->group, own(tensor), root, &p.completion->completion, &p.err);
    return posting_end(&p, ret, error);
}

enum ferry_status ferry_barrier(struct ferry_group *group, struct ferry_completion **ret, struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(group), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (posting_begin(&p, group->session))
        p.status = group_barrier(group->group, &p.completion->completion, &p.err);
    return posting_end(&p, ret, error);
}

enum ferry_status ferry_failure_agreement(struct ferry_group *group, uint32_t flags, struct ferry_completion **ret,
                                          struct ferry_error *error)
{
    struct posting p;
    enum ferry_status given = GIVEN(error, NAMED(group), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    if (posting_begin(&p, group->session))
        p.status = group_failure_agreement(group->group, flags, &p.completion->completion, &p.err);
    return posting_end(&p, ret, error);
}
