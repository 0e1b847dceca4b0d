/* What a gather along an inner axis takes at least between two processes of one host: bare loops over memory that both
 * have mapped, with no header, no agreement and no deadline, beside MPI's derived datatypes, in one run.
 *
 *   mpirun -n 2 bench_floor [REPEATS]
 *
 * read: each copies the other's part out of the other's memory, as lent tensors travel.  pack: each writes its part
 * into a shared box, which the other unpacks.  Both put their own part to its place while they wait.  Before
 * each iteration what is sent is written anew and both meet, outside of the time.  Medians of interleaved repeats, each
 * the slower rank's; "of MPI" is MPI's time over the quicker loop's: nobody who copies with one core a process can be
 * faster than MPI by more.
 */
#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rewrite.h"
#include "base/runs.h"

enum { MOST = 16 << 20, BATCH = 26 << 20, LEAST_ITERATIONS = 4, WAYS = 4, MOST_REPEATS = 199, LINE = 64, PAGE = 4096 };

/* Of each rank, in the window. */
struct half {
    _Alignas(LINE) atomic_int ready; /* iterations whose part may be read */
    _Alignas(LINE) atomic_int done;  /* whose peer's part was read */
    _Alignas(PAGE) unsigned char send[MOST];
    unsigned char box[2][MOST];
};

struct floor {
    int rank;
    struct half *own;
    struct half *other;
    unsigned char *recv;
    size_t run;
    size_t rows;
    int turn; /* of all iterations */
    MPI_Datatype column;
    MPI_Datatype packed;
};

static void await(atomic_int *counter, int turn)
{
    while (atomic_load_explicit(counter, memory_order_acquire) < turn)
        ;
}

static void place(struct floor *f, int rank, const unsigned char *part)
{
    runs_copy(f->recv + (size_t)rank * f->run, 2 * f->run, part, f->run, f->run, f->rows);
}

static void by_reading(struct floor *f)
{
    atomic_store_explicit(&f->own->ready, ++f->turn, memory_order_release);
    place(f, f->rank, f->own->send);
    await(&f->other->ready, f->turn);
    place(f, !f->rank, f->other->send);
    atomic_store_explicit(&f->own->done, f->turn, memory_order_release);
    await(&f->other->done, f->turn);
}

static void by_packing(struct floor *f)
{
    int box = ++f->turn % 2;

    memcpy(f->own->box[box], f->own->send, f->run * f->rows);
    atomic_store_explicit(&f->own->ready, f->turn, memory_order_release);
    place(f, f->rank, f->own->send);
    await(&f->other->ready, f->turn);
    place(f, !f->rank, f->other->box[box]);
    atomic_store_explicit(&f->own->done, f->turn, memory_order_release);
}

static void by_allgather(struct floor *f)
{
    (void)MPI_Allgather(f->own->send, (int)(f->run * f->rows), MPI_BYTE, f->recv, 1, f->column, MPI_COMM_WORLD);
}

static void by_alltoallw(struct floor *f)
{
    const int ones[2] = {1, 1};
    const int none[2] = {0, 0};
    const int at[2] = {0, (int)f->run};
    const MPI_Datatype sends[2] = {f->packed, f->packed};
    const MPI_Datatype columns[2] = {f->column, f->column};

    (void)MPI_Alltoallw(f->own->send, ones, none, sends, f->recv, ones, at, columns, MPI_COMM_WORLD);
}

static void (*const ways[WAYS])(struct floor *f) = {by_reading, by_packing, by_allgather, by_alltoallw};

static unsigned char byte_of(int rank, size_t at)
{
    return (unsigned char)((size_t)rank * 37 + at * 11 + (at >> 8) * 7 + 1);
}

static bool is_right(const struct floor *f)
{
    for (size_t i = 0; i < 2 * f->run * f->rows; i++) {
        size_t column = i % (2 * f->run);

        if (f->recv[i] != byte_of(column >= f->run, i / (2 * f->run) * f->run + column % f->run))
            return false;
    }
    return true;
}

/* Microseconds an iteration, of the slower rank. */
static double run_way(struct floor *f, int way, int iterations)
{
    uint64_t ns = 0;
    double us;

    (void)MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < iterations; i++) {
        uint64_t begun;

        rewrite(f->own->send, f->run * f->rows);
        (void)MPI_Barrier(MPI_COMM_WORLD);
        begun = clock_ns();
        ways[way](f);
        ns += clock_ns() - begun;
    }
    us = (double)ns / 1e3 / iterations;
    (void)MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return us;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return (left > right) - (left < right);
}

static void make_types(struct floor *f)
{
    MPI_Datatype vector = MPI_DATATYPE_NULL;

    (void)MPI_Type_vector((int)f->rows, (int)f->run, (int)(2 * f->run), MPI_BYTE, &vector);
    (void)MPI_Type_create_resized(vector, 0, (MPI_Aint)f->run, &f->column);
    (void)MPI_Type_commit(&f->column);
    (void)MPI_Type_free(&vector);
    (void)MPI_Type_contiguous((int)(f->run * f->rows), MPI_BYTE, &f->packed);
    (void)MPI_Type_commit(&f->packed);
}

/* One line; returns 1 where a way brought wrong data. */
static int measure(struct floor *f, size_t run, size_t bytes, int repeats)
{
    static double us[WAYS][MOST_REPEATS];
    double mpi;
    double bare;
    int iterations = (int)(BATCH / bytes) + LEAST_ITERATIONS;
    int right = 1;

    f->run = run;
    f->rows = bytes / 2 / run;
    make_types(f);
    for (int way = 0; way < WAYS; way++) {
        memset(f->recv, 0, bytes);
        (void)run_way(f, way, 2);
        right = is_right(f) && right;
    }
    for (int r = 0; r < repeats; r++) {
        for (int way = 0; way < WAYS; way++)
            us[way][r] = run_way(f, way, iterations);
    }
    for (int way = 0; way < WAYS; way++)
        qsort(us[way], (size_t)repeats, sizeof us[way][0], compare);
    bare = us[0][repeats / 2] < us[1][repeats / 2] ? us[0][repeats / 2] : us[1][repeats / 2];
    mpi = us[2][repeats / 2] < us[3][repeats / 2] ? us[2][repeats / 2] : us[3][repeats / 2];
    if (!f->rank)
        printf("%6zu %9zu %9.1f %9.1f %9.1f %9.2f\n", run, bytes, us[0][repeats / 2], us[1][repeats / 2], mpi,
               mpi / bare);
    (void)MPI_Type_free(&f->column);
    (void)MPI_Type_free(&f->packed);
    (void)MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!right && !f->rank)
        (void)fprintf(stderr, "bench_floor: wrong data came\n");
    return !right;
}

/* From the next page on: both ranks have mapped the window at one. */
static struct half *half_at(unsigned char *room)
{
    return (void *)(room + (PAGE - (uintptr_t)room % PAGE) % PAGE);
}

/* Both halves lie in a window of MPI's own. */
static MPI_Win open_window(struct floor *f)
{
    MPI_Win window = MPI_WIN_NULL;
    MPI_Aint bytes = 0;
    unsigned char *own = NULL;
    unsigned char *other = NULL;
    int unit = 0;

    (void)MPI_Win_allocate_shared(sizeof(struct half) + PAGE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    (void)MPI_Win_shared_query(window, !f->rank, &bytes, &unit, &other);
    f->own = half_at(own);
    f->other = half_at(other);
    memset(f->own, 0, sizeof *f->own);
    for (size_t i = 0; i < MOST; i++)
        f->own->send[i] = byte_of(f->rank, i);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    return window;
}

int main(int argc, char **argv)
{
    static const size_t runs[] = {64, 1024};
    static const size_t sizes[] = {65536, 262144, 1048576, 4194304, 16777216};
    struct floor f = {.recv = aligned_alloc(4096, MOST)};
    int repeats = argc > 1 ? atoi(argv[1]) : 21;
    int wrong = 0;
    int size = 0;
    MPI_Win window;

    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &f.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2 || repeats < 1 || repeats > MOST_REPEATS || !f.recv) {
        if (!f.rank)
            (void)fprintf(stderr, "usage: mpirun -n 2 bench_floor [REPEATS, 1 to %d]\n", MOST_REPEATS);
        (void)MPI_Finalize();
        return 1;
    }
    window = open_window(&f);
    if (!f.rank)
        printf("  runs     bytes   read us   pack us    MPI us    of MPI\n");
    for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            wrong += measure(&f, runs[k], sizes[i], repeats);
    }
    (void)MPI_Win_free(&window);
    (void)MPI_Finalize();
    free(f.recv);
    return wrong != 0;
}
