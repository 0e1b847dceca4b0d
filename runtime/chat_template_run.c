/* Walk the statements.  A loop's body has its own scope, an if has none, as in Jinja. */
#include <string.h>

#include "runtime/chat_template_private.h"

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct runner {
    struct template *template;
    struct text *out;
    size_t out_begin;
};

static enum flow run_all(struct runner *runner, const struct scope *scope, const struct node *node);

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
    dict_set(template, loop.dict, string_of("index"), value_integer(at + 1));
    dict_set(template, loop.dict, string_of("index0"), value_integer(at));
    dict_set(template, loop.dict, string_of("revindex"), value_integer(count - at));
    dict_set(template, loop.dict, string_of("revindex0"), value_integer(count - at - 1));
    dict_set(template, loop.dict, string_of("first"), value_bool(at == 0));
    dict_set(template, loop.dict, string_of("last"), value_bool(at + 1 == count));
    dict_set(template, loop.dict, string_of("length"), value_integer(count));
    if (at > 0)
        dict_set(template, loop.dict, string_of("previtem"), list->items[index - 1]);
    if (at + 1 < count)
        dict_set(template, loop.dict, string_of("nextitem"), list->items[index + 1]);
    dict_set(template, names, string_of("loop"), loop);
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
        passes = template_evaluate(runner->template, &inner, node->b);
        if (value_true(&passes))
            items[count++] = list->items[i];
    }
    return value_list(items, count);
}

static enum flow run_for(struct runner *runner, const struct scope *scope, const struct node *node)
{
    struct value of = template_evaluate(runner->template, scope, node->a);
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
    struct value value = template_evaluate(runner->template, scope, node->a);
    struct value of;

    if (!node->second.length) {
        dict_set(runner->template, scope->names, node->text, value);
        return;
    }
    of = scope_find(scope, node->text);
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
        value = template_evaluate(runner->template, scope, node->a);
        print(runner, value_text(runner->template, &value));
        return FLOW_ON;
    case NODE_IF:
        value = template_evaluate(runner->template, scope, node->a);
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

    runner->template->run_depth++;
    for (; node && flow == FLOW_ON && !template_failed(runner->template); node = node->next) {
        if (template_step(runner->template, node))
            flow = run_one(runner, scope, node);
    }
    runner->template->run_depth--;
    return flow;
}

void template_run(struct template *template, const struct node *statements, struct dict *variables, struct text *ret)
{
    struct scope scope = {variables, NULL};
    struct runner runner = {.template = template, .out = ret, .out_begin = ret->length};

    run_all(&runner, &scope, statements);
}
