/* The processes of a host, introduced to each other: who maps what of whom, and that both ends know it.
 *
 * All communication of a test comes before its first assertion, and a barrier after it, so that a failing rank stays in
 * step.  A rank that has no memory to share talks to the others over MPI: the last test says so of whole messages. */
#include <check.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backends/mpi/mpi_host.h"
#include "base/clock.h"
#include "tests/mpi/threads.h"
#include "tests/mpi/world.h"
#include "tests/suite.h"

enum { MAIL_BYTES = 8192, TENSOR_BYTES = 12288, TURNS = 100000, TAG = 3, MOST_RANKS = 16 };

static int rank;
static int size;

static void barrier(void)
{
    (void)MPI_Barrier(MPI_COMM_WORLD);
}

/* What this rank says in the first byte behind the number of its file. */
static unsigned char mark(int of, enum host_kind kind)
{
    return (unsigned char)(1 + of * HOST_KINDS + (int)kind);
}

static struct shared_file file_of(enum host_kind kind)
{
    struct shared_file file;
    unsigned char byte = mark(rank, kind);

    ck_assert(shared_file_create("ferry-test", kind == HOST_MAIL ? MAIL_BYTES : TENSOR_BYTES, &file));
    ck_assert_int_eq(pwrite(file.fd, &byte, 1, SHARED_FILE_NONCE_BYTES), 1);
    return file;
}

/* What became of one introduction, by rank. */
struct outcome {
    int hosts;
    int host_size;
    int places[MOST_RANKS];
    int own_place;
    bool mapped[MOST_RANKS][HOST_KINDS];
    unsigned char marks[MOST_RANKS][HOST_KINDS]; /* what is read there */
    bool writable[MOST_RANKS][HOST_KINDS];
    uint64_t bytes[MOST_RANKS][HOST_KINDS];
    bool read_by[MOST_RANKS][HOST_KINDS];
};

/* The system writes a zero there, or says that it cannot. */
static bool is_writable(void *byte)
{
    int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    bool written = read(zeros, byte, 1) == 1;

    (void)close(zeros);
    return written;
}

/* Collective.  Both files are closed. */
static struct outcome introduce(struct shared_file files[HOST_KINDS], bool takes)
{
    struct outcome ret = {0};
    struct host *host = host_open(MPI_COMM_WORLD, &ret.hosts);

    host_share(host, files, takes);
    ret.host_size = host_size(host);
    ret.own_place = host_own_place(host);
    for (int peer = 0; peer < size; peer++) {
        ret.places[peer] = host_place(host, peer);
        for (int kind = 0; kind < HOST_KINDS; kind++) {
            unsigned char *at = host_memory(host, (enum host_kind)kind, peer, &ret.bytes[peer][kind]);

            ret.mapped[peer][kind] = at != NULL;
            ret.writable[peer][kind] = at && is_writable(at + MAIL_BYTES - 1);
            ret.marks[peer][kind] = at ? at[SHARED_FILE_NONCE_BYTES] : 0;
            ret.read_by[peer][kind] = host_reads(host, (enum host_kind)kind, peer);
        }
    }
    barrier();
    host_close(host);
    for (int kind = 0; kind < HOST_KINDS; kind++)
        shared_file_close(&files[kind]);
    return ret;
}

START_TEST(everybody_maps_what_the_others_share)
{
    struct shared_file files[HOST_KINDS] = {file_of(HOST_MAIL), file_of(HOST_TENSORS)};
    struct outcome outcome = introduce(files, true);

    ck_assert_int_eq(outcome.hosts, 1);
    ck_assert_int_eq(outcome.host_size, size);
    ck_assert_int_eq(outcome.own_place, rank);
    for (int peer = 0; peer < size; peer++) {
        ck_assert_int_eq(outcome.places[peer], peer);
        for (int kind = 0; kind < HOST_KINDS; kind++) {
            ck_assert_uint_eq(outcome.marks[peer][kind], peer == rank ? 0 : mark(peer, (enum host_kind)kind));
            ck_assert_int_eq(outcome.read_by[peer][kind], peer != rank);
        }
        ck_assert(!outcome.writable[peer][HOST_TENSORS]);
        ck_assert_int_eq(outcome.writable[peer][HOST_MAIL], peer != rank);
        if (peer != rank)
            ck_assert_uint_eq(outcome.bytes[peer][HOST_TENSORS], TENSOR_BYTES);
    }
}
END_TEST

/* Even ranks share a mailbox, odd ones tensors; who shares none still maps those of the others. */
START_TEST(each_memory_is_by_itself)
{
    enum host_kind own = (enum host_kind)(rank % HOST_KINDS);
    struct shared_file files[HOST_KINDS] = {{.fd = -1, .bytes = MAIL_BYTES}, {.fd = -1}};
    struct outcome outcome;

    files[own] = file_of(own);
    outcome = introduce(files, true);
    for (int peer = 0; peer < size; peer++) {
        for (int kind = 0; kind < HOST_KINDS; kind++) {
            bool shares = peer != rank && peer % HOST_KINDS == kind;

            ck_assert_uint_eq(outcome.marks[peer][kind], shares ? mark(peer, (enum host_kind)kind) : 0);
            ck_assert_int_eq(outcome.read_by[peer][kind], peer != rank && own == (enum host_kind)kind);
        }
    }
}
END_TEST

START_TEST(who_takes_nothing_is_known_to_the_others)
{
    struct shared_file files[HOST_KINDS] = {file_of(HOST_MAIL), file_of(HOST_TENSORS)};
    struct outcome outcome = introduce(files, rank != 0);

    for (int peer = 0; peer < size; peer++) {
        for (int kind = 0; kind < HOST_KINDS; kind++) {
            ck_assert_uint_eq(outcome.marks[peer][kind], rank && peer != rank ? mark(peer, (enum host_kind)kind) : 0);
            ck_assert_int_eq(outcome.read_by[peer][kind], peer && peer != rank);
        }
    }
}
END_TEST

/* ---- what rank 0 says of its files, and what the others make of it ---- */

static void lie_of_the_number(struct shared_file *file)
{
    file->nonce++;
}

static void lie_of_the_length(struct shared_file *file)
{
    file->bytes *= 2;
}

static void tell_a_closed_file(struct shared_file *file)
{
    shared_file_close(file);
    file->fd = 1 << 19;
}

/* Opening one could wait for ever. */
static void tell_a_pipe(struct shared_file *file)
{
    int ends[2];

    shared_file_close(file);
    ck_assert_int_eq(pipe(ends), 0);
    (void)close(ends[1]);
    file->fd = ends[0];
}

static void tell_a_file_that_can_shrink(struct shared_file *file)
{
    uint64_t nonce = file->nonce;

    shared_file_close(file);
    file->fd = memfd_create("ferry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(file->fd, (off_t)file->bytes), 0);
    ck_assert_int_eq(pwrite(file->fd, &nonce, sizeof nonce, 0), (ssize_t)sizeof nonce);
}

/* All is true of it, but mailboxes are of one length. */
static void tell_a_longer_file(struct shared_file *file)
{
    uint64_t bytes = 2 * file->bytes;

    shared_file_close(file);
    ck_assert(shared_file_create("ferry-test", bytes, file));
}

static const struct {
    void (*tell)(struct shared_file *file);
    bool mapped[HOST_KINDS]; /* by the others */
    bool maps_mail;          /* rank 0 that of the others, if that is what it told this of */
} lies[] = {
    {lie_of_the_number, {false, false}, true},           {lie_of_the_length, {false, false}, false},
    {tell_a_closed_file, {false, false}, true},          {tell_a_pipe, {false, false}, true},
    {tell_a_file_that_can_shrink, {false, false}, true}, {tell_a_longer_file, {false, true}, false},
};

/* Does reader map what owner has of this kind, where rank 0 told such a thing of its file of the kind lied? */
static bool is_mapped(int at, enum host_kind lied, enum host_kind kind, int owner, int reader)
{
    if (owner == reader)
        return false;
    if (kind != lied || (owner && reader))
        return true;
    return owner == 0 ? lies[at].mapped[kind] : kind != HOST_MAIL || lies[at].maps_mail;
}

/* One kind at a time; the other, and those of the other ranks, stay as they are. */
START_TEST(a_file_that_is_not_what_it_is_said_to_be_is_read_by_nobody)
{
    enum host_kind lied = (enum host_kind)(_i % HOST_KINDS);
    struct shared_file files[HOST_KINDS] = {file_of(HOST_MAIL), file_of(HOST_TENSORS)};
    int at = _i / HOST_KINDS;
    struct outcome outcome;

    if (rank == 0)
        lies[at].tell(&files[lied]);
    outcome = introduce(files, true);
    for (int peer = 0; peer < size; peer++) {
        for (int i = 0; i < HOST_KINDS; i++) {
            enum host_kind kind = (enum host_kind)i;

            ck_assert_int_eq(outcome.mapped[peer][kind], is_mapped(at, lied, kind, peer, rank));
            ck_assert_int_eq(outcome.read_by[peer][kind], is_mapped(at, lied, kind, rank, peer));
            if (outcome.mapped[peer][kind] && (peer || kind != lied))
                ck_assert_uint_eq(outcome.marks[peer][kind], mark(peer, kind));
        }
    }
}
END_TEST

/* ---- a transport over it ---- */

static const struct transport_ops *ops;
static struct transport *transport;

/* Open one in which rank 0 may not have so large a file. */
static enum status open_limited(struct world *world, struct error *err)
{
    struct rlimit before;
    struct rlimit limit;
    enum status st;

    (void)getrlimit(RLIMIT_FSIZE, &before);
    limit = (struct rlimit){.rlim_cur = rank ? before.rlim_cur : 1 << 20, .rlim_max = before.rlim_max};
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    st = world_open(world, err);
    (void)setrlimit(RLIMIT_FSIZE, &before);
    ops = world->ops;
    transport = world->transport;
    return st;
}

static bool ends(struct work *work)
{
    bool ended = false;

    for (int i = 0; i < TURNS && !ended && ops->test(transport, work, &ended, NULL) == STATUS_OK; i++)
        clock_sleep_ns(i > 1000 ? NS_PER_US : 0);
    return ended;
}

/* The next message of the peer into in [count + 1]. */
static bool comes(int peer, unsigned char *in, size_t count)
{
    struct message *message = NULL;
    struct work *work = NULL;
    size_t bytes = 0;

    for (int i = 0; i < TURNS && !message; i++) {
        if (ops->probe(transport, peer, TAG, &message, &bytes, NULL) != STATUS_OK)
            return false;
        clock_sleep_ns(i > 1000 ? NS_PER_US : 0);
    }
    return message && bytes == count && ops->receive(transport, message, in, count, &work, NULL) == STATUS_OK &&
           ends(work);
}

static unsigned char byte_of(int sender, size_t count, size_t at)
{
    return (unsigned char)((size_t)sender * 29 + count * 3 + at % 253);
}

/* One message of so many bytes to every rank, and one from every rank. */
static bool exchange(size_t count)
{
    struct work *works[MOST_RANKS] = {NULL};
    unsigned char *out = malloc(count + 1);
    unsigned char *in = malloc(count + 1);
    bool right = out && in;

    for (size_t i = 0; right && i < count; i++)
        out[i] = byte_of(rank, count, i);
    for (int peer = 0; right && peer < size; peer++)
        right = peer == rank || ops->send(transport, peer, TAG, out, count, &works[peer], NULL) == STATUS_OK;
    for (int peer = 0; right && peer < size; peer++) {
        right = peer == rank || comes(peer, in, count);
        for (size_t i = 0; right && peer != rank && i < count; i++)
            right = in[i] == byte_of(peer, count, i);
    }
    for (int peer = 0; right && peer < size; peer++)
        right = peer == rank || ends(works[peer]);
    free(in);
    free(out);
    return right;
}

/* Only what it sends goes through MPI: it still reads the mailboxes of the others, which read each other's. */
START_TEST(a_rank_without_a_mailbox_of_its_own_talks_to_all)
{
    static const size_t counts[] = {0, 16, 2000, 100000, 3000000, 17};
    enum { COUNTS = sizeof counts / sizeof *counts };
    bool came[COUNTS];
    bool room[MOST_RANKS] = {false};

    for (int i = 0; i < COUNTS; i++)
        came[i] = exchange(counts[i]);
    for (int peer = 0; peer < size; peer++) {
        bool near = false;

        room[peer] = ops->room(transport, peer, 100000, &near) != NULL;
    }
    barrier();
    for (int i = 0; i < COUNTS; i++)
        ck_assert_msg(came[i], "%zu bytes", counts[i]);
    for (int peer = 0; peer < size; peer++)
        ck_assert_int_eq(room[peer], rank != 0 && peer != rank);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("mpi host");
    TCase *tests = tcase_create("mpi host");
    struct world world = {0};
    struct error err = {0};
    enum status st = STATUS_OK;
    int failed = 0;

    if (!threads_start(&argc, &argv))
        return SKIPPED;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    st = size <= MOST_RANKS ? open_limited(&world, &err)
                            : error_set(&err, STATUS_USAGE, "%d ranks, at most %d", size, MOST_RANKS);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, everybody_maps_what_the_others_share);
    tcase_add_test(tests, each_memory_is_by_itself);
    tcase_add_test(tests, who_takes_nothing_is_known_to_the_others);
    tcase_add_loop_test(tests, a_file_that_is_not_what_it_is_said_to_be_is_read_by_nobody, 0,
                        HOST_KINDS * (int)(sizeof lies / sizeof *lies));
    tcase_add_test(tests, a_rank_without_a_mailbox_of_its_own_talks_to_all);
    suite_add_tcase(suite, tests);
    failed = world_run(&world, suite, st, &err);
    (void)MPI_Finalize();
    return failed;
}
