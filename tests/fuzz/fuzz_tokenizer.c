/* The bytes are a tokenizer.json and a text for it, or a chat template: none may crash, hang or leak, and what is
 * decoded is always UTF-8. */
#include <stdlib.h>
#include <string.h>

#include "runtime/chat_template.h"
#include "runtime/tokenizer_private.h"
#include "runtime/utf8.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);

static void encode(const struct tokenizer *tokenizer, const char *text, size_t length)
{
    struct token_list list = {0};
    struct text_stream stream = {0};
    struct text out = {0};
    struct error err = {0};

    if (tokenizer_encode(tokenizer, text, length, true, &list, &err) == STATUS_OK) {
        for (size_t i = 0; i < list.count; i++)
            text_stream_push(&stream, tokenizer, list.ids[i], &out);
        text_stream_finish(&stream, &out);
        CHECK(utf8_check(text_string(&out), out.length) == out.length);
    }
    token_list_done(&list);
    text_done(&out);
}

static void read_tokenizer(const char *bytes, size_t count)
{
    static const char text[] = "<s>Hello  World 12345 <|im_start|> e\xcc\x81 \xf0\x9f\x98\x80\n\n't \t";
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};

    if (tokenizer_create_from_json(bytes, count, "fuzz", &tokenizer, &err) != STATUS_OK)
        return;
    encode(tokenizer, text, sizeof text - 1);
    encode(tokenizer, bytes, count < 2000 ? count : 2000);
    tokenizer_close(tokenizer);
}

static void render(const char *bytes, size_t count)
{
    static const struct chat_message messages[] = {
        {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "<think>\n</think>\n"}, {"user", " x "}};
    struct chat_input input = {messages, 4, "<s>", NULL, true};
    struct text out = {0};
    struct error err = {0};

    if (chat_template_render(bytes, count, &input, &out, &err) == STATUS_OK)
        CHECK(!out.failed);
    text_done(&out);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    const char *text = (const char *)bytes;

    if (!count)
        return 0;
    if (bytes[0] == '{' && count > 1 && bytes[1] != '%' && bytes[1] != '{')
        read_tokenizer(text, count);
    render(text, count);
    return 0;
}
