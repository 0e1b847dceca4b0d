/* Filters, tests and methods that templates call on values, as Jinja2 and Python define them. */
#include <stdlib.h>
#include <string.h>

#include "runtime/chat_template_private.h"
#include "runtime/utf8.h"

static struct value nothing(void)
{
    return (struct value){.kind = VALUE_NONE};
}

static struct value refuse(struct template *template, const char *what, struct string name)
{
    template_fail(template, STATUS_UNSUPPORTED, "the %s '%.*s' is not supported", what,
                  (int)(name.length < 40 ? name.length : 40), name.bytes);
    return nothing();
}

static bool is_string(struct template *template, const struct value *value, struct string name)
{
    if (value->kind != VALUE_STRING)
        template_fail(template, STATUS_MODEL, "%.*s: expected a string, found %s", (int)name.length, name.bytes,
                      value_kind_name(value));
    return value->kind == VALUE_STRING;
}

/* Whether the character is stripped: one of those in chars, or when there are none, Python's white space. */
static bool is_stripped(const char *at, size_t length, uint32_t code, const struct string *chars)
{
    if (!chars)
        return utf8_is_space(code) || (code >= 0x1c && code <= 0x1f);
    return string_find(*chars, (struct string){at, length}) != NULL;
}

static struct string strip(struct string text, const struct string *chars, bool left, bool right)
{
    uint32_t code = 0;

    while (left && text.length) {
        unsigned count = utf8_read(text.bytes, text.length, &code);

        if (!count || !is_stripped(text.bytes, count, code, chars))
            break;
        text.bytes += count;
        text.length -= count;
    }
    while (right && text.length) {
        size_t begin = text.length - 1;

        while (begin && ((unsigned char)text.bytes[begin] & 0xc0) == 0x80)
            begin--;
        if (!utf8_read(text.bytes + begin, text.length - begin, &code) ||
            !is_stripped(text.bytes + begin, text.length - begin, code, chars))
            break;
        text.length = begin;
    }
    return text;
}

static struct value call_strip(struct template *template, const struct value *value, struct string name,
                               const struct value *arguments, size_t count)
{
    const struct string *chars = NULL;

    if (count && arguments[0].kind != VALUE_NONE && is_string(template, &arguments[0], name))
        chars = &arguments[0].string;
    return value_string(strip(value->string, chars, name.bytes[0] != 'r', name.bytes[0] != 'l'));
}

/* What stands behind the part that begins at cut. */
static struct string behind(struct string text, const char *cut, struct string part)
{
    size_t at = (size_t)(cut - text.bytes) + part.length;

    return (struct string){text.bytes + at, text.length - at};
}

static struct value split(struct template *template, struct string text, struct string separator)
{
    struct string rest = text;
    const char *cut;
    struct value *items;
    size_t count = 1;

    if (!separator.length) {
        template_fail(template, STATUS_MODEL, "split: an empty separator");
        return nothing();
    }
    for (; (cut = string_find(rest, separator)); rest = behind(rest, cut, separator))
        count++;
    if (!(items = template_alloc(template, count, sizeof *items)))
        return nothing();
    for (size_t i = 0; i < count; i++) {
        cut = string_find(text, separator);
        items[i] = value_string((struct string){text.bytes, cut ? (size_t)(cut - text.bytes) : text.length});
        if (cut)
            text = behind(text, cut, separator);
    }
    return value_list(items, count);
}

static struct value join(struct template *template, const struct value *list, struct string separator)
{
    struct string joined = {"", 0};
    size_t total = 0;
    char *bytes;

    for (size_t i = 0; i < list->count; i++)
        total += value_text(template, &list->items[i]).length + separator.length;
    if (!list->count || !(bytes = template_alloc(template, total + 1, 1)))
        return value_string(joined);
    joined.bytes = bytes;
    for (size_t i = 0; i < list->count; i++) {
        struct string text = value_text(template, &list->items[i]);

        if (i && separator.length) {
            memcpy(bytes + joined.length, separator.bytes, separator.length);
            joined.length += separator.length;
        }
        if (text.length)
            memcpy(bytes + joined.length, text.bytes, text.length);
        joined.length += text.length;
    }
    return value_string(joined);
}

static struct value replace(struct template *template, struct string text, const struct value *arguments, size_t count,
                            struct string name)
{
    struct value parts;

    if (count != 2 || !is_string(template, &arguments[0], name) || !is_string(template, &arguments[1], name)) {
        template_fail(template, STATUS_MODEL, "replace: expected two strings");
        return nothing();
    }
    parts = split(template, text, arguments[0].string);
    return parts.kind == VALUE_LIST ? join(template, &parts, arguments[1].string) : nothing();
}

static struct value change_case(struct template *template, struct string text, struct string name)
{
    char *bytes = template_alloc(template, text.length + 1, 1);
    bool upper = name.bytes[0] == 'u' || name.bytes[0] == 't' || name.bytes[0] == 'c';

    for (size_t i = 0; bytes && i < text.length; i++) {
        char c = text.bytes[i];

        if ((unsigned char)c >= 0x80)
            return refuse(template, "letters outside ASCII in", name);

        bool is_lower = c >= 'a' && c <= 'z';
        bool is_upper = c >= 'A' && c <= 'Z';

        bytes[i] = upper ? (is_lower ? (char)(c - 32) : c) : (is_upper ? (char)(c + 32) : c);
        if (name.bytes[0] == 'c')
            upper = false;
        else if (name.bytes[0] == 't')
            upper = !is_lower && !is_upper;
    }
    return value_string(bytes ? (struct string){bytes, text.length} : (struct string){"", 0});
}

static bool is_one_of(struct string name, const char *const *words)
{
    for (; *words; words++) {
        if (string_is(name, *words))
            return true;
    }
    return false;
}

static const char *const strips[] = {"strip", "lstrip", "rstrip", NULL};
static const char *const cases[] = {"upper", "lower", "title", "capitalize", NULL};

static struct value string_method(struct template *template, const struct value *value, struct string name,
                                  const struct value *arguments, size_t count)
{
    struct string text = value->string;
    bool at_start = string_is(name, "startswith");

    if (is_one_of(name, strips))
        return call_strip(template, value, name, arguments, count);
    if (is_one_of(name, cases))
        return change_case(template, text, name);
    if (string_is(name, "replace"))
        return replace(template, text, arguments, count, name);
    if (at_start || string_is(name, "endswith")) {
        if (count != 1 || !is_string(template, &arguments[0], name))
            return refuse(template, "use of", name);

        struct string part = arguments[0].string;

        return value_bool(part.length <= text.length &&
                          (!part.length || memcmp(at_start ? text.bytes : text.bytes + text.length - part.length,
                                                  part.bytes, part.length) == 0));
    }
    if (string_is(name, "split") && count == 1 && is_string(template, &arguments[0], name))
        return split(template, text, arguments[0].string);
    return refuse(template, "use of", name);
}

static struct value dict_method(struct template *template, const struct value *value, struct string name,
                                const struct value *arguments, size_t count)
{
    if (string_is(name, "get") && count && is_string(template, &arguments[0], name)) {
        const struct value *found = dict_get(value->dict, arguments[0].string);

        return found ? *found : count > 1 ? arguments[1] : nothing();
    }
    return refuse(template, "method", name);
}

struct value template_method(struct template *template, const struct value *value, struct string name,
                             const struct value *arguments, size_t count)
{
    if (value->kind == VALUE_STRING)
        return string_method(template, value, name, arguments, count);
    if (value->kind == VALUE_DICT)
        return dict_method(template, value, name, arguments, count);
    template_fail(template, STATUS_MODEL, "%s has no method '%.*s'", value_kind_name(value), (int)name.length,
                  name.bytes);
    return nothing();
}

/* selectattr(name, test, argument) and rejectattr. */
static struct value select_by(struct template *template, const struct value *list, struct string name,
                              const struct value *arguments, size_t count)
{
    bool wanted = name.bytes[0] == 's';
    struct value *items = template_alloc(template, list->count, sizeof *items);
    size_t kept = 0;

    if (!items || !count || !is_string(template, &arguments[0], name) ||
        (count > 1 && !is_string(template, &arguments[1], name)))
        return list->count && !template_failed(template) ? refuse(template, "use of", name) : value_list(NULL, 0);
    for (size_t i = 0; i < list->count && !template_failed(template); i++) {
        const struct value *found =
            list->items[i].kind == VALUE_DICT ? dict_get(list->items[i].dict, arguments[0].string) : NULL;
        struct value value = found ? *found : value_undefined(arguments[0].string);
        bool passes = count > 1 ? template_test(template, &value, arguments[1].string, arguments + 2, count - 2)
                                : value_true(&value);

        if (passes == wanted)
            items[kept++] = list->items[i];
    }
    return value_list(items, kept);
}

static struct value end_of(const struct value *value, bool first)
{
    if (!value->count)
        return value_undefined((struct string){first ? "first" : "last", first ? 5 : 4});
    return value->items[first ? 0 : value->count - 1];
}

static struct value list_filter(struct template *template, const struct value *value, struct string name,
                                const struct value *arguments, size_t count)
{
    if (string_is(name, "first") || string_is(name, "last"))
        return end_of(value, name.bytes[0] == 'f');
    if (string_is(name, "list"))
        return *value;
    if (string_is(name, "join")) {
        bool separated = count && is_string(template, &arguments[0], name);

        return join(template, value, separated ? arguments[0].string : (struct string){"", 0});
    }
    if (string_is(name, "selectattr") || string_is(name, "rejectattr"))
        return select_by(template, value, name, arguments, count);
    return refuse(template, "filter", name);
}

static struct value length_of(struct template *template, const struct value *value)
{
    size_t count = 0;

    if (value->kind == VALUE_STRING) {
        count = string_characters(value->string);
    } else if (value->kind == VALUE_LIST) {
        count = value->count;
    } else if (value->kind == VALUE_DICT) {
        for (const struct dict_entry *entry = value->dict->first; entry; entry = entry->next)
            count++;
    } else if (value->kind != VALUE_UNDEFINED) {
        template_fail(template, STATUS_MODEL, "%s has no length", value_kind_name(value));
    }
    return value_integer((int64_t)count);
}

struct value template_filter(struct template *template, const struct value *value, struct string name,
                             const struct value *arguments, size_t count)
{
    if (string_is(name, "length") || string_is(name, "count"))
        return length_of(template, value);
    if (string_is(name, "default") || string_is(name, "d")) {
        bool missing = value->kind == VALUE_UNDEFINED || (count > 1 && value_true(&arguments[1]) && !value_true(value));

        return !missing ? *value : count ? arguments[0] : value_string((struct string){"", 0});
    }
    if (string_is(name, "safe"))
        return *value;
    if (string_is(name, "string"))
        return value_string(value_text(template, value));
    if (value->kind == VALUE_LIST)
        return list_filter(template, value, name, arguments, count);
    if (string_is(name, "trim")) {
        struct value text = value_string(value_text(template, value));

        return call_strip(template, &text, name, arguments, count);
    }
    if (value->kind == VALUE_STRING && is_one_of(name, cases))
        return change_case(template, value->string, name);
    if (value->kind == VALUE_STRING && string_is(name, "replace"))
        return replace(template, value->string, arguments, count, name);
    return refuse(template, "filter", name);
}

bool template_test(struct template *template, const struct value *value, struct string name,
                   const struct value *arguments, size_t count)
{
    static const char *const equal[] = {"equalto", "eq", "==", NULL};
    static const struct {
        const char *name;
        unsigned kinds; /* bits by kind */
    } tests[] = {{"undefined", 1u << VALUE_UNDEFINED},
                 {"defined", ~(1u << VALUE_UNDEFINED)},
                 {"none", 1u << VALUE_NONE},
                 {"boolean", 1u << VALUE_BOOL},
                 {"integer", 1u << VALUE_INTEGER},
                 {"number", 1u << VALUE_INTEGER | 1u << VALUE_BOOL},
                 {"string", 1u << VALUE_STRING},
                 {"mapping", 1u << VALUE_DICT},
                 {"sequence", 1u << VALUE_STRING | 1u << VALUE_LIST | 1u << VALUE_DICT | 1u << VALUE_UNDEFINED},
                 {"iterable", 1u << VALUE_STRING | 1u << VALUE_LIST | 1u << VALUE_DICT | 1u << VALUE_UNDEFINED}};

    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (string_is(name, tests[i].name))
            return tests[i].kinds >> value->kind & 1;
    }
    if (string_is(name, "true") || string_is(name, "false"))
        return value->kind == VALUE_BOOL && value->boolean == (name.bytes[0] == 't');
    if (count == 1 && is_one_of(name, equal))
        return value_equal(value, &arguments[0]);
    if (count == 1 && (string_is(name, "ne") || string_is(name, "!=")))
        return !value_equal(value, &arguments[0]);
    if (count == 1 && string_is(name, "in"))
        return value_contains(template, &arguments[0], value);
    refuse(template, "test", name);
    return false;
}
