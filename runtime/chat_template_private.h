/* The inside of chat templates: one block of memory, tokens, nodes, values. */
#ifndef RUNTIME_CHAT_TEMPLATE_PRIVATE_H
#define RUNTIME_CHAT_TEMPLATE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/chat_template.h"

enum {
    TEMPLATE_MAX_BYTES = 1 << 20,    /* of the template's text */
    TEMPLATE_MAX_DEPTH = 100,        /* of nested statements and expressions */
    TEMPLATE_MAX_STEPS = 20000000,   /* evaluated nodes */
    TEMPLATE_MAX_MEMORY = 256 << 20, /* of tokens, nodes and values */
    TEMPLATE_MAX_OUTPUT = 64 << 20   /* bytes of the prompt */
};

/* One rendering.  The first failure stays in status; everything after it does nothing. */
struct template
{
    struct arena_block *blocks;
    size_t memory;
    enum status status;
    struct error *err;
    int line;      /* where the work stands, for messages */
    int depth;     /* of what is being parsed */
    int run_depth; /* of what is being evaluated */
    long steps;
};

/* Zeroed, aligned, freed with the template; NULL (and a failure) when there is no more. */
void *template_alloc(struct template *template, size_t count, size_t bytes);
void template_done(struct template *template);
/* Fail with "line N: ..." unless something failed before. */
void template_fail(struct template *template, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool template_failed(const struct template *template);

/* Strings are bytes with a length. */
struct string {
    const char *bytes;
    size_t length;
};
bool string_is(struct string string, const char *word);
/* Where part begins in text; NULL: nowhere.  A string of no bytes may have NULL for them, and is nowhere. */
const char *string_find(struct string text, struct string part);

enum token_kind {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_OPERATOR
};

struct token {
    enum token_kind kind;
    struct string text; /* of a string: its value */
    int64_t integer;
    int line;
};

/* Cut the source; the list ends with TOKEN_END.  NULL on failure. */
struct token *template_lex(struct template *template, const char *source, size_t length);

enum node_kind {
    /* statements */
    NODE_TEXT,
    NODE_PRINT,
    NODE_IF,
    NODE_FOR,
    NODE_SET,
    NODE_BLOCK,
    NODE_BREAK,
    NODE_CONTINUE,
    /* expressions */
    NODE_CONSTANT,
    NODE_NAME,
    NODE_LIST,
    NODE_DICT,
    NODE_ATTRIBUTE,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_AND,
    NODE_OR,
    NODE_COMPARE,
    NODE_ARITHMETIC,
    NODE_NEGATIVE,
    NODE_CONDITION
};

enum value_kind { VALUE_UNDEFINED, VALUE_NONE, VALUE_BOOL, VALUE_INTEGER, VALUE_STRING, VALUE_LIST, VALUE_DICT };

struct value {
    enum value_kind kind;
    bool boolean;
    int64_t integer;
    struct string string; /* of an undefined value: its name, for messages */
    const struct value *items;
    size_t count;
    struct dict *dict;
};

/* Names with values: a message, a namespace, a loop, the variables of a scope. */
struct dict_entry {
    struct string name;
    struct value value;
    struct dict_entry *next;
};
struct dict {
    struct dict_entry *first;
    struct dict_entry **end;
    bool assignable; /* a namespace */
};

/* What each kind uses:
 * TEXT text.  PRINT a.  IF a, body, otherwise.  FOR text, second (names), a (list), b (condition), body, otherwise.
 * SET text, second (attribute), a.  BLOCK body.  CONSTANT value.  NAME text.  LIST items.  DICT items (name, value,
 * ...).  ATTRIBUTE a, text or b (item).  SLICE a, b, c, d.  CALL a, items, names.  FILTER and TEST a, text, items.
 * NOT, NEGATIVE a.  AND, OR a, b.  COMPARE and ARITHMETIC a, text (operator), b.  CONDITION a if b else c. */
struct node {
    enum node_kind kind;
    int line;
    struct string text;
    struct string second;
    struct value value;
    struct node *a;
    struct node *b;
    struct node *c;
    struct node *d;
    struct node *body;
    struct node *otherwise;
    struct node *items;    /* a list, through next */
    struct string keyword; /* of an argument: its name */
    struct node *next;
};

/* The statements of a template, linked through next; NULL when there are none or on failure. */
struct node *template_parse(struct template *template, const struct token *tokens);

struct value value_string(struct string string);
struct value value_bool(bool boolean);
struct value value_integer(int64_t integer);
struct value value_undefined(struct string name);
struct value value_list(const struct value *items, size_t count);
bool value_true(const struct value *value);
bool value_equal(const struct value *a, const struct value *b);
/* "item in of"; fails when of can hold nothing. */
bool value_contains(struct template *template, const struct value *of, const struct value *item);
/* "a string", "a list"; for messages. */
const char *value_kind_name(const struct value *value);
/* What printing gives; fails on lists and dicts. */
struct string value_text(struct template *template, const struct value *value);
struct string string_join(struct template *template, struct string a, struct string b);
size_t string_characters(struct string string);

struct dict *dict_create(struct template *template);
void dict_set(struct template *template, struct dict *dict, struct string name, struct value value);
const struct value *dict_get(const struct dict *dict, struct string name);

/* value|name(arguments), value is name(arguments), value.name(arguments). */
struct value template_filter(struct template *template, const struct value *value, struct string name,
                             const struct value *arguments, size_t count);
bool template_test(struct template *template, const struct value *value, struct string name,
                   const struct value *arguments, size_t count);
struct value template_method(struct template *template, const struct value *value, struct string name,
                             const struct value *arguments, size_t count);

/* The names in sight: a chain, the innermost scope first. */
struct scope {
    struct dict *names;
    const struct scope *outer;
};
/* A string that lives as long as text. */
struct string string_of(const char *text);
/* The value of a name; undefined when no scope has it. */
struct value scope_find(const struct scope *scope, struct string name);
/* The value of an expression; none after a failure. */
struct value template_evaluate(struct template *template, const struct scope *scope, const struct node *node);
/* Count a step at this node; false when the template has failed or takes too many. */
bool template_step(struct template *template, const struct node *node);

/* Run the statements with these variables; appends to ret. */
void template_run(struct template *template, const struct node *statements, struct dict *variables, struct text *ret);

#endif
