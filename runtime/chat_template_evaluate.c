/* The value of an expression.  Undefined values may be printed, tested and compared; anything else with them fails, as
 * in Jinja. */
#include <string.h>

#include "runtime/chat_template_private.h"
#include "runtime/utf8.h"

enum { MAX_RUN_DEPTH = 300, MAX_ARGUMENTS = 8 };

static struct value nothing(void)
{
    return (struct value){.kind = VALUE_NONE};
}

struct value scope_find(const struct scope *scope, struct string name)
{
    for (; scope; scope = scope->outer) {
        const struct value *found = dict_get(scope->names, name);

        if (found)
            return *found;
    }
    return value_undefined(name);
}

static struct value undefined_use(struct template *template, const struct value *value)
{
    template_fail(template, STATUS_MODEL, "'%.*s' is undefined", (int)value->string.length,
                  value->string.bytes ? value->string.bytes : "");
    return nothing();
}

/* An index from the end when negative; false when it lies outside. */
static bool resolve_index(int64_t index, size_t count, size_t *ret)
{
    if (index < 0)
        index += (int64_t)count;
    *ret = (size_t)index;
    return index >= 0 && (uint64_t)index < count;
}

/* The byte offset of character index (count of characters at most). */
static size_t character_offset(struct string string, size_t index)
{
    size_t at = 0;

    for (; index && at < string.length; index--) {
        for (at++; at < string.length && ((unsigned char)string.bytes[at] & 0xc0) == 0x80; at++)
            ;
    }
    return at;
}

static struct value item_of(struct template *template, const struct value *of, const struct value *key)
{
    const struct value *found;
    size_t index;

    if (of->kind == VALUE_UNDEFINED)
        return undefined_use(template, of);
    if (of->kind == VALUE_DICT && key->kind == VALUE_STRING) {
        found = dict_get(of->dict, key->string);
        return found ? *found : value_undefined(key->string);
    }
    if (of->kind == VALUE_LIST && key->kind == VALUE_INTEGER)
        return resolve_index(key->integer, of->count, &index) ? of->items[index]
                                                              : value_undefined(string_of("an item"));
    if (of->kind == VALUE_STRING && key->kind == VALUE_INTEGER) {
        if (!resolve_index(key->integer, string_characters(of->string), &index))
            return value_undefined(string_of("a character"));

        size_t begin = character_offset(of->string, index);

        return value_string((struct string){of->string.bytes + begin, character_offset(of->string, index + 1) - begin});
    }
    return value_undefined(key->kind == VALUE_STRING ? key->string : string_of("an item"));
}

/* A bound of a slice, clamped as Python clamps it. */
static size_t slice_bound(struct template *template, const struct scope *scope, const struct node *node, size_t count,
                          size_t absent)
{
    struct value value;

    if (!node)
        return absent;
    value = template_evaluate(template, scope, node);
    if (value.kind == VALUE_NONE)
        return absent;
    if (value.kind != VALUE_INTEGER) {
        template_fail(template, STATUS_MODEL, "a slice needs integers");
        return absent;
    }
    if (value.integer < 0)
        value.integer += (int64_t)count;
    return value.integer < 0 ? 0 : (uint64_t)value.integer > count ? count : (size_t)value.integer;
}

static struct value reversed(struct template *template, const struct value *of)
{
    struct value *items = template_alloc(template, of->count, sizeof *items);

    for (size_t i = 0; items && i < of->count; i++)
        items[i] = of->items[of->count - 1 - i];
    return value_list(items, items ? of->count : 0);
}

static struct value slice_of(struct template *template, const struct scope *scope, const struct node *node)
{
    struct value of = template_evaluate(template, scope, node->a);
    struct value step = node->d ? template_evaluate(template, scope, node->d) : value_integer(1);
    size_t count = of.kind == VALUE_LIST ? of.count : string_characters(of.string);
    size_t begin;
    size_t end;

    if (of.kind == VALUE_UNDEFINED)
        return undefined_use(template, &of);
    if (of.kind == VALUE_LIST && step.integer == -1 && !node->b && !node->c)
        return reversed(template, &of);
    if ((of.kind != VALUE_LIST && of.kind != VALUE_STRING) || step.kind != VALUE_INTEGER || step.integer != 1) {
        template_fail(template, STATUS_UNSUPPORTED, "this slice of %s is not supported", value_kind_name(&of));
        return nothing();
    }
    begin = slice_bound(template, scope, node->b, count, 0);
    end = slice_bound(template, scope, node->c, count, count);
    end = end < begin ? begin : end;
    if (of.kind == VALUE_LIST)
        return value_list(end > begin ? of.items + begin : NULL, end - begin);
    begin = character_offset(of.string, begin);
    end = character_offset(of.string, end);
    return value_string((struct string){of.string.bytes + begin, end - begin});
}

static size_t evaluate_arguments(struct template *template, const struct scope *scope, const struct node *items,
                                 struct value *arguments)
{
    size_t count = 0;

    for (; items; items = items->next) {
        if (count == MAX_ARGUMENTS || items->keyword.length) {
            template_fail(template, STATUS_UNSUPPORTED, "these arguments are not supported");
            return 0;
        }
        arguments[count++] = template_evaluate(template, scope, items);
    }
    return count;
}

static struct value create_namespace(struct template *template, const struct scope *scope, const struct node *items)
{
    struct value value = {.kind = VALUE_DICT, .dict = dict_create(template)};

    if (!value.dict)
        return nothing();
    value.dict->assignable = true;
    for (; items; items = items->next) {
        if (!items->keyword.length)
            template_fail(template, STATUS_UNSUPPORTED, "this namespace is not supported");
        dict_set(template, value.dict, items->keyword, template_evaluate(template, scope, items));
    }
    return value;
}

static struct value call_function(struct template *template, const struct scope *scope, const struct node *node)
{
    struct string name = node->a->text;
    struct value arguments[MAX_ARGUMENTS];

    if (string_is(name, "namespace"))
        return create_namespace(template, scope, node->items);
    if (string_is(name, "raise_exception")) {
        struct string text = {"", 0};

        if (evaluate_arguments(template, scope, node->items, arguments))
            text = value_text(template, &arguments[0]);
        template_fail(template, STATUS_MODEL, "the template refuses these messages: %.*s",
                      (int)(text.length < 300 ? text.length : 300), text.bytes);
        return nothing();
    }
    template_fail(template, STATUS_UNSUPPORTED, "the function '%.*s' is not supported",
                  (int)(name.length < 40 ? name.length : 40), name.bytes);
    return nothing();
}

static struct value call(struct template *template, const struct scope *scope, const struct node *node)
{
    struct value arguments[MAX_ARGUMENTS];
    struct value of;
    size_t count;

    if (node->a->kind == NODE_NAME)
        return call_function(template, scope, node);
    if (node->a->kind != NODE_ATTRIBUTE || !node->a->text.length) {
        template_fail(template, STATUS_UNSUPPORTED, "this call is not supported");
        return nothing();
    }
    of = template_evaluate(template, scope, node->a->a);
    if (of.kind == VALUE_UNDEFINED)
        return undefined_use(template, &of);
    count = evaluate_arguments(template, scope, node->items, arguments);
    return template_method(template, &of, node->a->text, arguments, count);
}

static struct value list_of(struct template *template, const struct scope *scope, const struct node *items)
{
    struct value *values;
    size_t count = 0;

    for (const struct node *item = items; item; item = item->next)
        count++;
    if (!(values = template_alloc(template, count, sizeof *values)))
        return nothing();
    for (size_t i = 0; i < count; i++, items = items->next)
        values[i] = template_evaluate(template, scope, items);
    return value_list(values, count);
}

static struct value dict_of(struct template *template, const struct scope *scope, const struct node *items)
{
    struct value value = {.kind = VALUE_DICT, .dict = dict_create(template)};

    for (; value.dict && items && items->next; items = items->next->next) {
        struct value name = template_evaluate(template, scope, items);

        if (name.kind != VALUE_STRING)
            template_fail(template, STATUS_UNSUPPORTED, "a mapping's name must be a string");
        dict_set(template, value.dict, name.string, template_evaluate(template, scope, items->next));
    }
    return value.dict ? value : nothing();
}

static bool compare(struct template *template, const struct value *a, const struct value *b, struct string op)
{
    int order;

    if (string_is(op, "=="))
        return value_equal(a, b);
    if (string_is(op, "!="))
        return !value_equal(a, b);
    if (string_is(op, "in"))
        return value_contains(template, b, a);
    if (a->kind != VALUE_INTEGER || b->kind != VALUE_INTEGER) {
        template_fail(template, STATUS_MODEL, "cannot order %s and %s", value_kind_name(a), value_kind_name(b));
        return false;
    }
    order = (a->integer > b->integer) - (a->integer < b->integer);
    if (op.length == 2 && order == 0)
        return true;
    return op.bytes[0] == '<' ? order < 0 : order > 0;
}

/* Python's floor division and modulo. */
static bool divide(int64_t a, int64_t b, bool remainder, int64_t *ret)
{
    if (b == 0 || (a == INT64_MIN && b == -1))
        return false;

    int64_t quotient = a / b;
    int64_t rest = a % b;

    if (rest && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    *ret = remainder ? rest : quotient;
    return true;
}

static struct value integer_arithmetic(struct template *template, int64_t a, int64_t b, struct string op)
{
    int64_t result = 0;
    bool good = false;

    if (string_is(op, "+"))
        good = !__builtin_add_overflow(a, b, &result);
    else if (string_is(op, "-"))
        good = !__builtin_sub_overflow(a, b, &result);
    else if (string_is(op, "*"))
        good = !__builtin_mul_overflow(a, b, &result);
    else if (string_is(op, "%") || string_is(op, "//"))
        good = divide(a, b, op.length == 1, &result);
    if (!good)
        template_fail(template, STATUS_UNSUPPORTED, "this arithmetic with '%.*s' is not supported", (int)op.length,
                      op.bytes);
    return value_integer(result);
}

static struct value joined_lists(struct template *template, const struct value *a, const struct value *b)
{
    struct value *items = template_alloc(template, a->count + b->count, sizeof *items);

    if (!items)
        return nothing();
    for (size_t i = 0; i < a->count + b->count; i++)
        items[i] = i < a->count ? a->items[i] : b->items[i - a->count];
    return value_list(items, a->count + b->count);
}

static struct value arithmetic(struct template *template, const struct value *a, const struct value *b,
                               struct string op)
{
    bool plus = string_is(op, "+");

    if (string_is(op, "~"))
        return value_string(string_join(template, value_text(template, a), value_text(template, b)));
    if (a->kind == VALUE_INTEGER && b->kind == VALUE_INTEGER)
        return integer_arithmetic(template, a->integer, b->integer, op);
    if (plus && a->kind == VALUE_STRING && b->kind == VALUE_STRING)
        return value_string(string_join(template, a->string, b->string));
    if (plus && a->kind == VALUE_LIST && b->kind == VALUE_LIST)
        return joined_lists(template, a, b);
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED)
        return undefined_use(template, a->kind == VALUE_UNDEFINED ? a : b);
    template_fail(template, STATUS_MODEL, "cannot compute %s %.*s %s", value_kind_name(a), (int)op.length, op.bytes,
                  value_kind_name(b));
    return nothing();
}

static struct value evaluate_attribute(struct template *template, const struct scope *scope, const struct node *node)
{
    struct value of = template_evaluate(template, scope, node->a);
    struct value key = node->b ? template_evaluate(template, scope, node->b) : value_string(node->text);

    return item_of(template, &of, &key);
}

static struct value evaluate_applied(struct template *template, const struct scope *scope, const struct node *node)
{
    struct value arguments[MAX_ARGUMENTS];
    struct value of = template_evaluate(template, scope, node->a);
    size_t count = evaluate_arguments(template, scope, node->items, arguments);

    if (template_failed(template))
        return nothing();
    if (node->kind == NODE_FILTER)
        return template_filter(template, &of, node->text, arguments, count);
    return value_bool(template_test(template, &of, node->text, arguments, count));
}

static struct value evaluate_two(struct template *template, const struct scope *scope, const struct node *node)
{
    struct value a = template_evaluate(template, scope, node->a);
    struct value b;

    if ((node->kind == NODE_AND && !value_true(&a)) || (node->kind == NODE_OR && value_true(&a)))
        return a;
    b = template_evaluate(template, scope, node->b);
    if (template_failed(template))
        return nothing();
    if (node->kind == NODE_COMPARE)
        return value_bool(compare(template, &a, &b, node->text));
    return node->kind == NODE_ARITHMETIC ? arithmetic(template, &a, &b, node->text) : b;
}

static struct value evaluate_one(struct template *template, const struct scope *scope, const struct node *node)
{
    struct value value = template_evaluate(template, scope, node->a);

    if (node->kind == NODE_NOT)
        return value_bool(!value_true(&value));
    if (value.kind != VALUE_INTEGER)
        template_fail(template, STATUS_MODEL, "cannot negate %s", value_kind_name(&value));
    return integer_arithmetic(template, 0, value.integer, string_of("-"));
}

static struct value evaluate_condition(struct template *template, const struct scope *scope, const struct node *node)
{
    struct value condition = template_evaluate(template, scope, node->b);

    if (value_true(&condition))
        return template_evaluate(template, scope, node->a);
    return node->c ? template_evaluate(template, scope, node->c) : value_undefined(string_of("the other case"));
}

static struct value evaluate_kind(struct template *template, const struct scope *scope, const struct node *node)
{
    switch (node->kind) {
    case NODE_CONSTANT:
        return node->value;
    case NODE_NAME:
        return scope_find(scope, node->text);
    case NODE_LIST:
        return list_of(template, scope, node->items);
    case NODE_DICT:
        return dict_of(template, scope, node->items);
    case NODE_ATTRIBUTE:
        return evaluate_attribute(template, scope, node);
    case NODE_SLICE:
        return slice_of(template, scope, node);
    case NODE_CALL:
        return call(template, scope, node);
    case NODE_FILTER:
    case NODE_TEST:
        return evaluate_applied(template, scope, node);
    case NODE_NOT:
    case NODE_NEGATIVE:
        return evaluate_one(template, scope, node);
    case NODE_CONDITION:
        return evaluate_condition(template, scope, node);
    default:
        return evaluate_two(template, scope, node);
    }
}

bool template_step(struct template *template, const struct node *node)
{
    template->line = node->line;
    if (++template->steps > TEMPLATE_MAX_STEPS)
        template_fail(template, STATUS_OVERFLOW, "the template takes more than %d steps", TEMPLATE_MAX_STEPS);
    if (template->run_depth >= MAX_RUN_DEPTH)
        template_fail(template, STATUS_UNSUPPORTED, "nesting this deep is not supported");
    return !template_failed(template);
}

struct value template_evaluate(struct template *template, const struct scope *scope, const struct node *node)
{
    struct value value;

    if (template_failed(template) || !template_step(template, node))
        return nothing();
    template->run_depth++;
    value = evaluate_kind(template, scope, node);
    template->run_depth--;
    return value;
}
