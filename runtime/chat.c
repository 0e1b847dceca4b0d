/* Which template a checkpoint has, and whether it is of a known family. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file.h"
#include "checkpoint/gguf.h"
#include "checkpoint/json.h"
#include "runtime/chat_template.h"
#include "runtime/tokenizer.h"

#define CONFIG_LIMIT ((size_t)64 << 20)
#define TEMPLATE_LIMIT ((size_t)1 << 20)

/* What a checkpoint says about chats.  Zero-initialise. */
struct chat {
    char *path; /* the file that holds the template */
    char *source;
    size_t length;
    char *bos_token; /* NULL: none */
    char *eos_token;
};

static void chat_done(struct chat *chat)
{
    free(chat->path);
    free(chat->source);
    free(chat->bos_token);
    free(chat->eos_token);
}

static enum status copy_bytes(const char *bytes, size_t length, char **ret, struct error *err)
{
    char *copy = malloc(length + 1);

    if (!copy)
        return error_set(err, STATUS_NOMEM, "%zu bytes of a chat template", length);
    if (length)
        memcpy(copy, bytes, length);
    copy[length] = 0;
    free(*ret);
    *ret = copy;
    return STATUS_OK;
}

/* A token is written as a string, or as an object with its content; null and absent: none. */
static enum status read_token(const json_t *config, const char *key, char **ret, struct error *err)
{
    const json_t *value = json_object_get(config, key);
    const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;

    if (!json_is_string(content) || *ret)
        return STATUS_OK;
    return copy_bytes(json_string_value(content), json_string_length(content), ret, err);
}

/* chat_template is a string, or a list of named ones, of which "default" is meant. */
static const json_t *find_template(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");

    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(one, "name"));

        if (name && strcmp(name, "default") == 0)
            return json_object_get(one, "template");
    }
    return value;
}

/* name in folder, when it is there.  *ret_path is set then; the caller frees. */
static enum status find_file(const char *folder, const char *name, char **ret_path, struct error *err)
{
    char *path = file_join(folder, name);

    if (!path)
        return error_set(err, STATUS_NOMEM, "%s", folder);
    if (access(path, F_OK) != 0) {
        free(path);
        path = NULL;
    }
    *ret_path = path;
    return STATUS_OK;
}

/* One of the two JSON files that may name the tokens; the first may hold the template. */
static enum status read_json(struct chat *chat, const char *folder, const char *name, struct error *err)
{
    char *path = NULL;
    json_t *config = NULL;
    const json_t *template;
    enum status st = find_file(folder, name, &path, err);

    if (st != STATUS_OK || !path)
        return st;
    if ((st = json_read_object(path, CONFIG_LIMIT, &config, err)) != STATUS_OK ||
        (st = read_token(config, "bos_token", &chat->bos_token, err)) != STATUS_OK ||
        (st = read_token(config, "eos_token", &chat->eos_token, err)) != STATUS_OK)
        goto done;
    template = find_template(config);
    if (json_is_string(template) && !chat->source) {
        chat->length = json_string_length(template);
        st = copy_bytes(json_string_value(template), chat->length, &chat->source, err);
        chat->path = path;
        path = NULL;
    }
done:
    json_decref(config);
    free(path);
    return st;
}

static enum status read_folder(struct chat *chat, const char *folder, struct error *err)
{
    enum status st = find_file(folder, "chat_template.jinja", &chat->path, err);

    if (st == STATUS_OK && chat->path)
        st = file_read_all(chat->path, TEMPLATE_LIMIT, &chat->source, &chat->length, err);
    if (st == STATUS_OK)
        st = read_json(chat, folder, "tokenizer_config.json", err);
    if (st == STATUS_OK)
        st = read_json(chat, folder, "special_tokens_map.json", err);
    if (st == STATUS_OK && !chat->source)
        st = error_set(err, STATUS_MODEL,
                       "%s has no chat template (chat_template in tokenizer_config.json, or "
                       "chat_template.jinja)",
                       folder);
    return st;
}

static enum status read_gguf_token(const struct gguf *gguf, const char *key, char **ret, struct error *err)
{
    uint64_t id;
    size_t length;
    const char *bytes;

    if (!gguf_get_u64(gguf, key, &id) || !(bytes = gguf_array_string(gguf, "tokenizer.ggml.tokens", id, &length)))
        return STATUS_OK;
    return copy_bytes(bytes, length, ret, err);
}

static enum status read_gguf(struct chat *chat, const struct gguf *gguf, const char *path, struct error *err)
{
    const char *bytes;
    enum status st;

    if (!gguf_get_string(gguf, "tokenizer.chat_template", &bytes, &chat->length))
        return error_set(err, STATUS_MODEL, "%s has no chat template (tokenizer.chat_template)", path);
    if ((st = copy_bytes(path, strlen(path), &chat->path, err)) != STATUS_OK ||
        (st = copy_bytes(bytes, chat->length, &chat->source, err)) != STATUS_OK ||
        (st = read_gguf_token(gguf, "tokenizer.ggml.bos_token_id", &chat->bos_token, err)) != STATUS_OK)
        return st;
    return read_gguf_token(gguf, "tokenizer.ggml.eos_token_id", &chat->eos_token, err);
}

/* Families by the mark that their messages carry: chatml and qwen, llama3, mistral. */
static enum status check_family(const struct chat *chat, struct error *err)
{
    static const char *const marks[] = {"<|im_start|>", "<|start_header_id|>", "[INST]"};
    char begin[41] = "";

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (memmem(chat->source, chat->length, marks[i], strlen(marks[i])))
            return STATUS_OK;
    }
    for (size_t i = 0; i < sizeof begin - 1 && i < chat->length; i++)
        begin[i] = (unsigned char)chat->source[i] < ' ' ? ' ' : chat->source[i];
    return error_set(err, STATUS_UNSUPPORTED, "%s: the chat template '%s' is none of chatml, llama3, mistral and qwen",
                     chat->path, begin);
}

enum status chat_render(const struct checkpoint *checkpoint, const struct chat_message *messages, size_t count,
                        struct text *ret, struct error *err)
{
    const struct gguf *gguf = checkpoint_gguf(checkpoint);
    const char *path = checkpoint_path(checkpoint);
    struct chat chat = {0};
    enum status st = gguf ? read_gguf(&chat, gguf, path, err) : read_folder(&chat, path, err);

    if (st == STATUS_OK)
        st = check_family(&chat, err);
    if (st == STATUS_OK) {
        struct chat_input input = {messages, count, chat.bos_token, chat.eos_token, true};

        st = chat_template_render(chat.source, chat.length, &input, ret, err);
        if (st != STATUS_OK)
            st = error_wrap(err, st, "%s: chat template", chat.path);
    }
    chat_done(&chat);
    return st;
}
