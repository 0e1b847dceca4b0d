/* Which of a checkpoint's files holds the tokenizer. */
#include <stdlib.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file.h"
#include "checkpoint/gguf.h"
#include "runtime/tokenizer_private.h"

/* Far above any real one (Llama 3: 9 MB). */
#define JSON_LIMIT ((size_t)256 << 20)

/* There is no tokenizer.json: say what there is instead. */
static enum status explain_absence(const char *folder, struct error *err)
{
    static const char *const others[] = {"tokenizer.model", "vocab.txt", "vocab.json"};
    const char *found = NULL;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *path = file_join(folder, others[i]);

        if (path && !found && access(path, F_OK) == 0)
            found = others[i];
        free(path);
    }
    if (found)
        return error_set(err, STATUS_UNSUPPORTED, "%s has %s, but no tokenizer.json, which alone is supported", folder,
                         found);
    return error_set(err, STATUS_MODEL, "%s has no tokenizer.json", folder);
}

static enum status open_folder(const char *folder, struct tokenizer **ret, struct error *err)
{
    char *path = file_join(folder, "tokenizer.json");
    char *bytes = NULL;
    size_t length = 0;
    enum status st;

    if (!path)
        return error_set(err, STATUS_NOMEM, "%s", folder);
    if (access(path, F_OK) != 0)
        st = explain_absence(folder, err);
    else if ((st = file_read_all(path, JSON_LIMIT, &bytes, &length, err)) == STATUS_OK)
        st = tokenizer_create_from_json(bytes, length, path, ret, err);
    free(bytes);
    free(path);
    return st;
}

bool tokenizer_is_here(const struct checkpoint *checkpoint)
{
    char *path = checkpoint_gguf(checkpoint) ? NULL : file_join(checkpoint_path(checkpoint), "tokenizer.json");
    bool here = checkpoint_gguf(checkpoint) || (path && access(path, F_OK) == 0);

    free(path);
    return here;
}

enum status tokenizer_open(const struct checkpoint *checkpoint, struct tokenizer **ret, struct error *err)
{
    const struct gguf *gguf = checkpoint_gguf(checkpoint);
    const char *path = checkpoint_path(checkpoint);

    return gguf ? tokenizer_create_from_gguf(gguf, path, ret, err) : open_folder(path, ret, err);
}
