/* Says which places of a program a run of it does not reach.
 *
 * usage: reached PLACES PROGRAM [ARGUMENT]...
 * PLACES: a file with one hexadecimal address a line, as the program's file counts them.  Each gets a breakpoint, which
 * goes at its first use, so that a place costs the run once.  The last line on standard error is "reached N of M"; the
 * places that were not are in front of it, one a line.
 * exit status: the program's; 1 when it cannot be started or read */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct place {
    uintptr_t address; /* as the file counts */
    long word;         /* what lay there */
    int reached;
};

struct places {
    struct place *list; /* ascending */
    size_t count;
    uintptr_t base; /* where the program's file was mapped */
};

static void fail(const char *what)
{
    fprintf(stderr, "reached: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int compare(const void *a, const void *b)
{
    uintptr_t x = ((const struct place *)a)->address;
    uintptr_t y = ((const struct place *)b)->address;

    return (x > y) - (x < y);
}

static void read_places(const char *path, struct places *places)
{
    FILE *file = fopen(path, "r");
    size_t room = 0;
    unsigned long address;

    if (!file)
        fail(path);
    while (fscanf(file, "%lx", &address) == 1) {
        if (places->count == room) {
            room = room ? 2 * room : 1024;
            places->list = realloc(places->list, room * sizeof *places->list);
            if (!places->list)
                fail("memory");
        }
        places->list[places->count++] = (struct place){.address = address};
    }
    fclose(file);
    if (!places->list) {
        fprintf(stderr, "reached: %s names no place\n", path);
        exit(1);
    }
    qsort(places->list, places->count, sizeof *places->list, compare);
}

/* The first mapping of a program that has just been started is its own. */
static uintptr_t first_mapping(pid_t pid)
{
    char path[64];
    unsigned long start = 0;

    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "r");

    if (!file || fscanf(file, "%lx", &start) != 1)
        fail(path);
    fclose(file);
    return start;
}

static void poke_byte(pid_t pid, uintptr_t at, long word, unsigned char byte)
{
    unsigned long changed = ((unsigned long)word & ~0xfful) | byte;

    if (ptrace(PTRACE_POKETEXT, pid, at, changed))
        fail("breakpoint");
}

/* Another breakpoint may lie in the same word: so the word is read anew each time, and one byte of it is changed. */
static long peek(pid_t pid, uintptr_t at)
{
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, pid, at, 0);

    if (errno)
        fail("a place outside of the program");
    return word;
}

static void set_breakpoints(pid_t pid, struct places *places)
{
    for (size_t i = 0; i < places->count; i++)
        places->list[i].word = peek(pid, places->base + places->list[i].address);
    for (size_t i = 0; i < places->count; i++) {
        uintptr_t at = places->base + places->list[i].address;

        poke_byte(pid, at, peek(pid, at), 0xcc);
    }
}

/* True: it stopped at one of ours, which is taken away, and goes on there. */
static int take_breakpoint(pid_t pid, struct places *places)
{
    struct user_regs_struct registers;

    if (ptrace(PTRACE_GETREGS, pid, 0, &registers))
        fail("registers");
    struct place key = {.address = registers.rip - 1 - places->base};
    struct place *place = bsearch(&key, places->list, places->count, sizeof key, compare);

    if (!place)
        return 0;
    uintptr_t at = places->base + place->address;

    place->reached = 1;
    poke_byte(pid, at, peek(pid, at), (unsigned char)place->word);
    registers.rip = at;
    if (ptrace(PTRACE_SETREGS, pid, 0, &registers))
        fail("registers");
    return 1;
}

static int follow(pid_t pid, struct places *places)
{
    int status;

    for (;;) {
        if (waitpid(pid, &status, 0) < 0)
            fail("wait");
        if (WIFEXITED(status))
            return WEXITSTATUS(status);
        if (WIFSIGNALED(status))
            return 128 + WTERMSIG(status);
        int sig = WSTOPSIG(status);

        if (sig == SIGTRAP && take_breakpoint(pid, places))
            sig = 0;
        if (ptrace(PTRACE_CONT, pid, 0, sig))
            fail("continue");
    }
}

int main(int argc, char **argv)
{
    struct places places = {0};
    size_t reached = 0;
    int status;

    if (argc < 3) {
        fprintf(stderr, "usage: reached PLACES PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    read_places(argv[1], &places);
    pid_t pid = fork();

    if (pid < 0)
        fail("fork");
    if (!pid) {
        personality(ADDR_NO_RANDOMIZE);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(argv[2], argv + 2);
        fail(argv[2]);
    }
    if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
        fail(argv[2]);
    ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL);
    places.base = first_mapping(pid);
    set_breakpoints(pid, &places);
    if (ptrace(PTRACE_CONT, pid, 0, 0))
        fail("continue");
    status = follow(pid, &places);
    for (size_t i = 0; i < places.count; i++) {
        if (places.list[i].reached)
            reached++;
        else
            fprintf(stderr, "%lx\n", (unsigned long)places.list[i].address);
    }
    fprintf(stderr, "reached %zu of %zu\n", reached, places.count);
    free(places.list);
    return status;
}
