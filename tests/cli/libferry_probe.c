/* A program that links libferry as a user's does, for test_libferry.py: one scene a run, named by the first argument.
 *
 * Every rank prints what it saw, one line each, as "rank R: ..."; the test knows what must stand there.
 * usage: libferry_probe SCENE TOPOLOGY [KEY=VALUE | fault:...]... */
#include <ferry.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libferry_probe.h"

enum { MAX_WORLD = 16, ROWS = 5 };

struct ferry_session *session;
struct ferry_error error;
static const char *path;   /* of the topology */
static int last_rank = -1; /* of a session that has been closed */
static enum { PRESENT, REFUSED, ABSENT } at_end;

/* In front of MPI's own, as a tool would stand there: Ferry meets the other ranks so before MPI is finalised. */
int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    if (at_end == REFUSED)
        return MPI_ERR_OTHER;
    if (at_end == ABSENT)
        sleep(30);
    return PMPI_Ibarrier(comm, request);
}

void say(const char *format, ...)
{
    char line[4096];
    va_list arguments;
    int used = snprintf(line, sizeof line, "rank %d: ", session ? ferry_rank(session) : last_rank);

    va_start(arguments, format);
    used += vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    va_end(arguments);
    line[used++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)used) != used) /* at once, so that lines of several ranks do not mix */
        exit(90);
}

void report(const char *what, enum ferry_status status)
{
    if (status == FERRY_OK)
        say("%s: ok", what);
    else
        say("%s: %s, speak %d: %s", what, ferry_status_name(status), error.speak, error.text);
}

double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct ferry_group *group_named(const char *name)
{
    struct ferry_group *group = NULL;

    if (ferry_find_group(session, name, &group, &error) != FERRY_OK)
        exit(91);
    return group;
}

struct ferry_tensor *floats(uint64_t count)
{
    struct ferry_tensor *tensor = NULL;
    struct ferry_shape shape = {1, {count}};

    if (ferry_tensor_create(FERRY_F32, &shape, &tensor, &error) != FERRY_OK)
        exit(92);
    memset(ferry_tensor_data(tensor), 0, ferry_tensor_bytes(tensor));
    return tensor;
}

enum ferry_status sum(struct ferry_group *group, uint64_t count)
{
    struct ferry_tensor *tensor = floats(count);
    struct ferry_completion *completion = NULL;
    enum ferry_status status = ferry_all_reduce_sum(group, tensor, tensor, &completion, &error);

    ferry_tensor_release(tensor); /* the completion retains it */
    return status == FERRY_OK ? ferry_finish(completion, &error) : status;
}

/* ---- every operation on the group "turned", whose members descend ---- */

/* wrong += what differs from the serial answer */
static long check_gather(struct ferry_group *group, int even)
{
    int size = ferry_group_size(group), me = ferry_group_rank(group);
    uint64_t counts[MAX_WORLD], total = 0;
    struct ferry_tensor *send = NULL, *recv = NULL;
    struct ferry_completion *completion = NULL;
    long wrong = 0;

    for (int i = 0; i < size; i++)
        total += counts[i] = even ? 2 : (uint64_t)((i * 3) % 4); /* 0, 3, 2, 1 */
    if (ferry_tensor_create(FERRY_U32, &(struct ferry_shape){3, {2, counts[me], 3}}, &send, &error) ||
        ferry_tensor_create(FERRY_U32, &(struct ferry_shape){3, {2, total, 3}}, &recv, &error))
        return -1;
    for (uint64_t k = 0; k < 2 * counts[me] * 3; k++)
        ((uint32_t *)ferry_tensor_data(send))[k] = (uint32_t)(1000 * me) + (uint32_t)k;
    if ((even ? ferry_all_gather_even(group, send, recv, 1, &completion, &error)
              : ferry_all_gather_uneven(group, send, recv, 1, counts, &completion, &error)) ||
        ferry_finish(completion, &error))
        return -1;
    const uint32_t *got = ferry_tensor_data(recv);

    for (uint64_t outer = 0; outer < 2; outer++)
        for (int i = 0; i < size; i++)
            for (uint64_t k = 0; k < counts[i] * 3; k++)
                wrong += *got++ != (uint32_t)(1000 * i) + (uint32_t)(outer * counts[i] * 3 + k);
    ferry_tensor_release(send);
    ferry_tensor_release(recv);
    return wrong;
}

static long check_all_to_all(struct ferry_group *group)
{
    int size = ferry_group_size(group), me = ferry_group_rank(group);
    uint64_t to[MAX_WORLD], from[MAX_WORLD], sends = 0, receives = 0;
    struct ferry_tensor *send = NULL, *recv = NULL;
    struct ferry_completion *completion = NULL;
    long wrong = 0;

    for (int i = 0; i < size; i++) {
        sends += to[i] = (uint64_t)((me + 2 * i) % 3);
        receives += from[i] = (uint64_t)((i + 2 * me) % 3);
    }
    if (ferry_tensor_create(FERRY_I64, &(struct ferry_shape){1, {sends}}, &send, &error) ||
        ferry_tensor_create(FERRY_I64, &(struct ferry_shape){1, {receives}}, &recv, &error))
        return -1;
    int64_t *out = ferry_tensor_data(send);

    for (int i = 0; i < size; i++)
        for (uint64_t k = 0; k < to[i]; k++)
            *out++ = 10000 * me + 100 * i + (int64_t)k;
    if (ferry_variable_all_to_all(group, send, recv, 0, to, from, &completion, &error) ||
        ferry_finish(completion, &error))
        return -1;
    const int64_t *in = ferry_tensor_data(recv);

    for (int i = 0; i < size; i++)
        for (uint64_t k = 0; k < from[i]; k++)
            wrong += *in++ != 10000 * i + 100 * me + (int64_t)k;
    ferry_tensor_release(send);
    ferry_tensor_release(recv);
    return wrong;
}

void give_back(void *context)
{
    ++*(int *)context;
}

/* A sum in the program's own memory, and who gets it back when. */
static long check_view_sum(struct ferry_group *group, int *given)
{
    static double memory[ROWS]; /* borrowed, perhaps to the end of the process */
    int size = ferry_group_size(group), me = ferry_group_rank(group);
    struct ferry_tensor *view = NULL;
    struct ferry_completion *completion = NULL;
    long wrong = 0;

    for (int k = 0; k < ROWS; k++)
        memory[k] = me + 10 * k;
    if (ferry_tensor_view(FERRY_F64, &(struct ferry_shape){1, {ROWS}}, memory, give_back, given, &view, &error) ||
        ferry_all_reduce_sum(group, view, view, &completion, &error))
        return -1;
    ferry_tensor_release(view);
    if (ferry_finish(completion, &error))
        return -1;
    for (int k = 0; k < ROWS; k++)
        wrong += memory[k] != size * (size - 1) / 2.0 + 10.0 * k * size;
    return wrong;
}

static long check_broadcast(struct ferry_group *group)
{
    int root = ferry_group_size(group) - 1;
    struct ferry_tensor *tensor = NULL;
    struct ferry_completion *completion = NULL;
    long wrong = 0;

    if (ferry_tensor_create(FERRY_U8, &(struct ferry_shape){1, {100}}, &tensor, &error))
        return -1;
    memset(ferry_tensor_data(tensor), 50 + ferry_group_rank(group), 100);
    if (ferry_broadcast(group, tensor, root, &completion, &error) || ferry_finish(completion, &error))
        return -1;
    for (int k = 0; k < 100; k++)
        wrong += ((unsigned char *)ferry_tensor_data(tensor))[k] != 50 + root;
    ferry_tensor_release(tensor);
    return wrong;
}

static long check_agreement(struct ferry_group *group)
{
    struct ferry_completion *completion = NULL;
    uint32_t flags;

    /* Member 0 alone lacks bit 1. */
    if (ferry_failure_agreement(group, ferry_group_rank(group) ? 7 : 5, &completion, &error) ||
        ferry_wait(completion, FERRY_FOREVER, &error))
        return -1;
    flags = ferry_flags(completion);
    ferry_release(completion);
    return flags != 5;
}

static enum ferry_status same_shapes(void *context, struct ferry_tensor *description, struct ferry_shape *shapes,
                                     struct ferry_error *why)
{
    (void)context;
    (void)description;
    (void)shapes;
    (void)why;
    return FERRY_OK;
}

/* Rank 0 to the last rank, with shapes that the receiver says. */
static long check_route(void)
{
    struct ferry_shape shapes[2] = {{2, {ROWS, 4}}, {1, {ROWS}}};
    struct ferry_completion *completion = NULL;
    struct ferry_bundle *bundle = NULL;
    struct ferry_route *route = NULL, *lone = NULL;
    uint64_t step = 0;
    long wrong = 0;

    if (ferry_find_route(session, "tap", &route, &error))
        return -1;
    if (ferry_rank(session) == ferry_route_from(route)) {
        if (ferry_acquire(route, &bundle, &error) ||
            ferry_tensor_reshape(ferry_bundle_tensor(bundle, 0), FERRY_F32, &shapes[0], &error) ||
            ferry_tensor_reshape(ferry_bundle_tensor(bundle, 1), FERRY_U32, &shapes[1], &error))
            return -1;
        for (int k = 0; k < ROWS * 4; k++)
            ((float *)ferry_tensor_data(ferry_bundle_tensor(bundle, 0)))[k] = (float)k / 4;
        for (uint32_t k = 0; k < ROWS; k++)
            ((uint32_t *)ferry_tensor_data(ferry_bundle_tensor(bundle, 1)))[k] = 7 * k;
        if (ferry_send(route, bundle, 9, &completion, &error) || ferry_finish(completion, &error) ||
            ferry_acquire(route, &bundle, &error))
            return -1;
        wrong = ferry_send(route, bundle, 8, &completion, &error) != FERRY_INVALID ||
                !strstr(error.text, "step 8 after step 9") ||
                ferry_send(route, bundle, FERRY_ANY_STEP, &completion, &error) != FERRY_INVALID ||
                !strstr(error.text, "FERRY_ANY_STEP is for receivers");
        ferry_bundle_return(route, bundle);
        return wrong;
    }
    if (ferry_rank(session) != ferry_route_to(route))
        return 0;
    if (ferry_find_route(session, "lone", &lone, &error) ||
        ferry_receive(lone, NULL, same_shapes, NULL, FERRY_ANY_STEP, &completion, &error) != FERRY_INVALID ||
        !strstr(error.text, "route lone: describe tells the shapes of tensors 1 and up, and the route has one"))
        return -1;
    if (ferry_receive(route, shapes, NULL, NULL, FERRY_ANY_STEP, &completion, &error) ||
        ferry_wait(completion, FERRY_FOREVER, &error))
        return -1;
    bundle = ferry_take(completion, &step);
    wrong += step != 9;
    for (int k = 0; k < ROWS * 4; k++)
        wrong += ((float *)ferry_tensor_data(ferry_bundle_tensor(bundle, 0)))[k] != (float)k / 4;
    for (uint32_t k = 0; k < ROWS; k++)
        wrong += ((uint32_t *)ferry_tensor_data(ferry_bundle_tensor(bundle, 1)))[k] != 7 * k;
    ferry_bundle_return(route, bundle);
    ferry_release(completion);
    return wrong;
}

static void scene_operations(void)
{
    struct ferry_group *group = group_named("turned");
    struct ferry_completion *barrier = NULL;
    int given = 0;

    say("member %d of %d, world rank of member 0 is %d", ferry_group_rank(group), ferry_group_size(group),
        ferry_group_member(group, 0));
    say("view %ld", check_view_sum(group, &given));
    say("given back %d", given);
    say("even %ld, uneven %ld, all to all %ld", check_gather(group, 1), check_gather(group, 0),
        check_all_to_all(group));
    say("broadcast %ld, agreement %ld", check_broadcast(group), check_agreement(group));
    say("route %ld", ferry_size(session) > 1 ? check_route() : 0);
    report("barrier", ferry_barrier(group, &barrier, &error) ? error.status : ferry_finish(barrier, &error));
}

/* ---- errors of a call: the session goes on ---- */

static enum ferry_status nothing(void *context, struct ferry_error *why)
{
    (void)context;
    (void)why;
    return FERRY_OK;
}

/* Each is refused by name, the last says how many were not. */
static void nulls(struct ferry_group *group, struct ferry_tensor *tensor)
{
    struct ferry_completion *completion = NULL;
    struct ferry_group *found = NULL;
    struct ferry_executor *executor = NULL;
    struct ferry_shape shape = {1, {1}};
    enum ferry_status got[] = {
        ferry_find_group(NULL, "turned", &found, NULL),
        ferry_find_group(session, NULL, &found, NULL),
        ferry_find_group(session, "turned", NULL, NULL),
        ferry_find_line(session, NULL, &found, NULL),
        ferry_find_route(session, NULL, NULL, NULL),
        ferry_progress(NULL, NULL),
        ferry_tensor_create(FERRY_F32, NULL, &tensor, NULL),
        ferry_tensor_create(FERRY_F32, &shape, NULL, NULL),
        ferry_tensor_view(FERRY_F32, NULL, NULL, NULL, NULL, &tensor, NULL),
        ferry_tensor_reshape(NULL, FERRY_F32, &shape, NULL),
        ferry_tensor_reshape(tensor, FERRY_F32, NULL, NULL),
        ferry_all_reduce_sum(NULL, tensor, tensor, &completion, NULL),
        ferry_all_reduce_sum(group, NULL, tensor, &completion, NULL),
        ferry_all_reduce_sum(group, tensor, NULL, &completion, NULL),
        ferry_all_gather_even(group, tensor, NULL, 0, &completion, NULL),
        ferry_all_gather_uneven(group, tensor, tensor, 0, NULL, &completion, NULL),
        ferry_variable_all_to_all(group, tensor, tensor, 0, NULL, NULL, &completion, NULL),
        ferry_broadcast(group, NULL, 0, &completion, NULL),
        ferry_barrier(group, NULL, NULL),
        ferry_failure_agreement(NULL, 0, &completion, NULL),
        ferry_acquire(NULL, NULL, NULL),
        ferry_send(NULL, NULL, 0, &completion, NULL),
        ferry_receive(NULL, NULL, NULL, NULL, 0, &completion, NULL),
        ferry_wait(NULL, 0, NULL),
        ferry_finish(NULL, NULL),
        ferry_retain(NULL, tensor, free, NULL),
        ferry_executor_create(session, NULL, 1, NULL, NULL),
        ferry_executor_create(session, "cpu/0", 0, &executor, NULL),
        ferry_executor_fork(NULL, &executor, NULL),
        ferry_executor_submit(NULL, nothing, NULL, &completion, NULL),
        ferry_executor_flush(NULL, &completion, NULL),
        ferry_executor_after(NULL, NULL, NULL),
        ferry_group_after(group, NULL, NULL),
        ferry_route_after(NULL, NULL, NULL),
    };
    int wrong = ferry_coordinate(session, NULL) != -1;

    for (size_t i = 0; i < sizeof got / sizeof *got; i++)
        wrong += got[i] != FERRY_INVALID;
    report("counts", ferry_all_gather_uneven(group, tensor, tensor, 0, NULL, &completion, &error));
    say("nulls: %d taken", wrong);
}

/* How many calls that succeed write to their error. */
static int touched(struct ferry_group *group)
{
    static const struct ferry_error mark = {.status = FERRY_STUCK, .speak = 7, .text = "as it was"};
    struct ferry_shape shape = {1, {2}};
    struct ferry_completion *completion = NULL, *flushed = NULL;
    struct ferry_executor *executor = NULL;
    struct ferry_tensor *tensor = NULL;
    struct ferry_bundle *bundle = NULL;
    struct ferry_group *found = NULL;
    struct ferry_route *route = NULL;
    struct ferry_error kept = mark;
    int changed = 0, given = 0;

#define QUIETLY(call) changed += (call) != FERRY_OK || memcmp(&kept, &mark, sizeof mark) != 0
    QUIETLY(ferry_find_group(session, "turned", &found, &kept));
    QUIETLY(ferry_find_route(session, "tap", &route, &kept));
    QUIETLY(ferry_tensor_create(FERRY_F32, &shape, &tensor, &kept));
    QUIETLY(ferry_tensor_reshape(tensor, FERRY_U8, &(struct ferry_shape){1, {2}}, &kept));
    QUIETLY(ferry_broadcast(group, tensor, 0, &completion, &kept));
    QUIETLY(ferry_retain(completion, &given, give_back, &kept));
    QUIETLY(ferry_wait(completion, FERRY_FOREVER, &kept));
    QUIETLY(ferry_finish(completion, &kept));
    QUIETLY(ferry_progress(session, &kept));
    QUIETLY(ferry_executor_create(session, "cpu/0", 2, &executor, &kept));
    QUIETLY(ferry_executor_submit(executor, nothing, NULL, &completion, &kept));
    QUIETLY(ferry_group_after(group, completion, &kept));
    QUIETLY(ferry_executor_flush(executor, &flushed, &kept));
    QUIETLY(ferry_finish(flushed, &kept));
    QUIETLY(ferry_finish(completion, &kept));
    if (ferry_rank(session) == ferry_route_from(route)) {
        QUIETLY(ferry_acquire(route, &bundle, &kept));
        ferry_bundle_return(route, bundle);
    }
    QUIETLY(ferry_close(NULL, &kept));
    ferry_executor_release(executor);
    ferry_tensor_release(tensor);
    return changed + (given != 1);
}

/* Sentences about what is odd in the caller's own numbers. */
static void sentences(struct ferry_group *group)
{
    const uint64_t counts[2] = {UINT64_MAX, 2};
    struct ferry_completion *completion = NULL;
    struct ferry_tensor *tensor = floats(4), *made = NULL;
    struct ferry_group *none = NULL;

    report("empty", ferry_find_group(session, "", &none, &error));
    report("dtypes", ferry_tensor_create((enum ferry_dtype)99, &(struct ferry_shape){1, {1}}, &made, &error));
    report("ndim", ferry_tensor_create(FERRY_BF16, &(struct ferry_shape){9, {1}}, &made, &error));
    report("total", ferry_all_gather_uneven(group, tensor, tensor, 0, counts, &completion, &error));
    ferry_tensor_release(tensor);
}

static void scene_mistakes(void)
{
    struct ferry_group *group = group_named("turned"), *narrow = group_named("narrow"), *none = NULL;
    struct ferry_completion *completion = NULL;
    struct ferry_tensor *tensor = floats(4);
    struct ferry_route *route = NULL;
    char memory[8];

    report("group", ferry_find_group(session, "turnde", &none, &error));
    report("route", ferry_find_route(session, "tip", &route, &error));
    report("line", ferry_find_line(session, "tensor", &none, &error));
    report("axis", ferry_find_line(session, "depth", &none, &error));
    report("operation", ferry_broadcast(narrow, tensor, 0, &completion, &error));
    report("dtype", ferry_all_reduce_sum(narrow, tensor, tensor, &completion, &error));
    report("root", ferry_broadcast(group, tensor, 99, &completion, &error));
    report("view",
           ferry_tensor_view(FERRY_F32, &(struct ferry_shape){1, {1}}, memory + 1, NULL, NULL, &tensor, &error));
    report("huge", ferry_tensor_create(FERRY_F32, &(struct ferry_shape){2, {UINT64_MAX, 2}}, &tensor, &error));
    report("sum", sum(group, 10));
    nulls(group, tensor);
    ferry_tensor_release(tensor);
    sentences(group);
    say("touched %d", touched(group));
}

/* A caller's deadline passes, nothing is torn down, and the work ends well afterwards. */
static void scene_deadline(void)
{
    struct ferry_group *group = group_named("turned");
    struct ferry_tensor *tensor = floats(4);
    struct ferry_completion *completion = NULL;
    double start = seconds();

    if (ferry_rank(session) == 1)
        usleep(700000);
    if (ferry_all_reduce_sum(group, tensor, tensor, &completion, &error))
        exit(93);
    if (ferry_rank(session) == 0) {
        report("wait", ferry_wait(completion, 50000000, &error));
        report("reshape", ferry_tensor_reshape(tensor, FERRY_U8, &(struct ferry_shape){1, {3}}, &error));
        say("in time %d, pending %d", seconds() - start < 0.6, ferry_test(completion) == FERRY_PENDING);
    }
    report("finish", ferry_finish(completion, &error));
    if (ferry_tensor_reshape(tensor, FERRY_U8, &(struct ferry_shape){1, {3}}, &error) != FERRY_OK)
        say("the tensor is not given back: %s", error.text);
    ferry_tensor_release(tensor);
}

/* ---- failures of the session ---- */

/* Whatever this rank calls next, and how long that takes. */
void after_failure(void)
{
    struct ferry_group *group = group_named("turned");
    struct ferry_completion *completion = NULL;
    double start;

    /* The first call that meets it may still be ahead of the news. */
    start = seconds();
    while (ferry_progress(session, &error) == FERRY_OK && seconds() - start < 30)
        usleep(1000);
    report("progress", error.status);
    start = seconds();
    report("barrier", ferry_barrier(group, &completion, &error));
    report("sum", sum(group, 10));
    say("at once %d", seconds() - start < 0.5);
}

static void scene_fail(void)
{
    (void)sum(group_named("turned"), 10); /* by then every rank has opened its session */
    if (ferry_rank(session) == 1)
        ferry_fail(session, FERRY_STORAGE, "the tape is torn");
    after_failure();
}

static void scene_careless(void)
{
    (void)sum(group_named("turned"), 10);
    if (ferry_rank(session) == 1)
        ferry_fail(session, FERRY_OK, "two\nlines\t\033[1m");
    after_failure();
}

static void scene_silent_fail(void)
{
    (void)sum(group_named("turned"), 10);
    if (ferry_rank(session) == 1)
        ferry_fail(session, FERRY_STORAGE, NULL);
    after_failure();
}

static void scene_mismatch(void)
{
    report("first", sum(group_named("turned"), ferry_rank(session) == 1 ? 11 : 10));
    after_failure();
}

/* Rank 1 computes without a sign of life for longer than the topology's timeout. */
static void scene_silent(void)
{
    if (ferry_rank(session) == 1) /* before the first operation: start-up is over all the same */
        sleep(4);
    report("first", sum(group_named("turned"), 10));
    after_failure();
}

/* The same, and the others do not wait: they ask in turns. */
static void scene_polled(void)
{
    struct ferry_completion *completion = NULL;
    double start = seconds();

    if (sum(group_named("turned"), 10) != FERRY_OK)
        exit(96);
    if (ferry_rank(session) == 1)
        sleep(4);
    if (ferry_barrier(group_named("turned"), &completion, &error) == FERRY_OK) {
        while (ferry_test(completion) == FERRY_PENDING && ferry_progress(session, &error) == FERRY_OK &&
               seconds() - start < 15)
            usleep(1000);
        report("first", ferry_wait(completion, 0, &error));
        say("stuck %d", error.status == FERRY_STUCK && ferry_wait(completion, 1000000, &error) == FERRY_STUCK &&
                            ferry_exit_code(FERRY_STUCK) == ferry_exit_code(FERRY_TIMEOUT));
        ferry_abandon(completion);
    }
    after_failure();
}

/* A mistake with memory: one of the few that end the process, and what it says. */
static void scene_released(void)
{
    struct ferry_completion *completion = NULL;

    if (ferry_rank(session) == 1 && ferry_barrier(group_named("turned"), &completion, &error) == FERRY_OK)
        ferry_release(completion); /* pending: rank 0 has not come */
    sleep(30);
}

/* The other ranks are killed with their session open; one that stays is told. */
static void scene_sums(void)
{
    for (int i = 0; i < 20; i++) {
        enum ferry_status status = sum(group_named("turned"), 1000);

        if (status != FERRY_OK) {
            report("sum", status);
            return;
        }
    }
    say("20 sums");
}

/* A second session beside the first, which goes on. */
static void scene_again(void)
{
    struct ferry_session *second = NULL;

    report("again", ferry_open(path, NULL, &second, &error));
    report("sum", sum(group_named("turned"), 1000));
}

static void use_parents_session(struct ferry_completion *pending)
{
    struct ferry_completion *completion = NULL;
    struct ferry_bundle *bundle = NULL;
    struct ferry_route *route = NULL;

    report("child", ferry_barrier(group_named("turned"), &completion, &error));
    report("child", ferry_progress(session, &error));
    report("child", ferry_finish(pending, &error));
    if (ferry_find_route(session, "lone", &route, &error) == FERRY_OK)
        report("child", ferry_acquire(route, &bundle, &error));
    ferry_fail(session, FERRY_STORAGE, "a child's mistake");
    say("child: test %d, fail quiet", (int)ferry_test(pending));
    report("child", ferry_close(session, &error));
}

/* A child says nothing in its parent's name, whose operation is under way meanwhile. */
static void scene_forked(void)
{
    struct ferry_completion *pending = NULL;
    struct ferry_tensor *tensor = floats(1000);
    pid_t child;

    ferry_all_reduce_sum(group_named("turned"), tensor, tensor, &pending, &error);
    child = fork();
    if (child == 0) {
        use_parents_session(pending);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    report("sum", ferry_finish(pending, &error));
    ferry_tensor_release(tensor);
}

/* Every rank comes to the end, and MPI's own end does not come about. */
static void scene_refused(void)
{
    at_end = REFUSED;
}

static void scene_absent(void)
{
    at_end = ferry_rank(session) == 1 ? ABSENT : PRESENT;
}

/* ---- a program with an MPI of its own ---- */

static void open_and_sum(const char *topology, const struct ferry_options *options)
{
    enum ferry_status status = ferry_open(topology, options, &session, &error);

    if (status != FERRY_OK) {
        report("open", status);
        return;
    }
    report("sum", sum(group_named("turned"), 1000));
    status = ferry_close(session, &error);
    session = NULL;
    report("close", status);
}

static int own_mpi(int level, const char *topology, const struct ferry_options *options)
{
    int given, rank, ranks = 0;

    MPI_Init_thread(NULL, NULL, level, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    open_and_sum(topology, options);
    /* MPI is the program's: it works before, between and after sessions. */
    MPI_Allreduce(&(int){1}, &ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (level == MPI_THREAD_MULTIPLE)
        open_and_sum(topology, options);
    say("own MPI has %d ranks", ranks);
    return MPI_Finalize();
}

static const struct scene {
    const char *name;
    void (*run)(void);
} scenes[] = {{"operations", scene_operations},
              {"mistakes", scene_mistakes},
              {"deadline", scene_deadline},
              {"released", scene_released},
              {"executors", scene_executors},
              {"torn", scene_torn},
              {"odd", scene_odd},
              {"lingering", scene_lingering},
              {"again", scene_again},
              {"forked", scene_forked},
              {"refused", scene_refused},
              {"absent", scene_absent},
              {"fail", scene_fail},
              {"mismatch", scene_mismatch},
              {"silent", scene_silent},
              {"sums", scene_sums},
              {"polled", scene_polled},
              {"careless", scene_careless},
              {"reasonless", scene_silent_fail}};

int main(int argc, char **argv)
{
    const char *set[8], *fault[8];
    struct ferry_options options = {.size = sizeof options, .set = set, .fault = fault};
    bool lingering = argc > 1 && !strcmp(argv[1], "lingering");
    enum ferry_status status;
    double start, took;

    for (int i = 3; i < argc && i < 11; i++) {
        if (!strncmp(argv[i], "fault:", 6))
            fault[options.fault_count++] = argv[i] + 6;
        else if (!strncmp(argv[i], "run_dir:", 8))
            options.run_dir = argv[i] + 8;
        else
            set[options.set_count++] = argv[i];
    }
    path = argv[2];
    if (!strcmp(argv[1], "single"))
        return own_mpi(MPI_THREAD_SERIALIZED, argv[2], &options);
    if (!strcmp(argv[1], "multiple"))
        return own_mpi(MPI_THREAD_MULTIPLE, argv[2], &options);
    if (!strcmp(argv[1], "twice")) {
        open_and_sum(argv[2], &options);
        open_and_sum(argv[2], &options);
        return 0;
    }
    if (!strcmp(argv[1], "size"))
        options.size = 3;
    status = ferry_open(argv[2], &options, &session, &error);
    if (status != FERRY_OK) {
        report("open", status);
        return ferry_exit_code(status);
    }
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (!strcmp(argv[1], scenes[i].name))
            scenes[i].run();
    start = seconds();
    last_rank = ferry_rank(session);
    status = ferry_close(session, &error);
    session = NULL;
    if (status != FERRY_OK) {
        took = seconds() - start;
        report("close", status);
        /* mpirun ends the others when the first one leaves: let them have their say, also one that waits for its work.
         */
        sleep(lingering ? 3 : 1);
        printf("closed in time %d: %s\n", took < (lingering ? 8 : 4), ferry_status_name(status));
    }
    return fflush(stdout) ? 94 : ferry_exit_code(status);
}
