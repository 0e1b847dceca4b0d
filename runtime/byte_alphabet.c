/* Built when a tokenizer is made, not kept as a table in the source: the rule is shorter than its result. */
#include "runtime/byte_alphabet.h"

#include "runtime/utf8.h"

void byte_alphabet_init(struct byte_alphabet *alphabet)
{
    uint16_t next = 0x100;

    for (size_t code = 0; code < 0x144; code++)
        alphabet->byte[code] = -1;
    for (unsigned byte = 0; byte < 256; byte++) {
        bool prints = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);

        alphabet->code[byte] = prints ? (uint16_t)byte : next++;
        alphabet->byte[alphabet->code[byte]] = (int16_t)byte;
    }
}

bool byte_alphabet_decode(const struct byte_alphabet *alphabet, const char *text, size_t length, char *bytes,
                          size_t *ret_count)
{
    size_t count = 0;

    for (size_t i = 0; i < length;) {
        uint32_t code = 0;
        unsigned step = utf8_read(text + i, length - i, &code);

        if (!step || code >= 0x144 || alphabet->byte[code] < 0)
            return false;
        bytes[count++] = (char)alphabet->byte[code];
        i += step;
    }
    *ret_count = count;
    return true;
}

size_t byte_alphabet_encode(const struct byte_alphabet *alphabet, const char *bytes, size_t count, char *text)
{
    size_t length = 0;

    for (size_t i = 0; i < count; i++)
        length += utf8_write(alphabet->code[(unsigned char)bytes[i]], text + length);
    return length;
}
