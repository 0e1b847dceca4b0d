/* What rank 0 writes to standard output: text as it is generated, or one JSON object per finished prompt. */
#ifndef LAUNCHER_PRINTER_H
#define LAUNCHER_PRINTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/results.h"

struct prompts;
struct tokenizer;
struct printer;

struct printer_options {
    const struct prompts *prompts;     /* borrowed until printer_destroy */
    const struct tokenizer *tokenizer; /* borrowed */
    bool json;
    bool digest;
    uint32_t top;
};

enum status printer_create(const struct printer_options *options, struct printer **ret, struct error *err);
void printer_destroy(struct printer *printer);

/* A results_emit whose context is the printer.  Text streams one prompt at a time, the others wait their turn; it never
 * ends inside a character.  A failed prompt is logged and goes no further.  STATUS_STORAGE: standard output cannot be
 * written; STATUS_MISMATCH, STATUS_NOMEM. */
enum status printer_emit(void *printer, const struct result *result, struct error *err);

struct printer_totals {
    uint64_t tokens; /* generated */
    uint64_t prompt_tokens;
    uint32_t finished; /* failed ones too */
    uint32_t failed;
    uint64_t first_token_ns; /* mean over prompts that have one, from the start of the generation */
};
void printer_start(struct printer *printer); /* the generation starts now */
struct printer_totals printer_totals(const struct printer *printer);

/* After the generation: has every prompt ended?  STATUS_MISMATCH names the first that has not. */
enum status printer_check(const struct printer *printer, struct error *err);

/* The sentence about prompts that failed.  STATUS_MODEL, or STATUS_OK: none has. */
enum status printer_failures(const struct printer *printer, struct error *err);

#endif
