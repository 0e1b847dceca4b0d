/* Chat templates: the part of Jinja2 that models' templates use, with transformers' settings (trim_blocks,
 * lstrip_blocks).
 *
 * Statements for, if, set, generation, break, continue; expressions with attributes, items, slices, arithmetic,
 * comparisons, tests and the usual filters and string methods.  Anything else is refused by name, with its line. */
#ifndef RUNTIME_CHAT_TEMPLATE_H
#define RUNTIME_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"
#include "runtime/tokenizer.h"

struct chat_input {
    const struct chat_message *messages;
    size_t count;
    const char *bos_token; /* NULL: undefined in the template */
    const char *eos_token;
    bool add_generation_prompt;
};

/* Append what the template makes of the messages; nothing on failure.  No template runs for ever: steps, memory and
 * output are limited. The clock is not offered to templates (strftime_now is undefined), so a prompt is the same every
 * day. STATUS_UNSUPPORTED (a construct), STATUS_MODEL (it does not parse, or refuses the messages), STATUS_OVERFLOW,
 * STATUS_NOMEM. */
enum status chat_template_render(const char *source, size_t length, const struct chat_input *input, struct text *ret,
                                 struct error *err);

#endif
