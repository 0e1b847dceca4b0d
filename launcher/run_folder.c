/* Before MPI the starter's variables are all that ranks share, and some starters give no id.  So rank 0's is sent to
 * everybody once MPI is up, whether it is needed or not: a rank that cannot know would else wait for one that does not
 * send.  Cost: one message a rank, once. */
#include "launcher/run_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "comm/recorder.h"

/* The starter's own words for a job, in the order in which they are believed. */
static const char *const job_variables[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID"};

const char *run_job_name(void)
{
    for (size_t i = 0; i < sizeof job_variables / sizeof *job_variables; i++) {
        const char *name = getenv(job_variables[i]);

        if (name && *name)
            return name;
    }
    return "";
}

/* A person chose it, and looks for the folder of this name. */
static enum status check_chosen(const char *id, struct error *err)
{
    if (strlen(id) >= RUN_ID_BYTES)
        return error_set(err, STATUS_ENVIRONMENT, "FERRY_RUN_ID has %zu bytes, at most %d are allowed: %.40s...",
                         strlen(id), RUN_ID_BYTES - 1, id);
    for (const char *c = id; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return error_set(err, STATUS_ENVIRONMENT,
                             "FERRY_RUN_ID holds the control character 0x%02x at byte %d: it names the run's folder",
                             (unsigned char)*c, (int)(c - id));
    }
    return STATUS_OK;
}

enum status run_id_given(char *id, struct error *err)
{
    const char *chosen = getenv("FERRY_RUN_ID");
    const char *job = run_job_name();
    enum status st = chosen ? check_chosen(chosen, err) : STATUS_OK;

    memset(id, 0, RUN_ID_BYTES);
    if (st != STATUS_OK)
        return st;
    if (chosen && *chosen)
        (void)snprintf(id, RUN_ID_BYTES, "%s", chosen);
    else if (strlen(job) < RUN_ID_BYTES)
        (void)snprintf(id, RUN_ID_BYTES, "%s", job);
    else
        (void)snprintf(id, RUN_ID_BYTES, "%.46s-%016" PRIx64, job, (uint64_t)XXH3_64bits(job, strlen(job)));
    return STATUS_OK;
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

enum status run_id_choose(char *id, struct error *err)
{
    enum status st = run_id_given(id, err);

    if (st == STATUS_OK && !*id)
        invent(id);
    return st;
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
    uint32_t tag = ops->max_tag(transport) - 1; /* no group or route exists yet */

    if (ops->rank(transport) != 0)
        return receive(ops, transport, tag, deadline_ns, id, err);
    return send(ops, transport, tag, deadline_ns, id, err);
}

static enum status make(const char *path, struct error *err)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return error_set(err, STATUS_STORAGE, "run_dir: %s cannot be made: %s", path, strerror(errno));
    return STATUS_OK;
}

enum status run_folder_make(const char *run_dir, const char *name, const char *id, struct text *path, struct error *err)
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
    return st;
}

bool run_folder_shared(const char *path)
{
    char ring[4096];

    return recorder_path(path, 0, ring, sizeof ring) == STATUS_OK && access(ring, F_OK) == 0;
}
