/* What went wrong, in one channel: a status says what kind, an error carries the sentence. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

/* Every status that a function of Ferry returns.  status_exit_code maps each to a documented exit code. */
enum status {
    STATUS_OK,
    STATUS_INTERNAL,    /* our own mistake, found without a crash */
    STATUS_USAGE,       /* the command line */
    STATUS_TOPOLOGY,    /* the topology file, or what it means */
    STATUS_MODEL,       /* the model's metadata, tokenizer, or what was asked of it */
    STATUS_ENVIRONMENT, /* MPI, libraries, launch, limits of the machine */
    STATUS_NOMEM,       /* an allocation was refused */
    STATUS_OVERFLOW,    /* a size or count exceeds a limit; nothing was allocated or sent */
    STATUS_INVALID,     /* an argument breaks the contract of the call */
    STATUS_UNSUPPORTED, /* well formed, but not built (said by name) */
    STATUS_MISMATCH,    /* ranks disagree: consensus, signature, frame */
    STATUS_CORRUPT,     /* bytes that contradict themselves, in a file or on the wire */
    STATUS_TIMEOUT,     /* a deadline passed; buffers may still be in use */
    STATUS_LOST,        /* a peer died, or the session was torn down */
    STATUS_STORAGE,     /* a file could not be read or written */
    STATUS_TRANSPORT,   /* the transport refused an operation */
    STATUS_STOPPED,     /* asked to stop; state is saved */
    STATUS_COUNT
};

/* A sentence for a person.  Zero-initialise; always NUL-terminated. */
struct error {
    enum status status;
    int blamed; /* 1 + the world rank whose fault it is; 0: not said */
    char text[2048];
};

/* Make err empty.  Cheaper than zeroing all of it, where that happens for every message. */
static inline void error_init(struct error *err)
{
    err->status = STATUS_OK;
    err->blamed = 0;
    err->text[0] = '\0';
}

/* Write the sentence (printf style) and return st.  err may be NULL.  Local, never blocks. */
enum status error_set(struct error *err, enum status st, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Put "context: " in front of the sentence and return st. */
enum status error_wrap(struct error *err, enum status st, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Say which world rank's fault it is, where another than the one that found it, and return st.  Until the next
 * error_set; context does not change it.  err may be NULL. */
static inline enum status error_blame(struct error *err, enum status st, int rank)
{
    if (err)
        err->blamed = rank + 1;
    return st;
}

/* To the analyzer, which does not look into status.c: the result is the status given. */
#if defined(__clang_analyzer__) && !defined(STATUS_DEFINES)
#define error_set(err, st, ...) ((void)error_set(err, st, __VA_ARGS__), (st))
#define error_wrap(err, st, ...) ((void)error_wrap(err, st, __VA_ARGS__), (st))
#endif

/* "timeout", "model"; never NULL. */
const char *status_name(enum status st);

/* The process's exit code, 0..10, as docs/exit-codes.md lists them. */
int status_exit_code(enum status st);

/* Our own mistakes only: a broken invariant.  Prints that it is one, with the expression to report, and aborts.  No
 * effects inside. */
#define CHECK(expression) ((expression) ? (void)0 : check_failed(#expression, __FILE__, __LINE__))

/* A caller's mistake with memory, which no status can mend: prints the rule that was broken, a sentence, and aborts. No
 * effects inside. */
#define REQUIRE(expression, rule) ((expression) ? (void)0 : rule_broken(rule, __FILE__, __LINE__))

_Noreturn void check_failed(const char *expression, const char *file, int line);
_Noreturn void rule_broken(const char *rule, const char *file, int line);

#endif
