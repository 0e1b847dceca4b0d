/* Doubling buffer; every writer of text for people or for JSON uses it. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool text_reserve(struct text *text, size_t more)
{
    size_t capacity = text->capacity ? text->capacity : 256;
    char *bytes;

    if (text->failed || more >= (size_t)1 << 40) {
        text->failed = true;
        return false;
    }
    while (capacity < text->length + more + 1)
        capacity *= 2;
    if (capacity == text->capacity)
        return true;
    bytes = realloc(text->bytes, capacity);
    if (!bytes) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void text_add_bytes(struct text *text, const void *bytes, size_t count)
{
    if (!text_reserve(text, count))
        return;
    if (count)
        memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = '\0';
}

void text_add(struct text *text, const char *format, ...)
{
    char small[256];
    va_list args;
    va_list again;
    int length;

    va_start(args, format);
    va_copy(again, args);
    length = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < sizeof small) {
        text_add_bytes(text, small, (size_t)length);
    } else if (length >= 0 && text_reserve(text, (size_t)length)) {
        (void)vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

/* Length of the UTF-8 sequence at bytes (RFC 3629: shortest form, no surrogates), 0: none. */
static size_t sequence_length(const unsigned char *bytes, size_t count)
{
    unsigned lead = bytes[0];
    size_t length = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : 0;

    if (lead >= 0xf0 && lead <= 0xf4)
        length = 4;
    if (!length || length > count)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((lead == 0xe0 && bytes[1] < 0xa0) || (lead == 0xed && bytes[1] > 0x9f) || (lead == 0xf0 && bytes[1] < 0x90) ||
        (lead == 0xf4 && bytes[1] > 0x8f))
        return 0;
    return length;
}

void text_add_json(struct text *text, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    const unsigned char *end = at + count;

    text_add_bytes(text, "\"", 1);
    while (at < end) {
        size_t length = sequence_length(at, (size_t)(end - at));

        if (!length)
            text_add_bytes(text, "\xef\xbf\xbd", 3);
        else if (*at == '"' || *at == '\\')
            text_add(text, "\\%c", *at);
        else if (*at < 0x20)
            text_add(text, "\\u%04x", *at);
        else
            text_add_bytes(text, at, length);
        at += length ? length : 1;
    }
    text_add_bytes(text, "\"", 1);
}

void text_add_size(struct text *text, uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 999.95 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    text_add(text, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void text_clear(struct text *text)
{
    text->length = 0;
    if (text->bytes)
        text->bytes[0] = '\0';
}

void text_done(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

const char *text_string(const struct text *text)
{
    return text->bytes ? text->bytes : "";
}
