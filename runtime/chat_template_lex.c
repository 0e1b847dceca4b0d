/* Jinja's lexer with trim_blocks and lstrip_blocks: the newline behind a statement or comment goes, and so do blanks
 * between the begin of a line and a statement or comment; a minus strips all white space on its side, a plus keeps it.
 */
#include <string.h>

#include "runtime/chat_template_private.h"
#include "runtime/utf8.h"

struct lexer {
    struct template *template;
    const char *source;
    size_t length;
    size_t at;
    int line;
    bool line_start; /* the text that follows begins a line */
    struct token *tokens;
    size_t count;
    size_t capacity;
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}

static bool looking_at(const struct lexer *lexer, const char *word)
{
    size_t count = strlen(word);

    return lexer->length - lexer->at >= count && memcmp(lexer->source + lexer->at, word, count) == 0;
}

static void advance(struct lexer *lexer, size_t count)
{
    for (size_t i = 0; i < count; i++)
        lexer->line += lexer->source[lexer->at + i] == '\n';
    lexer->at += count;
    lexer->template->line = lexer->line;
}

static struct token *add_token(struct lexer *lexer, enum token_kind kind, size_t begin, size_t end)
{
    struct token *token;

    if (lexer->count == lexer->capacity) {
        size_t capacity = lexer->capacity ? 2 * lexer->capacity : 64;
        struct token *grown = template_alloc(lexer->template, capacity, sizeof *grown);

        if (!grown)
            return NULL;
        if (lexer->count)
            memcpy(grown, lexer->tokens, lexer->count * sizeof *grown);
        lexer->tokens = grown;
        lexer->capacity = capacity;
    }
    token = &lexer->tokens[lexer->count++];
    *token = (struct token){.kind = kind, .text = {lexer->source + begin, end - begin}, .line = lexer->line};
    return token;
}

/* The text up to the next tag. */
static void lex_text(struct lexer *lexer)
{
    size_t begin = lexer->at;
    size_t end = begin;
    size_t line_begin;

    while (end < lexer->length &&
           !(end + 1 < lexer->length && lexer->source[end] == '{' &&
             (lexer->source[end + 1] == '{' || lexer->source[end + 1] == '%' || lexer->source[end + 1] == '#')))
        end++;

    size_t tag = end;
    char sign = tag + 2 < lexer->length ? lexer->source[tag + 2] : 0;

    if (tag < lexer->length && sign == '-') {
        while (end > begin && is_space(lexer->source[end - 1]))
            end--;
    } else if (tag < lexer->length && sign != '+' && lexer->source[tag + 1] != '{') {
        for (line_begin = end; line_begin > begin && lexer->source[line_begin - 1] != '\n'; line_begin--)
            ;
        if (line_begin > begin || lexer->line_start) {
            size_t i = line_begin;

            while (i < end && is_space(lexer->source[i]))
                i++;
            end = i == end ? line_begin : end;
        }
    }
    if (end > begin)
        add_token(lexer, TOKEN_TEXT, begin, end);
    advance(lexer, tag - begin);
}

/* Behind a tag's end (two bytes at at, a sign before them or not). */
static void end_tag(struct lexer *lexer, char sign, bool trims)
{
    advance(lexer, 2);
    if (sign == '-') {
        size_t begin = lexer->at;

        while (lexer->at < lexer->length && is_space(lexer->source[lexer->at]))
            advance(lexer, 1);
        lexer->line_start = lexer->at > begin && lexer->source[lexer->at - 1] == '\n';
    } else {
        lexer->line_start = trims && sign != '+' && looking_at(lexer, "\n");
        if (lexer->line_start)
            advance(lexer, 1);
    }
}

static void lex_comment(struct lexer *lexer)
{
    const char *begin = lexer->source + lexer->at;
    const char *end = memmem(begin + 2, lexer->length - lexer->at - 2, "#}", 2);

    if (!end) {
        template_fail(lexer->template, STATUS_MODEL, "a comment does not end");
        return;
    }

    char sign = end > begin + 2 ? end[-1] : 0;

    advance(lexer, (size_t)(end - begin));
    end_tag(lexer, sign, true);
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* One escape of a string literal at source[*at], behind the backslash. */
static size_t unescape(struct lexer *lexer, size_t *at, char *to)
{
    static const char from[] = "nrtabfv\\'\"";
    static const char into[] = "\n\r\t\a\b\f\v\\'\"";
    char c = lexer->source[(*at)++];
    const char *known = c ? strchr(from, c) : NULL;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;

    if (known) {
        *to = into[known - from];
        return 1;
    }
    if (c == '\n')
        return 0;
    if (!digits) {
        if (c >= '0' && c <= '7')
            template_fail(lexer->template, STATUS_UNSUPPORTED, "an octal escape is not supported");
        to[0] = '\\';
        to[1] = c;
        return 2;
    }
    for (; digits && *at < lexer->length && hex_value(lexer->source[*at]) >= 0; digits--)
        code = code << 4 | (uint32_t)hex_value(lexer->source[(*at)++]);
    if (digits || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        template_fail(lexer->template, STATUS_MODEL, "a bad escape in a string");
        return 0;
    }
    return utf8_write(code, to);
}

static void lex_string(struct lexer *lexer)
{
    char quote = lexer->source[lexer->at];
    size_t begin = lexer->at + 1;
    size_t end = begin;
    size_t count = 0;
    char *bytes;

    while (end < lexer->length && lexer->source[end] != quote)
        end += lexer->source[end] == '\\' ? 2 : 1;
    if (end >= lexer->length) {
        template_fail(lexer->template, STATUS_MODEL, "a string does not end");
        return;
    }
    /* No escape is longer than what it stands for, but for an unknown one, which stays as it is. */
    if (!(bytes = template_alloc(lexer->template, end - begin + 1, 1)))
        return;
    for (size_t i = begin; i < end;) {
        if (lexer->source[i] == '\\') {
            i++;
            count += unescape(lexer, &i, bytes + count);
        } else {
            bytes[count++] = lexer->source[i++];
        }
    }

    struct token *token = add_token(lexer, TOKEN_STRING, begin, end);

    if (token)
        token->text = (struct string){bytes, count};
    advance(lexer, end + 1 - lexer->at);
}

static void lex_number(struct lexer *lexer)
{
    struct token *token = add_token(lexer, TOKEN_INTEGER, lexer->at, lexer->at);
    int64_t value = 0;

    while (lexer->at < lexer->length && hex_value(lexer->source[lexer->at]) >= 0 && lexer->source[lexer->at] <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, lexer->source[lexer->at] - '0', &value))
            template_fail(lexer->template, STATUS_OVERFLOW, "a number is too large");
        advance(lexer, 1);
    }
    if (token)
        token->integer = value;
    if (lexer->at + 1 < lexer->length && (is_name(lexer->source[lexer->at]) ||
                                          (lexer->source[lexer->at] == '.' && is_name(lexer->source[lexer->at + 1]))))
        template_fail(lexer->template, STATUS_UNSUPPORTED, "this kind of number is not supported");
}

static void lex_operator(struct lexer *lexer)
{
    static const char *const operators[] = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "<",
                                            ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ":", ".", "|"};

    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (looking_at(lexer, operators[i])) {
            size_t count = strlen(operators[i]);

            add_token(lexer, TOKEN_OPERATOR, lexer->at, lexer->at + count);
            advance(lexer, count);
            return;
        }
    }
    template_fail(lexer->template, STATUS_MODEL, "the character '%c' does not belong here", lexer->source[lexer->at]);
}

/* Whether a tag's end stands here; brackets is the number of open ones, within which }} closes two dicts. */
static bool at_tag_end(const struct lexer *lexer, const char *end, int brackets)
{
    char c = lexer->source[lexer->at];
    size_t skip = (c == '-' || (c == '+' && *end == '%')) ? 1 : 0;

    return brackets == 0 && lexer->length - lexer->at >= skip + 2 &&
           memcmp(lexer->source + lexer->at + skip, end, 2) == 0;
}

/* The inside of a statement or of an expression that is printed. */
static void lex_tag(struct lexer *lexer, bool print)
{
    const char *end = print ? "}}" : "%}";
    int brackets = 0;

    add_token(lexer, print ? TOKEN_PRINT_BEGIN : TOKEN_BLOCK_BEGIN, lexer->at, lexer->at + 2);
    advance(lexer, 2);
    if (looking_at(lexer, "-") || (!print && looking_at(lexer, "+")))
        advance(lexer, 1);
    while (!template_failed(lexer->template)) {
        while (lexer->at < lexer->length && is_space(lexer->source[lexer->at]))
            advance(lexer, 1);
        if (lexer->at == lexer->length) {
            template_fail(lexer->template, STATUS_MODEL, "a tag does not end");
            return;
        }

        char c = lexer->source[lexer->at];

        if (at_tag_end(lexer, end, brackets)) {
            char sign = c == '-' || c == '+' ? c : 0;

            advance(lexer, sign ? 1 : 0);
            add_token(lexer, print ? TOKEN_PRINT_END : TOKEN_BLOCK_END, lexer->at, lexer->at + 2);
            end_tag(lexer, sign, !print);
            return;
        }
        if (c == '\'' || c == '"') {
            lex_string(lexer);
        } else if (c >= '0' && c <= '9') {
            lex_number(lexer);
        } else if (is_name(c)) {
            size_t stop = lexer->at;

            while (stop < lexer->length && is_name(lexer->source[stop]))
                stop++;
            add_token(lexer, TOKEN_NAME, lexer->at, stop);
            advance(lexer, stop - lexer->at);
        } else {
            brackets += c == '(' || c == '[' || c == '{';
            brackets -= c == ')' || c == ']' || c == '}';
            lex_operator(lexer);
        }
    }
}

struct token *template_lex(struct template *template, const char *source, size_t length)
{
    struct lexer lexer = {.template = template, .source = source, .length = length, .line = 1, .line_start = true};

    while (!template_failed(template) && lexer.at < length) {
        lex_text(&lexer);
        if (looking_at(&lexer, "{#"))
            lex_comment(&lexer);
        else if (lexer.at < length)
            lex_tag(&lexer, looking_at(&lexer, "{{"));
    }
    add_token(&lexer, TOKEN_END, length, length);
    return template_failed(template) ? NULL : lexer.tokens;
}
