/* Two tensors and the transfer that leads from one to the other. */
#include "runtime/mirror.h"

#include "comm/completion.h"
#include "comm/group.h"

enum status mirror_init(struct shuttle *shuttle, struct memory *host, enum dtype dtype, const struct shape *shape,
                        struct mirror *ret, struct error *err)
{
    enum status st;

    *ret = (struct mirror){.shuttle = shuttle};
    if (!shuttle) {
        st = tensor_create_in(host, dtype, shape, &ret->here, err);
        if (st == STATUS_OK)
            ret->there = tensor_retain(ret->here);
        return st;
    }
    st = shuttle_tensor_here(shuttle, dtype, shape, &ret->here, err);
    if (st == STATUS_OK)
        st = shuttle_tensor_there(shuttle, dtype, shape, &ret->there, err);
    return st;
}

void mirror_done(struct mirror *mirror)
{
    completion_abandon(mirror->leaving);
    tensor_release(mirror->here);
    tensor_release(mirror->there);
    *mirror = (struct mirror){.shuttle = NULL};
}

enum status mirror_reshape(struct mirror *mirror, enum dtype dtype, const struct shape *shape, struct error *err)
{
    enum status st = tensor_reshape(mirror->here, dtype, shape, err);

    return st == STATUS_OK ? tensor_reshape(mirror->there, dtype, shape, err) : st;
}

enum status mirror_promote(struct mirror *mirror, struct group *group, struct error *err)
{
    enum status st;

    if (!mirror->shuttle)
        return STATUS_OK;
    CHECK(!mirror->leaving);
    st = shuttle_promote(mirror->shuttle, mirror->here, mirror->there, &mirror->leaving, err);
    return st == STATUS_OK ? group_after(group, mirror->leaving, err) : st;
}

enum status mirror_upload(struct mirror *mirror, uint64_t *wait_ns, struct error *err)
{
    enum status st;

    if (!mirror->shuttle)
        return STATUS_OK;
    CHECK(!mirror->leaving);
    st = shuttle_promote(mirror->shuttle, mirror->here, mirror->there, &mirror->leaving, err);
    return st == STATUS_OK ? mirror_settle(mirror, wait_ns, err) : st;
}

enum status mirror_settle(struct mirror *mirror, uint64_t *wait_ns, struct error *err)
{
    return shuttle_settle(&mirror->leaving, wait_ns, err);
}

enum status mirror_demote(struct mirror *mirror, uint64_t *wait_ns, struct error *err)
{
    enum status st = mirror_settle(mirror, wait_ns, err);

    if (st != STATUS_OK || !mirror->shuttle)
        return st;
    return shuttle_demote(mirror->shuttle, mirror->there, mirror->here, wait_ns, err);
}
