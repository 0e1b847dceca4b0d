/* Folder, files, diagnosis, page.  Reads only, so that it may look at a running job as often as one likes. */
#include "launcher/doctor_command.h"

#include "base/clock.h"
#include "base/log.h"
#include "launcher/casefile.h"
#include "launcher/doctor_page.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/starter.h"

/* Between two looks at ranks that have not ended: ten times as long as a living one needs for a sign of life. */
#define WATCH_NS (200 * NS_PER_MS)

static enum status examine(const struct doctor_options *options, struct casefile *casefile, struct error *err)
{
    struct doctor_page page = {.casefile = casefile};
    struct starter here;
    char folder[PATH_MAX];
    struct text out = {0};
    enum status st = casefile_find(options->folder, folder, &page.other_runs, err);

    if (st == STATUS_OK)
        st = casefile_open(folder, WATCH_NS, casefile, err);
    if (st == STATUS_OK) {
        starter_read(&here);
        casefile_look(casefile, here.host);
    }
    if (st == STATUS_OK)
        st = diagnosis_create(casefile->patients, casefile->size, casefile->cause.known ? casefile->cause.rank : -1,
                              casefile->moving, &page.diagnosis, err);
    if (st == STATUS_OK)
        st = options->json ? doctor_page_json(&page, &out, err) : doctor_page_text(&page, &out, err);
    if (st == STATUS_OK)
        st = output_write(&out, err);
    text_done(&out);
    diagnosis_destroy(page.diagnosis);
    return st;
}

int doctor_command(int argc, char **argv)
{
    struct doctor_options options = {0};
    struct casefile casefile = {0};
    struct error err = {0};
    int code = doctor_options_parse(argc, argv, &options);
    enum status st;

    if (code >= 0)
        return code;
    st = examine(&options, &casefile, &err);
    if (st != STATUS_OK)
        log_error("%s: %s", status_name(st), err.text);
    casefile_done(&casefile);
    return status_exit_code(st);
}
