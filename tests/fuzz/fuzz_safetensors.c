/* Any bytes as a safetensors file: refused with a sentence, or the tensors fill the data without gap or overlap. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    struct safetensors model = {0};
    struct error err = {0};
    char path[64];
    int file = memfd_create("model.safetensors", MFD_CLOEXEC);

    if (file < 0 || write(file, bytes, count) != (ssize_t)count)
        abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (safetensors_read(path, &model, &err) == STATUS_OK) {
        uint64_t cursor = model.count ? model.tensors[0].offset : count;

        for (size_t i = 0; i < model.count; i++) {
            CHECK(model.tensors[i].offset == cursor);
            cursor += model.tensors[i].bytes;
        }
        CHECK(cursor == count);
    } else {
        CHECK(err.text[0] && !model.tensors && !model.header);
    }
    safetensors_done(&model);
    close(file);
    return 0;
}
