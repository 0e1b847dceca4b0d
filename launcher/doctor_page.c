/* Times are told against the newest sign of life of any rank: the page may be read on another machine, much later. */
#include "launcher/doctor_page.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

enum { SHOWN_RANKS = 40, SHOWN_ENDS = 4, WORDS = 640 };

#define SHORT_S 0.2 /* ten times as long as a living rank is silent */

#define SHORT_NS (50 * NS_PER_MS) /* a wait that is no news of a rank that is no more */

static double seconds_between(uint64_t then_ns, uint64_t now_ns)
{
    return now_ns > then_ns ? (double)(now_ns - then_ns) / (double)NS_PER_S : 0;
}

static void add_time(uint64_t unix_ns, struct text *out)
{
    time_t when = (time_t)(unix_ns / NS_PER_S);
    struct tm parts;
    char words[64] = "unknown";

    if (gmtime_r(&when, &parts))
        (void)strftime(words, sizeof words, "%Y-%m-%d %H:%M:%S UTC", &parts);
    text_add(out, "%s", words);
}

static const char *signal_word(int number)
{
    const char *word = sigabbrev_np(number);

    return word ? word : "?";
}

/* "waits for rank 1 in send_receive on token/1-0, sequence 9, for 3.1 s (step 3)" */
static void describe_wait(const struct patient *patient, char *words, size_t bytes)
{
    const struct wait_state *wait = &patient->wait;
    char whom[32] = "";
    int used;

    if (wait->peer >= 0)
        (void)snprintf(whom, sizeof whom, " for rank %d", wait->peer);
    used = snprintf(words, bytes, "%s%s", patient->life == LIFE_RUNNING ? "waits" : "waited", whom);
    if (wait->operation != OPERATION_NONE)
        used += snprintf(words + used, bytes - (size_t)used, " in %s on %s, sequence %" PRIu64,
                         operation_name(wait->operation), wait->object_name, wait->sequence);
    (void)snprintf(words + used, bytes - (size_t)used, ", for %.1f s", (double)patient->waited_ns / (double)NS_PER_S);
}

/* What a rank does, or did last. */
static void describe(const struct patient *patient, char *words, size_t bytes)
{
    const char *phase = patient->wait.phase;
    size_t used;

    if (patient->life == LIFE_MISSING) {
        (void)snprintf(words, bytes, "-");
        return;
    }
    if (patient->life == LIFE_UNREADABLE) {
        (void)snprintf(words, bytes, "%s", patient->why);
        return;
    }
    if (patient->wait.waiting && patient->life != LIFE_CLOSED &&
        (patient->life == LIFE_RUNNING || patient->waited_ns >= SHORT_NS))
        describe_wait(patient, words, bytes);
    else if (patient->has_last)
        record_text(&patient->last, patient->seen_unix_ns - patient->started_unix_ns, words, bytes);
    else
        (void)snprintf(words, bytes, "no operation yet");
    used = strlen(words);
    if (phase[0])
        (void)snprintf(words + used, bytes - used, " (%s)", phase);
}

static void describe_life(const struct patient *patient, char *words, size_t bytes)
{
    if (patient->life == LIFE_FAILED)
        (void)snprintf(words, bytes, "failed: %s", status_name(patient->end_status));
    else if (patient->life == LIFE_KILLED)
        (void)snprintf(words, bytes, "killed: SIG%s", signal_word(patient->end_signal));
    else
        (void)snprintf(words, bytes, "%s", life_word(patient->life));
}

static void add_head(const struct doctor_page *page, struct text *out)
{
    const struct casefile *casefile = page->casefile;
    uint64_t now_ns;

    text_add(out, "run        %s", casefile->folder);
    if (page->other_runs)
        text_add(out, "  (the newest; %d other%s beside it)", page->other_runs, page->other_runs == 1 ? "" : "s");
    text_add(out, "\n");
    if (casefile->started_unix_ns) {
        now_ns = clock_unix_ns();
        text_add(out, "time       started ");
        add_time(casefile->started_unix_ns, out);
        text_add(out, ", last sign of life %.1f s later",
                 seconds_between(casefile->started_unix_ns, casefile->newest_unix_ns));
        if (!casefile->moving && now_ns > casefile->newest_unix_ns)
            text_add(out, ", %.0f s ago by this machine's clock", seconds_between(casefile->newest_unix_ns, now_ns));
        text_add(out, "\n");
    }
}

static void add_counts(const struct doctor_page *page, struct text *out)
{
    bool first = true;

    if (!page->casefile->size) {
        text_add(out, "ranks      unknown\n");
        return;
    }
    text_add(out, "ranks      %d: ", page->casefile->size);
    for (enum life life = 0; life < LIFE_COUNT; life++) {
        if (page->diagnosis->of_life[life]) {
            text_add(out, "%s%d %s", first ? "" : ", ", page->diagnosis->of_life[life], life_word(life));
            first = false;
        }
    }
    text_add(out, "\n");
}

/* Ranks come to MPI's start, and nothing has failed there. */
static bool starts(const struct casefile *casefile)
{
    return casefile->starting && !casefile->cause.known;
}

static void add_verdict(const struct doctor_page *page, struct text *out)
{
    const struct known_cause *cause = &page->casefile->cause;

    text_add(out, "verdict    ");
    if (starts(page->casefile)) {
        text_add(out, "starting: not all ranks have come to MPI's start\n");
        return;
    }
    text_add(out, "%s", cause->known ? "failed" : verdict_word(page->diagnosis->verdict));
    if (cause->known) {
        text_add(out, ": %s, exit code %d, %.1f s after the start", cause->status, cause->exit_code, cause->seconds);
        if (cause->reporter >= 0)
            text_add(out, ", told by rank %d", cause->reporter);
        text_add(out, "\ncause      %s", cause->text);
        if (cause->last_operation[0])
            text_add(out, "\n           its last operation: %s", cause->last_operation);
    } else if (page->diagnosis->verdict == VERDICT_GONE) {
        text_add(out, ": no rank gives a sign of life, and %s",
                 cause->damaged ? "the cause that was written cannot be read" : "none has said why");
    } else if (page->diagnosis->outside && !cause->damaged) {
        text_add(out, ": ended from outside, by SIG%s; no rank failed", signal_word(page->diagnosis->outside));
    } else if (page->diagnosis->verdict == VERDICT_FAILED) {
        text_add(out, cause->damaged ? ": the cause that was written cannot be read" : ": no cause was written");
    }
    text_add(out, "\n");
}

/* Ranks that tell something come first: those that did not end well, at most SHOWN_RANKS of them. */
static void add_ranks(const struct doctor_page *page, struct text *out)
{
    const struct casefile *casefile = page->casefile;
    int shown = 0;
    int left = 0;

    text_add(out, "\n%6s  %-12s %8s  %-19s %10s  %s\n", "rank", "host", "pid", "life", "silent for", "doing");
    for (int i = 0; i < casefile->size; i++) {
        const struct patient *patient = &casefile->patients[i];
        char life[48];
        char doing[WORDS];
        char sign[24] = "-";
        double silent_s;

        if ((patient->life == LIFE_CLOSED && casefile->size > SHOWN_RANKS) || shown >= SHOWN_RANKS) {
            left++;
            continue;
        }
        shown++;
        describe_life(patient, life, sizeof life);
        describe(patient, doing, sizeof doing);
        silent_s = seconds_between(patient->seen_unix_ns, casefile->newest_unix_ns);
        if (silent_s >= SHORT_S && patient->life != LIFE_MISSING && patient->life != LIFE_UNREADABLE)
            (void)snprintf(sign, sizeof sign, "%.1f s", silent_s);
        text_add(out, "%6d  %-12s %8d  %-19s %10s  %s\n", patient->rank, patient->host[0] ? patient->host : "-",
                 patient->pid, life, sign, doing);
    }
    if (left)
        text_add(out, "        and %d more ranks (--json shows all)\n", left);
}

static void add_call(const struct casefile *casefile, struct text *out)
{
    int shown = 0;

    text_add(out, "\nnot come  ");
    for (int i = 0; i < casefile->size; i++) {
        if (!casefile->came[i] && shown++ < SHOWN_RANKS)
            text_add(out, "%s%d", shown > 1 ? ", " : " rank ", i);
    }
    text_add(out, "%s\n",
             shown > SHOWN_RANKS      ? ", ..."
             : shown                  ? ""
             : !casefile->cause.known ? " nobody is missing: MPI itself is starting"
                                      : " nobody is missing: all had come to MPI's start");
}

/* Lines of text, each behind the same words. */
static void add_lines(const char *head, const char *lines, struct text *out)
{
    while (*lines) {
        int length = (int)strcspn(lines, "\n");

        text_add(out, "%-10s %.*s\n", head, length, lines);
        lines += length + (lines[length] == '\n');
        head = "";
    }
}

/* The rank at the end of a chain, and what is known of it. */
static enum status add_end(const struct doctor_page *page, int rank, struct text *out, struct error *err)
{
    const struct patient *patient = &page->casefile->patients[rank];
    struct text witnesses = {0};
    char words[WORDS];
    enum status st = STATUS_OK;

    describe_life(patient, words, sizeof words);
    text_add(out, "\nchain      ");
    diagnosis_add_chain(page->diagnosis, rank, out);
    text_add(out, ": %d rank%s for rank %d (%s", page->diagnosis->waiters[rank],
             page->diagnosis->waiters[rank] == 1 ? " waits" : "s wait", rank, words);
    if (patient->host[0])
        text_add(out, ", process %d on %s", patient->pid, patient->host);
    text_add(out, ")\n");
    if (patient->life != LIFE_MISSING && patient->life != LIFE_UNREADABLE) {
        (void)snprintf(words, sizeof words, "nothing");
        if (patient->has_last)
            record_text(&patient->last, patient->seen_unix_ns - patient->started_unix_ns, words, sizeof words);
        text_add(out, "           it did last: %s", words);
        text_add(out, patient->wait.phase[0] ? " (%s)\n" : "%s\n", patient->wait.phase);
    } else {
        st = casefile_witnesses(page->casefile, rank, &witnesses, err);
        add_lines("", text_string(&witnesses), out);
    }
    text_done(&witnesses);
    return st;
}

static bool is_end(const struct doctor_page *page, int rank)
{
    return page->diagnosis->waiters[rank] > 0;
}

static enum status add_waits(const struct doctor_page *page, struct text *out, struct error *err)
{
    const struct diagnosis *diagnosis = page->diagnosis;
    enum status st = STATUS_OK;
    int shown = 0;

    for (int i = 0; i < diagnosis->cycle_count && i < SHOWN_ENDS; i++) {
        text_add(out, "\ncycle      ");
        diagnosis_add_cycle(diagnosis, i, out);
        text_add(out, ": these ranks wait for each other\n");
    }
    if (diagnosis->suspect >= 0)
        st = add_end(page, diagnosis->suspect, out, err);
    for (int i = 0; i < diagnosis->size && st == STATUS_OK && shown < SHOWN_ENDS; i++) {
        if (i != diagnosis->suspect && is_end(page, i) && ++shown)
            st = add_end(page, i, out, err);
    }
    return st;
}

/* The rank that the advice is about: the cause's, else the one that most wait for, else one that is silent or dead. */
static int subject(const struct doctor_page *page)
{
    const struct casefile *casefile = page->casefile;

    if (casefile->cause.known && casefile->cause.rank >= 0 && casefile->cause.rank < casefile->size)
        return casefile->cause.rank;
    if (page->diagnosis->suspect >= 0)
        return page->diagnosis->suspect;
    for (int i = 0; i < casefile->size; i++) {
        if (casefile->patients[i].life == LIFE_KILLED || casefile->patients[i].life == LIFE_SILENT)
            return i;
    }
    return -1;
}

static void advise_process(const struct patient *patient, struct text *out)
{
    if (!patient->host[0])
        text_add(out,
                 "rank %d has left no file that can be read: is its host up, and does it write to this folder (run_dir "
                 "must be shared between the hosts)?\n",
                 patient->rank);
    else if (patient->life == LIFE_KILLED && patient->end_signal == SIGKILL)
        text_add(out,
                 "who sends SIGKILL is mostly the kernel out of memory, or a batch system's limit: on %s, dmesg | "
                 "grep -i oom; `ferry plan` shows what each rank needs\n",
                 patient->host);
    else if (patient->life == LIFE_KILLED)
        text_add(out,
                 "rank %d crashed or was ended by SIG%s: the lines before it in the job's output, and "
                 "coredumpctl on %s, say more\n",
                 patient->rank, signal_word(patient->end_signal), patient->host);
    else if (patient->life == LIFE_RUNNING)
        text_add(out,
                 "rank %d lives and works, or computes without end: on %s, gdb -p %d -batch -ex 'thread apply all "
                 "bt'\n",
                 patient->rank, patient->host, patient->pid);
    else
        text_add(out,
                 "look at rank %d: on %s, ps -o pid,stat,wchan,args -p %d (stat T: stopped, D: waits for a disk); "
                 "no such host or process: the host was lost\n",
                 patient->rank, patient->host, patient->pid);
}

static void add_advice(const struct doctor_page *page, struct text *out)
{
    const struct casefile *casefile = page->casefile;
    const struct known_cause *cause = &casefile->cause;
    enum verdict verdict = page->diagnosis->verdict;
    int rank = subject(page);

    if (casefile->processes.length && !cause->known)
        text_add(out, "nobody goes on, and nobody's end is seen, while a process stands: see above\n");
    else if (starts(casefile))
        text_add(out, "the ranks that have not come: was their host reached, and does `ferry version` run there?\n");
    else if (page->diagnosis->cycle_count && (!cause->known || (cause->exit_code == 7 && cause->rank < 0)))
        text_add(out, "the ranks of a cycle call operations in different orders, or one of them skipped one: compare "
                      "the last operations above\n");
    else if (!cause->known && (verdict == VERDICT_WELL || verdict == VERDICT_RUNNING))
        text_add(out, "nothing\n");
    else if (!cause->known && page->diagnosis->outside)
        text_add(out, "who ended the job?  ^C, a batch system's limit or a signal to mpirun, whose code is then 1\n");
    else if (cause->known && cause->exit_code == 6)
        text_add(out, "the ranks do not run the same program on the same topology, or bytes were damaged on the way: "
                      "`ferry version` on all hosts, then communication.integrity: payload\n");
    else if (cause->known && cause->exit_code == 9)
        text_add(out, "df -h and ls -l for the file in the cause, on the host of that rank\n");
    else if (cause->known && cause->exit_code == 7 && rank >= 0 && casefile->patients[rank].life == LIFE_KILLED)
        text_add(out,
                 "rank %d did not go on until the starter ended it: was it stopped (SIGSTOP, a debugger, a batch "
                 "system), or did it wait for a disk on %s?\n",
                 rank, casefile->patients[rank].host);
    else if (rank >= 0 && !casefile->starting)
        advise_process(&casefile->patients[rank], out);
    else if (cause->known)
        text_add(out, "docs/exit-codes.md explains code %d\n", cause->exit_code);
    else
        text_add(out, "look at the job's own output: no rank says in its file what happened\n");
}

enum status doctor_page_text(const struct doctor_page *page, struct text *out, struct error *err)
{
    struct text advice = {0};
    enum status st = STATUS_OK;

    add_head(page, out);
    add_counts(page, out);
    add_verdict(page, out);
    if (page->casefile->starting)
        add_call(page->casefile, out);
    else if (page->casefile->size)
        add_ranks(page, out);
    st = add_waits(page, out, err);
    if (page->casefile->processes.length) {
        text_add(out, "\n");
        add_lines("process", text_string(&page->casefile->processes), out);
    }
    if (page->casefile->notes.length) {
        text_add(out, "\n");
        add_lines("left out", text_string(&page->casefile->notes), out);
    }
    text_add(out, "\n");
    add_advice(page, &advice);
    add_lines("next", text_string(&advice), out);
    if (advice.failed)
        out->failed = true;
    text_done(&advice);
    return st;
}

/* ---- JSON ---- */

static void add_string(struct text *out, const char *key, const char *value)
{
    text_add(out, ",\"%s\":", key);
    text_add_json(out, value, strlen(value));
}

static void add_record_json(const struct record *record, struct text *out)
{
    static const char *const word[] = {"unknown", "posted", "done", "failed"};

    text_add(out, ",\"last\":{\"number\":%" PRIu64, record->number);
    add_string(out, "operation", operation_name(record->operation));
    add_string(out, "object", record->object_name);
    text_add(out, ",\"peer\":%d,\"sequence\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"bytes\":%" PRIu64, record->peer,
             record->sequence, record->epoch, record->bytes);
    add_string(out, "state", word[record->state]);
    text_add(out, "}");
}

static void add_wait_json(const struct patient *patient, struct text *out)
{
    text_add(out, ",\"waits\":{\"for\":%d", patient->wait.peer);
    add_string(out, "operation", operation_name(patient->wait.operation));
    add_string(out, "object", patient->wait.object_name);
    text_add(out, ",\"sequence\":%" PRIu64 ",\"seconds\":%.3f}", patient->wait.sequence,
             (double)patient->waited_ns / (double)NS_PER_S);
}

static void add_rank_json(const struct casefile *casefile, const struct patient *patient, struct text *out)
{
    text_add(out, "{\"kind\":\"rank\",\"rank\":%d", patient->rank);
    add_string(out, "life", life_word(patient->life));
    if (patient->life == LIFE_UNREADABLE)
        add_string(out, "why", patient->why);
    if (patient->life != LIFE_MISSING && patient->life != LIFE_UNREADABLE) {
        add_string(out, "host", patient->host);
        text_add(out, ",\"pid\":%d,\"last_sign_seconds\":%.3f,\"operations\":%" PRIu64, patient->pid,
                 seconds_between(patient->seen_unix_ns, casefile->newest_unix_ns), patient->operations);
        add_string(out, "phase", patient->wait.phase);
        if (patient->life == LIFE_FAILED)
            add_string(out, "status", status_name(patient->end_status));
        if (patient->life == LIFE_KILLED)
            add_string(out, "signal", signal_word(patient->end_signal));
        if (patient->wait.waiting && patient->life != LIFE_CLOSED)
            add_wait_json(patient, out);
        if (patient->has_last)
            add_record_json(&patient->last, out);
    }
    text_add(out, "}\n");
}

static void add_run_json(const struct doctor_page *page, struct text *out)
{
    const struct casefile *casefile = page->casefile;
    bool failed = casefile->cause.known;

    text_add(out, "{\"kind\":\"run\"");
    add_string(out, "folder", casefile->folder);
    text_add(out, ",\"size\":%d,\"other_runs\":%d", casefile->size, page->other_runs);
    add_string(out, "verdict",
               starts(casefile) ? "starting"
               : failed         ? "failed"
                                : verdict_word(page->diagnosis->verdict));
    text_add(out, ",\"moving\":%s,\"seconds\":%.3f}\n", casefile->moving ? "true" : "false",
             seconds_between(casefile->started_unix_ns, casefile->newest_unix_ns));
}

static void add_cause_json(const struct known_cause *cause, struct text *out)
{
    text_add(out, "{\"kind\":\"cause\",\"exit_code\":%d,\"rank\":%d,\"reporter\":%d,\"seconds\":%.3f", cause->exit_code,
             cause->rank, cause->reporter, cause->seconds);
    add_string(out, "status", cause->status);
    add_string(out, "text", cause->text);
    add_string(out, "last_operation", cause->last_operation);
    text_add(out, "}\n");
}

static void add_cycles_json(const struct diagnosis *diagnosis, struct text *out)
{
    for (int i = 0; i < diagnosis->cycle_count; i++) {
        bool first = true;

        text_add(out, "{\"kind\":\"cycle\",\"ranks\":[");
        for (int rank = 0; rank < diagnosis->size; rank++) {
            if (diagnosis->cycle[rank] == i) {
                text_add(out, "%s%d", first ? "" : ",", rank);
                first = false;
            }
        }
        text_add(out, "]}\n");
    }
}

static enum status add_end_json(const struct doctor_page *page, int rank, struct text *out, struct error *err)
{
    struct text lines = {0};
    struct text chain = {0};
    enum status st = STATUS_OK;

    if (page->casefile->patients[rank].life == LIFE_MISSING || page->casefile->patients[rank].life == LIFE_UNREADABLE)
        st = casefile_witnesses(page->casefile, rank, &lines, err);
    diagnosis_add_chain(page->diagnosis, rank, &chain);
    text_add(out, "{\"kind\":\"end\",\"rank\":%d,\"waiting\":%d,\"suspect\":%s", rank, page->diagnosis->waiters[rank],
             rank == page->diagnosis->suspect ? "true" : "false");
    add_string(out, "chain", text_string(&chain));
    add_string(out, "witnesses", text_string(&lines));
    text_add(out, "}\n");
    text_done(&chain);
    text_done(&lines);
    return st;
}

static void add_text_json(const char *kind, const struct text *text, struct text *out)
{
    const char *lines = text_string(text);

    while (*lines) {
        size_t length = strcspn(lines, "\n");

        text_add(out, "{\"kind\":\"%s\",\"text\":", kind);
        text_add_json(out, lines, length);
        text_add(out, "}\n");
        lines += length + (lines[length] == '\n');
    }
}

static void add_came_json(const struct casefile *casefile, struct text *out)
{
    for (int i = 0; i < casefile->size; i++)
        text_add(out, "{\"kind\":\"rank\",\"rank\":%d,\"life\":\"%s\"}\n", i,
                 casefile->came[i] ? "has come" : "has not come");
}

enum status doctor_page_json(const struct doctor_page *page, struct text *out, struct error *err)
{
    const struct casefile *casefile = page->casefile;
    struct text advice = {0};
    enum status st = STATUS_OK;

    add_run_json(page, out);
    if (casefile->cause.known)
        add_cause_json(&casefile->cause, out);
    if (casefile->starting)
        add_came_json(casefile, out);
    for (int i = 0; i < casefile->size && !casefile->starting; i++)
        add_rank_json(casefile, &casefile->patients[i], out);
    add_cycles_json(page->diagnosis, out);
    for (int i = 0; i < page->diagnosis->size && st == STATUS_OK; i++) {
        if (is_end(page, i))
            st = add_end_json(page, i, out, err);
    }
    add_text_json("process", &casefile->processes, out);
    add_text_json("note", &casefile->notes, out);
    add_advice(page, &advice);
    add_text_json("advice", &advice, out);
    text_done(&advice);
    return st;
}
