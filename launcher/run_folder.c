/* Before MPI the starter's variables are all that ranks share, and some starters give no id.  So rank 0's is sent to
 * everybody once MPI is up, whether it is needed or not: a rank that cannot know would else wait for one that does not
 * send.  Cost: one message a rank, once. */
#include "launcher/run_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/cause.h"
#include "comm/recorder.h"

const char *run_id_given(void)
{
    static const char *const variables[] = {"FERRY_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                            "SLURM_JOB_ID"};
    const char *id = NULL;

    for (size_t i = 0; !id && i < sizeof variables / sizeof *variables; i++) {
        id = getenv(variables[i]);
        if (id && !*id)
            id = NULL;
    }
    return id;
}

static void invent(char *id)
{
    time_t now = time(NULL);
    struct tm parts;
    size_t used = 0;

    if (gmtime_r(&now, &parts))
        used = strftime(id, RUN_ID_BYTES, "%Y%m%dT%H%M%SZ", &parts);
    (void)snprintf(id + used, RUN_ID_BYTES - used, "-%d", (int)getpid());
}

static enum status finish(const struct transport_ops *ops, struct transport *transport, struct work *work,
                          uint64_t deadline_ns, struct error *err)
{
    bool done = false;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && !done) {
        st = ops->test(transport, work, &done, err);
        if (st == STATUS_OK && !done && clock_ns() >= deadline_ns)
            st = error_set(err, STATUS_TIMEOUT, "the run's id has not been passed on in time");
        if (st == STATUS_OK && !done)
            clock_sleep_ns(NS_PER_MS / 20);
    }
    return st;
}

static enum status send(const struct transport_ops *ops, struct transport *transport, uint32_t tag,
                        uint64_t deadline_ns, const char *id, struct error *err)
{
    enum status st = STATUS_OK;

    for (int peer = 1; peer < ops->size(transport) && st == STATUS_OK; peer++) {
        struct work *work = NULL;

        st = ops->send(transport, peer, tag, id, RUN_ID_BYTES, &work, err);
        if (st == STATUS_OK)
            st = finish(ops, transport, work, deadline_ns, err);
    }
    return st;
}

static enum status receive(const struct transport_ops *ops, struct transport *transport, uint32_t tag,
                           uint64_t deadline_ns, char *id, struct error *err)
{
    struct message *message = NULL;
    struct work *work = NULL;
    size_t bytes = 0;
    enum status st = ops->probe(transport, 0, tag, &message, &bytes, err);

    while (st == STATUS_OK && !message) {
        if (clock_ns() >= deadline_ns)
            return error_set(err, STATUS_TIMEOUT, "rank 0 has not said the run's id");
        clock_sleep_ns(NS_PER_MS / 20);
        st = ops->probe(transport, 0, tag, &message, &bytes, err);
    }
    if (st == STATUS_OK && bytes != RUN_ID_BYTES)
        st = error_set(err, STATUS_CORRUPT,
                       "the run's id from rank 0 has %zu bytes, expected %d: another version of "
                       "Ferry?",
                       bytes, RUN_ID_BYTES);
    if (st == STATUS_OK)
        st = ops->receive(transport, message, id, RUN_ID_BYTES, &work, err);
    if (st == STATUS_OK)
        st = finish(ops, transport, work, deadline_ns, err);
    id[RUN_ID_BYTES - 1] = '\0';
    return st;
}

enum status run_id_agree(const struct transport_ops *ops, struct transport *transport, uint64_t deadline_ns, char *id,
                         struct error *err)
{
    const char *given = run_id_given();
    uint32_t tag = ops->max_tag(transport) - 1; /* no group or route exists yet */

    memset(id, 0, RUN_ID_BYTES);
    if (ops->rank(transport) != 0)
        return receive(ops, transport, tag, deadline_ns, id, err);
    if (given)
        (void)snprintf(id, RUN_ID_BYTES, "%s", given);
    else
        invent(id);
    return send(ops, transport, tag, deadline_ns, id, err);
}

static enum status make(const char *path, struct error *err)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return error_set(err, STATUS_STORAGE, "run_dir: %s cannot be made: %s", path, strerror(errno));
    return STATUS_OK;
}

enum status run_folder_make(const char *run_dir, const char *name, const char *id, bool fresh, struct text *path,
                            struct error *err)
{
    enum status st = make(run_dir, err);
    size_t begin;

    text_add(path, "%s/", run_dir);
    begin = path->length;
    text_add(path, "%s-%.*s", name, RUN_ID_BYTES - 1, id);
    if (path->failed)
        return error_set(err, STATUS_NOMEM, "the run's folder");
    for (size_t i = begin; i < path->length; i++) {
        if (path->bytes[i] == '/')
            path->bytes[i] = '_';
    }
    if (st == STATUS_OK)
        st = make(path->bytes, err);
    if (st == STATUS_OK && fresh)
        cause_forget(path->bytes);
    return st;
}

bool run_folder_shared(const char *path)
{
    char ring[4096];

    return recorder_path(path, 0, ring, sizeof ring) == STATUS_OK && access(ring, F_OK) == 0;
}
