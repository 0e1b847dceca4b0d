/* Messages that the post announces and MPI brings, where the two do not agree.
 *
 * The post is written past the transport, from its first cell on, and MPI is called in the transport's communicator.
 * All communication comes before the first assertion, so that a failing rank stays in step. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_private.h"
#include "tests/mpi/world.h"
#include "tests/suite.h"

enum { TAG = 5, COUNT = 2000000, ROOM = COUNT + 1 };

static struct world world;

/* Until what is said of it has come, or the message. */
static enum status await(int peer, struct message **ret, size_t *ret_bytes, struct error *err)
{
    enum status st = STATUS_OK;

    *ret = NULL;
    while (st == STATUS_OK && !*ret)
        st = world.ops->probe(world.transport, peer, TAG, ret, ret_bytes, err);
    return st;
}

static bool receives(struct message *message, unsigned char *in, size_t count)
{
    struct work *work = NULL;
    bool ended = false;
    enum status st = world.ops->receive(world.transport, message, in, count, &work, NULL);

    while (st == STATUS_OK && !ended)
        st = world.ops->test(world.transport, work, &ended, NULL);
    return ended;
}

START_TEST(a_message_is_as_long_as_it_was_announced)
{
    const struct ring_label label = {.tag = TAG, .kind = MESSAGE_PASSED, .byte_count = sizeof(uint64_t)};
    int right = (world.rank + 1) % world.size;
    int left = (world.rank + world.size - 1) % world.size;
    struct ring_writer writer = {.ring = mailbox_ring_to(world.transport->mailbox, right)};
    unsigned char *out = calloc(ROOM, 1);
    unsigned char *in = calloc(ROOM, 1);
    uint64_t said = COUNT;
    MPI_Request request[2];
    struct message *message = NULL;
    struct error err = {0};
    size_t bytes = 0;
    bool came = false;
    enum status truth;
    enum status lie;

    ck_assert(writer.ring && out && in);
    for (int i = 0; i < 2; i++)
        ring_put(&writer, &label, &said);
    memset(out, world.rank + 1, ROOM);
    (void)MPI_Isend(out, COUNT, MPI_BYTE, right, TAG, world.transport->payload, &request[0]);
    (void)MPI_Isend(out, COUNT + 1, MPI_BYTE, right, TAG, world.transport->payload, &request[1]);
    truth = await(left, &message, &bytes, &err);
    if (truth == STATUS_OK)
        came = receives(message, in, COUNT);
    lie = await(left, &message, &bytes, &err);
    if (lie != STATUS_OK) /* it is with MPI still */
        (void)MPI_Recv(in, ROOM, MPI_BYTE, left, TAG, world.transport->payload, MPI_STATUS_IGNORE);
    (void)MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    ck_assert_int_eq(truth, STATUS_OK);
    ck_assert(came);
    ck_assert_uint_eq(in[0], left + 1);
    ck_assert_uint_eq(in[COUNT - 1], left + 1);
    ck_assert_int_eq(lie, STATUS_CORRUPT);
    ck_assert_ptr_null(message);
    ck_assert_ptr_nonnull(strstr(err.text, "announced 2000000 bytes with tag 5, and sent 2000001"));
    free(in);
    free(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mpi passed");
    TCase *tests = tcase_create("mpi passed");
    struct error err = {0};
    enum status st = world_open(&world, &err);

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_message_is_as_long_as_it_was_announced);
    suite_add_tcase(suite, tests);
    return world_run(&world, suite, st, &err);
}
