/* One pattern of a pre-tokenizer: Oniguruma's syntax (as Hugging Face tokenizers reads it), run by PCRE2.
 *
 * Where the two engines differ the pattern is rewritten to mean what Oniguruma means by it; what cannot be rewritten is
 * refused by name.  Immutable after creation, so any number of threads may search at once. */
#ifndef RUNTIME_PRETOKENIZE_PATTERN_H
#define RUNTIME_PRETOKENIZE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct pattern;

/* Compile length bytes of a pattern; literal: they stand for themselves.
 * STATUS_UNSUPPORTED (a construct, by name), STATUS_MODEL (it does not compile; where and why), STATUS_NOMEM. */
enum status pattern_create(const char *source, size_t length, bool literal, struct pattern **ret, struct error *err);
void pattern_destroy(struct pattern *pattern);

/* What one thread needs to search: memory for matches, and the time by which all its searches must be over. */
struct pattern_search;
enum status pattern_search_create(uint64_t deadline_ns, struct pattern_search **ret, struct error *err);
void pattern_search_destroy(struct pattern_search *search);

struct pattern_match {
    bool found;
    size_t start;
    size_t end;
};

/* The first match in text[from, length), lookbehind seeing all of text.  text is valid UTF-8, from a boundary in it.
 * STATUS_MODEL: the pattern backtracks without end on this text, or the deadline passed.  STATUS_NOMEM. */
enum status pattern_find(const struct pattern *pattern, struct pattern_search *search, const char *text, size_t length,
                         size_t from, struct pattern_match *ret, struct error *err);

#endif
