/* Oniguruma's regular expressions (Ruby syntax, Unicode) written so that PCRE2 (UTF, UCP, multi-line) means the same.
 */
#ifndef RUNTIME_PRETOKENIZE_SYNTAX_H
#define RUNTIME_PRETOKENIZE_SYNTAX_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

/* Append the rewritten pattern.  STATUS_UNSUPPORTED names a construct whose meaning would differ; STATUS_MODEL: the
 * pattern ends inside a construct.  A refused allocation is seen in ret->failed. */
enum status pattern_rewrite(const char *source, size_t length, struct text *ret, struct error *err);

#endif
