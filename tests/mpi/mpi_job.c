/* A job as `ferry run` lives it, without a model: keeper, watchdog, plugin, consensus, steps, settling.
 *
 * mpi_job TIMEOUT_S RUN_DIR [RANK MISHAP]: that rank has that mishap.  In a run each rank makes STEPS sums; where the
 * mishap is one of lent messages, gathers out of memory that the ranks share. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory_shared.h"
#include "comm/executor.h"
#include "comm/group.h"
#include "comm/session.h"
#include "launcher/keeper.h"
#include "comm/plugin.h"
#include "launcher/starter.h"
#include "launcher/watchdog.h"

enum { STEPS = 40, MISHAP_STEP = 10, MAX_RANKS = 64 };

struct job {
    uint64_t timeout_ns;
    const char *run_dir;
    int odd_rank;
    const char *mishap;
    bool odd; /* this rank has it */
    struct watchdog *watchdog;
    const struct transport_ops *ops;
    struct transport_ops odd_ops;
    struct memory *shared; /* NULL: no messages are lent */
    struct transport *transport;
    struct session *session;
    bool speaks;
};

static bool has(const struct job *job, const char *mishap)
{
    return job->odd && strcmp(job->mishap, mishap) == 0;
}

/* Asleep where no signal of life is given. */
static void sleep_s(double seconds)
{
    uint64_t until_ns = clock_ns() + (uint64_t)(seconds * 1e9);

    while (clock_ns() < until_ns)
        clock_sleep_ns(10 * NS_PER_MS);
}

/* In place of the transport's own close: every rank has come to its end, and this one is lost just then. */
static enum status never_close(struct transport *transport, bool clean, struct error *err)
{
    (void)transport;
    (void)clean;
    (void)err;
    sleep_s(1000);
    return STATUS_OK;
}

/* In the place of the transport's look, while a message lies in its sender's memory: it is what this rank does last. */
static const unsigned char *die_reading(const struct transport *transport, const struct message *message,
                                        size_t *ret_header_bytes, struct runs *ret)
{
    (void)transport;
    (void)message;
    (void)ret_header_bytes;
    (void)ret;
    (void)raise(SIGKILL);
    return NULL;
}

static const unsigned char *stop_reading(const struct transport *transport, const struct message *message,
                                         size_t *ret_header_bytes, struct runs *ret)
{
    (void)transport;
    (void)message;
    (void)ret_header_bytes;
    (void)ret;
    (void)raise(SIGSTOP);
    return NULL;
}

/* MPI's own start takes its time on a busy machine; where it never ends every rank has the job's. */
static uint64_t init_ns(const struct job *job)
{
    return strcmp(job->mishap, "late-init") == 0 || strcmp(job->mishap, "lost-init") == 0 ? job->timeout_ns
                                                                                          : 10 * job->timeout_ns;
}

static enum status start(struct job *job, struct keeper *keeper, struct error *err)
{
    struct transport_options transport_options = {.startup_timeout_ns = 1000 * NS_PER_S, .timeout_ns = job->timeout_ns};
    struct session_options options = {
        .timeout_ns = job->timeout_ns, .startup_timeout_ns = job->timeout_ns, .run_dir = job->run_dir};
    struct starter starter;
    char tag[64];
    enum status st;

    starter_read(&starter);
    (void)snprintf(tag, sizeof tag, "rank %d/%d", starter.rank, starter.size);
    log_set_tag(tag);
    job->odd = starter.rank == job->odd_rank;
    st = watchdog_create(&job->watchdog, err);
    if (st == STATUS_OK)
        st = plugin_transport("mpi", &job->ops, NULL, 0, err);
    if (st)
        return st;
    watchdog_arm(job->watchdog, clock_ns() + init_ns(job), "MPI_Init", "startup_timeout");
    if (has(job, "late-init"))
        sleep_s(1000);
    job->odd_ops = *job->ops;
    if (has(job, "late-close"))
        job->odd_ops.close = never_close;
    if (has(job, "lent-kill"))
        job->odd_ops.look = die_reading;
    if (has(job, "lent-stop"))
        job->odd_ops.look = stop_reading;
    job->ops = &job->odd_ops;
    if (!strncmp(job->mishap, "lent-", 5))
        transport_options.shared = job->shared = memory_shared_create(1 << 20);
    st = job->ops->open(&transport_options, &job->transport, err);
    watchdog_disarm(job->watchdog);
    if (st)
        return st;
    st = starter_check(&starter, job->ops->size(job->transport), 0, "mpirun -n 2 mpi_job", err);
    if (st == STATUS_OK)
        st = session_create(job->ops, job->transport, &options, &job->session, err);
    if (st == STATUS_OK)
        keeper_set_run(keeper, job->run_dir, session_rank(job->session), session_size(job->session));
    return st;
}

static enum status agree(struct job *job, struct error *err)
{
    struct manifest_key key = {.key = "mesh.tensor", .digest = 2, .value = "2"};
    struct manifest manifest = {.topology_digest = 1, .key_count = 1, .keys = &key};

    if (has(job, "differ"))
        key = (struct manifest_key){.key = "mesh.tensor", .digest = 4, .value = "4"};
    if (has(job, "bad-file")) {
        manifest.status = STATUS_TOPOLOGY;
        manifest.why = "x.yaml:3:5: unknown key meesh";
    }
    if (has(job, "never-comes"))
        sleep_s(1000);
    return session_consensus(job->session, &manifest, err);
}

static enum status fail_to_produce(void *context, struct error *err)
{
    (void)context;
    return error_set(err, STATUS_MODEL, "token 7 is not finite");
}

/* What the next sum is made of fails to be made. */
static enum status produce_nothing(struct job *job, struct error *err)
{
    struct executor *executor = NULL;
    struct completion *producer = NULL;
    enum status st = executor_create(job->session, "cpu/0", 1, &executor, err);

    if (st == STATUS_OK)
        st = executor_submit(executor, fail_to_produce, NULL, &producer, err);
    if (st == STATUS_OK)
        st = group_after(session_group(job->session, 1), producer, err);
    completion_abandon(producer);
    executor_release(executor);
    return st;
}

/* In the middle of the steps. */
static enum status mishap(struct job *job, struct error *err)
{
    if (has(job, "kill"))
        raise(SIGKILL);
    if (has(job, "abort"))
        abort();
    if (has(job, "crash"))
        raise(SIGSEGV);
    if (has(job, "stop"))
        raise(SIGSTOP);
    if (has(job, "hang"))
        sleep_s(1000);
    if (has(job, "fail"))
        return error_set(err, STATUS_STORAGE, "checkpoint.bin: No space left on device");
    if (has(job, "producer"))
        return produce_nothing(job, err);
    return STATUS_OK;
}

/* A sum, or a gather in place. */
static enum status operate(struct job *job, struct tensor *tensor, struct error *err)
{
    struct group *group = session_group(job->session, 1);
    struct completion *completion = NULL;
    enum status st = job->shared ? group_all_gather_even(group, tensor, tensor, 0, &completion, err)
                                 : group_all_reduce_sum(group, tensor, tensor, &completion, err);

    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    if (completion)
        completion_abandon(completion);
    return st;
}

static enum status steps(struct job *job, struct error *err)
{
    static int members[MAX_RANKS]; /* lent to the session until it is closed */
    struct group_spec world = {.id = 1,
                               .name = "world/0",
                               .size = session_size(job->session),
                               .members = members,
                               .operations = OPERATIONS_ALL,
                               .dtypes = DTYPES_ALL,
                               .max_bytes = 1 << 20};
    struct shape shape = {1, {job->shared ? 30000 : 1000}};
    struct tensor *tensor = NULL;
    enum status st;

    for (int i = 0; i < world.size; i++)
        members[i] = i;
    st = session_build(job->session, &world, 1, NULL, 0, err);
    if (st == STATUS_OK)
        st = tensor_create_in(job->shared, DTYPE_F32, &shape, &tensor, err);
    for (int step = 0; step < STEPS && st == STATUS_OK; step++) {
        char phase[32];

        (void)snprintf(phase, sizeof phase, "step %d", step);
        session_phase(job->session, phase);
        session_progress(job->session);
        clock_sleep_ns(10 * NS_PER_MS);
        if (step == MISHAP_STEP)
            st = mishap(job, err);
        if (st == STATUS_OK)
            st = operate(job, tensor, err);
    }
    tensor_release(tensor);
    return st;
}

static int leave(struct job *job, enum status st, struct error *err)
{
    bool speaks = true;

    watchdog_leave(job->watchdog, 5 * NS_PER_S, status_exit_code(st));
    if (job->session) {
        session_fail(job->session, st, err->text);
        st = session_settle(job->session, err, &speaks);
    }
    if (speaks)
        log_error("%s: %s", status_name(st), err->text);
    _exit(status_exit_code(st));
}

static int work(void *context, struct keeper *keeper)
{
    struct job *job = context;
    struct error err = {0};
    enum status st = start(job, keeper, &err);

    if (st == STATUS_OK)
        st = agree(job, &err);
    if (st == STATUS_OK)
        st = steps(job, &err);
    if (st == STATUS_OK && has(job, "exit-200"))
        _exit(200);
    if (st == STATUS_OK)
        st = session_close(job->session, true, &err);
    if (st)
        return leave(job, st, &err);
    watchdog_destroy(job->watchdog);
    return 0;
}

int main(int argc, char **argv)
{
    struct job job = {.odd_rank = -1, .mishap = ""};

    if (argc != 3 && argc != 5)
        return 2;
    job.timeout_ns = (uint64_t)(strtod(argv[1], NULL) * 1e9);
    job.run_dir = argv[2];
    if (argc == 5) {
        job.odd_rank = (int)strtol(argv[3], NULL, 10);
        job.mishap = argv[4];
    }
    return keeper_run(work, &job);
}
