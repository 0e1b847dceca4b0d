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
