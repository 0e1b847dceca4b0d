/* The 256 characters in which byte-level BPE writes bytes.
 *
 * A byte that prints in Latin-1 stands for itself; the other 68, in order, are U+0100, U+0101, ...: a blank is U+0120.
 */
#ifndef RUNTIME_BYTE_ALPHABET_H
#define RUNTIME_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct byte_alphabet {
    uint16_t code[256];  /* byte -> code point, below 0x144 */
    int16_t byte[0x144]; /* code point -> byte, or -1 */
};

void byte_alphabet_init(struct byte_alphabet *alphabet);

/* Write the bytes that length bytes of UTF-8 stand for (never more than length).  False when a character is none of the
 * alphabet's: bytes is then undefined. */
bool byte_alphabet_decode(const struct byte_alphabet *alphabet, const char *text, size_t length, char *bytes,
                          size_t *ret_count);

/* Write count bytes as characters (at most 2 * count bytes of UTF-8); returns the length. */
size_t byte_alphabet_encode(const struct byte_alphabet *alphabet, const char *bytes, size_t count, char *text);

#endif
