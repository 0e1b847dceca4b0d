/* Walk the statements.  Scopes are a chain: a loop's body has its own, an if has none, as in Jinja. */
#include <string.h>

#include "runtime/chat_template_private.h"
#include "runtime/utf8.h"

enum { MAX_RUN_DEPTH = 300, MAX_ARGUMENTS = 8 };

struct scope {
    struct dict *names;
    const struct scope *outer;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct runner {
    struct template *template;
    struct text *out;
    size_t out_begin;
    int depth;
};

static struct value evaluate(struct runner *runner, const struct scope *scope, const struct node *node);
static enum flow run_all(struct runner *runner, const struct scope *scope, const struct node *node);

static struct value nothing(void)
{
    return (struct value){.kind = VALUE_NONE};
}

static struct string word(const char *text)
{
    return (struct string){text, strlen(text)};
}

static struct value look_up(const struct scope *scope, struct string name)
{
    for (; scope; scope = scope->outer) {
        const struct value *found = dict_get(scope->names, name);

        if (found)
            return *found;
    }
    return value_undefined(name);
}

static struct value undefined_use(struct runner *runner, const struct value *value)
{
    template_fail(runner->template, STATUS_MODEL, "'%.*s' is undefined", (int)value->string.length,
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

static struct value item_of(struct runner *runner, const struct value *of, const struct value *key)
{
    const struct value *found;
    size_t index;

    if (of->kind == VALUE_UNDEFINED)
        return undefined_use(runner, of);
    if (of->kind == VALUE_DICT && key->kind == VALUE_STRING) {
        found = dict_get(of->dict, key->string);
        return found ? *found : value_undefined(key->string);
    }
    if (of->kind == VALUE_LIST && key->kind == VALUE_INTEGER)
        return resolve_index(key->integer, of->count, &index) ? of->items[index] : value_undefined(word("an item"));
    if (of->kind == VALUE_STRING && key->kind == VALUE_INTEGER) {
        if (!resolve_index(key->integer, string_characters(of->string), &index))
            return value_undefined(word("a character"));

        size_t begin = character_offset(of->string, index);

        return value_string((struct string){of->string.bytes + begin, character_offset(of->string, index + 1) - begin});
    }
    return value_undefined(key->kind == VALUE_STRING ? key->string : word("an item"));
}

/* A bound of a slice, clamped as Python clamps it. */
static size_t slice_bound(struct runner *runner, const struct scope *scope, const struct node *node, size_t count,
                          size_t absent)
{
    struct value value;

    if (!node)
        return absent;
    value = evaluate(runner, scope, node);
    if (value.kind == VALUE_NONE)
        return absent;
    if (value.kind != VALUE_INTEGER) {
        template_fail(runner->template, STATUS_MODEL, "a slice needs integers");
        return absent;
    }
    if (value.integer < 0)
        value.integer += (int64_t)count;
    return value.integer < 0 ? 0 : (uint64_t)value.integer > count ? count : (size_t)value.integer;
}

static struct value reversed(struct runner *runner, const struct value *of)
{
    struct value *items = template_alloc(runner->template, of->count, sizeof *items);

    for (size_t i = 0; items && i < of->count; i++)
        items[i] = of->items[of->count - 1 - i];
    return value_list(items, items ? of->count : 0);
}

static struct value slice_of(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value of = evaluate(runner, scope, node->a);
    struct value step = node->d ? evaluate(runner, scope, node->d) : value_integer(1);
    size_t count = of.kind == VALUE_LIST ? of.count : string_characters(of.string);
    size_t begin;
    size_t end;

    if (of.kind == VALUE_UNDEFINED)
        return undefined_use(runner, &of);
    if (of.kind == VALUE_LIST && step.integer == -1 && !node->b && !node->c)
        return reversed(runner, &of);
    if ((of.kind != VALUE_LIST && of.kind != VALUE_STRING) || step.kind != VALUE_INTEGER || step.integer != 1) {
        template_fail(runner->template, STATUS_UNSUPPORTED, "this slice of %s is not supported", value_kind_name(&of));
        return nothing();
    }
    begin = slice_bound(runner, scope, node->b, count, 0);
    end = slice_bound(runner, scope, node->c, count, count);
    end = end < begin ? begin : end;
    if (of.kind == VALUE_LIST)
        return value_list(end > begin ? of.items + begin : NULL, end - begin);
    begin = character_offset(of.string, begin);
    end = character_offset(of.string, end);
    return value_string((struct string){of.string.bytes + begin, end - begin});
}

static size_t evaluate_arguments(struct runner *runner, const struct scope *scope, const struct node *items,
                                 struct value *arguments)
{
    size_t count = 0;

    for (; items; items = items->next) {
        if (count == MAX_ARGUMENTS || items->keyword.length) {
            template_fail(runner->template, STATUS_UNSUPPORTED, "these arguments are not supported");
            return 0;
        }
        arguments[count++] = evaluate(runner, scope, items);
    }
    return count;
}

static struct value create_namespace(struct runner *runner, const struct scope *scope, const struct node *items)
{
    struct value value = {.kind = VALUE_DICT, .dict = dict_create(runner->template)};

    if (!value.dict)
        return nothing();
    value.dict->assignable = true;
    for (; items; items = items->next) {
        if (!items->keyword.length)
            template_fail(runner->template, STATUS_UNSUPPORTED, "this namespace is not supported");
        dict_set(runner->template, value.dict, items->keyword, evaluate(runner, scope, items));
    }
    return value;
}

static struct value call_function(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct string name = node->a->text;
    struct value arguments[MAX_ARGUMENTS];

    if (string_is(name, "namespace"))
        return create_namespace(runner, scope, node->items);
    if (string_is(name, "raise_exception")) {
        struct string text = {"", 0};

        if (evaluate_arguments(runner, scope, node->items, arguments))
            text = value_text(runner->template, &arguments[0]);
        template_fail(runner->template, STATUS_MODEL, "the template refuses these messages: %.*s",
                      (int)(text.length < 300 ? text.length : 300), text.bytes);
        return nothing();
    }
    template_fail(runner->template, STATUS_UNSUPPORTED, "the function '%.*s' is not supported",
                  (int)(name.length < 40 ? name.length : 40), name.bytes);
    return nothing();
}

static struct value call(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value arguments[MAX_ARGUMENTS];
    struct value of;
    size_t count;

    if (node->a->kind == NODE_NAME)
        return call_function(runner, scope, node);
    if (node->a->kind != NODE_ATTRIBUTE || !node->a->text.length) {
        template_fail(runner->template, STATUS_UNSUPPORTED, "this call is not supported");
        return nothing();
    }
    of = evaluate(runner, scope, node->a->a);
    if (of.kind == VALUE_UNDEFINED)
        return undefined_use(runner, &of);
    count = evaluate_arguments(runner, scope, node->items, arguments);
    return template_method(runner->template, &of, node->a->text, arguments, count);
}

static struct value list_of(struct runner *runner, const struct scope *scope, const struct node *items)
{
    struct value *values;
    size_t count = 0;

    for (const struct node *item = items; item; item = item->next)
        count++;
    if (!(values = template_alloc(runner->template, count, sizeof *values)))
        return nothing();
    for (size_t i = 0; i < count; i++, items = items->next)
        values[i] = evaluate(runner, scope, items);
    return value_list(values, count);
}

static struct value dict_of(struct runner *runner, const struct scope *scope, const struct node *items)
{
    struct value value = {.kind = VALUE_DICT, .dict = dict_create(runner->template)};

    for (; value.dict && items && items->next; items = items->next->next) {
        struct value name = evaluate(runner, scope, items);

        if (name.kind != VALUE_STRING)
            template_fail(runner->template, STATUS_UNSUPPORTED, "a mapping's name must be a string");
        dict_set(runner->template, value.dict, name.string, evaluate(runner, scope, items->next));
    }
    return value.dict ? value : nothing();
}

static bool is_in(struct runner *runner, const struct value *item, const struct value *of)
{
    switch (of->kind) {
    case VALUE_STRING:
        if (item->kind == VALUE_STRING)
            return !item->string.length ||
                   memmem(of->string.bytes, of->string.length, item->string.bytes, item->string.length);
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
    template_fail(runner->template, STATUS_MODEL, "cannot look for %s in %s", value_kind_name(item),
                  value_kind_name(of));
    return false;
}

static bool compare(struct runner *runner, const struct value *a, const struct value *b, struct string op)
{
    int order;

    if (string_is(op, "=="))
        return value_equal(a, b);
    if (string_is(op, "!="))
        return !value_equal(a, b);
    if (string_is(op, "in"))
        return is_in(runner, a, b);
    if (a->kind != VALUE_INTEGER || b->kind != VALUE_INTEGER) {
        template_fail(runner->template, STATUS_MODEL, "cannot order %s and %s", value_kind_name(a), value_kind_name(b));
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

static struct value integer_arithmetic(struct runner *runner, int64_t a, int64_t b, struct string op)
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
        template_fail(runner->template, STATUS_UNSUPPORTED, "this arithmetic with '%.*s' is not supported",
                      (int)op.length, op.bytes);
    return value_integer(result);
}

static struct value joined_lists(struct runner *runner, const struct value *a, const struct value *b)
{
    struct value *items = template_alloc(runner->template, a->count + b->count, sizeof *items);

    if (!items)
        return nothing();
    for (size_t i = 0; i < a->count + b->count; i++)
        items[i] = i < a->count ? a->items[i] : b->items[i - a->count];
    return value_list(items, a->count + b->count);
}

static struct value arithmetic(struct runner *runner, const struct value *a, const struct value *b, struct string op)
{
    bool plus = string_is(op, "+");

    if (string_is(op, "~"))
        return value_string(
            string_join(runner->template, value_text(runner->template, a), value_text(runner->template, b)));
    if (a->kind == VALUE_INTEGER && b->kind == VALUE_INTEGER)
        return integer_arithmetic(runner, a->integer, b->integer, op);
    if (plus && a->kind == VALUE_STRING && b->kind == VALUE_STRING)
        return value_string(string_join(runner->template, a->string, b->string));
    if (plus && a->kind == VALUE_LIST && b->kind == VALUE_LIST)
        return joined_lists(runner, a, b);
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED)
        return undefined_use(runner, a->kind == VALUE_UNDEFINED ? a : b);
    template_fail(runner->template, STATUS_MODEL, "cannot compute %s %.*s %s", value_kind_name(a), (int)op.length,
                  op.bytes, value_kind_name(b));
    return nothing();
}

static struct value evaluate_attribute(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value of = evaluate(runner, scope, node->a);
    struct value key = node->b ? evaluate(runner, scope, node->b) : value_string(node->text);

    return item_of(runner, &of, &key);
}

static struct value evaluate_applied(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value arguments[MAX_ARGUMENTS];
    struct value of = evaluate(runner, scope, node->a);
    size_t count = evaluate_arguments(runner, scope, node->items, arguments);

    if (template_failed(runner->template))
        return nothing();
    if (node->kind == NODE_FILTER)
        return template_filter(runner->template, &of, node->text, arguments, count);
    return value_bool(template_test(runner->template, &of, node->text, arguments, count));
}

static struct value evaluate_two(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value a = evaluate(runner, scope, node->a);
    struct value b;

    if ((node->kind == NODE_AND && !value_true(&a)) || (node->kind == NODE_OR && value_true(&a)))
        return a;
    b = evaluate(runner, scope, node->b);
    if (template_failed(runner->template))
        return nothing();
    if (node->kind == NODE_COMPARE)
        return value_bool(compare(runner, &a, &b, node->text));
    return node->kind == NODE_ARITHMETIC ? arithmetic(runner, &a, &b, node->text) : b;
}

static struct value evaluate_one(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value value = evaluate(runner, scope, node->a);

    if (node->kind == NODE_NOT)
        return value_bool(!value_true(&value));
    if (value.kind != VALUE_INTEGER)
        template_fail(runner->template, STATUS_MODEL, "cannot negate %s", value_kind_name(&value));
    return integer_arithmetic(runner, 0, value.integer, word("-"));
}

static struct value evaluate_condition(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value condition = evaluate(runner, scope, node->b);

    if (value_true(&condition))
        return evaluate(runner, scope, node->a);
    return node->c ? evaluate(runner, scope, node->c) : value_undefined(word("the other case"));
}

static struct value evaluate_kind(struct runner *runner, const struct scope *scope, const struct node *node)
{
    switch (node->kind) {
    case NODE_CONSTANT:
        return node->value;
    case NODE_NAME:
        return look_up(scope, node->text);
    case NODE_LIST:
        return list_of(runner, scope, node->items);
    case NODE_DICT:
        return dict_of(runner, scope, node->items);
    case NODE_ATTRIBUTE:
        return evaluate_attribute(runner, scope, node);
    case NODE_SLICE:
        return slice_of(runner, scope, node);
    case NODE_CALL:
        return call(runner, scope, node);
    case NODE_FILTER:
    case NODE_TEST:
        return evaluate_applied(runner, scope, node);
    case NODE_NOT:
    case NODE_NEGATIVE:
        return evaluate_one(runner, scope, node);
    case NODE_CONDITION:
        return evaluate_condition(runner, scope, node);
    default:
        return evaluate_two(runner, scope, node);
    }
}

static bool spend_step(struct runner *runner, const struct node *node)
{
    runner->template->line = node->line;
    if (++runner->template->steps > TEMPLATE_MAX_STEPS)
        template_fail(runner->template, STATUS_OVERFLOW, "the template takes more than %d steps", TEMPLATE_MAX_STEPS);
    if (runner->depth >= MAX_RUN_DEPTH)
        template_fail(runner->template, STATUS_UNSUPPORTED, "nesting this deep is not supported");
    return !template_failed(runner->template);
}

static struct value evaluate(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value value;

    if (template_failed(runner->template) || !spend_step(runner, node))
        return nothing();
    runner->depth++;
    value = evaluate_kind(runner, scope, node);
    runner->depth--;
    return value;
}

static void print(struct runner *runner, struct string text)
{
    if (text.length > TEMPLATE_MAX_OUTPUT - (runner->out->length - runner->out_begin)) {
        template_fail(runner->template, STATUS_OVERFLOW, "the prompt has more than %d MiB", TEMPLATE_MAX_OUTPUT >> 20);
        return;
    }
    text_add_bytes(runner->out, text.bytes, text.length);
    if (runner->out->failed)
        template_fail(runner->template, STATUS_NOMEM, "the prompt");
}

/* What a loop walks over, as a list. */
static struct value iterate(struct runner *runner, const struct value *of)
{
    struct value *items = NULL;
    size_t count = 0;

    if (of->kind == VALUE_LIST)
        return *of;
    if (of->kind == VALUE_UNDEFINED)
        return value_list(NULL, 0);
    if (of->kind != VALUE_DICT) {
        template_fail(runner->template, of->kind == VALUE_STRING ? STATUS_UNSUPPORTED : STATUS_MODEL,
                      "cannot loop over %s", value_kind_name(of));
        return value_list(NULL, 0);
    }
    for (const struct dict_entry *entry = of->dict->first; entry; entry = entry->next)
        count++;
    items = template_alloc(runner->template, count, sizeof *items);
    count = 0;
    for (const struct dict_entry *entry = of->dict->first; items && entry; entry = entry->next)
        items[count++] = value_string(entry->name);
    return value_list(items, count);
}

static void set_loop(struct runner *runner, struct dict *names, const struct value *list, size_t index)
{
    struct template *template = runner->template;
    struct value loop = {.kind = VALUE_DICT, .dict = dict_create(template)};
    int64_t count = (int64_t)list->count;
    int64_t at = (int64_t)index;

    if (!loop.dict)
        return;
    dict_set(template, loop.dict, word("index"), value_integer(at + 1));
    dict_set(template, loop.dict, word("index0"), value_integer(at));
    dict_set(template, loop.dict, word("revindex"), value_integer(count - at));
    dict_set(template, loop.dict, word("revindex0"), value_integer(count - at - 1));
    dict_set(template, loop.dict, word("first"), value_bool(at == 0));
    dict_set(template, loop.dict, word("last"), value_bool(at + 1 == count));
    dict_set(template, loop.dict, word("length"), value_integer(count));
    if (at > 0)
        dict_set(template, loop.dict, word("previtem"), list->items[index - 1]);
    if (at + 1 < count)
        dict_set(template, loop.dict, word("nextitem"), list->items[index + 1]);
    dict_set(template, names, word("loop"), loop);
}

/* The items that pass the loop's own condition. */
static struct value filter_items(struct runner *runner, const struct scope *scope, const struct node *node,
                                 const struct value *list)
{
    struct value *items = template_alloc(runner->template, list->count, sizeof *items);
    size_t count = 0;

    for (size_t i = 0; items && i < list->count && !template_failed(runner->template); i++) {
        struct scope inner = {dict_create(runner->template), scope};
        struct value passes;

        dict_set(runner->template, inner.names, node->text, list->items[i]);
        passes = evaluate(runner, &inner, node->b);
        if (value_true(&passes))
            items[count++] = list->items[i];
    }
    return value_list(items, count);
}

static enum flow run_for(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value of = evaluate(runner, scope, node->a);
    struct value list = iterate(runner, &of);

    if (node->second.length && list.count)
        template_fail(runner->template, STATUS_UNSUPPORTED, "a loop with two names is not supported");
    if (node->b)
        list = filter_items(runner, scope, node, &list);
    if (!list.count)
        return run_all(runner, scope, node->otherwise);
    for (size_t i = 0; i < list.count && !template_failed(runner->template); i++) {
        struct scope inner = {dict_create(runner->template), scope};

        dict_set(runner->template, inner.names, node->text, list.items[i]);
        set_loop(runner, inner.names, &list, i);
        if (run_all(runner, &inner, node->body) == FLOW_BREAK)
            break;
    }
    return FLOW_ON;
}

static void run_set(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value value = evaluate(runner, scope, node->a);
    struct value of;

    if (!node->second.length) {
        dict_set(runner->template, scope->names, node->text, value);
        return;
    }
    of = look_up(scope, node->text);
    if (of.kind != VALUE_DICT || !of.dict->assignable)
        template_fail(runner->template, STATUS_MODEL, "'%.*s' is no namespace", (int)node->text.length,
                      node->text.bytes);
    else
        dict_set(runner->template, of.dict, node->second, value);
}

static enum flow run_one(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value value;

    switch (node->kind) {
    case NODE_TEXT:
        print(runner, node->text);
        return FLOW_ON;
    case NODE_PRINT:
        value = evaluate(runner, scope, node->a);
        print(runner, value_text(runner->template, &value));
        return FLOW_ON;
    case NODE_IF:
        value = evaluate(runner, scope, node->a);
        return run_all(runner, scope, value_true(&value) ? node->body : node->otherwise);
    case NODE_FOR:
        return run_for(runner, scope, node);
    case NODE_SET:
        run_set(runner, scope, node);
        return FLOW_ON;
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        return run_all(runner, scope, node->body);
    }
}

static enum flow run_all(struct runner *runner, const struct scope *scope, const struct node *node)
{
    enum flow flow = FLOW_ON;

    runner->depth++;
    for (; node && flow == FLOW_ON && !template_failed(runner->template); node = node->next) {
        if (spend_step(runner, node))
            flow = run_one(runner, scope, node);
    }
    runner->depth--;
    return flow;
}

void template_run(struct template *template, const struct node *statements, struct dict *variables, struct text *ret)
{
    struct scope scope = {variables, NULL};
    struct runner runner = {.template = template, .out = ret, .out_begin = ret->length};

    run_all(&runner, &scope, statements);
}
