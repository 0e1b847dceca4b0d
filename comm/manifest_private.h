/* Shared by manifest.c and manifest_verdict.c. */
#ifndef COMM_MANIFEST_PRIVATE_H
#define COMM_MANIFEST_PRIVATE_H

#include "comm/manifest.h"

/* The record, frozen: magic u32, protocol u32, version u32, status u32, four digests u64, zeros. */
enum {
    RECORD_MAGIC = 0,
    RECORD_PROTOCOL = 4,
    RECORD_VERSION = 8,
    RECORD_STATUS = 12,
    RECORD_DIGESTS = 16,
    RECORD_DIGEST_COUNT = 4
};
#define MANIFEST_MAGIC UINT32_C(0x59524546) /* "FERY" */

enum { MANIFEST_KEY_BYTES = 255, MANIFEST_VALUE_BYTES = 64 };

/* One value of a key, as it travels. */
struct manifest_value {
    bool present;
    uint64_t digest;
    char text[MANIFEST_VALUE_BYTES + 1];
};

/* Bytes that are being read; failed stays set once they end too early. */
struct reader {
    const unsigned char *at;
    size_t left;
    bool failed;
};

uint64_t read_number(struct reader *reader, int bytes);
/* A length of one byte and as many bytes, as text; room > 255. */
void read_name(struct reader *reader, char *text);
void read_value(struct reader *reader, struct manifest_value *ret);

#endif
