/* The one growing string. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise; bytes[length] is NUL once anything was added.  After a refused allocation failed stays set and
 * further additions are ignored, so that a writer checks once at its end. */
struct text {
    char *bytes;
    size_t length;
    size_t capacity;
    bool failed;
};

void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_add_bytes(struct text *text, const void *bytes, size_t count);
/* A JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. */
void text_add_json(struct text *text, const void *bytes, size_t count);
/* Bytes for a person: "512 B", "1.5 kB", "34.2 MB" (powers of ten). */
void text_add_size(struct text *text, uint64_t bytes);
/* Drop the contents, keep the memory. */
void text_clear(struct text *text);
void text_done(struct text *text);
/* The contents, never NULL ("" when nothing was added). */
const char *text_string(const struct text *text);

#endif
