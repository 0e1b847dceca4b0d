/* The second byte alone has a range that depends on the first; all later ones are 80..BF.  So a prefix is judged by its
 * first two bytes, and a character that will never be completed is known at its first wrong byte: the "maximal subpart"
 * that stands for one U+FFFD. */
#include "runtime/utf8.h"

#include <string.h>

static unsigned lead_length(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef)
        return 3;
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

static bool second_fits(unsigned char lead, unsigned char second)
{
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;

    return second >= low && second <= high;
}

unsigned utf8_prefix(const unsigned char *bytes, unsigned count)
{
    unsigned length = lead_length(bytes[0]);

    if (count > length || (count > 1 && !second_fits(bytes[0], bytes[1])))
        return 0;
    for (unsigned i = 2; i < count; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

unsigned utf8_read(const char *text, size_t length, uint32_t *ret)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned count = length ? lead_length(bytes[0]) : 0;

    if (!count || count > length || utf8_prefix(bytes, count) != count)
        return 0;
    if (count == 1) {
        *ret = bytes[0];
        return 1;
    }
    *ret = bytes[0] & (0x7fu >> count);
    for (unsigned i = 1; i < count; i++)
        *ret = *ret << 6 | (bytes[i] & 0x3fu);
    return count;
}

unsigned utf8_write(uint32_t code, char text[4])
{
    unsigned count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    if (count == 1) {
        text[0] = (char)code;
        return 1;
    }
    for (unsigned i = count; i-- > 1; code >>= 6)
        text[i] = (char)(0x80 | (code & 0x3f));
    text[0] = (char)(code | (0xf00u >> count & 0xff));
    return count;
}

size_t utf8_check(const char *text, size_t length)
{
    uint32_t code;
    uint64_t word;

    for (size_t i = 0; i < length;) {
        if (length - i >= 8) {
            memcpy(&word, text + i, 8);
            if (!(word & UINT64_C(0x8080808080808080))) {
                i += 8;
                continue;
            }
        }
        unsigned count = utf8_read(text + i, length - i, &code);

        if (!count)
            return i;
        i += count;
    }
    return length;
}

bool utf8_is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
           code == 0x3000;
}
