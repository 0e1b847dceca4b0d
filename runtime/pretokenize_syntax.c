/* One pass, left to right.  What differs between the engines, and what becomes of it:
 *
 *   \s \S         PCRE2 counts U+180E too              -> \p{White_Space}, \P{White_Space}
 *   \w            PCRE2 has no marks in it             -> [\p{Alphabetic}\p{M}\p{Nd}\p{Pc}], and outside a set
 *                 Oniguruma counts the Latin-1 superscripts and fractions too
 *   \p{Han}       PCRE2 takes script extensions        -> \p{sc:Han}
 *   \uHHHH \v     mean other things to PCRE2           -> \x{HHHH}, \x0b
 *   a{n,m}+ a{n}? repeat the counted group in Ruby     -> (?:a{n,m})+, (?:a{n})?
 *   a{,m}         is literal to PCRE2 10.42            -> a{0,m}
 *   (?m: )        lets . match a newline in Ruby       -> (?s: )
 *
 * Sets within sets, intersections, named groups, references, options in the middle and word boundaries are refused. */
#include "runtime/pretokenize_syntax.h"

#include <stdbool.h>
#include <string.h>

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define LATIN_1_NUMBERS "\\xb2\\xb3\\xb9\\xbc-\\xbe"

enum { MAX_DEPTH = 64, MAX_PATTERN_BYTES = 64 * 1024 };

struct rewriter {
    const char *source;
    size_t length;
    size_t at;
    struct text *out;
    size_t atom;             /* where in out the last atom begins */
    size_t group[MAX_DEPTH]; /* where the open groups begin */
    int depth;
    struct error *err;
};

static enum status refuse(struct rewriter *rw, size_t at, const char *what)
{
    return error_set(rw->err, STATUS_UNSUPPORTED, "pattern '%.*s': %s at offset %zu is not supported",
                     (int)(rw->length < 200 ? rw->length : 200), rw->source, what, at);
}

static enum status cut_short(struct rewriter *rw)
{
    return error_set(rw->err, STATUS_MODEL, "pattern '%.*s' ends too early", (int)(rw->length < 200 ? rw->length : 200),
                     rw->source);
}

static bool looking_at(const struct rewriter *rw, const char *word)
{
    size_t count = strlen(word);

    return rw->length - rw->at >= count && memcmp(rw->source + rw->at, word, count) == 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* at: behind \p or \P, on the brace.  General categories keep their name; any other name is a script's. */
static enum status rewrite_property(struct rewriter *rw, char letter)
{
    static const char *const binary[] = {"Alphabetic", "White_Space", "Uppercase", "Lowercase", "Any"};
    const char *begin = rw->source + rw->at;
    const char *end = memchr(begin, '}', rw->length - rw->at);
    bool negated = rw->length - rw->at > 1 && begin[1] == '^';
    bool plain;

    if (rw->at == rw->length || *begin != '{')
        return refuse(rw, rw->at, "a property without braces");
    if (!end)
        return cut_short(rw);
    begin += negated ? 2 : 1;

    size_t count = (size_t)(end - begin);

    plain = count <= 2;
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
        plain = plain || (count == strlen(binary[i]) && memcmp(begin, binary[i], count) == 0);
    for (size_t i = 0; i < count; i++) {
        if (!((begin[i] | 0x20) >= 'a' && (begin[i] | 0x20) <= 'z') && begin[i] != '_')
            return refuse(rw, rw->at, "this property");
    }
    text_add(rw->out, "\\%c{%s%s%.*s}", letter, negated ? "^" : "", plain ? "" : "sc:", (int)count, begin);
    rw->at = (size_t)(end + 1 - rw->source);
    return STATUS_OK;
}

/* at: behind \u, on four digits. */
static enum status rewrite_code_unit(struct rewriter *rw)
{
    if (rw->length - rw->at < 4)
        return cut_short(rw);
    for (size_t i = 0; i < 4; i++) {
        if (!is_hex(rw->source[rw->at + i]))
            return refuse(rw, rw->at, "\\u without four digits");
    }
    text_add(rw->out, "\\x{%.4s}", rw->source + rw->at);
    rw->at += 4;
    return STATUS_OK;
}

static enum status rewrite_escape(struct rewriter *rw, bool in_class)
{
    size_t at = rw->at;

    if (rw->length - rw->at < 2)
        return cut_short(rw);

    char c = rw->source[rw->at + 1];

    rw->at += 2;
    switch (c) {
    case 's':
    case 'S':
        text_add(rw->out, "\\%c{White_Space}", c == 's' ? 'p' : 'P');
        return STATUS_OK;
    case 'w':
        text_add(rw->out, "%s", in_class ? WORD : "[" WORD LATIN_1_NUMBERS "]");
        return STATUS_OK;
    case 'W':
        if (in_class)
            return refuse(rw, at, "\\W in a set");
        text_add(rw->out, "%s", "[^" WORD LATIN_1_NUMBERS "]");
        return STATUS_OK;
    case 'p':
    case 'P':
        return rewrite_property(rw, c);
    case 'u':
        return rewrite_code_unit(rw);
    case 'v':
        text_add(rw->out, "\\x0b");
        return STATUS_OK;
    case 'x':
        if (rw->at < rw->length && (rw->source[rw->at] == '{' || is_hex(rw->source[rw->at])))
            break;
        return refuse(rw, at, "\\x without digits");
    case 'A':
    case 'z':
        if (in_class)
            return refuse(rw, at, "an anchor in a set");
        break;
    case 'd':
    case 'D':
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'a':
    case 'e':
        break;
    default:
        if (is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (unsigned char)c >= 0x80)
            return refuse(rw, at, (char[]){'\\', c, 0});
    }
    text_add(rw->out, "\\%c", c);
    return STATUS_OK;
}

/* at: on the opening bracket. */
static enum status rewrite_class(struct rewriter *rw)
{
    size_t first;
    enum status st;

    rw->at++;
    text_add_bytes(rw->out, "[", 1);
    if (looking_at(rw, "^")) {
        text_add_bytes(rw->out, "^", 1);
        rw->at++;
    }
    first = rw->at;
    while (rw->at < rw->length) {
        char c = rw->source[rw->at];

        if (c == '[')
            return refuse(rw, rw->at, "a set within a set");
        if (looking_at(rw, "&&"))
            return refuse(rw, rw->at, "an intersection of sets");
        if (c == '\\') {
            if ((st = rewrite_escape(rw, true)) != STATUS_OK)
                return st;
            continue;
        }
        text_add_bytes(rw->out, &c, 1);
        rw->at++;
        if (c == ']' && rw->at - 1 != first)
            return STATUS_OK;
    }
    return cut_short(rw);
}

/* at: on the opening parenthesis. */
static enum status rewrite_open(struct rewriter *rw)
{
    static const struct {
        const char *from;
        const char *to;
    } kinds[] = {{"(?:", "(?:"}, {"(?i:", "(?i:"}, {"(?-i:", "(?-i:"}, {"(?m:", "(?s:"}, {"(?=", "(?="},
                 {"(?!", "(?!"}, {"(?<=", "(?<="}, {"(?<!", "(?<!"},   {"(?>", "(?>"}};

    /* In the middle of a pattern Ruby makes the rest of the alternatives one group: only at its begin is it plain. */
    if (rw->at == 0 && looking_at(rw, "(?i)")) {
        text_add(rw->out, "(?i)");
        rw->at = 4;
        return STATUS_OK;
    }
    if (rw->depth == MAX_DEPTH)
        return refuse(rw, rw->at, "nesting this deep");
    rw->group[rw->depth++] = rw->out->length;
    if (!looking_at(rw, "(?") && !looking_at(rw, "(*")) {
        text_add_bytes(rw->out, "(", 1);
        rw->at++;
        return STATUS_OK;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (looking_at(rw, kinds[i].from)) {
            text_add(rw->out, "%s", kinds[i].to);
            rw->at += strlen(kinds[i].from);
            return STATUS_OK;
        }
    }
    return refuse(rw, rw->at, "this kind of group");
}

/* at: on a brace.  Its length when it is a count ("{2}", "{2,}", "{,3}", "{2,3}"), else 0: a literal brace. */
static size_t count_length(const struct rewriter *rw)
{
    size_t i = rw->at + 1;
    size_t digits = 0;

    for (; i < rw->length && is_digit(rw->source[i]); i++)
        digits++;
    if (i < rw->length && rw->source[i] == ',') {
        for (i++; i < rw->length && is_digit(rw->source[i]); i++)
            digits++;
    }
    return digits && i < rw->length && rw->source[i] == '}' ? i + 1 - rw->at : 0;
}

static void wrap_atom(struct rewriter *rw)
{
    struct text *out = rw->out;
    size_t tail = out->length - rw->atom;

    text_add_bytes(out, "(?:)", 4);
    if (out->failed)
        return;
    memmove(out->bytes + rw->atom + 3, out->bytes + rw->atom, tail);
    memcpy(out->bytes + rw->atom, "(?:", 3);
    out->bytes[out->length - 1] = ')';
}

static enum status rewrite_count(struct rewriter *rw)
{
    size_t count = count_length(rw);
    const char *begin = rw->source + rw->at;
    bool range = count && memchr(begin, ',', count);

    if (!count) {
        rw->atom = rw->out->length;
        text_add_bytes(rw->out, "\\{", 2);
        rw->at++;
        return STATUS_OK;
    }
    text_add_bytes(rw->out, "{", 1);
    if (begin[1] == ',')
        text_add_bytes(rw->out, "0", 1);
    text_add_bytes(rw->out, begin + 1, count - 1);
    rw->at += count;
    if (looking_at(rw, "+") || (looking_at(rw, "?") && !range))
        wrap_atom(rw);
    return STATUS_OK;
}

static enum status rewrite_next(struct rewriter *rw)
{
    char c = rw->source[rw->at];

    switch (c) {
    case '(':
        return rewrite_open(rw);
    case '{':
        return rewrite_count(rw);
    case '[':
        rw->atom = rw->out->length;
        return rewrite_class(rw);
    case '\\':
        rw->atom = rw->out->length;
        return rewrite_escape(rw, false);
    case ')':
        if (!rw->depth)
            return refuse(rw, rw->at, "a parenthesis that closes nothing");
        rw->atom = rw->group[--rw->depth];
        break;
    case '*':
    case '+':
    case '?':
        break; /* belongs to the last atom */
    default:
        if (((unsigned char)c & 0xc0) != 0x80)
            rw->atom = rw->out->length;
    }
    text_add_bytes(rw->out, &c, 1);
    rw->at++;
    return STATUS_OK;
}

enum status pattern_rewrite(const char *source, size_t length, struct text *ret, struct error *err)
{
    struct rewriter rw = {.source = source, .length = length, .out = ret, .atom = ret->length, .err = err};
    enum status st = STATUS_OK;

    if (length > MAX_PATTERN_BYTES)
        return error_set(err, STATUS_UNSUPPORTED, "a pattern of %zu bytes is longer than %d", length,
                         MAX_PATTERN_BYTES);
    while (st == STATUS_OK && rw.at < length)
        st = rewrite_next(&rw);
    if (st == STATUS_OK && rw.depth)
        return cut_short(&rw);
    return st;
}
