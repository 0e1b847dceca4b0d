/* Scalars of the topology file: strict decimal numbers, durations, sizes, ranges, styled texts; and back to text. */
#ifndef TOPOLOGY_VALUE_H
#define TOPOLOGY_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "topology/keys.h"

/* Each reads the whole text and nothing but it; false leaves *ret alone.  Decimal digits only, no leading zero, no
 * sign, no exponent, no digit groups; low and high are allowed. */
bool value_number(const char *text, size_t length, uint64_t low, uint64_t high, uint64_t *ret);
bool value_duration(const char *text, size_t length, uint64_t low, uint64_t high, uint64_t *ret); /* ns */
bool value_size(const char *text, size_t length, uint64_t low, uint64_t high, uint64_t *ret);     /* bytes */
bool value_real(const char *text, size_t length, uint64_t low, uint64_t high, double *ret);
/* a..b or a, with a <= b. */
bool value_range(const char *text, size_t length, uint64_t limit, uint64_t *low, uint64_t *high);
/* No NUL, and what the style says. */
bool value_styled(const char *text, size_t length, enum key_style style);

/* The index of the word, or -1. */
int value_word(const struct key_words *words, const char *text, size_t length);

/* "30s", "64MiB": the largest unit that divides. */
void value_write_duration(struct text *text, uint64_t ns);
void value_write_size(struct text *text, uint64_t bytes);
/* "a, b" */
void value_write_words(struct text *text, const struct key_words *words, const char *quote);

/* What a value of this key must be: "a whole number 1..1048576", "one of `auto`, `mpi`".  For lists: each item.
 * world_size bounds ranks. */
void value_expectation(const struct key *key, uint64_t world_size, struct text *text);

#endif
