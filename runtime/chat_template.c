/* Text to tokens to nodes to text.  The source is first made what Jinja's loader makes of it. */
#include "runtime/chat_template.h"

#include "runtime/chat_template_private.h"
#include "runtime/utf8.h"

/* One kind of newline, and none at the very end. */
static struct string normal_source(struct template *template, const char *source, size_t length)
{
    char *bytes = template_alloc(template, length + 1, 1);
    size_t count = 0;

    for (size_t i = 0; bytes && i < length; i++) {
        if (source[i] == '\r' && i + 1 < length && source[i + 1] == '\n')
            continue;
        bytes[count++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (count && bytes[count - 1] == '\n')
        count--;
    return (struct string){bytes, count};
}

static struct value messages_value(struct template *template, const struct chat_input *input)
{
    struct value *items = template_alloc(template, input->count, sizeof *items);

    for (size_t i = 0; items && i < input->count; i++) {
        items[i] = (struct value){.kind = VALUE_DICT, .dict = dict_create(template)};
        dict_set(template, items[i].dict, string_of("role"), value_string(string_of(input->messages[i].role)));
        dict_set(template, items[i].dict, string_of("content"), value_string(string_of(input->messages[i].content)));
    }
    return value_list(items, items ? input->count : 0);
}

/* What transformers gives to a template, when there are no tools and no documents. */
static struct dict *create_variables(struct template *template, const struct chat_input *input)
{
    struct dict *variables = dict_create(template);

    dict_set(template, variables, string_of("messages"), messages_value(template, input));
    dict_set(template, variables, string_of("add_generation_prompt"), value_bool(input->add_generation_prompt));
    dict_set(template, variables, string_of("tools"), (struct value){.kind = VALUE_NONE});
    dict_set(template, variables, string_of("documents"), (struct value){.kind = VALUE_NONE});
    if (input->bos_token)
        dict_set(template, variables, string_of("bos_token"), value_string(string_of(input->bos_token)));
    if (input->eos_token)
        dict_set(template, variables, string_of("eos_token"), value_string(string_of(input->eos_token)));
    return variables;
}

enum status chat_template_render(const char *source, size_t length, const struct chat_input *input, struct text *ret,
                                 struct error *err)
{
    struct template template = {.err = err};
    size_t wrong = utf8_check(source, length);
    size_t begin = ret->length;
    struct token *tokens = NULL;
    struct node *statements = NULL;
    struct string text;

    if (length > TEMPLATE_MAX_BYTES)
        return error_set(err, STATUS_UNSUPPORTED, "a template of %zu bytes", length);
    if (wrong < length)
        return error_set(err, STATUS_MODEL, "not UTF-8 at offset %zu", wrong);
    text = normal_source(&template, source, length);
    if (!template_failed(&template))
        tokens = template_lex(&template, text.bytes, text.length);
    if (tokens)
        statements = template_parse(&template, tokens);
    if (!template_failed(&template))
        template_run(&template, statements, create_variables(&template, input), ret);
    template_done(&template);
    if (template_failed(&template) && ret->length > begin) {
        ret->length = begin;
        ret->bytes[begin] = 0;
    }
    return template.status;
}
