/* Held bytes are always the beginning of a character that may still be completed, so never more than three. */
#include "runtime/tokenizer.h"

#include "runtime/utf8.h"

static const char replacement[] = "\xef\xbf\xbd";

static void push_byte(struct text_stream *stream, unsigned char byte, struct text *out)
{
    stream->held[stream->held_count++] = byte;

    unsigned count = (unsigned)stream->held_count;
    unsigned length = utf8_prefix(stream->held, count);

    if (length == count) {
        text_add_bytes(out, stream->held, count);
        stream->held_count = 0;
    } else if (!length) {
        /* What was held will never be a character: one mark for it; the new byte may begin another. */
        text_add_bytes(out, replacement, 3);
        stream->held_count = 0;
        if (count > 1)
            push_byte(stream, byte, out);
    }
}

void text_stream_push(struct text_stream *stream, const struct tokenizer *tokenizer, uint32_t id, struct text *out)
{
    size_t length;
    const char *piece = tokenizer_piece(tokenizer, id, true, &length);

    for (size_t i = 0; i < length; i++)
        push_byte(stream, (unsigned char)piece[i], out);
}

void text_stream_finish(struct text_stream *stream, struct text *out)
{
    if (stream->held_count)
        text_add_bytes(out, replacement, 3);
    stream->held_count = 0;
}
