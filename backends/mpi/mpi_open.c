/* Start and end.  MPI_Init, the duplication of the world, the barrier of a clean end and MPI_Finalize are the only
 * calls here that wait; the barrier has a deadline, the caller's watchdog bounds the others.  After a failure
 * MPI_Finalize would hang and is not called: then everything that MPI may still read is left as it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/mpi/mpi_errors.h"
#include "backends/mpi/mpi_private.h"
#include "base/clock.h"
#include "base/memory_shared.h"

/* A rank that came to the end too early leaves after those that miss it have had their say. */
#define CLOSE_SLACK_NS (8 * NS_PER_S)

static const char *level_name(int level)
{
    switch (level) {
    case MPI_THREAD_SINGLE:
        return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
        return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
        return "MPI_THREAD_SERIALIZED";
    default:
        return "MPI_THREAD_MULTIPLE";
    }
}

/* MPI_COMM_SELF's name in a process whose MPI a session has initialised: MPI's own memory, so that a second session
 * knows it. */
static const char started_here[] = "MPI_COMM_SELF, initialised by Ferry";

static bool was_started_here(void)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;

    return MPI_Comm_get_name(MPI_COMM_SELF, name, &length) == MPI_SUCCESS && !strcmp(name, started_here);
}

/* MPI runs already.  The program's: it calls MPI from its threads while our control thread does. */
static enum status check_running(struct error *err)
{
    int level = MPI_THREAD_SINGLE;
    int finalized = 0;

    (void)MPI_Finalized(&finalized);
    if (finalized)
        return error_set(
            err, STATUS_ENVIRONMENT,
            "MPI was finalised in this process, by the program or by the end of a session that had initialised "
            "it: without an MPI of its own a process can open one session only; for several, call MPI_Init_thread with "
            "MPI_THREAD_MULTIPLE before the first");
    if (was_started_here())
        return error_set(err, STATUS_ENVIRONMENT,
                         "a session was opened in this process before, is open or has failed, and Ferry initialised "
                         "MPI for it: without an MPI of its own a process can open one session only; use that one, or, "
                         "for several, call MPI_Init_thread with MPI_THREAD_MULTIPLE before the first");
    (void)MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE)
        return error_set(err, STATUS_ENVIRONMENT,
                         "the program initialised MPI with %s: call MPI_Init_thread with MPI_THREAD_MULTIPLE, or let "
                         "Ferry initialise MPI",
                         level_name(level));
    return STATUS_OK;
}

/* What the user has set stays.  Nothing is said about giving the core away (mpi_yield_when_idle): that would cost every
 * look for a message a call into the kernel, and mpirun asks for it where ranks outnumber cores. */
static void set_environment(const struct transport_options *options)
{
    if (options->interface) {
        (void)setenv("OMPI_MCA_btl_tcp_if_include", options->interface, 0);
        (void)setenv("OMPI_MCA_oob_tcp_if_include", options->interface, 0);
    }
}

static enum status start(const struct transport_options *options, struct error *err)
{
    int level = MPI_THREAD_SINGLE;
    enum status st;

    set_environment(options);
    st = mpi_status(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread", err);
    if (st)
        return st;
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)MPI_Comm_set_name(MPI_COMM_SELF, started_here);
    if (level < MPI_THREAD_SERIALIZED)
        return error_set(err, STATUS_ENVIRONMENT,
                         "this MPI gives %s only; Ferry needs MPI_THREAD_SERIALIZED: use an MPI built with threads",
                         level_name(level));
    return STATUS_OK;
}

static enum status duplicate(MPI_Comm *ret, struct error *err)
{
    enum status st = mpi_status(MPI_Comm_dup(MPI_COMM_WORLD, ret), "MPI_Comm_dup", err);

    if (st == STATUS_OK)
        st = mpi_status(MPI_Comm_set_errhandler(*ret, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", err);
    return st;
}

static uint32_t max_tag(MPI_Comm comm)
{
    int *bound = NULL;
    int found = 0;

    /* 32767 is what every MPI must give. */
    if (MPI_Comm_get_attr(comm, MPI_TAG_UB, &bound, &found) != MPI_SUCCESS || !found || *bound < 0)
        return 32767;
    return (uint32_t)*bound;
}

/* Every rank's host, so that a failure can be told with it.  Without memory for them it is told without.  Collective:
 * every rank takes part in the exchange or none. */
static void gather_hosts(struct transport *transport)
{
    char(*host)[HOST_NAME_BYTES] = calloc((size_t)transport->size, sizeof *host);
    char own[HOST_NAME_BYTES] = "";
    int ready = host != NULL;
    int all = 0;

    (void)gethostname(own, sizeof own - 1);
    if (MPI_Allreduce(&ready, &all, 1, MPI_INT, MPI_MIN, transport->payload) == MPI_SUCCESS && all &&
        MPI_Allgather(own, HOST_NAME_BYTES, MPI_CHAR, host, HOST_NAME_BYTES, MPI_CHAR, transport->payload) ==
            MPI_SUCCESS)
        transport->host = host;
    else
        free(host);
}

/* "Open MPI v4.1.4, 2 hosts": the library's own words up to the first comma or line end. */
static void describe(struct transport *transport, int hosts)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "MPI";
    int length = 0;

    (void)MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n\t")] = '\0';
    (void)snprintf(transport->about, sizeof transport->about, "%.100s, %d host%s", version, hosts,
                   hosts == 1 ? "" : "s");
    if (hosts > 1)
        gather_hosts(transport);
}

/* Do processes of a host share memory?  For diagnosis the environment may say that they do not. */
static enum status choose_shared(bool *ret, struct error *err)
{
    const char *chosen = getenv("FERRY_MPI_SHARED");

    *ret = !chosen || !strcmp(chosen, "on");
    if (*ret || !strcmp(chosen, "off"))
        return STATUS_OK;
    return error_set(
        err, STATUS_ENVIRONMENT,
        "FERRY_MPI_SHARED is '%.40s': say off, and ranks of one host exchange all messages through MPI, or "
        "on, as without it",
        chosen);
}

/* Meet the processes of this host, and share with them what there is.  Without a post nothing of it is used.
 * Collective. */
static void share(struct transport *transport, bool shared, const struct memory *lent)
{
    struct shared_file files[HOST_KINDS] = {[HOST_TENSORS] = {.fd = -1}};
    int hosts = 0;

    transport->here = host_open(transport->payload, &hosts);
    describe(transport, hosts);
    transport->post = post_create(transport->size);
    if (shared && transport->post)
        transport->mailbox = mailbox_create(transport->here, transport->size);
    transport->lending = (struct lending){transport->mailbox ? lent : NULL, transport->here};
    files[HOST_MAIL] = mailbox_file(transport->mailbox);
    if (transport->lending.memory)
        files[HOST_TENSORS] = memory_shared_file(lent);
    host_share(transport->here, files, transport->mailbox != NULL);
    mailbox_open(transport->mailbox);
    if (transport->post)
        post_open(transport->post, transport->mailbox, transport->max_tag, MAX_MESSAGE);
}

enum status mpi_open(const struct transport_options *options, struct transport **ret, struct error *err)
{
    struct transport *transport = calloc(1, sizeof *transport);
    bool shared = true;
    int initialized = 0;
    enum status st = choose_shared(&shared, err);

    if (!transport)
        return error_set(err, STATUS_NOMEM, "MPI transport");
    (void)MPI_Initialized(&initialized);
    transport->owns_mpi = !initialized;
    if (st == STATUS_OK && options->program_owns_mpi && !initialized)
        st = error_set(err, STATUS_ENVIRONMENT, "the program said that it initialises MPI, but has not done so");
    else if (st == STATUS_OK)
        st = initialized ? check_running(err) : start(options, err);
    if (st == STATUS_OK)
        st = duplicate(&transport->payload, err);
    if (st == STATUS_OK)
        st = duplicate(&transport->control, err);
    if (st) {
        free(transport);
        return st;
    }
    (void)MPI_Comm_rank(transport->payload, &transport->rank);
    (void)MPI_Comm_size(transport->payload, &transport->size);
    transport->max_tag = max_tag(transport->payload);
    transport->close_ns = (options->timeout_ns ? options->timeout_ns : options->startup_timeout_ns) + CLOSE_SLACK_NS;
    transport->lends_all = options->lend_all;
    share(transport, shared, options->shared);
    *ret = transport;
    return STATUS_OK;
}

void mpi_limit_close(struct transport *transport, uint64_t close_ns)
{
    if (close_ns < transport->close_ns)
        transport->close_ns = close_ns;
}

/* Late control messages ("what do you wait for?") to us must be taken: an unreceived one could hold up its sender. */
static void drain(struct transport *transport)
{
    unsigned char bytes[CONTROL_BYTES];
    bool more = true;
    int peer;

    while (more && mpi_control_receive(transport, &peer, bytes, &more, NULL) == STATUS_OK)
        continue;
}

/* A barrier that sleeps, since MPI's own would burn the core while a rank is late.  STATUS_TIMEOUT: somebody has not
 * come by then. */
static enum status wait_for_all(struct transport *transport, uint64_t deadline_ns, struct error *err)
{
    MPI_Request request;
    int done = 0;
    uint64_t pause_ns = 1000;
    enum status st = mpi_status(MPI_Ibarrier(transport->payload, &request), "MPI_Ibarrier", err);

    while (st == STATUS_OK) {
        st = mpi_status(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", err);
        drain(transport);
        if (st != STATUS_OK || (done && !transport->letters))
            return st;
        if (clock_ns() > deadline_ns)
            return error_set(err, STATUS_TIMEOUT,
                             "not every rank has come to the end of MPI within %.1f s: all had finished, and one was "
                             "lost or stopped since",
                             (double)transport->close_ns / (double)NS_PER_S);
        clock_sleep_ns(pause_ns);
        pause_ns = pause_ns < NS_PER_MS ? pause_ns * 2 : NS_PER_MS;
    }
    return st;
}

/* MPI may still read what is pending: it stays; the process ends, or the program keeps its MPI. */
static void leave(struct transport *transport)
{
    post_destroy(transport->post);
    transport->post = NULL;
    mailbox_close(transport->mailbox); /* peers have maps of their own */
    transport->mailbox = NULL;
    transport->lending = (struct lending){0};
    host_close(transport->here);
    transport->here = NULL;
    message_pool_done(&transport->messages);
}

enum status mpi_close(struct transport *transport, bool clean, struct error *err)
{
    uint64_t deadline_ns;
    enum status st;

    if (!transport)
        return STATUS_OK;
    deadline_ns = clock_ns() + transport->close_ns;
    st = clean ? wait_for_all(transport, deadline_ns, err) : STATUS_OK; /* nobody sends a letter after this one */
    if (clean && st == STATUS_OK)
        st = wait_for_all(transport, deadline_ns, err); /* and everybody has taken those to him */
    if (!clean || st != STATUS_OK) {
        leave(transport);
        return st;
    }
    (void)MPI_Comm_free(&transport->control);
    (void)MPI_Comm_free(&transport->payload);
    while (transport->free_work) {
        struct work *work = transport->free_work;

        transport->free_work = work->next;
        free(work);
    }
    message_pool_done(&transport->messages);
    post_destroy(transport->post);
    mailbox_close(transport->mailbox);
    host_close(transport->here);
    if (transport->owns_mpi)
        (void)MPI_Finalize();
    free(transport->host);
    free(transport);
    return STATUS_OK;
}
