/* UTF-8 as Unicode's table 3-7 defines it: no surrogates, no overlong forms, nothing above U+10FFFF. */
#ifndef RUNTIME_UTF8_H
#define RUNTIME_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length (1..4) of the character that the count (1..4) bytes begin or are; 0 when they begin none.  It is complete
 * when the result equals count. */
unsigned utf8_prefix(const unsigned char *bytes, unsigned count);

/* The length (1..4) of the character at the begin of length bytes, and its code point; 0 when there is none. */
unsigned utf8_read(const char *text, size_t length, uint32_t *ret);

/* Write a code point (no surrogate, at most 0x10FFFF); returns its length. */
unsigned utf8_write(uint32_t code, char text[4]);

/* The offset of the first byte that belongs to no character; length when there is none. */
size_t utf8_check(const char *text, size_t length);

/* Unicode's White_Space. */
bool utf8_is_space(uint32_t code);

#endif
