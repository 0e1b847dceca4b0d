/* Any bytes as a GGUF file: refused with a sentence, or every tensor lies in the file and every key can be asked for
 * as everything. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);

static void ask_everything(const struct gguf *gguf, const char *key)
{
    const char *string = NULL;
    size_t length = 0;
    uint64_t number;
    int64_t whole;
    double real;
    bool flag;
    size_t count = gguf_array_count(gguf, key);
    volatile char last;

    (void)gguf_get_u64(gguf, key, &number);
    (void)gguf_get_i64(gguf, key, &whole);
    (void)gguf_get_f64(gguf, key, &real);
    (void)gguf_get_bool(gguf, key, &flag);
    if (gguf_get_string(gguf, key, &string, &length) && length)
        last = string[length - 1];
    for (size_t i = 0; i <= count; i += 1 + count / 64) {
        (void)gguf_array_i64(gguf, key, i, &whole);
        (void)gguf_array_f64(gguf, key, i, &real);
        string = gguf_array_string(gguf, key, i, &length);
        if (string && length)
            last = string[length - 1];
    }
    (void)last;
}

static void check_tensors(struct checkpoint *checkpoint, size_t count)
{
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct stored_tensor *tensor = checkpoint_tensor(checkpoint, i);
        const unsigned char *memory = NULL;

        CHECK(tensor->bytes <= count && tensor->offset <= count - tensor->bytes);
        CHECK(checkpoint_find(checkpoint, tensor->name) == tensor);
        CHECK(checkpoint_map(checkpoint, tensor, 0, tensor->bytes, &memory, NULL) == STATUS_OK);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    struct checkpoint *checkpoint = NULL;
    struct error err = {0};
    char path[64];
    int file = memfd_create("model.gguf", MFD_CLOEXEC);

    if (file < 0 || write(file, bytes, count) != (ssize_t)count)
        abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (checkpoint_open(path, &checkpoint, &err) == STATUS_OK) {
        const struct gguf *gguf = checkpoint_gguf(checkpoint);

        for (size_t i = 0; i < gguf_key_count(gguf); i++)
            ask_everything(gguf, gguf_key(gguf, i));
        check_tensors(checkpoint, count);
    } else {
        CHECK(err.text[0] && !checkpoint);
    }
    checkpoint_close(checkpoint);
    close(file);
    return 0;
}
