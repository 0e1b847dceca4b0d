/* Every prompt keeps its tokens; text is decoded as they come and shown when it is the prompt's turn. */
#include "launcher/printer.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "runtime/prompts.h"
#include "runtime/tokenizer.h"

enum { READER_MS = 1000 /* until a full pipe is tried again */ };

struct output {
    uint32_t *tokens;
    uint32_t count;
    uint32_t capacity;
    struct candidate *top; /* [count, top] */
    struct text_stream stream;
    struct text text;
    size_t shown; /* bytes of text written */
    uint32_t flags;
    char *failure; /* why it failed; NULL: it has not */
    uint64_t digest;
    uint64_t first_ns;
    uint64_t last_ns;
};

struct printer {
    struct printer_options o;
    struct output *outputs; /* [prompts] */
    uint32_t turn;          /* the prompt whose text streams now */
    bool heading;           /* its heading was written */
    uint64_t start_ns;
    struct text line;
    int write_errno;
    bool no_memory;
    uint32_t started; /* prompts with a token */
    uint32_t first_failed;
    struct printer_totals totals;
};

enum status printer_create(const struct printer_options *options, struct printer **ret, struct error *err)
{
    struct printer *printer = calloc(1, sizeof *printer);

    if (printer)
        printer->outputs = calloc(options->prompts->count, sizeof *printer->outputs);
    if (!printer || !printer->outputs) {
        free(printer);
        return error_set(err, STATUS_NOMEM, "the output of %u prompts", options->prompts->count);
    }
    printer->o = *options;
    *ret = printer;
    return STATUS_OK;
}

void printer_destroy(struct printer *printer)
{
    if (!printer)
        return;
    for (uint32_t i = 0; i < printer->o.prompts->count; i++) {
        free(printer->outputs[i].tokens);
        free(printer->outputs[i].top);
        free(printer->outputs[i].failure);
        text_done(&printer->outputs[i].text);
    }
    text_done(&printer->line);
    free(printer->outputs);
    free(printer);
}

void printer_start(struct printer *printer)
{
    printer->start_ns = clock_ns();
}

/* Whoever gave us standard output may have made it non-blocking; then a slow reader is waited for, as it is else. */
static void write_all(struct printer *printer, const char *bytes, size_t count)
{
    while (count && !printer->write_errno) {
        ssize_t written = write(STDOUT_FILENO, bytes, count);

        if (written < 0 && errno == EAGAIN)
            (void)poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, READER_MS);
        else if (written < 0 && errno != EINTR)
            printer->write_errno = errno;
        if (written > 0) {
            bytes += written;
            count -= (size_t)written;
        }
    }
}

/* What was asked, before what is answered. */
static void write_heading(struct printer *printer, uint32_t prompt)
{
    const struct prompts *prompts = printer->o.prompts;
    struct text_stream stream = {0};

    text_clear(&printer->line);
    text_add(&printer->line, "%s[%u] ", prompt ? "\n\n" : "", prompt);
    for (uint64_t i = prompts->begin[prompt]; i < prompts->begin[prompt + 1]; i++)
        text_stream_push(&stream, printer->o.tokenizer, prompts->tokens[i], &printer->line);
    text_stream_finish(&stream, &printer->line);
    write_all(printer, printer->line.bytes, printer->line.length);
    printer->heading = true;
}

/* Show as much as has come of the prompt whose turn it is; go on to the next when it is finished. */
static void stream_text(struct printer *printer)
{
    while (printer->turn < printer->o.prompts->count) {
        struct output *output = &printer->outputs[printer->turn];

        if (!output->count && !(output->flags & TOKEN_ENDS))
            return;
        if (!printer->heading)
            write_heading(printer, printer->turn);
        if (output->text.length > output->shown)
            write_all(printer, output->text.bytes + output->shown, output->text.length - output->shown);
        output->shown = output->text.length;
        if (!(output->flags & TOKEN_ENDS))
            return;
        printer->turn++;
        printer->heading = false;
        if (printer->turn == printer->o.prompts->count)
            write_all(printer, "\n", 1);
    }
}

static json_t *ids_json(const uint32_t *ids, uint64_t count)
{
    json_t *list = json_array();

    for (uint64_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *top_json(const struct output *output, uint32_t top)
{
    json_t *steps = json_array();

    for (uint32_t i = 0; i < output->count; i++) {
        json_t *best = json_array();

        for (uint32_t k = 0; k < top; k++) {
            const struct candidate *candidate = &output->top[(size_t)i * top + k];

            json_array_append_new(best, json_pack("[I, f]", (json_int_t)candidate->id, (double)candidate->logit));
        }
        json_array_append_new(steps, best);
    }
    return steps;
}

static json_t *timing_json(const struct printer *printer, const struct output *output)
{
    double first = (double)(output->first_ns - printer->start_ns) / 1e6;
    double total = (double)(output->last_ns - printer->start_ns) / 1e6;
    double rest = total - first;

    return json_pack("{s:f, s:f, s:f}", "first_token_ms", first, "total_ms", total, "tokens_per_second",
                     output->count > 1 && rest > 0 ? 1e3 * (output->count - 1) / rest : 0.0);
}

static const char *finish_word(const struct output *output)
{
    if (output->flags & TOKEN_FAILED)
        return "error";
    if (output->flags & TOKEN_DEADLINE)
        return "deadline";
    return output->flags & TOKEN_STOP ? "stop" : "length";
}

static void write_json(struct printer *printer, uint32_t prompt)
{
    const struct prompts *prompts = printer->o.prompts;
    struct output *output = &printer->outputs[prompt];
    json_t *object = json_object();
    char digest[17];
    char *line;

    json_object_set_new(object, "prompt", json_integer(prompt));
    json_object_set_new(object, "prompt_tokens",
                        ids_json(prompts->tokens + prompts->begin[prompt], prompt_length(prompts, prompt)));
    json_object_set_new(object, "tokens", ids_json(output->tokens, output->count));
    json_object_set_new(object, "text", json_stringn(text_string(&output->text), output->text.length));
    json_object_set_new(object, "finish", json_string(finish_word(output)));
    if (output->failure)
        json_object_set_new(object, "error", json_string(output->failure));
    if (printer->o.digest) {
        (void)snprintf(digest, sizeof digest, "%016" PRIx64, output->digest);
        json_object_set_new(object, "logits_digest", json_string(digest));
    }
    if (printer->o.top)
        json_object_set_new(object, "top_logits", top_json(output, printer->o.top));
    json_object_set_new(object, "timing", timing_json(printer, output));
    line = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (!line) {
        printer->no_memory = true;
        return;
    }
    text_clear(&printer->line);
    text_add_bytes(&printer->line, line, strlen(line));
    text_add_bytes(&printer->line, "\n", 1);
    free(line);
    write_all(printer, printer->line.bytes, printer->line.length);
}

static bool output_grow(struct output *output, uint32_t top)
{
    uint32_t capacity = output->capacity ? 2 * output->capacity : 64;
    uint32_t *tokens;
    struct candidate *best;

    if (output->count < output->capacity)
        return true;
    tokens = realloc(output->tokens, capacity * sizeof *tokens);
    if (tokens)
        output->tokens = tokens;
    best = top ? realloc(output->top, (size_t)capacity * top * sizeof *best) : NULL;
    if (best)
        output->top = best;
    if (!tokens || (top && !best))
        return false;
    output->capacity = capacity;
    return true;
}

static void finish_output(struct printer *printer, uint32_t prompt)
{
    struct output *output = &printer->outputs[prompt];

    text_stream_finish(&output->stream, &output->text);
    printer->totals.finished++;
    printer->totals.prompt_tokens += prompt_length(printer->o.prompts, prompt);
    if (printer->o.json)
        write_json(printer, prompt);
}

static enum status check(const struct printer *printer, struct error *err)
{
    if (printer->write_errno)
        return error_set(err, STATUS_STORAGE, "standard output: %s", strerror(printer->write_errno));
    if (printer->no_memory)
        return error_set(err, STATUS_NOMEM, "the output of %u prompts", printer->o.prompts->count);
    return STATUS_OK;
}

/* Tokens of a prompt come in order, and none after its last. */
static enum status check_order(const struct output *output, const struct token *token, struct error *err)
{
    if (token->index == output->count && !(output->flags & TOKEN_ENDS))
        return STATUS_OK;
    return error_set(err, STATUS_MISMATCH, "a result for prompt %u: token %u, after %u%s", token->request, token->index,
                     output->count, output->flags & TOKEN_ENDS ? " that ended with a last one" : "");
}

/* The prompt ends without this token; the others go on. */
static void fail_output(struct printer *printer, const struct token *token)
{
    struct output *output = &printer->outputs[token->request];
    struct error why = {0};
    enum status st = sampler_refuse(token->token, token->flags & TOKEN_INFINITE, &why);

    (void)error_wrap(&why, st, "prompt %u, token %u", token->request, token->index);
    output->failure = strdup(why.text);
    printer->no_memory |= !output->failure;
    output->flags = token->flags;
    output->last_ns = clock_ns();
    if (!output->count)
        output->first_ns = output->last_ns;
    if (!printer->totals.failed++)
        printer->first_failed = token->request;
    log_warning("%s; the other prompts go on", why.text);
    finish_output(printer, token->request);
}

/* Its time is up: what has come is its answer. */
static void cut_output(struct printer *printer, const struct token *token)
{
    struct output *output = &printer->outputs[token->request];

    output->flags = token->flags;
    output->last_ns = clock_ns();
    if (!output->count)
        output->first_ns = output->last_ns;
    finish_output(printer, token->request);
}

static void add_token(struct printer *printer, const struct result *result)
{
    const struct token *token = &result->token;
    struct output *output = &printer->outputs[token->request];

    output->last_ns = clock_ns();
    if (!output->count) {
        output->first_ns = output->last_ns;
        printer->totals.first_token_ns += output->first_ns - printer->start_ns;
        printer->started++;
    }
    if (printer->o.top)
        memcpy(output->top + (size_t)output->count * printer->o.top, result->top, printer->o.top * sizeof *output->top);
    output->tokens[output->count++] = token->token;
    output->flags = token->flags;
    output->digest = result->digest;
    printer->totals.tokens++;
    if (!(token->flags & TOKEN_STOP))
        text_stream_push(&output->stream, printer->o.tokenizer, token->token, &output->text);
    if (token->flags & TOKEN_ENDS)
        finish_output(printer, token->request);
}

enum status printer_emit(void *context, const struct result *result, struct error *err)
{
    struct printer *printer = context;
    const struct token *token = &result->token;
    struct output *output;
    enum status st;

    if (token->request >= printer->o.prompts->count)
        return error_set(err, STATUS_MISMATCH, "a result for prompt %u of %u", token->request,
                         printer->o.prompts->count);
    output = &printer->outputs[token->request];
    st = check_order(output, token, err);
    if (st != STATUS_OK)
        return st;
    printer->no_memory |= !output_grow(output, printer->o.top);
    if (printer->no_memory)
        return check(printer, err);
    if (token->flags & TOKEN_FAILED)
        fail_output(printer, token);
    else if (token->flags & TOKEN_DEADLINE)
        cut_output(printer, token);
    else
        add_token(printer, result);
    if (!printer->o.json)
        stream_text(printer);
    printer->no_memory |= output->text.failed || printer->line.failed;
    return check(printer, err);
}

struct printer_totals printer_totals(const struct printer *printer)
{
    struct printer_totals totals = printer->totals;

    if (printer->started)
        totals.first_token_ns /= printer->started;
    return totals;
}

enum status printer_check(const struct printer *printer, struct error *err)
{
    for (uint32_t i = 0; i < printer->o.prompts->count; i++)
        if (!(printer->outputs[i].flags & TOKEN_ENDS))
            return error_set(err, STATUS_MISMATCH, "prompt %u has not ended: %u tokens came, none of them the last", i,
                             printer->outputs[i].count);
    return STATUS_OK;
}

enum status printer_failures(const struct printer *printer, struct error *err)
{
    if (!printer->totals.failed)
        return STATUS_OK;
    return error_set(err, STATUS_MODEL, "%u of %u prompts failed; the first: %s", printer->totals.failed,
                     printer->o.prompts->count, printer->outputs[printer->first_failed].failure);
}
