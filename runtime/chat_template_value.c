/* Memory and values.  Nothing is freed before the end of a rendering: values may share strings and lists freely. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "runtime/chat_template_private.h"

enum { BLOCK_BYTES = 64 << 10 };

struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t bytes;
    _Alignas(16) char memory[];
};

bool template_failed(const struct template *template)
{
    return template->status != STATUS_OK;
}

void template_fail(struct template *template, enum status status, const char *format, ...)
{
    char text[512];
    va_list arguments;

    if (template_failed(template))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    template->status = error_set(template->err, status, "line %d: %s", template->line, text);
}

void *template_alloc(struct template *template, size_t count, size_t bytes)
{
    struct arena_block *block = template->blocks;
    size_t total;
    void *memory;

    if (template_failed(template))
        return NULL;
    if (size_mul(count, bytes, &total) != STATUS_OK || size_round_up(total, 16, &total) != STATUS_OK ||
        total > TEMPLATE_MAX_MEMORY - template->memory) {
        template_fail(template, STATUS_OVERFLOW, "the template takes more than %d MiB", TEMPLATE_MAX_MEMORY >> 20);
        return NULL;
    }
    template->memory += total;
    if (!block || block->bytes - block->used < total) {
        size_t size = total > BLOCK_BYTES ? total : BLOCK_BYTES;

        if (!(block = malloc(sizeof *block + size))) {
            template_fail(template, STATUS_NOMEM, "%zu bytes for a template", size);
            return NULL;
        }
        *block = (struct arena_block){.next = template->blocks, .bytes = size};
        template->blocks = block;
    }
    memory = block->memory + block->used;
    block->used += total;
    return memset(memory, 0, total);
}

void template_done(struct template *template)
{
    while (template->blocks) {
        struct arena_block *next = template->blocks->next;

        free(template->blocks);
        template->blocks = next;
    }
}

struct string string_of(const char *text)
{
    return (struct string){text, strlen(text)};
}

bool string_is(struct string string, const char *word)
{
    return strlen(word) == string.length && memcmp(string.bytes, word, string.length) == 0;
}

const char *string_find(struct string text, struct string part)
{
    if (!text.bytes || !part.bytes)
        return NULL;
    return memmem(text.bytes, text.length, part.bytes, part.length);
}

static bool string_equal(struct string a, struct string b)
{
    return a.length == b.length && (!a.length || memcmp(a.bytes, b.bytes, a.length) == 0);
}

struct string string_join(struct template *template, struct string a, struct string b)
{
    char *bytes;

    if (!b.length)
        return a;
    if (!a.length)
        return b;
    if (!(bytes = template_alloc(template, a.length + b.length, 1)))
        return (struct string){"", 0};
    memcpy(bytes, a.bytes, a.length);
    memcpy(bytes + a.length, b.bytes, b.length);
    return (struct string){bytes, a.length + b.length};
}

size_t string_characters(struct string string)
{
    size_t count = 0;

    for (size_t i = 0; i < string.length; i++)
        count += ((unsigned char)string.bytes[i] & 0xc0) != 0x80;
    return count;
}

struct value value_string(struct string string)
{
    return (struct value){.kind = VALUE_STRING, .string = string};
}

struct value value_bool(bool boolean)
{
    return (struct value){.kind = VALUE_BOOL, .boolean = boolean};
}

struct value value_integer(int64_t integer)
{
    return (struct value){.kind = VALUE_INTEGER, .integer = integer};
}

struct value value_undefined(struct string name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .string = name};
}

struct value value_list(const struct value *items, size_t count)
{
    return (struct value){.kind = VALUE_LIST, .items = items, .count = count};
}

const char *value_kind_name(const struct value *value)
{
    static const char *const names[] = {"an undefined value", "none",   "a boolean", "an integer",
                                        "a string",           "a list", "a mapping"};

    return names[value->kind];
}

bool value_true(const struct value *value)
{
    switch (value->kind) {
    case VALUE_BOOL:
        return value->boolean;
    case VALUE_INTEGER:
        return value->integer != 0;
    case VALUE_STRING:
        return value->string.length != 0;
    case VALUE_LIST:
        return value->count != 0;
    case VALUE_DICT:
        return value->dict->assignable || value->dict->first;
    default:
        return false;
    }
}

static bool as_integer(const struct value *value, int64_t *ret)
{
    *ret = value->kind == VALUE_BOOL ? value->boolean : value->integer;
    return value->kind == VALUE_BOOL || value->kind == VALUE_INTEGER;
}

bool value_equal(const struct value *a, const struct value *b)
{
    int64_t left;
    int64_t right;

    if (as_integer(a, &left) && as_integer(b, &right))
        return left == right;
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case VALUE_STRING:
        return string_equal(a->string, b->string);
    case VALUE_LIST:
        /* Lists hold messages or strings: compared one level deep, mappings by their contents below. */
        for (size_t i = 0; i < a->count && a->count == b->count; i++) {
            if (a->items[i].kind == VALUE_LIST || !value_equal(&a->items[i], &b->items[i]))
                return false;
        }
        return a->count == b->count;
    case VALUE_DICT: {
        const struct dict_entry *left_entry = a->dict->first;
        const struct dict_entry *right_entry = b->dict->first;

        /* Mappings are messages, whose names stand in one order; their values are strings. */
        for (; a->dict != b->dict && left_entry && right_entry;
             left_entry = left_entry->next, right_entry = right_entry->next) {
            if (!string_equal(left_entry->name, right_entry->name) || left_entry->value.kind >= VALUE_LIST ||
                !value_equal(&left_entry->value, &right_entry->value))
                return false;
        }
        return a->dict == b->dict || left_entry == right_entry;
    }
    default:
        return true;
    }
}

bool value_contains(struct template *template, const struct value *of, const struct value *item)
{
    switch (of->kind) {
    case VALUE_STRING:
        if (item->kind == VALUE_STRING)
            return !item->string.length || string_find(of->string, item->string);
        break;
    case VALUE_LIST:
        for (size_t i = 0; i < of->count; i++) {
            if (value_equal(&of->items[i], item))
                return true;
        }
        return false;
    case VALUE_DICT:
        return item->kind == VALUE_STRING && dict_get(of->dict, item->string);
    case VALUE_UNDEFINED:
        return false;
    default:
        break;
    }
    template_fail(template, STATUS_MODEL, "cannot look for %s in %s", value_kind_name(item), value_kind_name(of));
    return false;
}

struct string value_text(struct template *template, const struct value *value)
{
    switch (value->kind) {
    case VALUE_UNDEFINED:
        return (struct string){"", 0};
    case VALUE_NONE:
        return (struct string){"None", 4};
    case VALUE_BOOL:
        return value->boolean ? (struct string){"True", 4} : (struct string){"False", 5};
    case VALUE_STRING:
        return value->string;
    case VALUE_INTEGER: {
        char *bytes = template_alloc(template, 24, 1);

        if (!bytes)
            return (struct string){"", 0};
        return (struct string){bytes, (size_t)snprintf(bytes, 24, "%lld", (long long)value->integer)};
    }
    default:
        template_fail(template, STATUS_UNSUPPORTED, "printing %s is not supported", value_kind_name(value));
        return (struct string){"", 0};
    }
}

struct dict *dict_create(struct template *template)
{
    struct dict *dict = template_alloc(template, 1, sizeof *dict);

    if (dict)
        dict->end = &dict->first;
    return dict;
}

void dict_set(struct template *template, struct dict *dict, struct string name, struct value value)
{
    struct dict_entry *entry = dict ? dict->first : NULL;

    while (entry && !string_equal(entry->name, name))
        entry = entry->next;
    if (entry) {
        entry->value = value;
    } else if (dict && (entry = template_alloc(template, 1, sizeof *entry))) {
        *entry = (struct dict_entry){name, value, NULL};
        *dict->end = entry;
        dict->end = &entry->next;
    }
}

const struct value *dict_get(const struct dict *dict, struct string name)
{
    for (const struct dict_entry *entry = dict ? dict->first : NULL; entry; entry = entry->next) {
        if (string_equal(entry->name, name))
            return &entry->value;
    }
    return NULL;
}
