/* Prompts are encoded once, on rank 0, and broadcast as ids, so that no rank can see other text than another. */
#include "runtime/prompts.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/tensor.h"
#include "checkpoint/model_config.h"
#include "checkpoint/checkpoint.h"
#include "comm/group.h"
#include "runtime/tokenizer.h"
#include "runtime/wait.h"
#include "topology/source.h"
#include "topology/topology.h"
#include "topology/value.h"

enum { MAX_FILE_BYTES = 1 << 28, SHARE_TOKENS = 1 << 18, MAX_MESSAGES = 4096, SHOWN_CHARACTERS = 200 };

struct reading {
    const struct checkpoint *checkpoint;
    const struct tokenizer *tokenizer;
    uint32_t context;
    struct prompts *prompts;
    size_t capacity;      /* of begin */
    uint64_t deadline_ns; /* of a prompt that says none; 0: none */
    uint64_t own_ns;      /* what the prompt that is being read says; 0: nothing */
    struct token_list list;
    struct error *err;
};

void prompts_done(struct prompts *prompts)
{
    free(prompts->begin);
    free(prompts->tokens);
    free(prompts->deadline_ms);
    *prompts = (struct prompts){0};
}

/* Rounded up: nobody's time is up too early. */
static uint32_t in_ms(uint64_t ns)
{
    return (uint32_t)((ns + NS_PER_MS - 1) / NS_PER_MS);
}

/* Close the prompt whose ids were appended to the list last. */
static enum status finish_prompt(struct reading *r)
{
    struct prompts *p = r->prompts;
    uint64_t length = r->list.count - p->begin[p->count];
    uint64_t vocab = checkpoint_config(r->checkpoint)->vocab_size;

    if (!length)
        return error_set(r->err, STATUS_MODEL, "prompt %u is empty: it gives no token", p->count);
    if (length >= r->context)
        return error_set(r->err, STATUS_MODEL,
                         "prompt %u has %" PRIu64
                         " tokens, the context %u: at most %u fit, with room for one new token",
                         p->count, length, r->context, r->context - 1);
    for (uint64_t i = p->begin[p->count]; i < r->list.count; i++)
        if (r->list.ids[i] >= vocab)
            return error_set(r->err, STATUS_MODEL, "prompt %u: token %u is outside the model's vocabulary of %" PRIu64,
                             p->count, r->list.ids[i], vocab);
    p->deadline_ms[p->count] = in_ms(r->own_ns ? r->own_ns : r->deadline_ns);
    r->own_ns = 0;
    p->begin[++p->count] = r->list.count;
    return STATUS_OK;
}

static enum status start_prompt(struct reading *r)
{
    size_t capacity = r->capacity ? 2 * r->capacity : 64;
    uint64_t *begin;
    uint32_t *deadline_ms;

    if (r->prompts->count >= PROMPTS_MAX)
        return error_set(r->err, STATUS_OVERFLOW, "more than %d prompts", PROMPTS_MAX);
    if (r->prompts->count + 2 <= r->capacity)
        return STATUS_OK;
    begin = realloc(r->prompts->begin, capacity * sizeof *begin);
    if (!begin)
        return error_set(r->err, STATUS_NOMEM, "%u prompts", r->prompts->count);
    if (!r->capacity)
        begin[0] = 0;
    r->prompts->begin = begin;
    deadline_ms = realloc(r->prompts->deadline_ms, capacity * sizeof *deadline_ms);
    if (!deadline_ms)
        return error_set(r->err, STATUS_NOMEM, "%u prompts", r->prompts->count);
    r->prompts->deadline_ms = deadline_ms;
    r->capacity = capacity;
    return STATUS_OK;
}

static enum status add_text(struct reading *r, const char *text, size_t length, bool special)
{
    enum status st = start_prompt(r);

    if (st == STATUS_OK)
        st = tokenizer_encode(r->tokenizer, text, length, special, &r->list, r->err);
    if (st != STATUS_OK)
        return error_wrap(r->err, st, "prompt %u", r->prompts->count);
    return finish_prompt(r);
}

static enum status add_chat(struct reading *r, const struct chat_message *messages, size_t count)
{
    struct text text = {0};
    enum status st = chat_render(r->checkpoint, messages, count, &text, r->err);

    if (st == STATUS_OK && text.failed)
        st = error_set(r->err, STATUS_NOMEM, "the chat of prompt %u", r->prompts->count);
    if (st == STATUS_OK)
        st = add_text(r, text_string(&text), text.length, false);
    else
        st = error_wrap(r->err, st, "prompt %u", r->prompts->count);
    text_done(&text);
    return st;
}

static enum status add_token(struct reading *r, uint64_t id)
{
    if (id > UINT32_MAX)
        return error_set(r->err, STATUS_MODEL, "prompt %u: %" PRIu64 " is no token id", r->prompts->count, id);
    if (r->list.count == r->list.capacity) {
        size_t capacity = r->list.capacity ? 2 * r->list.capacity : 256;
        uint32_t *ids = realloc(r->list.ids, capacity * sizeof *ids);

        if (!ids)
            return error_set(r->err, STATUS_NOMEM, "prompt %u", r->prompts->count);
        r->list.ids = ids;
        r->list.capacity = capacity;
    }
    r->list.ids[r->list.count++] = (uint32_t)id;
    return STATUS_OK;
}

static enum status add_topology_prompt(struct reading *r, const struct topology_prompt *prompt)
{
    struct chat_message messages[MAX_MESSAGES];
    enum status st;

    if (prompt->text.value)
        return add_text(r, prompt->text.value, strlen(prompt->text.value), true);
    if (prompt->messages.count > MAX_MESSAGES)
        return error_set(r->err, STATUS_OVERFLOW, "prompt %u: more than %d messages", r->prompts->count, MAX_MESSAGES);
    for (size_t i = 0; i < prompt->messages.count; i++)
        messages[i] =
            (struct chat_message){prompt->messages.item[i].role.value, prompt->messages.item[i].content.value};
    if (prompt->messages.count)
        return add_chat(r, messages, prompt->messages.count);
    st = start_prompt(r);
    for (size_t i = 0; st == STATUS_OK && i < prompt->tokens.count; i++)
        st = add_token(r, prompt->tokens.item[i].value);
    return st == STATUS_OK ? finish_prompt(r) : st;
}

/* What a file holds, in a message: as a person may see it on a terminal; the caller ends it with text_done. */
static const char *shown(struct text *text, const char *bytes)
{
    source_show(text, bytes, strlen(bytes), SHOWN_CHARACTERS);
    return text_string(text);
}

/* Refuse an object with a key that is none of these (NULL behind the last); expected names them. */
static enum status check_keys(struct reading *r, json_t *object, const char *const *known, const char *expected)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        struct text text = {0};
        int i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (known[i])
            continue;
        (void)error_set(r->err, STATUS_MODEL, "unknown key \"%s\": expected %s", shown(&text, key), expected);
        text_done(&text);
        return STATUS_MODEL;
    }
    return STATUS_OK;
}

/* The text of a key, refused as YAML's are when a character is NUL: behind it nothing would be read. */
static enum status take_text(struct reading *r, json_t *object, const char *key, const char **ret)
{
    json_t *value = json_object_get(object, key);

    if (!json_is_string(value))
        return error_set(r->err, STATUS_MODEL, "\"%s\" must be a text", key);
    *ret = json_string_value(value);
    if (strlen(*ret) != json_string_length(value))
        return error_set(r->err, STATUS_MODEL, "\"%s\": expected a text without a NUL character", key);
    return STATUS_OK;
}

static enum status add_json_text(struct reading *r, json_t *object)
{
    const char *text = NULL;
    enum status st = take_text(r, object, "text", &text);

    return st == STATUS_OK ? add_text(r, text, strlen(text), true) : st;
}

static enum status add_json_chat(struct reading *r, json_t *object)
{
    static const char *const known[] = {"role", "content", NULL};
    struct chat_message messages[MAX_MESSAGES];
    json_t *list = json_object_get(object, "messages");
    size_t count = json_array_size(list);
    enum status st = STATUS_OK;

    if (!count || count > MAX_MESSAGES)
        return error_set(r->err, STATUS_MODEL, "\"messages\" must be a list of 1 to %d", MAX_MESSAGES);
    for (size_t i = 0; i < count; i++) {
        json_t *item = json_array_get(list, i);

        if (!json_object_get(item, "role") || !json_object_get(item, "content"))
            return error_set(r->err, STATUS_MODEL, "messages[%zu] needs the texts role and content", i);
        st = check_keys(r, item, known, "\"role\" and \"content\"");
        if (st == STATUS_OK)
            st = take_text(r, item, "role", &messages[i].role);
        if (st == STATUS_OK)
            st = take_text(r, item, "content", &messages[i].content);
        if (st != STATUS_OK)
            return error_wrap(r->err, st, "messages[%zu]", i);
    }
    return add_chat(r, messages, count);
}

static enum status refuse_token(struct reading *r, size_t index, const json_t *id)
{
    char *value = json_dumps(id, JSON_COMPACT | JSON_ENCODE_ANY);
    struct text text = {0};
    enum status st = error_set(r->err, STATUS_MODEL, "tokens[%zu] is %s: expected a token id", index,
                               shown(&text, value ? value : "?"));

    text_done(&text);
    free(value);
    return st;
}

static enum status add_json_tokens(struct reading *r, json_t *object)
{
    json_t *list = json_object_get(object, "tokens");
    enum status st = start_prompt(r);

    if (!json_is_array(list))
        return error_set(r->err, STATUS_MODEL, "\"tokens\" must be a list");
    for (size_t i = 0; st == STATUS_OK && i < json_array_size(list); i++) {
        json_t *id = json_array_get(list, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
            return refuse_token(r, i, id);
        st = add_token(r, (uint64_t)json_integer_value(id));
    }
    return st == STATUS_OK ? finish_prompt(r) : st;
}

/* The time that a prompt may take. */
static enum status take_deadline(struct reading *r, json_t *object)
{
    const char *words = NULL;
    struct text text = {0};
    enum status st = take_text(r, object, "deadline", &words);

    if (st == STATUS_OK && !value_duration(words, strlen(words), NS_PER_MS, PROMPTS_MOST_NS, &r->own_ns))
        st = error_set(r->err, STATUS_MODEL, "\"deadline\" is \"%s\": expected a time such as 500ms or 30s, at most 7d",
                       shown(&text, words));
    text_done(&text);
    return st;
}

/* One prompt: an object with exactly one of three keys, and perhaps a deadline. */
static enum status add_json(struct reading *r, json_t *object)
{
    static const char *const known[] = {"text", "messages", "tokens", "deadline", NULL};
    static enum status (*const add[])(struct reading *, json_t *) = {add_json_text, add_json_chat, add_json_tokens};
    static const char expected[] = "one of \"text\", \"messages\" and \"tokens\"";
    int one = -1;
    enum status st = check_keys(r, object, known, "one of \"text\", \"messages\" and \"tokens\", or \"deadline\"");

    if (st == STATUS_OK && json_object_get(object, "deadline"))
        st = take_deadline(r, object);
    if (st != STATUS_OK)
        return st;
    for (int i = 0; i < (int)(sizeof add / sizeof *add); i++) {
        if (!json_object_get(object, known[i]))
            continue;
        if (one >= 0)
            return error_set(r->err, STATUS_MODEL, "both \"%s\" and \"%s\": expected %s", known[one], known[i],
                             expected);
        one = i;
    }
    if (one < 0)
        return error_set(r->err, STATUS_MODEL, "%s: expected %s",
                         json_object_size(object) ? "no prompt" : "an empty object", expected);
    return add[one](r, object);
}

/* Bytes at the start of the line that a person would not see. */
static size_t blanks(const char *line, size_t length)
{
    size_t count = 0;

    while (count < length && line[count] && strchr(" \t\v\f\r", line[count]))
        count++;
    return count;
}

/* One line of a prompts file: a JSON object with text, messages or tokens, or else plain text; blank ones are none. */
static enum status add_line(struct reading *r, const char *line, size_t length)
{
    struct text text = {0};
    json_error_t problem;
    json_t *root;
    const char *nul;
    enum status st;

    if (length && line[length - 1] == '\r')
        length--;
    if (blanks(line, length) == length)
        return STATUS_OK;
    if ((nul = memchr(line, '\0', length)))
        return error_set(r->err, STATUS_MODEL, "column %zu: expected a text without a NUL character",
                         (size_t)(nul - line) + 1);
    if (line[blanks(line, length)] != '{')
        return add_text(r, line, length, true);
    root = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    st = root ? add_json(r, root)
              : error_set(r->err, STATUS_MODEL, "column %d: %s", problem.column, shown(&text, problem.text));
    text_done(&text);
    json_decref(root);
    return st;
}

/* The whole file, NULL: standard input; the caller frees.  name: in messages. */
static enum status slurp(const char *path, const char *name, char **ret, size_t *ret_length, struct error *err)
{
    FILE *file = path ? fopen(path, "rb") : stdin;
    struct text text = {0};
    char piece[65536];
    size_t count;

    if (!file)
        return error_set(err, STATUS_STORAGE, "%s: %s", name, strerror(errno));
    while ((count = fread(piece, 1, sizeof piece, file)) && text.length <= MAX_FILE_BYTES)
        text_add_bytes(&text, piece, count);
    bool bad = ferror(file) || text.failed;

    if (file != stdin)
        (void)fclose(file);
    if (bad || text.length > MAX_FILE_BYTES) {
        enum status st =
            error_set(err, STATUS_STORAGE, "%s: %s", name, bad ? "cannot be read" : "is larger than 256 MiB");

        text_done(&text);
        return st;
    }
    text_add_bytes(&text, "", 0);
    *ret = text.bytes;
    *ret_length = text.length;
    return STATUS_OK;
}

/* path NULL: standard input. */
static enum status add_file(struct reading *r, const char *path)
{
    const char *name = path ? path : "standard input";
    static const char mark[] = "\xef\xbb\xbf"; /* some editors put a byte order mark first: no part of a prompt */
    char *bytes = NULL;
    size_t length = 0;
    uint64_t number = 0;
    enum status st = slurp(path, name, &bytes, &length, r->err);
    size_t skip = st == STATUS_OK && length >= strlen(mark) && !memcmp(bytes, mark, strlen(mark)) ? strlen(mark) : 0;

    for (size_t begin = skip; st == STATUS_OK && begin < length;) {
        const char *end = memchr(bytes + begin, '\n', length - begin);
        size_t line = end ? (size_t)(end - bytes) - begin : length - begin;

        number++;
        st = add_line(r, bytes + begin, line);
        if (st != STATUS_OK)
            error_wrap(r->err, st, "%s:%" PRIu64, name, number);
        begin += line + 1;
    }
    if (st == STATUS_OK && !r->prompts->count)
        st = error_set(r->err, STATUS_MODEL, "%s holds no prompt", name);
    free(bytes);
    return st;
}

static enum status none_given(const struct topology *topology, struct error *err)
{
    struct text place = {0};

    topology_describe_position(topology, topology->workload.generate.at, &place);
    error_set(err, STATUS_TOPOLOGY, "workload.generate (%s): no prompts: give prompts or prompts_file",
              text_string(&place));
    text_done(&place);
    return STATUS_TOPOLOGY;
}

enum status prompts_read(const struct topology *topology, const struct checkpoint *checkpoint,
                         const struct tokenizer *tokenizer, uint32_t context, struct prompts *ret, struct error *err)
{
    const struct topology_generate *generate = &topology->workload.generate;
    struct prompts prompts = {0};
    struct reading r = {.checkpoint = checkpoint,
                        .tokenizer = tokenizer,
                        .context = context,
                        .prompts = &prompts,
                        .deadline_ns = generate->deadline_ns.value,
                        .err = err};
    struct text path = {0};
    enum status st = STATUS_OK;

    if (generate->prompts_file.value && !strcmp(generate->prompts_file.value, "-")) {
        st = add_file(&r, NULL);
    } else if (generate->prompts_file.value) {
        topology_path(topology, generate->prompts_file.value, &path);
        st = add_file(&r, text_string(&path));
    }
    for (size_t i = 0; st == STATUS_OK && i < generate->prompts.count; i++)
        st = add_topology_prompt(&r, &generate->prompts.item[i]);
    text_done(&path);
    prompts.tokens = r.list.ids;
    if (st == STATUS_OK && !prompts.count)
        st = none_given(topology, err);
    if (st != STATUS_OK) {
        prompts_done(&prompts);
        return st;
    }
    *ret = prompts;
    return STATUS_OK;
}

/* Broadcast count u32 words from member 0 in pieces. */
static enum status share_words(uint32_t *words, uint64_t count, struct group *world, struct error *err)
{
    struct shape shape = {1, {SHARE_TOKENS}};
    struct tensor *tensor = NULL;
    uint64_t waited = 0;
    enum status st = tensor_create(DTYPE_U32, &shape, &tensor, err);

    for (uint64_t done = 0; st == STATUS_OK && done < count; done += shape.dim[0]) {
        struct completion *completion = NULL;

        shape.dim[0] = count - done < SHARE_TOKENS ? count - done : SHARE_TOKENS;
        st = tensor_reshape(tensor, DTYPE_U32, &shape, err);
        memcpy(tensor->data, words + done, shape.dim[0] * sizeof *words);
        if (st == STATUS_OK)
            st = group_broadcast(world, tensor, 0, &completion, err);
        if (st == STATUS_OK)
            st = wait_and_release(completion, &waited, err);
        if (st == STATUS_OK)
            memcpy(words + done, tensor->data, shape.dim[0] * sizeof *words);
    }
    tensor_release(tensor);
    return st;
}

/* The lengths as words, so that one dtype serves for all three messages. */
static enum status share_lengths(struct prompts *prompts, uint64_t total, struct group *world, struct error *err)
{
    bool root = group_rank(world) == 0;
    uint32_t *length = calloc(prompts->count ? prompts->count : 1, sizeof *length);
    enum status st = STATUS_OK;

    if (!root)
        prompts->begin = calloc((size_t)prompts->count + 1, sizeof *prompts->begin);
    if (!length || !prompts->begin) {
        free(length);
        return error_set(err, STATUS_NOMEM, "the lengths of %u prompts", prompts->count);
    }
    for (uint32_t i = 0; root && i < prompts->count; i++)
        length[i] = prompt_length(prompts, i);
    st = share_words(length, prompts->count, world, err);
    for (uint32_t i = 0; st == STATUS_OK && !root && i < prompts->count; i++)
        prompts->begin[i + 1] = prompts->begin[i] + length[i];
    free(length);
    if (st == STATUS_OK && prompts->begin[prompts->count] != total)
        st = error_set(err, STATUS_MISMATCH, "prompts of %" PRIu64 " tokens, announced %" PRIu64,
                       prompts->begin[prompts->count], total);
    return st;
}

/* Member 0's deadlines; without one there is nothing to send. */
static enum status share_deadlines(struct prompts *prompts, bool any, struct group *world, struct error *err)
{
    if (!any)
        return STATUS_OK;
    if (!prompts->deadline_ms && !(prompts->deadline_ms = calloc(prompts->count, sizeof *prompts->deadline_ms)))
        return error_set(err, STATUS_NOMEM, "the deadlines of %u prompts", prompts->count);
    return share_words(prompts->deadline_ms, prompts->count, world, err);
}

/* What has come must be what rank 0 may have sent: rows are looked up and caches filled without a further look. */
static enum status check_shared(const struct prompts *prompts, uint32_t context, uint64_t vocab, struct error *err)
{
    for (uint32_t i = 0; i < prompts->count; i++) {
        if (!prompt_length(prompts, i) || prompt_length(prompts, i) >= context)
            return error_set(err, STATUS_MISMATCH, "prompt %u came with %u tokens, the context is %u", i,
                             prompt_length(prompts, i), context);
        if (prompts->deadline_ms && prompts->deadline_ms[i] > in_ms(PROMPTS_MOST_NS))
            return error_set(err, STATUS_MISMATCH, "prompt %u came with a deadline of %u ms", i,
                             prompts->deadline_ms[i]);
        for (uint64_t k = prompts->begin[i]; k < prompts->begin[i + 1]; k++)
            if (prompts->tokens[k] >= vocab)
                return error_set(err, STATUS_MISMATCH, "prompt %u came with token %u, the vocabulary has %" PRIu64, i,
                                 prompts->tokens[k], vocab);
    }
    return STATUS_OK;
}

enum status prompts_share(struct prompts *prompts, struct group *world, uint32_t context, uint64_t vocab,
                          struct error *err)
{
    bool root = group_rank(world) == 0;
    uint64_t total = root ? prompts->begin[prompts->count] : 0;
    uint32_t head[4] = {prompts->count, (uint32_t)total, (uint32_t)(total >> 32), 0};
    enum status st;

    for (uint32_t i = 0; root && prompts->deadline_ms && i < prompts->count; i++)
        head[3] |= prompts->deadline_ms[i] != 0;
    st = share_words(head, 4, world, err);
    if (st != STATUS_OK)
        return st;
    total = head[1] | (uint64_t)head[2] << 32;
    if (!head[0] || head[0] > PROMPTS_MAX || total > (uint64_t)MAX_FILE_BYTES)
        return error_set(err, STATUS_OVERFLOW, "%u prompts of %" PRIu64 " tokens", head[0], total);
    prompts->count = head[0];
    st = share_lengths(prompts, total, world, err);
    if (st == STATUS_OK && !root && !(prompts->tokens = calloc(total ? total : 1, sizeof *prompts->tokens)))
        st = error_set(err, STATUS_NOMEM, "prompts of %" PRIu64 " tokens", total);
    if (st == STATUS_OK)
        st = share_words(prompts->tokens, total, world, err);
    if (st == STATUS_OK)
        st = share_deadlines(prompts, head[3] != 0, world, err);
    return st == STATUS_OK ? check_shared(prompts, context, vocab, err) : st;
}
