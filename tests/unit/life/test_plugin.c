/* Plugins: one that is missing or no library says what to do. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/plugin.h"
#include "tests/suite.h"

START_TEST(a_plugin_that_cannot_be_opened_is_told_with_what_to_do)
{
    const struct plugin *plugin = NULL;
    struct error err = {0};
    char folder[] = "/tmp/ferry-plugin-XXXXXX";
    char path[64];
    int file;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)setenv("FERRY_PLUGIN_DIR", folder, 1);
    ck_assert_int_eq(plugin_open("other", &plugin, NULL, 0, &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "ferry-other.so is in none of /tmp/ferry-plugin-"));
    ck_assert_ptr_nonnull(strstr(err.text, "set FERRY_PLUGIN_DIR"));
    (void)snprintf(path, sizeof path, "%s/ferry-other.so", folder);
    file = open(path, O_WRONLY | O_CREAT, 0644);
    ck_assert_int_eq(write(file, "no library", 10), 10);
    close(file);
    ck_assert_int_eq(plugin_open("other", &plugin, NULL, 0, &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot be opened"));
    ck_assert_ptr_null(plugin);
    unlink(path);
    rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plugin");
    TCase *tests = tcase_create("plugin");

    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, a_plugin_that_cannot_be_opened_is_told_with_what_to_do);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
