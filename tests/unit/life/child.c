/* See child.h. */
#include "tests/unit/life/child.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

void child_spawn(struct child *child, int (*body)(void))
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    child->pid = fork();
    if (child->pid == 0) {
        /* Check's own handlers would pass these on to the test. */
        (void)signal(SIGTERM, SIG_DFL);
        (void)signal(SIGINT, SIG_DFL);
        /* nohup and shells without job control leave these ignored. */
        (void)signal(SIGHUP, SIG_DFL);
        (void)signal(SIGQUIT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        _exit(body());
    }
    close(ends[1]);
    child->pipe = ends[0];
}

void child_collect(struct child *child)
{
    size_t have = 0;
    ssize_t more;
    int status;

    while (have < sizeof child->text - 1 &&
           (more = read(child->pipe, child->text + have, sizeof child->text - 1 - have)) > 0)
        have += (size_t)more;
    child->text[have] = '\0';
    close(child->pipe);
    ck_assert_int_eq(waitpid(child->pid, &status, 0), child->pid);
    child->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void child_until_ready(struct child *child)
{
    char ready[6];

    ck_assert_int_eq(read(child->pipe, ready, sizeof ready), 6);
}
