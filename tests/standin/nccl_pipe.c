/* Rings of bytes in shared memory, and how a rank sleeps until one of them moves. */
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/standin/nccl_inside.h"

struct pipe *pipe_between(struct ncclComm *comm, int from, int to)
{
    return &comm->table->pipes[from * comm->size + to];
}

struct pipe *pipe_of_ring(struct ncclComm *comm, int from)
{
    return &comm->table->pipes[comm->size * comm->size + from];
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t pipe_put(struct pipe *pipe, const char *bytes, size_t count)
{
    uint64_t written = pipe->written;
    size_t room = PIPE_BYTES - (size_t)(written - __atomic_load_n(&pipe->read, __ATOMIC_ACQUIRE));
    size_t at = (size_t)(written % PIPE_BYTES);
    size_t moved = least(least(count, room), PIPE_BYTES - at);

    if (moved == 0)
        return 0;
    memcpy(pipe->bytes + at, bytes, moved);
    __atomic_store_n(&pipe->written, written + moved, __ATOMIC_RELEASE);
    return moved;
}

size_t pipe_take(struct pipe *pipe, char *bytes, size_t count)
{
    uint64_t read = pipe->read;
    size_t there = (size_t)(__atomic_load_n(&pipe->written, __ATOMIC_ACQUIRE) - read);
    size_t at = (size_t)(read % PIPE_BYTES);
    size_t moved = least(least(count, there), PIPE_BYTES - at);

    if (moved == 0)
        return 0;
    memcpy(bytes, pipe->bytes + at, moved);
    __atomic_store_n(&pipe->read, read + moved, __ATOMIC_RELEASE);
    return moved;
}

void seat_ring(struct ncclComm *comm, int rank)
{
    struct seat *seat = &comm->table->seats[rank];

    __atomic_fetch_add(&seat->bell, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&seat->asleep, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &seat->bell, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

uint32_t seat_bell(struct ncclComm *comm)
{
    return __atomic_load_n(&comm->table->seats[comm->rank].bell, __ATOMIC_SEQ_CST);
}

void seat_rest(struct ncclComm *comm, uint32_t bell, int idle)
{
    struct seat *seat = &comm->table->seats[comm->rank];
    struct timespec look = {.tv_nsec = MS_OF_A_LOOK * (long)NS_PER_MS};

    if (idle < 20) {
        sched_yield();
        return;
    }
    __atomic_fetch_add(&seat->asleep, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &seat->bell, FUTEX_WAIT, bell, &look, NULL, 0);
    __atomic_fetch_sub(&seat->asleep, 1, __ATOMIC_SEQ_CST);
}
