/* Standard output, with its errors. */
#include "launcher/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum status output_write(const struct text *text, struct error *err)
{
    if (text->failed)
        return error_set(err, STATUS_NOMEM, "a text of %zu bytes", text->length);
    errno = 0;
    if (fwrite(text_string(text), 1, text->length, stdout) != text->length || fflush(stdout) != 0)
        return error_set(err, STATUS_STORAGE, "standard output: %s", strerror(errno));
    return STATUS_OK;
}

void output_add_word(struct text *text, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";

    if (*word && strspn(word, plain) == strlen(word)) {
        text_add(text, "%s", word);
        return;
    }
    text_add(text, "'");
    for (; *word; word++)
        text_add(text, *word == '\'' ? "'\\''" : "%c", *word);
    text_add(text, "'");
}
