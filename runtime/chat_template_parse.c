/* Recursive descent over the tokens, with Jinja's grammar and precedence. */
#include <string.h>

#include "runtime/chat_template_private.h"

struct parser {
    struct template *template;
    const struct token *at;
};

static struct node *parse_expression(struct parser *parser);
static struct node *parse_unary(struct parser *parser, bool with_filters);
static struct node *parse_statements(struct parser *parser);

static bool at_operator(const struct parser *parser, const char *word)
{
    return parser->at->kind == TOKEN_OPERATOR && string_is(parser->at->text, word);
}

static bool at_name(const struct parser *parser, const char *word)
{
    return parser->at->kind == TOKEN_NAME && string_is(parser->at->text, word);
}

static void step(struct parser *parser)
{
    if (parser->at->kind != TOKEN_END)
        parser->at++;
    parser->template->line = parser->at->line;
}

static bool accept_operator(struct parser *parser, const char *word)
{
    bool found = at_operator(parser, word);

    if (found)
        step(parser);
    return found;
}

static bool accept_name(struct parser *parser, const char *word)
{
    bool found = at_name(parser, word);

    if (found)
        step(parser);
    return found;
}

static void unexpected(struct parser *parser, const char *expected)
{
    struct string text = parser->at->text;

    template_fail(parser->template, STATUS_MODEL, "expected %s, found '%.*s'", expected,
                  (int)(text.length < 40 ? text.length : 40), text.bytes);
}

static void expect_operator(struct parser *parser, const char *word)
{
    if (!accept_operator(parser, word))
        unexpected(parser, word);
}

static void expect_name(struct parser *parser, const char *word)
{
    if (!accept_name(parser, word))
        unexpected(parser, word);
}

/* Kept for the caller on every path: a node without memory is a failure that ends the parse, never a NULL to follow. */
static struct node *create(struct parser *parser, enum node_kind kind)
{
    struct node *node = template_alloc(parser->template, 1, sizeof *node);

    if (node) {
        node->kind = kind;
        node->line = parser->at->line;
    }
    return node;
}

static struct node *create_two(struct parser *parser, enum node_kind kind, struct node *a, struct node *b)
{
    struct node *node = create(parser, kind);

    if (node) {
        node->a = a;
        node->b = b;
    }
    return node;
}

static struct node *create_constant(struct parser *parser, struct value value)
{
    struct node *node = create(parser, NODE_CONSTANT);

    if (node)
        node->value = value;
    return node;
}

static struct string take_name(struct parser *parser)
{
    struct string name = parser->at->text;

    if (parser->at->kind != TOKEN_NAME)
        unexpected(parser, "a name");
    step(parser);
    return name;
}

static bool enter(struct parser *parser)
{
    if (++parser->template->depth > TEMPLATE_MAX_DEPTH)
        template_fail(parser->template, STATUS_UNSUPPORTED, "nesting this deep is not supported");
    return !template_failed(parser->template);
}

static void leave(struct parser *parser)
{
    parser->template->depth--;
}

/* Expressions up to the closing bracket, which is taken; arguments may be named, pairs are "name: value". */
static struct node *parse_items(struct parser *parser, const char *close, bool pairs)
{
    struct node *first = NULL;
    struct node **end = &first;

    while (!template_failed(parser->template) && !at_operator(parser, close)) {
        struct string keyword = {0};

        if (*close == ')' && parser->at->kind == TOKEN_NAME && parser->at[1].kind == TOKEN_OPERATOR &&
            string_is(parser->at[1].text, "=")) {
            keyword = take_name(parser);
            step(parser);
        }
        if ((*end = parse_expression(parser))) {
            (*end)->keyword = keyword;
            end = &(*end)->next;
        }
        if (pairs) {
            expect_operator(parser, ":");
            if ((*end = parse_expression(parser)))
                end = &(*end)->next;
        }
        if (!accept_operator(parser, ",") && !at_operator(parser, close))
            unexpected(parser, close);
    }
    expect_operator(parser, close);
    return first;
}

static struct node *parse_name(struct parser *parser)
{
    static const struct {
        const char *word;
        struct value value;
    } constants[] = {{"true", {.kind = VALUE_BOOL, .boolean = true}},
                     {"True", {.kind = VALUE_BOOL, .boolean = true}},
                     {"false", {.kind = VALUE_BOOL}},
                     {"False", {.kind = VALUE_BOOL}},
                     {"none", {.kind = VALUE_NONE}},
                     {"None", {.kind = VALUE_NONE}}};
    struct node *node;

    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (accept_name(parser, constants[i].word))
            return create_constant(parser, constants[i].value);
    }
    if ((node = create(parser, NODE_NAME)))
        node->text = take_name(parser);
    return node;
}

static struct node *parse_primary(struct parser *parser)
{
    const struct token *token = parser->at;
    struct node *node = NULL;

    switch (token->kind) {
    case TOKEN_NAME:
        return parse_name(parser);
    case TOKEN_INTEGER:
        step(parser);
        return create_constant(parser, value_integer(token->integer));
    case TOKEN_STRING: {
        struct string joined = token->text;

        for (step(parser); parser->at->kind == TOKEN_STRING; step(parser))
            joined = string_join(parser->template, joined, parser->at->text);
        return create_constant(parser, value_string(joined));
    }
    default:
        break;
    }
    if (accept_operator(parser, "(")) {
        node = parse_expression(parser);
        if (at_operator(parser, ","))
            template_fail(parser->template, STATUS_UNSUPPORTED, "a tuple is not supported");
        expect_operator(parser, ")");
    } else if (accept_operator(parser, "[")) {
        if ((node = create(parser, NODE_LIST)))
            node->items = parse_items(parser, "]", false);
    } else if (accept_operator(parser, "{")) {
        if ((node = create(parser, NODE_DICT)))
            node->items = parse_items(parser, "}", true);
    } else {
        unexpected(parser, "an expression");
    }
    return node;
}

/* Behind the opening bracket: one index, or a slice. */
static struct node *parse_subscript(struct parser *parser, struct node *of)
{
    struct node *parts[3] = {0};
    struct node *node;
    int count = 0;

    do {
        if (!at_operator(parser, ":") && !at_operator(parser, "]"))
            parts[count] = parse_expression(parser);
        count++;
    } while (count < 3 && accept_operator(parser, ":"));
    expect_operator(parser, "]");
    if (count == 1 && !parts[0])
        unexpected(parser, "an index");
    if ((node = create_two(parser, count == 1 ? NODE_ATTRIBUTE : NODE_SLICE, of, parts[0]))) {
        node->c = parts[1];
        node->d = parts[2];
    }
    return node;
}

static struct node *parse_call(struct parser *parser, struct node *of)
{
    struct node *node = create_two(parser, NODE_CALL, of, NULL);

    if (node)
        node->items = parse_items(parser, ")", false);
    return node;
}

static struct node *parse_postfix(struct parser *parser, struct node *node)
{
    while (!template_failed(parser->template)) {
        if (accept_operator(parser, ".")) {
            if ((node = create_two(parser, NODE_ATTRIBUTE, node, NULL)))
                node->text = take_name(parser);
        } else if (accept_operator(parser, "[")) {
            node = parse_subscript(parser, node);
        } else if (accept_operator(parser, "(")) {
            node = parse_call(parser, node);
        } else {
            break;
        }
    }
    return node;
}

/* Whether an argument of a test without parentheses follows: "is divisibleby 3". */
static bool at_bare_argument(const struct parser *parser)
{
    if (parser->at->kind == TOKEN_STRING || parser->at->kind == TOKEN_INTEGER)
        return true;
    if (parser->at->kind == TOKEN_OPERATOR)
        return at_operator(parser, "[") || at_operator(parser, "{");
    return parser->at->kind == TOKEN_NAME && !at_name(parser, "else") && !at_name(parser, "or") &&
           !at_name(parser, "and") && !at_name(parser, "is") && !at_name(parser, "if") && !at_name(parser, "not") &&
           !at_name(parser, "in");
}

static struct node *parse_test(struct parser *parser, struct node *of)
{
    bool negated = accept_name(parser, "not");
    struct node *node = create_two(parser, NODE_TEST, of, NULL);

    if (!node)
        return NULL;
    node->text = take_name(parser);
    if (accept_operator(parser, "("))
        node->items = parse_items(parser, ")", false);
    else if (at_bare_argument(parser))
        node->items = parse_postfix(parser, parse_primary(parser));
    return negated ? create_two(parser, NODE_NOT, node, NULL) : node;
}

static struct node *parse_filters(struct parser *parser, struct node *node)
{
    while (!template_failed(parser->template)) {
        if (accept_operator(parser, "|")) {
            if ((node = create_two(parser, NODE_FILTER, node, NULL))) {
                node->text = take_name(parser);
                if (accept_operator(parser, "("))
                    node->items = parse_items(parser, ")", false);
            }
        } else if (accept_name(parser, "is")) {
            node = parse_test(parser, node);
        } else if (accept_operator(parser, "(")) {
            node = parse_call(parser, node);
        } else {
            break;
        }
    }
    return node;
}

static struct node *parse_unary(struct parser *parser, bool with_filters)
{
    struct node *node = NULL;

    if (!enter(parser))
        return NULL;
    if (accept_operator(parser, "-"))
        node = create_two(parser, NODE_NEGATIVE, parse_unary(parser, false), NULL);
    else
        node = parse_primary(parser);
    node = parse_postfix(parser, node);
    if (with_filters)
        node = parse_filters(parser, node);
    leave(parser);
    return node;
}

/* Left-associative operators of one level, lowest first: + and -, ~, then * / // %. */
static struct node *parse_arithmetic(struct parser *parser, int level)
{
    static const char *const operators[3][5] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}};
    struct node *left;

    if (level == 3)
        return parse_unary(parser, true);
    left = parse_arithmetic(parser, level + 1);
    for (int i = 0; operators[level][i] && !template_failed(parser->template);) {
        struct string text = parser->at->text;

        if (!accept_operator(parser, operators[level][i])) {
            i++;
            continue;
        }
        left = create_two(parser, NODE_ARITHMETIC, left, parse_arithmetic(parser, level + 1));
        if (left)
            left->text = text;
        i = 0;
    }
    return left;
}

static struct node *parse_compare(struct parser *parser)
{
    static const char *const operators[] = {"==", "!=", "<", ">", "<=", ">="};
    struct node *left = parse_arithmetic(parser, 0);

    while (!template_failed(parser->template)) {
        struct string text = parser->at->text;
        bool negated =
            at_name(parser, "not") && parser->at[1].kind == TOKEN_NAME && string_is(parser->at[1].text, "in");
        bool found = false;

        if (negated)
            step(parser);
        if (accept_name(parser, "in")) {
            text = (struct string){"in", 2};
            found = true;
        }
        for (size_t i = 0; !found && i < sizeof operators / sizeof *operators; i++)
            found = accept_operator(parser, operators[i]);
        if (!found)
            break;
        left = create_two(parser, NODE_COMPARE, left, parse_arithmetic(parser, 0));
        if (left)
            left->text = text;
        if (negated)
            left = create_two(parser, NODE_NOT, left, NULL);
    }
    return left;
}

static struct node *parse_not(struct parser *parser)
{
    struct node *node;

    if (!at_name(parser, "not"))
        return parse_compare(parser);
    if (!enter(parser))
        return NULL;
    step(parser);
    node = create_two(parser, NODE_NOT, parse_not(parser), NULL);
    leave(parser);
    return node;
}

static struct node *parse_and(struct parser *parser)
{
    struct node *left = parse_not(parser);

    while (accept_name(parser, "and"))
        left = create_two(parser, NODE_AND, left, parse_not(parser));
    return left;
}

static struct node *parse_or(struct parser *parser)
{
    struct node *left = parse_and(parser);

    while (accept_name(parser, "or"))
        left = create_two(parser, NODE_OR, left, parse_and(parser));
    return left;
}

static struct node *parse_expression(struct parser *parser)
{
    struct node *node = NULL;

    if (!enter(parser))
        return NULL;
    node = parse_or(parser);
    while (accept_name(parser, "if")) {
        node = create_two(parser, NODE_CONDITION, node, parse_or(parser));
        if (accept_name(parser, "else") && node)
            node->c = parse_expression(parser);
    }
    leave(parser);
    return node;
}

static void end_block(struct parser *parser)
{
    if (parser->at->kind != TOKEN_BLOCK_END)
        unexpected(parser, "%}");
    step(parser);
}

/* Behind "if" or "elif", up to the matching "endif" and its end. */
static struct node *parse_if(struct parser *parser)
{
    struct node *node = create(parser, NODE_IF);

    if (!node)
        return NULL;
    node->a = parse_expression(parser);
    end_block(parser);
    node->body = parse_statements(parser);
    if (accept_name(parser, "elif")) {
        if (enter(parser))
            node->otherwise = parse_if(parser);
        leave(parser);
        return node;
    }
    if (accept_name(parser, "else")) {
        end_block(parser);
        node->otherwise = parse_statements(parser);
    }
    expect_name(parser, "endif");
    end_block(parser);
    return node;
}

static struct node *parse_for(struct parser *parser)
{
    struct node *node = create(parser, NODE_FOR);

    if (!node)
        return NULL;
    node->text = take_name(parser);
    if (accept_operator(parser, ","))
        node->second = take_name(parser);
    expect_name(parser, "in");
    /* Not a whole expression: "if" belongs to the loop. */
    node->a = parse_or(parser);
    if (accept_name(parser, "if"))
        node->b = parse_expression(parser);
    end_block(parser);
    node->body = parse_statements(parser);
    if (accept_name(parser, "else")) {
        end_block(parser);
        node->otherwise = parse_statements(parser);
    }
    expect_name(parser, "endfor");
    end_block(parser);
    return node;
}

static struct node *parse_set(struct parser *parser)
{
    struct node *node = create(parser, NODE_SET);

    if (!node)
        return NULL;
    node->text = take_name(parser);
    if (accept_operator(parser, "."))
        node->second = take_name(parser);
    if (parser->at->kind == TOKEN_BLOCK_END || at_operator(parser, ",") || at_operator(parser, "|"))
        template_fail(parser->template, STATUS_UNSUPPORTED, "this form of set is not supported");
    expect_operator(parser, "=");
    node->a = parse_expression(parser);
    end_block(parser);
    return node;
}

/* transformers marks what the assistant said so; it prints as it stands. */
static struct node *parse_generation(struct parser *parser)
{
    struct node *node = create(parser, NODE_BLOCK);

    end_block(parser);
    if (node)
        node->body = parse_statements(parser);
    expect_name(parser, "endgeneration");
    end_block(parser);
    return node;
}

static struct node *parse_block(struct parser *parser)
{
    struct string name = parser->at->text;
    struct node *node;

    if (accept_name(parser, "if"))
        return parse_if(parser);
    if (accept_name(parser, "for"))
        return parse_for(parser);
    if (accept_name(parser, "set"))
        return parse_set(parser);
    if (accept_name(parser, "generation"))
        return parse_generation(parser);
    if (at_name(parser, "break") || at_name(parser, "continue")) {
        node = create(parser, at_name(parser, "break") ? NODE_BREAK : NODE_CONTINUE);
        step(parser);
        end_block(parser);
        return node;
    }
    template_fail(parser->template, STATUS_UNSUPPORTED, "the statement '%.*s' is not supported",
                  (int)(name.length < 40 ? name.length : 40), name.bytes);
    return NULL;
}

static bool ends_body(const struct parser *parser)
{
    static const char *const words[] = {"elif", "else", "endif", "endfor", "endgeneration"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (parser->at[1].kind == TOKEN_NAME && string_is(parser->at[1].text, words[i]))
            return true;
    }
    return false;
}

static struct node *parse_statement(struct parser *parser)
{
    struct node *node = NULL;

    if (parser->at->kind == TOKEN_TEXT) {
        if ((node = create(parser, NODE_TEXT)))
            node->text = parser->at->text;
        step(parser);
    } else if (parser->at->kind == TOKEN_PRINT_BEGIN) {
        step(parser);
        node = create_two(parser, NODE_PRINT, parse_expression(parser), NULL);
        if (parser->at->kind != TOKEN_PRINT_END)
            unexpected(parser, "}}");
        step(parser);
    } else {
        step(parser);
        node = parse_block(parser);
    }
    return node;
}

/* Up to the end, or behind the opening of a block whose word ends this body. */
static struct node *parse_statements(struct parser *parser)
{
    struct node *first = NULL;
    struct node **end = &first;

    if (!enter(parser))
        return NULL;
    while (!template_failed(parser->template) && parser->at->kind != TOKEN_END) {
        if (parser->at->kind == TOKEN_BLOCK_BEGIN && ends_body(parser)) {
            step(parser);
            break;
        }
        if ((*end = parse_statement(parser)))
            end = &(*end)->next;
    }
    leave(parser);
    return first;
}

struct node *template_parse(struct template *template, const struct token *tokens)
{
    struct parser parser = {template, tokens};
    struct node *first = parse_statements(&parser);

    if (parser.at->kind != TOKEN_END)
        unexpected(&parser, "the end of the template");
    return template_failed(template) ? NULL : first;
}
