/* A recorder's file is 50 KiB and a job may have many ranks, so of each only a patient is kept; what few ranks need in
 * full is read again. */
#include "launcher/casefile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "topology/source.h"

enum { MAX_RANKS = 1 << 20, CAUSE_BYTES = 1 << 16 };

/* Behind the newest sign of life of any rank by more than this is silence: the control thread gives one every 20 ms. */
#define SILENT_NS (2 * NS_PER_S)
/* Ranks of one run open their files within this of each other; an older one was left by another run. */
#define SAME_RUN_NS (3600 * NS_PER_S)

/* The rank in "rank-000003.recorder", or -1. */
static int rank_of(const char *name, const char *ending)
{
    char *end = NULL;
    long rank;

    if (strncmp(name, "rank-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    rank = strtol(name + 5, &end, 10);
    return strcmp(end, ending) == 0 && rank < MAX_RANKS ? (int)rank : -1;
}

static bool belongs_to_run(const char *name)
{
    return rank_of(name, ".recorder") >= 0 || rank_of(name, ".starting") >= 0 || strcmp(name, "cause.json") == 0;
}

/* Does the folder hold a run?  False also when it cannot be read: errno says why. */
static bool is_run(const char *folder)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    bool found = false;

    while (entries && !found && (entry = readdir(entries)))
        found = belongs_to_run(entry->d_name);
    if (entries)
        closedir(entries);
    return found;
}

/* With whom a topology's own name, or the folder that it lies in, is mistaken. */
static const char expected[] =
    "expected the run_dir of a topology (when it names none, the folder runs beside it), or a run's folder below that";

enum status casefile_find(const char *folder, char *ret, int *ret_others, struct error *err)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    struct timespec newest = {0};
    int runs = 0;

    *ret_others = 0;
    if (!entries)
        return error_set(err, STATUS_STORAGE, "%s: %s; %s", folder, strerror(errno), expected);
    (void)snprintf(ret, PATH_MAX, "%s", folder);
    while (!is_run(folder) && (entry = readdir(entries))) {
        char path[PATH_MAX];
        struct stat found;
        int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);

        if (entry->d_name[0] == '.' || length < 0 || (size_t)length >= sizeof path || stat(path, &found) ||
            !S_ISDIR(found.st_mode) || !is_run(path))
            continue;
        if (!runs++ || found.st_mtim.tv_sec > newest.tv_sec ||
            (found.st_mtim.tv_sec == newest.tv_sec && found.st_mtim.tv_nsec > newest.tv_nsec)) {
            newest = found.st_mtim;
            (void)snprintf(ret, PATH_MAX, "%s", path);
        }
    }
    closedir(entries);
    *ret_others = runs ? runs - 1 : 0;
    if (!runs && !is_run(folder))
        return error_set(err, STATUS_STORAGE,
                         "%s holds no run: neither rank-000000.recorder and the like, nor folders with them; %s",
                         folder, expected);
    return STATUS_OK;
}

static uint64_t add_ns(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t behind(uint64_t then_ns, uint64_t now_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

void patient_of(const struct recorder_view *view, struct patient *ret)
{
    static const enum life life[RECORDER_END_COUNT] = {[RECORDER_RUNNING] = LIFE_GONE,
                                                       [RECORDER_CLOSED] = LIFE_CLOSED,
                                                       [RECORDER_FAILED] = LIFE_FAILED,
                                                       [RECORDER_KILLED] = LIFE_KILLED};
    *ret = (struct patient){.rank = view->rank,
                            .life = life[view->end],
                            .pid = view->pid,
                            .started_unix_ns = view->started_unix_ns,
                            .seen_unix_ns = add_ns(view->started_unix_ns, view->written_ns),
                            .ended_unix_ns = view->ended_ns ? add_ns(view->started_unix_ns, view->ended_ns) : 0,
                            .end_status = view->end_status,
                            .end_signal = view->end_signal,
                            .operations = view->operations,
                            .wait = view->state,
                            .has_last = view->count > 0};

    if (ret->has_last)
        ret->last = view->records[view->count - 1];
    if (view->torn) /* half of one state, half of another */
        ret->wait = (struct wait_state){.peer = -1};
    if (ret->wait.waiting)
        ret->waited_ns = behind(ret->wait.since_ns, view->end == RECORDER_FAILED ? view->ended_ns : view->written_ns);
    (void)snprintf(ret->host, sizeof ret->host, "%s", view->host);
}

static bool unended(const struct patient *patient)
{
    return patient->life == LIFE_GONE;
}

void patients_settle(struct patient *patients, int size, const bool *moved)
{
    uint64_t newest = 0;

    for (int i = 0; i < size; i++) {
        const struct patient *patient = &patients[i];
        uint64_t sign = patient->seen_unix_ns;

        if (patient->life == LIFE_KILLED) /* its keeper's sign */
            sign = patient->ended_unix_ns;
        newest = sign > newest && patient->life != LIFE_MISSING && patient->life != LIFE_UNREADABLE ? sign : newest;
    }
    for (int i = 0; i < size; i++) {
        if (!unended(&patients[i]))
            continue;
        if (moved[i])
            patients[i].life = LIFE_RUNNING;
        else if (behind(patients[i].seen_unix_ns, newest) > SILENT_NS)
            patients[i].life = LIFE_SILENT;
    }
}

/* While others run, who does not is silent, however little ago it was. */
static void silence(struct casefile *casefile)
{
    for (int i = 0; casefile->moving && i < casefile->size; i++) {
        if (unended(&casefile->patients[i]))
            casefile->patients[i].life = LIFE_SILENT;
    }
}

/* One file as it was found. */
struct found {
    int rank; /* in its name */
    int size;
    bool good;
    struct patient patient;
};

struct finds {
    struct found *list;
    int count;
    int capacity;
};

static enum status grow(struct finds *finds, struct error *err)
{
    int capacity = finds->capacity ? 2 * finds->capacity : 16;
    struct found *list;

    if (finds->count < finds->capacity)
        return STATUS_OK;
    list = realloc(finds->list, (size_t)capacity * sizeof *list);
    if (!list)
        return error_set(err, STATUS_NOMEM, "the files of %d ranks", capacity);
    finds->list = list;
    finds->capacity = capacity;
    return STATUS_OK;
}

static enum status load_one(const struct casefile *casefile, int rank, struct recorder_view *view, struct error *err)
{
    char path[PATH_MAX];

    if (recorder_path(casefile->folder, rank, path, sizeof path))
        return error_set(err, STATUS_STORAGE, "%s: the path is too long", casefile->folder);
    return recorder_load(path, view, err);
}

static enum status find_recorders(struct casefile *casefile, struct finds *finds, struct recorder_view *view,
                                  struct error *err)
{
    DIR *entries = opendir(casefile->folder);
    const struct dirent *entry;
    enum status st = STATUS_OK;

    if (!entries)
        return error_set(err, STATUS_STORAGE, "%s: %s", casefile->folder, strerror(errno));
    while (st == STATUS_OK && (entry = readdir(entries))) {
        struct found found = {.rank = rank_of(entry->d_name, ".recorder")};
        struct error why = {0};

        if (found.rank < 0)
            continue;
        found.good = load_one(casefile, found.rank, view, &why) == STATUS_OK;
        if (found.good) {
            found.size = view->size;
            patient_of(view, &found.patient);
        } else {
            found.patient = (struct patient){.rank = found.rank, .life = LIFE_UNREADABLE, .wait = {.peer = -1}};
            (void)snprintf(found.patient.why, sizeof found.patient.why, "%.250s", why.text);
        }
        st = grow(finds, err);
        if (st == STATUS_OK)
            finds->list[finds->count++] = found;
    }
    closedir(entries);
    return st;
}

/* The file's name and its content tell different ranks: it was renamed or copied. */
static bool misnamed(const struct found *found)
{
    return found->good && found->patient.rank != found->rank;
}

/* The file that was begun last says which run this is. */
static const struct found *reference(const struct finds *finds)
{
    const struct found *newest = NULL;

    for (int i = 0; i < finds->count; i++) {
        const struct found *found = &finds->list[i];

        if (found->good && !misnamed(found) &&
            (!newest || found->patient.started_unix_ns > newest->patient.started_unix_ns))
            newest = found;
    }
    return newest;
}

static bool foreign(const struct found *found, const struct found *of)
{
    return found->good && (found->size != of->size ||
                           behind(found->patient.started_unix_ns, of->patient.started_unix_ns) > SAME_RUN_NS);
}

static enum status make_patients(struct casefile *casefile, int size, struct error *err)
{
    CHECK(size > 0);
    casefile->patients = calloc((size_t)size, sizeof *casefile->patients);
    casefile->came = calloc((size_t)size, sizeof *casefile->came);
    if (!casefile->patients || !casefile->came)
        return error_set(err, STATUS_NOMEM, "the files of %d ranks", size);
    casefile->size = size;
    for (int i = 0; i < size; i++)
        casefile->patients[i] = (struct patient){.rank = i, .life = LIFE_MISSING, .wait = {.peer = -1}};
    return STATUS_OK;
}

static enum status place(struct casefile *casefile, const struct finds *finds, struct error *err)
{
    const struct found *of = reference(finds);
    int size = of ? of->size : 0;
    enum status st;

    for (int i = 0; !of && i < finds->count; i++)
        size = finds->list[i].rank >= size ? finds->list[i].rank + 1 : size;
    st = make_patients(casefile, size ? size : 1, err);
    if (st == STATUS_OK && !size)
        casefile->size = 0;
    for (int i = 0; st == STATUS_OK && i < finds->count; i++) {
        const struct found *found = &finds->list[i];

        if (misnamed(found))
            text_add(&casefile->notes,
                     "rank-%06d.recorder holds rank %d of %d, whose file is rank-%06d.recorder: left out\n",
                     found->rank, found->patient.rank, found->size, found->patient.rank);
        else if (found->rank >= casefile->size || (of && foreign(found, of)))
            text_add(&casefile->notes, "rank-%06d.recorder is of another run (rank %d of %d) and was left out\n",
                     found->rank, found->patient.rank, found->size);
        else
            casefile->patients[found->rank] = found->patient;
        if (!found->good)
            text_add(&casefile->notes, "%s\n", found->patient.why);
    }
    return st;
}

/* Who gave a sign of life within watch_ns? */
static enum status watch(struct casefile *casefile, uint64_t watch_ns, struct recorder_view *view, struct error *err)
{
    bool *moved = calloc((size_t)casefile->size + 1, sizeof *moved);
    int open = 0;

    if (!moved)
        return error_set(err, STATUS_NOMEM, "the files of %d ranks", casefile->size);
    for (int i = 0; i < casefile->size; i++)
        open += unended(&casefile->patients[i]);
    if (open && watch_ns)
        clock_sleep_ns(watch_ns);
    for (int i = 0; open && watch_ns && i < casefile->size; i++) {
        struct patient *patient = &casefile->patients[i];
        uint64_t before = patient->seen_unix_ns;

        if (!unended(patient) || load_one(casefile, i, view, NULL) != STATUS_OK)
            continue;
        patient_of(view, patient);
        moved[i] = patient->seen_unix_ns != before;
        casefile->moving = casefile->moving || moved[i];
    }
    patients_settle(casefile->patients, casefile->size, moved);
    silence(casefile);
    free(moved);
    return STATUS_OK;
}

static void find_times(struct casefile *casefile)
{
    for (int i = 0; i < casefile->size; i++) {
        const struct patient *patient = &casefile->patients[i];

        if (patient->life == LIFE_MISSING || patient->life == LIFE_UNREADABLE)
            continue;
        if (!casefile->started_unix_ns || patient->started_unix_ns < casefile->started_unix_ns)
            casefile->started_unix_ns = patient->started_unix_ns;
        if (patient->seen_unix_ns > casefile->newest_unix_ns)
            casefile->newest_unix_ns = patient->seen_unix_ns;
    }
}

/* Files of the roll call: "HOST\nSIZE\n". */
static int size_of_call(const char *folder, const char *name)
{
    char path[PATH_MAX];
    char line[128] = "";
    const char *second;
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = length < 0 || (size_t)length >= sizeof path ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    long size = 0;

    if (file < 0)
        return 0;
    if (read(file, line, sizeof line - 1) > 0 && (second = strchr(line, '\n')))
        size = strtol(second + 1, NULL, 10);
    close(file);
    return size > 0 && size <= MAX_RANKS ? (int)size : 0;
}

/* Before MPI has started there are no recorders, but ranks that have come. */
static enum status call_roll(struct casefile *casefile, struct error *err)
{
    DIR *entries = opendir(casefile->folder);
    const struct dirent *entry;
    enum status st = STATUS_OK;

    while (entries && st == STATUS_OK && (entry = readdir(entries))) {
        int rank = rank_of(entry->d_name, ".starting");
        int size = rank < 0 ? 0 : size_of_call(casefile->folder, entry->d_name);

        if (rank < 0 || rank >= size)
            continue;
        if (!casefile->size) {
            casefile->starting = true;
            free(casefile->patients);
            free(casefile->came);
            casefile->patients = NULL;
            casefile->came = NULL;
            st = make_patients(casefile, size, err);
        }
        if (st == STATUS_OK && rank < casefile->size)
            casefile->came[rank] = true;
    }
    if (entries)
        closedir(entries);
    return st;
}

/* A string of the file for a terminal: line breaks and their like become spaces, what else it might obey '?'. */
static void copy_string(const json_t *object, const char *key, char *to, size_t to_bytes)
{
    const char *value = json_string_value(json_object_get(object, key));
    struct text shown = {0};

    (void)snprintf(to, to_bytes, "%s", value ? value : "");
    for (char *c = to; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    }
    source_show(&shown, to, strlen(to), to_bytes);
    (void)snprintf(to, to_bytes, "%s", text_string(&shown));
    text_done(&shown);
}

static int integer(const json_t *object, const char *key, int otherwise)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : otherwise;

    return number >= -1 && number <= INT_MAX ? (int)number : otherwise;
}

static void read_cause(struct casefile *casefile)
{
    struct known_cause *cause = &casefile->cause;
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/cause.json", casefile->folder);
    int file = length < 0 || (size_t)length >= sizeof path ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *bytes = calloc(CAUSE_BYTES, 1);
    ssize_t count = file < 0 || !bytes ? -1 : read(file, bytes, CAUSE_BYTES);
    json_error_t problem;
    json_t *object = count > 0 ? json_loadb(bytes, (size_t)count, 0, &problem) : NULL;

    if (json_is_object(object)) {
        cause->known = true;
        cause->exit_code = integer(object, "exit_code", 1);
        cause->rank = integer(object, "rank", -1);
        cause->reporter = integer(object, "reporter", -1);
        cause->seconds = json_number_value(json_object_get(object, "seconds"));
        copy_string(object, "status", cause->status, sizeof cause->status);
        copy_string(object, "text", cause->text, sizeof cause->text);
        copy_string(object, "last_operation", cause->last_operation, sizeof cause->last_operation);
    } else if (file >= 0) {
        const char *why = count > 0 && !object ? problem.text : "it is no JSON object";

        cause->damaged = true;
        text_add(&casefile->notes, "cause.json cannot be read: ");
        source_show(&casefile->notes, why, strlen(why), sizeof problem.text);
        text_add(&casefile->notes, "\n");
    }
    json_decref(object);
    free(bytes);
    if (file >= 0)
        close(file);
}

enum status casefile_open(const char *folder, uint64_t watch_ns, struct casefile *ret, struct error *err)
{
    struct recorder_view *view = malloc(sizeof *view);
    struct finds finds = {0};
    enum status st = view ? STATUS_OK : error_set(err, STATUS_NOMEM, "a recorder's file");

    *ret = (struct casefile){.cause = {.rank = -1, .reporter = -1}};
    (void)snprintf(ret->folder, sizeof ret->folder, "%s", folder);
    if (st == STATUS_OK)
        st = find_recorders(ret, &finds, view, err);
    if (st == STATUS_OK)
        st = place(ret, &finds, err);
    if (st == STATUS_OK)
        st = watch(ret, watch_ns, view, err);
    if (st == STATUS_OK)
        st = call_roll(ret, err);
    if (st == STATUS_OK) {
        find_times(ret);
        read_cause(ret);
    }
    free(finds.list);
    free(view);
    if (st != STATUS_OK)
        casefile_done(ret);
    return st;
}

void casefile_done(struct casefile *casefile)
{
    free(casefile->patients);
    free(casefile->came);
    text_done(&casefile->notes);
    text_done(&casefile->processes);
    *casefile = (struct casefile){0};
}

/* The newest record of the view that fits; NULL: none. */
static const struct record *newest(const struct recorder_view *view, int peer, const char *object)
{
    for (int i = view->count - 1; i >= 0; i--) {
        const struct record *record = &view->records[i];

        if (record->state == RECORD_DONE && (peer < 0 || record->peer == peer) &&
            (!object || strcmp(record->object_name, object) == 0))
            return record;
    }
    return NULL;
}

static void testify(const struct recorder_view *view, int rank, struct text *out)
{
    const struct record *together = newest(view, rank, NULL);
    const struct wait_state *wait = &view->state;
    char words[256];

    if (together) {
        record_text(together, view->written_ns, words, sizeof words);
        text_add(out, "rank %d saw of it: %s\n", view->rank, words);
    }
    if (!wait->waiting || wait->peer != rank || view->torn)
        return;
    text_add(out, "rank %d waits for it in %s on %s, sequence %llu", view->rank, operation_name(wait->operation),
             wait->object_name, (unsigned long long)wait->sequence);
    if (newest(view, -1, wait->object_name))
        text_add(out, "; sequence %llu there was done with it",
                 (unsigned long long)newest(view, -1, wait->object_name)->sequence);
    text_add(out, "\n");
}

enum status casefile_witnesses(const struct casefile *casefile, int rank, struct text *out, struct error *err)
{
    struct recorder_view *view = malloc(sizeof *view);

    if (!view)
        return error_set(err, STATUS_NOMEM, "a recorder's file");
    for (int i = 0; i < casefile->size; i++) {
        enum life life = casefile->patients[i].life;

        if (i != rank && life != LIFE_MISSING && life != LIFE_UNREADABLE &&
            load_one(casefile, i, view, NULL) == STATUS_OK)
            testify(view, rank, out);
    }
    free(view);
    return STATUS_OK;
}
