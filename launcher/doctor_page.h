/* What the doctor says: one page for a person, or one JSON object a line. */
#ifndef LAUNCHER_DOCTOR_PAGE_H
#define LAUNCHER_DOCTOR_PAGE_H

#include "launcher/casefile.h"

struct doctor_page {
    const struct casefile *casefile;
    struct diagnosis *diagnosis;
    int other_runs; /* beside this one in the folder that was asked for */
};

/* STATUS_NOMEM. */
enum status doctor_page_text(const struct doctor_page *page, struct text *out, struct error *err);

/* Kinds: run, cause, rank (one each), cycle, end (a rank that others wait for),
 * process (one that is stopped), note, advice.  STATUS_NOMEM. */
enum status doctor_page_json(const struct doctor_page *page, struct text *out, struct error *err);

#endif
