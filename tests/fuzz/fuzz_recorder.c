/* Any bytes as a recorder's file, and a good file with any bytes changed: refused with a sentence, or a view whose
 * numbers hold, which the doctor turns into a page whatever it says. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/recorder.h"
#include "launcher/casefile.h"
#include "launcher/doctor_page.h"

enum { FILE_BYTES = 1024 + 256 * 192, RANKS = 4 };

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);

static struct recorder_view view;

/* The file of a rank that has posted more than the ring holds and waits. */
static void make_good(unsigned char *good)
{
    char folder[] = "/tmp/ferry-fuzz-recorder-XXXXXX";
    char path[256];
    struct recorder *recorder = NULL;
    struct wait_state wait = {.waiting = true, .operation = OPERATION_BARRIER, .peer = 2, .phase = "step 7"};
    FILE *file;

    if (!mkdtemp(folder) || recorder_open(folder, 1, RANKS, &recorder, NULL))
        abort();
    for (int i = 0; i < 300; i++) {
        struct record record = {.operation = OPERATION_SEND_RECEIVE, .object_name = "forward/0-1", .peer = i % RANKS};

        recorder_end(recorder, recorder_post(recorder, &record), i % 7 ? STATUS_OK : STATUS_LOST);
    }
    recorder_state(recorder, &wait);
    recorder_leave(recorder, STATUS_TIMEOUT);
    recorder_close(recorder);
    if (recorder_path(folder, 1, path, sizeof path) || !(file = fopen(path, "rb")) ||
        fread(good, 1, FILE_BYTES, file) != FILE_BYTES)
        abort();
    (void)fclose(file);
    (void)unlink(path);
    (void)rmdir(folder);
}

static void check_name(const char *name, size_t bytes)
{
    if (strnlen(name, bytes) == bytes)
        abort();
    for (; *name; name++) {
        if (!isprint((unsigned char)*name))
            abort();
    }
}

static void check_view(void)
{
    if (view.rank < 0 || view.size < 1 || view.rank >= view.size || view.count < 0 || view.count > RECORDER_RECORDS ||
        view.state.peer < -1 || view.state.peer >= view.size || view.state.operation >= OPERATION_COUNT ||
        view.end >= RECORDER_END_COUNT)
        abort();
    check_name(view.host, sizeof view.host);
    check_name(view.state.phase, sizeof view.state.phase);
    for (int i = 0; i < view.count; i++) {
        const struct record *record = &view.records[i];

        if (record->peer < -1 || record->peer >= view.size || record->operation >= OPERATION_COUNT ||
            record->state > RECORD_FAILED || record->status >= STATUS_COUNT)
            abort();
        check_name(record->object_name, sizeof record->object_name);
    }
}

/* The view as one rank among three that wait for it. */
static void diagnose(void)
{
    struct patient patients[RANKS] = {0};
    bool moved[RANKS] = {false};
    bool came[RANKS] = {false};
    struct casefile casefile = {.folder = "/nonexistent", .size = RANKS, .patients = patients, .came = came};
    struct doctor_page page = {.casefile = &casefile};
    struct text out = {0};
    int rank = view.rank < RANKS ? view.rank : 1;

    for (int i = 0; i < RANKS; i++)
        patients[i] = (struct patient){.rank = i,
                                       .life = LIFE_GONE,
                                       .seen_unix_ns = view.started_unix_ns,
                                       .wait = {.waiting = true, .peer = rank}};
    patient_of(&view, &patients[rank]);
    patients[rank].rank = rank;
    moved[0] = true;
    patients_settle(patients, RANKS, moved);
    if (diagnosis_create(patients, RANKS, -1, true, &page.diagnosis, NULL) != STATUS_OK ||
        doctor_page_text(&page, &out, NULL) != STATUS_OK || doctor_page_json(&page, &out, NULL) != STATUS_OK ||
        out.failed)
        abort();
    diagnosis_destroy(page.diagnosis);
    text_done(&out);
}

static void try(const unsigned char *bytes, size_t count)
{
    struct error err = {0};
    enum status st = recorder_parse(bytes, count, &view, &err);

    if (st != STATUS_OK) {
        if (st != STATUS_CORRUPT || !err.text[0])
            abort();
        return;
    }
    check_view();
    diagnose();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    static unsigned char good[FILE_BYTES];
    static bool made;
    unsigned char *changed = malloc(FILE_BYTES);

    if (!changed)
        abort();
    if (!made)
        make_good(good);
    made = true;
    try(bytes, count);
    memcpy(changed, good, FILE_BYTES);
    /* Two of three changes hit the header. */
    for (size_t i = 0; i + 3 <= count; i += 3) {
        size_t at = (size_t)bytes[i] << 8 | bytes[i + 1];

        changed[at % 3 ? at % 448 : at % FILE_BYTES] = bytes[i + 2];
    }
    try(changed, FILE_BYTES);
    try(changed, count % FILE_BYTES);
    free(changed);
    return 0;
}
