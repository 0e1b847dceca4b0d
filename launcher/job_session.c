/* A job's session: what it is opened with, who speaks for it, what all ranks agree on in it, its last watchdog.
 *
 * Only rank 0's lines reach the user whole, so those of other ranks come to it over the session and are printed here
 * with the tags that they were said with. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/cause.h"
#include "comm/control.h"
#include "launcher/job_private.h"
#include "launcher/watchdog.h"
#include "runtime/facts.h"
#include "runtime/wishes.h"
#include "topology/topology.h"

/* The end of the transport: after the keepers of stopped ranks have had their say, before the transport gives up. */
#define PART_NS (7 * NS_PER_S)

static void speak(void *context, const struct cause *cause)
{
    const struct job *job = context;

    if (job->prepared != STATUS_OK && job->run_dir.length) /* the session was given no folder */
        (void)cause_save(text_string(&job->run_dir), cause, NULL, NULL, NULL);
    if (cause->status == STATUS_USAGE) /* of no rank: all were given the command line */
        log_set_tag("");
    log_error("%s: %s", status_name(cause->status), cause->text);
    log_set_tag(job->tag);
    if (job->task && job->task->told)
        job->task->told(job->task->context, cause);
}

/* A line of rank 0, or, perhaps as "TAG\nLINE", of another rank. */
static void print_line(void *context, int rank, const char *line)
{
    const struct job *job = context;
    const char *text = strchr(line, '\n');
    char old[96];
    char tag[96];

    (void)snprintf(old, sizeof old, "%s", log_tag());
    if (text)
        (void)snprintf(tag, sizeof tag, "%.*s", (int)(text - line), line);
    else if (rank)
        (void)snprintf(tag, sizeof tag, "rank %d/%d", rank, job->starter.size);
    else
        (void)snprintf(tag, sizeof tag, "%s", job->tag);
    log_set_tag(tag); /* the calling thread may be one without a tag */
    log_warning("%s", text ? text + 1 : line);
    log_set_tag(old);
}

void job_check_shared(const struct job *job)
{
    struct text line = {0};

    if (!job->run_dir.length || job->starter.local_rank > 0 || run_folder_shared(text_string(&job->run_dir)))
        return;
    text_add(&line,
             "%s on %s\nrun_dir: %s is not the folder that rank 0 writes to: not shared between the hosts.  "
             "`ferry doctor` needs the files of all hosts in one folder",
             job->tag, job->starter.host, text_string(&job->run_dir));
    session_log(job->session, text_string(&line));
    text_done(&line);
}

static bool explain_part(void *context, struct text *out)
{
    (void)context;
    text_add(out, "all ranks had finished, and one does not leave");
    return true;
}

/* Every rank has come to the end: from here on only a watchdog sees one that does not leave. */
static void part(void *context)
{
    const struct job *job = context;
    uint64_t timeout_ns = job->topology->communication.timeout_ns.value;

    watchdog_arm(job->watchdog, clock_ns() + timeout_ns + PART_NS, "the end of the transport", "communication.timeout");
    watchdog_ask(job->watchdog, explain_part, NULL);
}

enum status job_open_session(struct job *job, struct error *err)
{
    struct session_options options = {
        .run_dir = job->run_dir.length && job->prepared == STATUS_OK ? text_string(&job->run_dir) : NULL,
        .faults = job->options->fault,
        .fault_count = job->options->fault_count,
        .speak = speak,
        .speak_context = job,
        .part = part,
        .part_context = job,
        .log = print_line,
        .log_context = job,
    };
    enum status st;

    wishes_session(job->topology, &options);
    wire_session(&job->wire, &options);
    st = session_create(job->wire.ops, job->wire.transport, &options, &job->session, err);
    if (st == STATUS_OK)
        job->wire.transport = NULL;
    return st;
}

enum status job_consensus(struct job *job, struct error *err)
{
    char top[16];
    const struct fact more[] = {
        {"option.command", job->task ? job->task->name : "run"},
        {"option.top-logits", top},
        {"option.logits-digest", job->options->logits_digest ? "true" : "false"},
    };
    const struct facts facts = {.prepared = job->prepared,
                                .why = job->why.text,
                                .topology = job->topology,
                                .plan = job->plan,
                                .transport = job->wire.ops->name,
                                .count = sizeof more / sizeof *more,
                                .more = more};

    (void)snprintf(top, sizeof top, "%u", job->options->top_logits);
    return facts_agree(&facts, job->session, err);
}
